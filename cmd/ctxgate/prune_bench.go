package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ctxgate/ctxgate/prune"
)

// benchRequest is one request of the benchmark's scorer.
type benchRequest struct {
	ID      json.RawMessage `json:"id"`
	Text    string          `json:"text"`
	Goal    string          `json:"goal_hint"`
	Type    string          `json:"source_type"`
	Options struct {
		MaxRatio float64 `json:"max_prune_ratio"`
		MinKeep  int     `json:"min_keep_lines"`
	} `json:"options"`
}

type benchScores struct {
	ID     json.RawMessage `json:"id"`
	Scores []float32       `json:"scores"`
}

type benchKept struct {
	ID    json.RawMessage `json:"id"`
	Ratio float64         `json:"ratio"`
	Lines []int           `json:"kept_lines"`
}

// runBench answers requests in order, each before it reads the next. The scorer sends the same text once
// for every ratio; it is scored once.
func (f *pruneFlags) runBench(ctx context.Context, r io.Reader, w io.Writer) error {
	in, out := json.NewDecoder(bufio.NewReaderSize(r, 1<<20)), json.NewEncoder(w)
	var last benchRequest
	var doc *prune.ScoredText
	for n := 1; ; n++ {
		var q benchRequest
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
		kind, ok := prune.ParseKind(q.Type)
		if !ok {
			return fmt.Errorf("request %d: source_type %q is not one of code, logs, docs", n, q.Type)
		}
		if doc == nil || q.Text != last.Text || q.Goal != last.Goal || q.Type != last.Type {
			var err error
			if doc, err = prune.Score(ctx, q.Text, q.Goal, kind); err != nil {
				return err
			}
			last = q
		}
		if err := f.writeAnswer(out, q, doc); err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
	}
}

func (f *pruneFlags) writeAnswer(out *json.Encoder, q benchRequest, doc *prune.ScoredText) error {
	if !f.kept {
		return out.Encode(benchScores{q.ID, doc.Scores()})
	}
	kept := []int{}
	at := 1
	for _, b := range append(doc.Cut(prune.Budget{MaxPruneRatio: q.Options.MaxRatio, MinKeepLines: q.Options.MinKeep}), prune.Block{First: doc.LineCount() + 1}) {
		for ; at < b.First; at++ {
			kept = append(kept, at)
		}
		at = b.Last + 1
	}
	return out.Encode(benchKept{q.ID, q.Options.MaxRatio, kept})
}
