// Package main measures how kind cuts are to the syntax of code: what of a cut text a reader, or a
// parser, would stumble over. It cuts every code sample of a benchmark, reads original and remains
// with a real tokenizer of the language (tokens.go), works out what belongs together in the original
// (bonds.go) and counts the bonds that the cut broke (faults.go), beside those that keeping the
// lines of the highest scores alone would break.
//
// It is a yardstick, not a gate: it fails only when the samples cannot be read.
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

// budgets are what is measured: what the contract proposes, and one that is stricter and one that
// is less strict.
var budgets = []prune.Budget{{MaxRatio: .7, MinKeep: 20}, {MaxRatio: .85, MinKeep: 20}, {MaxRatio: .5, MinKeep: 20}}

func main() {
	data := flag.String("data", "", "samples: JSON lines, gzipped, with id, source_type, lang, goal_hint and text")
	show := flag.Int("show", 0, "how many examples of each fault to show")
	lang := flag.String("lang", "", "this language only")
	flag.Parse()
	if err := run(os.Stdout, *data, *lang, *show); err != nil {
		fmt.Fprintln(os.Stderr, "kindness:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, data, lang string, show int) error {
	samples, err := load(data, lang)
	if err != nil {
		return err
	}
	for _, b := range budgets {
		fmt.Fprintf(w, "\nmax_prune_ratio %v, min_keep_lines %d; each cell: cut / best lines alone\n", b.MaxRatio, b.MinKeep)
		examples := &gallery{most: show}
		rows, err := measure(samples, b, examples)
		if err != nil {
			return err
		}
		examples.print(w)
		rows.print(w)
	}
	return nil
}

// load reads the samples of code.
func load(path, lang string) ([]sample, error) {
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

// measure cuts all samples within a budget and counts what broke, by language.
func measure(samples []sample, b prune.Budget, g *gallery) (*table, error) {
	rows := &table{}
	for _, s := range samples {
		d, err := prune.Read(context.Background(), s.Text, s.Goal, prune.Code)
		if err != nil {
			return nil, err
		}
		whole, err := tokenize(s.Lang, s.Text)
		if err != nil {
			return nil, fmt.Errorf("sample %s: %w", s.ID, err)
		}
		bonds := bind(s.Lang, whole)
		bonds.outline = keptBy(d.Len(), d.Cut(prune.Budget{MaxRatio: 1}))
		kept := keptBy(d.Len(), d.Cut(b))
		ours, err := bonds.faults(kept, g.of(s.ID))
		if err != nil {
			return nil, err
		}
		naive, err := bonds.faults(bestLines(d, kept), nil)
		if err != nil {
			return nil, err
		}
		rows.add(s.Lang, ours, naive)
	}
	return rows, nil
}

// keptBy says of every line, counted from 0, whether it stays.
func keptBy(n int, cut []prune.Block) []bool {
	kept := slices.Repeat([]bool{true}, n)
	for _, b := range cut {
		for i := b.First; i <= b.Last; i++ {
			kept[i-1] = false
		}
	}
	return kept
}

// bestLines keeps as many lines as another cut does: those of the highest scores, and nothing else.
func bestLines(d *prune.Doc, other []bool) []bool {
	score := d.Scores()
	order := make([]int, d.Len())
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
	kept := make([]bool, d.Len())
	for _, i := range order[:n] {
		kept[i] = true
	}
	return kept
}
