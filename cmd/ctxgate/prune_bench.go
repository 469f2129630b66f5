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

// benchRequest is one text of a benchmark, as its scorer sends it.
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

// answer answers requests in their order, each before the next is read. The same text comes once
// for every ratio, and is read once.
func (f *pruneFlags) answer(ctx context.Context, r io.Reader, w io.Writer) error {
	in, out := json.NewDecoder(bufio.NewReaderSize(r, 1<<20)), json.NewEncoder(w)
	var last benchRequest
	var doc *prune.Doc
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
			if doc, err = prune.Read(ctx, q.Text, q.Goal, kind); err != nil {
				return err
			}
			last = q
		}
		if err := f.tell(out, q, doc); err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
	}
}

func (f *pruneFlags) tell(out *json.Encoder, q benchRequest, doc *prune.Doc) error {
	if !f.kept {
		return out.Encode(benchScores{q.ID, doc.Scores()})
	}
	kept := []int{}
	at := 1
	for _, b := range append(doc.Cut(prune.Budget{MaxRatio: q.Options.MaxRatio, MinKeep: q.Options.MinKeep}), prune.Block{First: doc.Len() + 1}) {
		for ; at < b.First; at++ {
			kept = append(kept, at)
		}
		at = b.Last + 1
	}
	return out.Encode(benchKept{q.ID, q.Options.MaxRatio, kept})
}
