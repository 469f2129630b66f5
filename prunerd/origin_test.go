package prunerd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
)

// The pruner reads back only texts that it pruned, not those of other servers, even of one with its name.
func TestPrunerReadsBackItsOwnOnly(t *testing.T) {
	s, _ := open(t, nil)
	for i, o := range []recall.Origin{{Server: "git", Tool: "show"}, {Server: "pruner", Tool: toolPrune}, {Server: "llm:p", Tool: "read"}} {
		id, err := s.deps.Recall.StoreText(t.Context(), "t", fmt.Sprint("text ", i), o)
		if err != nil {
			t.Fatal(err)
		}
		var toolErr *Error
		if _, err := s.Call(t.Context(), "t", "recover_text", recoverArgs(id, false, 1, 1)); !errors.As(err, &toolErr) || toolErr.Code != codeNotFound {
			t.Errorf("%+v: %v", o, err)
		}
	}
	id := s.mustPrune(t, "one\ntwo", "g", "docs", usual).PruneID
	if got := s.mustRecover(t, id, false, 1, 1); got != "one" {
		t.Errorf("its own: %q", got)
	}
}

// A pruned text is recognized by other parts of the gateway and not cut again.
func TestPrunedTextIsNotCutAgain(t *testing.T) {
	s, _ := open(t, nil)
	var log strings.Builder
	for i := range 600 {
		fmt.Fprintf(&log, "2026-01-01 12:00:%02d INFO step %d of the build is done\n", i%60, i)
	}
	raw, err := s.Call(t.Context(), "t", toolPrune, pruneArgs(log.String(), "why did it fail", "logs", usual))
	if err != nil {
		t.Fatal(err)
	}
	var document json.RawMessage
	result(t, raw, &document)
	var pruned struct {
		Text string `json:"pruned_text"`
	}
	if err := json.Unmarshal(document, &pruned); err != nil || len(pruned.Text) < 4000 {
		t.Fatalf("%d characters, %v", len(pruned.Text), err)
	}
	for name, text := range map[string]string{"document": string(document), "text": pruned.Text} {
		body := jsonscan.AppendQuoted(nil, text)
		strs, _, err := jsonscan.New(body, 0).LongStrings(nil, 4000)
		if err != nil {
			t.Fatal(err)
		}
		got := s.deps.Recall.Shrink(t.Context(), recall.ShrinkRequest{Tenant: "t", Body: body, Strings: strs}, recall.DefaultPolicy())
		if got.AlreadyCut != 1 || len(got.Edits) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
