//go:build unix

package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rounds"
	"github.com/ctxgate/ctxgate/state"
	inmemory "github.com/ctxgate/ctxgate/state/memory"
)

// keeping is a door that has kept a text for nobody in particular, and its id.
func keeping(t *testing.T, text string) (*Door, string) {
	t.Helper()
	store := state.New(inmemory.New(), state.Default(), time.Now)
	t.Cleanup(func() { _ = store.Close() })
	r, err := recall.New(store, []byte(strings.Repeat("k", recall.MinSecret)), recall.Default())
	if err != nil {
		t.Fatal(err)
	}
	id, err := r.Keep(t.Context(), auth.Caller{}.Tenant(), text, recall.Origin{})
	if err != nil {
		t.Fatal(err)
	}
	return &Door{deps: Deps{Recall: r, MayRead: func(auth.Caller, recall.Origin) bool { return true }}}, id
}

// What a model reads back is bounded as it is at the hub: hostile patterns take little time, and none
// when the client has left; overlapping ranges give each line once; all of it within the characters
// that a round may have.
func TestWhatAModelReadsBackIsBounded(t *testing.T) { // not parallel: it measures the process
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
	d, id := keeping(t, strings.Repeat("ab", 2<<20/slower)+"\n"+strings.Repeat("a line\n", 10_000))
	const most = 60_000
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, p := range list {
		var expr strings.Builder
		for _, part := range p.Pattern {
			expr.WriteString(strings.Repeat(part[0].(string), int(part[1].(float64))))
		}
		args, _ := json.Marshal(map[string]any{"prune_id": id, "pattern": expr.String()})
		took := time.Duration(1 << 62)
		for try := 0; try < 3 && took > 50*time.Millisecond; try++ {
			began := processorTime(t)
			text, err := d.readBack(t.Context(), auth.Caller{}, args, most)
			took = min(took, processorTime(t)-began)
			if err != nil && fault.KindOf(err) != fault.BadParams || utf8.RuneCountInString(text) > most {
				t.Errorf("%.60s: %d bytes, %v", expr.String(), len(text), err)
			}
			if err == nil {
				if _, err := d.readBack(gone, auth.Caller{}, args, most); !errors.Is(err, context.Canceled) {
					t.Errorf("%.60s, the client has left: %v", expr.String(), err)
				}
			}
		}
		if took > slower*100*time.Millisecond {
			t.Errorf("%.60s: %v", expr.String(), took)
		}
	}
	ranges := strings.Repeat(`{"start_line":2,"end_line":9000},`, 1499) + `{"start_line":3,"end_line":10}`
	text, err := d.readBack(t.Context(), auth.Caller{}, []byte(`{"prune_id":"`+id+`","include_line_numbers":true,"ranges":[`+ranges+`]}`), most)
	if err != nil || utf8.RuneCountInString(text) > most || !strings.HasPrefix(text, "2│ a line\n3│ a line\n") || !strings.Contains(text, "ask for the rest with prune_id="+id) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// One reply of a model cannot make the door search any number of times.
func TestCallsOfOneRoundAreBounded(t *testing.T) {
	d, id := keeping(t, "text")
	round := &rounds.Round{}
	for i := range 1000 {
		round.Calls = append(round.Calls, rounds.Call{ID: fmt.Sprint(i), Args: []byte(`{"prune_id":"` + id + `"}`)})
	}
	answers := d.answers(t.Context(), &call{reads: &reading{Recovery: Recovery{MaxChars: 60_000}}}, round, false)
	for i, a := range answers {
		if want := i >= maxCalls; a.Failed != want || !want && a.Text != "text" || want && !strings.Contains(a.Text, "call again") {
			t.Fatalf("call %d: %+v", i, a)
		}
	}
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
