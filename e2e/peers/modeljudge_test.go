package peers

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/internal/llmtest"
)

const (
	modelTemplate = "[masqué {tool_call_id} {tool_name} {original_chars} {prune_id}]"
	pace          = 25 * time.Millisecond
)

// modelUsage is what a request used, in tokens.
type modelUsage struct{ Fresh, Cached, Created, Output int }

// modelOf are the models of the checks that tell their usage.
var modelOf = map[string]string{
	"say": "test-say", "calls": "test-calls", "agent": "test-agent", "retried by the SDK": "test-busy", "count": "test-count",
	"retried by the gateway": "patient", "fallback": "over",
}

// unstreamed is how long a slow model thinks where its answer comes in one piece.
func (w *modelWorld) unstreamed() time.Duration {
	if w.Stream {
		return 0
	}
	return 5 * time.Second
}

// asked are the requests for a model, in order.
func (w *modelWorld) asked(model string) []llmtest.Request {
	return slices.DeleteFunc(w.provider.Requests(), func(r llmtest.Request) bool { return r.Model != model })
}

// judge holds what the provider saw of an SDK's checks against what it must have seen. used is what
// the SDK said that its requests used, by model.
func (w *modelWorld) judge(t *testing.T, used map[string][]modelUsage) {
	t.Helper()
	t.Run("provider", func(t *testing.T) {
		w.judgeAbort(t) // first: it may take a moment
		w.judgeStatuses(t)
		w.judgeBill(t, used)
		w.judgeRetry(t)
		w.judgeAgent(t, "test-agent")
		if len(w.asked("test-runner")) > 0 {
			w.judgeAgent(t, "test-runner")
		}
	})
}

// judgeStatuses: but for the requests that had to fail, all were taken.
func (w *modelWorld) judgeStatuses(t *testing.T) {
	t.Helper()
	want := map[int]int{http.StatusBadRequest: 1, http.StatusUnauthorized: 1, http.StatusTooManyRequests: 2, http.StatusNotFound: 0}
	if w.Gateway {
		want[http.StatusTooManyRequests]++ // of the model that is patient
	} else {
		want[http.StatusNotFound]++ // ctxgate knows which models there are
	}
	got := map[int]int{}
	for _, r := range w.provider.Requests() {
		if r.Shape != llmtest.None {
			got[r.Status]++
		}
		if want := w.Shape; r.Shape != llmtest.None && r.Shape.String() != want {
			t.Errorf("a request of the shape %s", r.Shape)
		}
	}
	for status, n := range want {
		if got[status] != n {
			t.Errorf("%d requests were answered %d, want %d", got[status], status, n)
		}
	}
}

// judgeBill: what the SDK says that was used is what is charged.
func (w *modelWorld) judgeBill(t *testing.T, used map[string][]modelUsage) {
	t.Helper()
	bill := map[string][]modelUsage{}
	cached := 0
	for _, e := range w.provider.Bill() {
		bill[e.Model] = append(bill[e.Model], modelUsage{e.Fresh, e.Cached, e.Created + e.CreatedLong, e.Output})
		cached += e.Cached
	}
	for check, model := range modelOf {
		wanted := w.Gateway || model != "patient" && model != "over"
		if check == "count" {
			wanted = w.Shape == llmtest.Messages.String()
		}
		if wanted && !slices.Equal(used[model], bill[model]) {
			t.Errorf("%s: the SDK says that %+v were used, and the provider charged %+v", check, used[model], bill[model])
		}
	}
	if cached == 0 {
		t.Error("nothing came from the provider's cache")
	}
}

// judgeRetry: the SDK's own second try reached the provider as such.
func (w *modelWorld) judgeRetry(t *testing.T) {
	t.Helper()
	var tries []string
	for _, r := range w.asked("test-busy") {
		tries = append(tries, fmt.Sprint(r.Status, " ", r.Header.Get("X-Stainless-Retry-Count")))
	}
	if !slices.Equal(tries, []string{"429 0", "200 1"}) {
		t.Errorf("the busy model was asked %q", tries)
	}
	if patient := w.asked("patient"); w.Gateway && (len(patient) != 2 || patient[1].Header.Get("X-Stainless-Retry-Count") != "0") {
		t.Errorf("the patient model was asked %d times", len(patient))
	}
}

// judgeAbort: when the client has left, the provider's request has ended.
func (w *modelWorld) judgeAbort(t *testing.T) {
	t.Helper()
	err := within(5*time.Second, "the provider did not see its client leave", func() (bool, error) {
		slow := w.asked("test-slow")
		return len(slow) == 1 && slow[0].Gone, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// judgeAgent: of an agent's requests each holds all results; those of old turns are masked and stay
// as they are, and no other is touched (H1–H3, H5, H8, H+2, H+3).
func (w *modelWorld) judgeAgent(t *testing.T, model string) {
	t.Helper()
	requests := w.asked(model)
	if len(requests) != modelTurns+1 {
		t.Fatalf("%s: %d requests", model, len(requests))
	}
	masked := map[string]string{}
	for k, r := range requests {
		if r.ToolTurns != k {
			t.Fatalf("request %d has %d tool turns", k, r.ToolTurns)
		}
		got := slices.Clone(r.Results)
		for i, turn := range w.Saga.Turns[:k] {
			for _, u := range turn.Uses {
				if len(got) == 0 || got[0].ID != u.ID {
					t.Fatalf("request %d: the result of %s is not where it was", k, u.ID)
				}
				w.judgeResult(t, k, i, u, got[0].Text, masked)
				got = got[1:]
			}
		}
	}
	want := 0
	if w.Gateway {
		want = w.maskable(modelTurns - modelWindow)
	}
	if len(masked) != want {
		t.Errorf("%d results were masked, want %d: %v", len(masked), want, slices.Sorted(maps.Keys(masked)))
	}
}

// maskable counts the results of the first turns that can be masked.
func (w *modelWorld) maskable(turns int) int {
	n := 0
	for _, turn := range w.Saga.Turns[:turns] {
		for _, u := range turn.Uses {
			if !u.Failed {
				n++
			}
		}
	}
	return n
}

// judgeResult looks at one result of turn i in the request with k tool turns.
func (w *modelWorld) judgeResult(t *testing.T, k, i int, u llmtest.Exchange, got string, masked map[string]string) {
	t.Helper()
	old := w.Gateway && i < k-modelWindow && !u.Failed
	if !old {
		if got != u.Result {
			t.Errorf("request %d: the result of %s became %.100q", k, u.ID, got)
		}
		return
	}
	form := fmt.Sprintf(`^\[masqué %s %s %d prn_[\w-]+\]$`, u.ID, u.Name, utf8.RuneCountInString(u.Result))
	if !regexp.MustCompile(form).MatchString(got) {
		t.Errorf("request %d: in the place of the result of %s stands %.100q", k, u.ID, got)
	}
	if before, ok := masked[u.ID]; ok && before != got {
		t.Errorf("request %d: the placeholder of %s changed from %s to %s", k, u.ID, before, got)
	}
	masked[u.ID] = got
}
