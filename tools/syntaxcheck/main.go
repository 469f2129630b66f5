// Command syntaxcheck measures how pruning damages the syntax of code. It prunes every code sample of a
// benchmark, tokenizes the original and the rest with a tokenizer of the language (tokens.go), finds which
// lines of the original belong together (links.go, and python.go for indentation) and counts the links that
// the cut broke (faults.go), beside those that keeping only the lines with the highest scores would break.
//
// It measures and does not judge: it fails only if the samples cannot be read.
package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ctxgate/ctxgate/prune"
)

// sample is one text of the benchmark.
type sample struct {
	ID   string `json:"id"`
	Kind string `json:"source_type"`
	Lang string `json:"lang"`
	Goal string `json:"goal_hint"`
	Text string `json:"text"`
}

// budgets are the measured budgets: the contract's default, a stricter one, and a looser one.
var budgets = []prune.Budget{{MaxPruneRatio: .7, MinKeepLines: 20}, {MaxPruneRatio: .85, MinKeepLines: 20}, {MaxPruneRatio: .5, MinKeepLines: 20}}

func main() {
	data := flag.String("data", "", "samples: JSON lines, gzipped, with id, source_type, lang, goal_hint and text")
	show := flag.Int("show", 0, "number of examples to show of each fault")
	lang := flag.String("lang", "", "only this language")
	flag.Parse()
	if err := runCommand(os.Stdout, *data, *lang, *show); err != nil {
		fmt.Fprintln(os.Stderr, "syntaxcheck:", err)
		os.Exit(1)
	}
}

func runCommand(w io.Writer, data, lang string, show int) error {
	samples, err := readSamples(data, lang)
	if err != nil {
		return err
	}
	for _, b := range budgets {
		fmt.Fprintf(w, "\nmax_prune_ratio %v, min_keep_lines %d; each cell: cut / best lines alone\n", b.MaxPruneRatio, b.MinKeepLines)
		examples := &exampleSet{most: show}
		rows, err := measure(samples, b, examples)
		if err != nil {
			return err
		}
		examples.print(w)
		rows.print(w)
	}
	return nil
}

// readSamples reads the code samples.
func readSamples(path, lang string) ([]sample, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	var out []sample
	for d := json.NewDecoder(bufio.NewReaderSize(z, 1<<20)); d.More(); {
		var s sample
		if err := d.Decode(&s); err != nil {
			return nil, fmt.Errorf("sample %d of %s: %w", len(out)+1, path, err)
		}
		if s.Kind == prune.Code.String() && (lang == "" || s.Lang == lang) {
			out = append(out, s)
		}
	}
	return out, nil
}

// measure prunes all samples within a budget and counts the faults by language.
func measure(samples []sample, b prune.Budget, g *exampleSet) (*faultTable, error) {
	rows := &faultTable{}
	for _, s := range samples {
		d, err := prune.Score(context.Background(), s.Text, s.Goal, prune.Code)
		if err != nil {
			return nil, err
		}
		whole, err := tokenize(s.Lang, s.Text)
		if err != nil {
			return nil, fmt.Errorf("sample %s: %w", s.ID, err)
		}
		bonds := findLinks(s.Lang, whole)
		bonds.isOutline = keptLinesOf(d.LineCount(), d.Cut(prune.Budget{MaxPruneRatio: 1}))
		kept := keptLinesOf(d.LineCount(), d.Cut(b))
		ours, err := bonds.countFaults(kept, g.collector(s.ID))
		if err != nil {
			return nil, err
		}
		naive, err := bonds.countFaults(bestLines(d, kept), nil)
		if err != nil {
			return nil, err
		}
		rows.add(s.Lang, ours, naive)
	}
	return rows, nil
}

// keptLinesOf reports for every line, counted from 0, whether it is kept.
func keptLinesOf(n int, cut []prune.Block) []bool {
	kept := slices.Repeat([]bool{true}, n)
	for _, b := range cut {
		for i := b.First; i <= b.Last; i++ {
			kept[i-1] = false
		}
	}
	return kept
}

// bestLines keeps as many lines as another cut: those with the highest scores.
func bestLines(d *prune.ScoredText, other []bool) []bool {
	score := d.Scores()
	order := make([]int, d.LineCount())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case score[a] > score[b]:
			return -1
		case score[a] < score[b]:
			return 1
		}
		return 0
	})
	n := 0
	for _, k := range other {
		if k {
			n++
		}
	}
	kept := make([]bool, d.LineCount())
	for _, i := range order[:n] {
		kept[i] = true
	}
	return kept
}
