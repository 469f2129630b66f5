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

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

const (
	modelTemplate = "[masqué {tool_call_id} {tool_name} {original_chars} {prune_id}]"
	eventDelay    = 25 * time.Millisecond
)

// modelUsage is the usage of a request in tokens.
type modelUsage struct{ Fresh, Cached, Created, Output int }

// modelOf maps the checks that report usage to their models.
var modelOf = map[string]string{
	"say": "test-say", "calls": "test-calls", "agent": "test-agent", "retried by the SDK": "test-busy", "count": "test-count",
	"retried by the gateway": "patient", "fallback": "over",
}

// slowDelay is the delay of a slow model's unstreamed reply.
func (w *llmSetup) slowDelay() time.Duration {
	if w.Stream {
		return 0
	}
	return 5 * time.Second
}

// requestsFor returns the requests for a model.
func (w *llmSetup) requestsFor(model string) []fakeprovider.Request {
	return slices.DeleteFunc(w.provider.Requests(), func(r fakeprovider.Request) bool { return r.Model != model })
}

// checkProvider checks what the provider received from an SDK's checks. used is the usage that the SDK
// reported, by model.
func (w *llmSetup) checkProvider(t *testing.T, used map[string][]modelUsage) {
	t.Helper()
	t.Run("provider", func(t *testing.T) {
		w.checkAbort(t) // first, because it may take a moment
		w.checkStatuses(t)
		w.checkBill(t, used)
		w.checkRetry(t)
		w.checkAgent(t, "test-agent")
		if len(w.requestsFor("test-runner")) > 0 {
			w.checkAgent(t, "test-runner")
		}
	})
}

// checkStatuses: only the expected requests failed.
func (w *llmSetup) checkStatuses(t *testing.T) {
	t.Helper()
	want := map[int]int{http.StatusBadRequest: 1, http.StatusUnauthorized: 1, http.StatusTooManyRequests: 2, http.StatusNotFound: 0}
	if w.Gateway {
		want[http.StatusTooManyRequests]++ // of the model "patient"
	} else {
		want[http.StatusNotFound]++ // ctxgate knows the models itself
	}
	got := map[int]int{}
	for _, r := range w.provider.Requests() {
		if r.Shape != fakeprovider.None {
			got[r.Status]++
		}
		if want := w.Shape; r.Shape != fakeprovider.None && r.Shape.String() != want {
			t.Errorf("a request of the shape %s", r.Shape)
		}
	}
	for status, n := range want {
		if got[status] != n {
			t.Errorf("%d requests were answered %d, want %d", got[status], status, n)
		}
	}
}

// checkBill: the SDK reports the usage that is charged.
func (w *llmSetup) checkBill(t *testing.T, used map[string][]modelUsage) {
	t.Helper()
	bill := map[string][]modelUsage{}
	cached := 0
	for _, e := range w.provider.Bill() {
		bill[e.Model] = append(bill[e.Model], modelUsage{e.Uncached, e.CacheRead, e.CacheWrite + e.CacheWrite1h, e.Output})
		cached += e.CacheRead
	}
	for check, model := range modelOf {
		wanted := w.Gateway || model != "patient" && model != "over"
		if check == "count" {
			wanted = w.Shape == fakeprovider.Messages.String()
		}
		if wanted && !slices.Equal(used[model], bill[model]) {
			t.Errorf("%s: the SDK reports %+v, the provider charged %+v", check, used[model], bill[model])
		}
	}
	if cached == 0 {
		t.Error("nothing was read from the provider's cache")
	}
}

// checkRetry: the SDK's own retry reached the provider.
func (w *llmSetup) checkRetry(t *testing.T) {
	t.Helper()
	if w.Shape == fakeprovider.Gemini.String() { // its SDK does not number its requests
		if tries := w.requestsFor("test-busy"); len(tries) != 2 || tries[1].Status != http.StatusOK {
			t.Errorf("%d requests for the busy model", len(tries))
		}
		return
	}
	var tries []string
	for _, r := range w.requestsFor("test-busy") {
		tries = append(tries, fmt.Sprint(r.Status, " ", r.Header.Get("X-Stainless-Retry-Count")))
	}
	if !slices.Equal(tries, []string{"429 0", "200 1"}) {
		t.Errorf("requests for the busy model: %q", tries)
	}
	if patient := w.requestsFor("patient"); w.Gateway && (len(patient) != 2 || patient[1].Header.Get("X-Stainless-Retry-Count") != "0") {
		t.Errorf("%d requests for the patient model", len(patient))
	}
}

// checkAbort: when the client disconnects, the provider's request ends.
func (w *llmSetup) checkAbort(t *testing.T) {
	t.Helper()
	err := wait.Until(5*time.Second, "the provider did not notice the disconnect", func() (bool, error) {
		slow := w.requestsFor("test-slow")
		return len(slow) == 1 && slow[0].ClientGone, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// checkAgent: each request contains all results; those of old turns are masked, always in the same way, and
// no other is changed (H1–H3, H5, H8, H+2, H+3).
func (w *llmSetup) checkAgent(t *testing.T, model string) {
	t.Helper()
	requests := w.requestsFor(model)
	if len(requests) != modelTurns+1 {
		t.Fatalf("%s: %d requests", model, len(requests))
	}
	masked := map[string]string{}
	for k, r := range requests {
		if r.ToolTurns != k {
			t.Fatalf("request %d has %d tool turns", k, r.ToolTurns)
		}
		got := slices.Clone(r.Results)
		for i, turn := range w.Conversation.Turns[:k] {
			for _, u := range turn.ToolUses {
				if len(got) == 0 || got[0].ID != u.ID {
					t.Fatalf("request %d: the result of %s is not where it was", k, u.ID)
				}
				w.checkResult(t, k, i, u, got[0].Text, masked)
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
func (w *llmSetup) maskable(turns int) int {
	n := 0
	for _, turn := range w.Conversation.Turns[:turns] {
		for _, u := range turn.ToolUses {
			if !u.IsError {
				n++
			}
		}
	}
	return n
}

// checkResult checks one result of turn i in the request with k tool turns.
func (w *llmSetup) checkResult(t *testing.T, k, i int, u trajectories.ToolUse, got string, masked map[string]string) {
	t.Helper()
	old := w.Gateway && i < k-modelWindow && !u.IsError
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
