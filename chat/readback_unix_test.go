//go:build unix

package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/internal/testkit/cputime"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	inmemory "github.com/ctxgate/ctxgate/state/memory"
)

// newReadbackProxy returns a proxy whose store holds a text, and the text's prune_id.
func newReadbackProxy(t *testing.T, text string) (*Proxy, string) {
	t.Helper()
	store := state.New(inmemory.New(), state.Default(), time.Now)
	t.Cleanup(func() { _ = store.Close() })
	r, err := recall.New(store, []byte(strings.Repeat("k", recall.MinSecretBytes)), recall.Default())
	if err != nil {
		t.Fatal(err)
	}
	id, err := r.StoreText(t.Context(), auth.LocalCaller().Tenant(), text, recall.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	figures := meter.New("test", func() (meter.StoreStats, bool) { return meter.StoreStats{}, true })
	return &Proxy{deps: Deps{Recall: r, Meter: figures, MayRead: func(auth.Caller, recall.Origin) bool { return true }}}, id
}

// Reading back is bounded as at the hub: hostile patterns take little time and stop when the client
// disconnects, overlapping ranges return each line once, and no answer exceeds its characters.
func TestReadbackIsBounded(t *testing.T) { // not parallel: it measures the process
	raw, err := os.ReadFile("../recall/testdata/patterns.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Pattern [][2]any
	}
	if err := json.Unmarshal(raw, &list); err != nil || len(list) < 50 {
		t.Fatal(len(list), err)
	}
	px, id := newReadbackProxy(t, strings.Repeat("ab", 2<<20/slower)+"\n"+strings.Repeat("a line\n", 10_000))
	const maxChars = 60_000
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, p := range list {
		var expr strings.Builder
		for _, part := range p.Pattern {
			expr.WriteString(strings.Repeat(part[0].(string), int(part[1].(float64))))
		}
		args, _ := json.Marshal(map[string]any{"prune_id": id, "pattern": expr.String()})
		took := cputime.Least(20, slower*90*time.Millisecond, func() {
			text, err := px.recoverText(t.Context(), gate.New(gate.Deps{}), auth.LocalCaller(), args, maxChars)
			if err != nil && fault.KindOf(err) != fault.BadParams || utf8.RuneCountInString(text) > maxChars {
				t.Errorf("%.60s: %d bytes, %v", expr.String(), len(text), err)
			}
			if err == nil {
				if _, err := px.recoverText(canceled, gate.New(gate.Deps{}), auth.LocalCaller(), args, maxChars); !errors.Is(err, context.Canceled) {
					t.Errorf("%.60s, after the client disconnected: %v", expr.String(), err)
				}
			}
		})
		if took > slower*100*time.Millisecond {
			t.Errorf("%.60s: %v", expr.String(), took)
		}
	}
	ranges := strings.Repeat(`{"start_line":2,"end_line":9000},`, 1499) + `{"start_line":3,"end_line":10}`
	text, err := px.recoverText(t.Context(), gate.New(gate.Deps{}), auth.LocalCaller(), []byte(`{"prune_id":"`+id+`","include_line_numbers":true,"ranges":[`+ranges+`]}`), maxChars)
	if err != nil || utf8.RuneCountInString(text) > maxChars || !strings.HasPrefix(text, "2│ a line\n3│ a line\n") || !strings.Contains(text, "ask for the rest with prune_id="+id) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// The proxy answers at most maxCalls calls of one reply: each may cost a search.
func TestCallsOfOneRoundAreBounded(t *testing.T) {
	px, id := newReadbackProxy(t, "text")
	round := &llm.Round{}
	for i := range 1000 {
		round.Calls = append(round.Calls, llm.RecoverCall{ID: fmt.Sprint(i), Args: []byte(`{"prune_id":"` + id + `"}`)})
	}
	answers := px.answerCalls(t.Context(), &call{plan: &activeConfig{Settings: Settings{Gate: gate.New(gate.Deps{})}}, caller: auth.LocalCaller(), readback: &readbackState{Recovery: Recovery{MaxChars: 60_000}}}, round, false)
	for i, a := range answers {
		if want := i >= maxCalls; a.Failed != want || !want && a.Text != "text" || want && !strings.Contains(a.Text, "call again") {
			t.Fatalf("call %d: %+v", i, a)
		}
	}
}
