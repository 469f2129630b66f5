package main

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sample is a text with a goal and the lines needed for it.
type sample struct {
	ID   string  `json:"id"`
	Type string  `json:"source_type"`
	Goal string  `json:"goal_hint"`
	Text string  `json:"text"`
	Gold []int   `json:"gold_lines"`
	Alt  [][]int `json:"gold_alt"` // equivalent: other copies of the same lines
}

// errNoCorpus: the benchmark is optional and lies beside the repository, never inside.
var errNoCorpus = errors.New("the pruning benchmark is missing (../shared/prunebench, or $PRUNEBENCH)")

// The sets of samples: those that the engine was tuned with, and more of code.
const (
	tuningSamples   = "dev"
	moreCodeSamples = "dev2"
)

// readCorpus reads a set of samples. The root is the repository's.
func readCorpus(root, set string) ([]sample, error) {
	dir := cmp.Or(os.Getenv("PRUNEBENCH"), filepath.Join(root, "..", "shared", "prunebench"))
	f, err := os.Open(filepath.Join(dir, set+".jsonl.gz"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoCorpus
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	var samples []sample
	for in := json.NewDecoder(bufio.NewReader(unzipped)); ; {
		var s sample
		if err := in.Decode(&s); errors.Is(err, io.EOF) {
			return samples, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		samples = append(samples, s)
	}
}

func (s *sample) lineCount() int { return strings.Count(s.Text, "\n") + 1 }

// recall is the share of needed lines that were kept; kept[i] is line i+1.
func (s *sample) recall(kept []bool) float64 {
	best := 0.
	for _, gold := range append([][]int{s.Gold}, s.Alt...) {
		n := 0
		for _, line := range gold {
			if kept[line-1] {
				n++
			}
		}
		best = max(best, float64(n)/float64(len(gold)))
	}
	return best
}

// keepBest keeps the lines with the highest scores, as many as the prune ratio leaves; of equal ones the earlier.
func keepBest(scores []float32, ratio float64) []bool {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	kept := make([]bool, len(scores))
	for _, i := range order[:len(scores)-int(ratio*float64(len(scores))+1e-9)] {
		kept[i] = true
	}
	return kept
}

// tally sums up the results for the samples of one type.
type tally struct {
	n, whole                    int // whole: those returned unchanged
	recall, allGold, cut, saved float64
	ms                          []float64
}

func (t *tally) add(recall, cut, saved float64) {
	t.n++
	t.recall += recall
	t.cut += cut
	t.saved += saved
	if recall >= 1-1e-9 {
		t.allGold++
	}
}

// mean divides a sum by the number of samples.
func (t *tally) mean(sum float64) float64 { return sum / float64(max(t.n, 1)) }

// quantile is a quantile of the times in ms.
func (t *tally) quantile(q float64) float64 {
	slices.Sort(t.ms)
	return t.ms[min(len(t.ms)-1, int(q*float64(len(t.ms))))]
}
