package chat_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
)

// I2: caching a conversation's earlier requests changes neither the edits of the next request nor what
// is reported about it: not when it grows, is repeated, or loses its last turns.
func TestI2CachedRequestsAreShrunkTheSame(t *testing.T) {
	shapes := map[string]llm.Codec{"/v1/chat/completions": openaichat.Codec{}, "/v1/messages": anthropic.Codec{}, "/v1/responses": responses.Codec{}}
	for path, shape := range shapes {
		for _, advance := range []string{history.AdvanceAuto, history.AdvanceStride, history.AdvanceEachTurn} {
			recent := history.NewConversationCache(8<<20, 0)
			warm, cold := masking.New(newRecall(t, nil), time.Now).Shrink, masking.New(newRecall(t, nil), time.Now).Shrink
			o := masking.Request{Provider: "p", Model: "m", Policy: history.DefaultPolicy(), CachePrices: masking.CachePrices{Write: 1, Read: .5, TTL: unit.Duration(5 * time.Minute)}}
			o.Policy.Advance, o.Policy.Stride, o.Policy.WindowTurns, o.Policy.PastBreakpoints = advance, 5, 3, true
			masked := 0
			for step, turns := range []int{20, 21, 22, 22, 22, 30, 31, 29, 30, 31, 60, 61, 62, 62, 64, 66, 90, 91, 92, 95} {
				switch step {
				case 13:
					o.Model = "n" // a model for which nothing is masked yet
				case 16:
					o.Provider = "another"
				}
				body := requestBodies[path](turns)
				if shape == (anthropic.Codec{}) {
					body = markLast(body)
				}
				masked += shrinkWarmAndCold(t, recent, warm, cold, o, shape, body)
			}
			if masked == 0 {
				t.Errorf("%s, %s: nothing was masked", path, advance)
			}
		}
	}
}

// shrinkWarmAndCold shrinks a request with and without a cached conversation, requires equal results, and returns
// the number of edits.
func shrinkWarmAndCold(t *testing.T, recent *history.ConversationCache, warm, cold chat.Shrinker, o masking.Request, shape llm.Codec, body string) int {
	t.Helper()
	var got, want masking.Result
	var err error
	o.Body = []byte(body)
	if o.Dialogue, err = recent.Read("o", shape, o.Body, nil); err != nil {
		t.Fatal(err)
	}
	got = warm(t.Context(), o)
	recent.Put(o.Dialogue)
	if o.Dialogue, err = history.Read(shape, o.Body, 0); err != nil {
		t.Fatal(err)
	}
	if want = cold(t.Context(), o); len(want.Edits) == 0 {
		got.Edits, got.Cuts = want.Edits, want.Cuts[:len(got.Cuts)] // nil or empty makes no difference
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s of %d bytes:\n%+v\n%+v", shape, len(body), got, want)
	}
	return len(got.Edits)
}

// I2: the same holds when a request is sent before all results of its turn are there and the next one
// adds them: placeholders of results masked at that turn then name what the added results mention.
func TestI2ResultsAddedToATurn(t *testing.T) {
	for _, window := range []int{1, 2, 3} {
		for _, advance := range []string{history.AdvanceStride, history.AdvanceEachTurn, history.AdvanceAuto} {
			recent := history.NewConversationCache(8<<20, 0)
			warm, cold := masking.New(newRecall(t, nil), time.Now).Shrink, masking.New(newRecall(t, nil), time.Now).Shrink
			o := masking.Request{Provider: "p", Model: "m", Policy: history.DefaultPolicy(), CachePrices: masking.CachePrices{Write: 1, Read: .5, TTL: unit.Duration(5 * time.Minute)}}
			o.Policy.Advance, o.Policy.Stride, o.Policy.WindowTurns = advance, 2, window
			body := `{"model":"m","messages":[{"role":"user","content":"go"}`
			masked := 0
			for i := range 30 {
				body += fmt.Sprintf(`,{"role":"assistant","content":null,"tool_calls":[{"id":"a%d","type":"function","function":{"name":"read","arguments":"{}"}},{"id":"b%d","type":"function","function":{"name":"read","arguments":"{\"path\":\"src/part%d/main.go\"}"}}]}`, i, i, i-window)
				for _, id := range []string{"a", "b"} {
					text := strings.Repeat(fmt.Sprintf("see src/part%d/main.go and lib/other%d/%s.go\n", i, i, id), 12)
					body += fmt.Sprintf(`,{"role":"tool","tool_call_id":"%s%d","content":%q}`, id, i, text)
					masked += shrinkWarmAndCold(t, recent, warm, cold, o, openaichat.Codec{}, body+"]}")
				}
				body += fmt.Sprintf(`,{"role":"assistant","content":"lib/other%d/a.go is next"}`, i-window-1)
			}
			if masked == 0 {
				t.Errorf("%s: nothing was masked", advance)
			}
		}
	}
}
