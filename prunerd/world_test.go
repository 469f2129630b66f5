package prunerd

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

// failingStore is a store driver that can be made to fail.
type failingStore struct {
	state.Driver
	refuse atomic.Bool // to put
	down   atomic.Bool // altogether
}

var errDown = fault.New(fault.Unavailable, "down")

func (s *failingStore) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	if s.refuse.Load() || s.down.Load() {
		return false, errDown
	}
	return s.Driver.PutIf(ctx, cond, items, lease)
}

func (s *failingStore) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	if s.down.Load() {
		return nil, errDown
	}
	return s.Driver.Get(ctx, group, key, now)
}

// noNetwork fails a test that opens a connection.
type noNetwork struct{ t testing.TB }

func (n noNetwork) RoundTrip(r *http.Request) (*http.Response, error) {
	n.t.Errorf("%s was asked", r.URL)
	return nil, errors.New("no network in this test")
}

// open starts a server over a store in memory.
func open(t testing.TB, mend func(*Config)) (*Server, *failingStore) {
	t.Helper()
	store := &failingStore{Driver: memory.New()}
	return over(t, store, mend, noNetwork{t}), store
}

func over(t testing.TB, driver state.Driver, mend func(*Config), transport http.RoundTripper) *Server {
	t.Helper()
	store := state.New(driver, state.Default(), time.Now)
	r, err := recall.New(store, []byte("0123456789abcdef0123456789abcdef"), recall.Default())
	if err != nil {
		t.Fatal(err)
	}
	cfg := Default()
	if mend != nil {
		mend(&cfg)
	}
	s := New(cfg, Deps{Recall: r, Transport: transport, Version: "test"})
	t.Cleanup(func() { s.Close(); _ = store.Close() })
	return s
}

// options are those of a call, in their Go form.
type options struct {
	Ratio   float64 `json:"max_prune_ratio"`
	MinKeep int     `json:"min_keep_lines"`
	Timeout int     `json:"timeout_ms"`
	Number  bool    `json:"annotate_lines"`
	Markers bool    `json:"include_markers"`
}

var usual = options{0.8, 1, 10_000, false, true}

func pruneArgs(text, goal, kind string, o options) []byte {
	b, _ := json.Marshal(map[string]any{"text": text, "goal_hint": goal, "source_type": kind, "options": o})
	return b
}

// document is the result of prune_text.
type document struct {
	PruneID     string `json:"prune_id"`
	Text        string `json:"pruned_text"`
	Annotations []struct {
		Kind   string `json:"kind"`
		First  int    `json:"original_start_line"`
		Last   int    `json:"original_end_line"`
		Count  int    `json:"pruned_line_count"`
		Reason string `json:"reason"`
		Marker string `json:"marker"`
	} `json:"annotations"`
	Stats    map[string]any `json:"stats"`
	Warnings []string       `json:"warnings"`
}

// result decodes a tool's result, whose two forms must be equal (P2).
func result(t testing.TB, raw []byte, into any) {
	t.Helper()
	var r struct {
		Content []struct{ Type, Text string }
		Struct  json.RawMessage `json:"structuredContent"`
		IsError *bool
	}
	if err := json.Unmarshal(raw, &r); err != nil || len(r.Content) != 1 || r.Content[0].Type != "text" || r.IsError == nil || *r.IsError {
		t.Fatalf("%v: %.300s", err, raw)
	}
	if string(r.Struct) != r.Content[0].Text {
		t.Errorf("structuredContent is another document:\n%.300s\n%.300s", r.Struct, r.Content[0].Text)
	}
	if err := json.Unmarshal(r.Struct, into); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) mustPrune(t testing.TB, text, goal, kind string, o options) document {
	t.Helper()
	raw, err := s.Call(t.Context(), "t", "prune_text", pruneArgs(text, goal, kind, o))
	if err != nil {
		t.Fatal(err)
	}
	var d document
	result(t, raw, &d)
	return d
}

// mustRecover reads ranges back, each two numbers.
func (s *Server) mustRecover(t testing.TB, id string, number bool, ends ...int) string {
	t.Helper()
	raw, err := s.Call(t.Context(), "t", "recover_text", recoverArgs(id, number, ends...))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Text string `json:"raw_text"`
	}
	result(t, raw, &d)
	return d.Text
}

func recoverArgs(id string, number bool, ends ...int) []byte {
	ranges := []map[string]int{}
	for i := 0; i+1 < len(ends); i += 2 {
		ranges = append(ranges, map[string]int{"start_line": ends[i], "end_line": ends[i+1]})
	}
	b, _ := json.Marshal(map[string]any{"prune_id": id, "ranges": ranges, "include_line_numbers": number})
	return b
}

// isWhole checks a result against the specification of a text that comes back whole (P7).
func isWhole(t testing.TB, s *Server, d document, text string, warnings ...string) {
	t.Helper()
	if d.Text != text || d.Annotations == nil || len(d.Annotations) != 0 || d.Stats["used_fallback"] != true {
		t.Errorf("not whole: %.200q, %v, %v", d.Text, d.Annotations, d.Stats)
	}
	if !reflect.DeepEqual(d.Warnings, warnings) {
		t.Errorf("warnings %q, want %q", d.Warnings, warnings)
	}
	if d.PruneID != s.deps.Recall.ID("t", text) {
		t.Errorf("prune_id is %s", d.PruneID)
	}
}

// noise is a text of n lines of which line k matters for the goal.
func noise(n, k int) string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = "some words of no interest whatever that fill a line and another " + strings.Repeat("x", i%7)
	}
	lines[k-1] = "the quarterly budget of the lighthouse was doubled"
	return strings.Join(lines, "\n")
}

// failure is the Error of a call.
func failure(t testing.TB, err error) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error", err)
	}
	return e
}
