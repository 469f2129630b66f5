package chat_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/prices"
)

// growingRequest is a conversation of so many turns with results of 4 kB.
func growingRequest(turns int) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"m","messages":[{"role":"user","content":"go on"}`)
	for i := range turns {
		fmt.Fprintf(&b, `,{"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"read","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c%d","content":"%04d %s"}`,
			i, i, i, strings.Repeat("some text ", 400))
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

// H+1: where nothing else would move the window, it moves before a request exceeds a price step or the context window,
// by the provider's own count of tokens, whatever a token is. The decision is stored: another replica, which has seen
// no reply, sends the same bytes.
func TestHPlus1RequestsStayBelowAStep(t *testing.T) {
	for name, c := range map[string]struct {
		bytesPerToken int
		price         prices.Price
	}{
		"a step, many tokens":           {2, prices.Price{Step: prices.Step{AboveTokens: 40_000, Rates: prices.Rates{Input: 5}}}},
		"a step, few tokens":            {6, prices.Price{Step: prices.Step{AboveTokens: 14_000, Rates: prices.Rates{Input: 2}}}},
		"the context window":            {4, prices.Price{Context: 20_000}},
		"a step, then a context window": {4, prices.Price{Context: 60_000, Step: prices.Step{AboveTokens: 20_000, Rates: prices.Rates{Input: 2}}}},
	} {
		t.Run(name, func(t *testing.T) {
			store := newRecall(t, nil)
			first, other := masking.New(store, time.Now), masking.New(store, time.Now)
			o := masking.Request{
				Provider: "p", Model: "m", Policy: history.DefaultPolicy(), Price: c.price,
				CachePrices: masking.CachePrices{Write: 1, Read: .001, TTL: unit.Duration(5 * time.Minute)}, // no other reason to move
			}
			o.Policy.WindowTurns, o.Policy.Agents = 3, true
			o.Price.Input = 1
			limit := c.price.Context
			if c.price.Step.AboveTokens > 0 {
				limit = c.price.Step.AboveTokens
			}
			moves := 0
			for turns := 1; turns <= 60; turns++ {
				body := growingRequest(turns)
				sent, done := shrinkOnce(t, first, o, body)
				counted := len(sent) / c.bytesPerToken
				if counted > limit {
					t.Fatalf("the request of turn %d has %d tokens", turns, counted)
				}
				if done.BoundaryMoved {
					moves++
				}
				first.CountInput(done, int64(counted))
				if again, _ := shrinkOnce(t, other, o, body); !bytes.Equal(again, sent) {
					t.Fatalf("another replica sends another request at turn %d", turns)
				}
			}
			if moves == 0 || moves > 8 {
				t.Errorf("the window moved %d times", moves)
			}
		})
	}
}

func shrinkOnce(t *testing.T, m *masking.Masker, o masking.Request, body []byte) ([]byte, masking.Result) {
	t.Helper()
	d, err := history.Read(openaichat.Codec{}, body, 0)
	if err != nil {
		t.Fatal(err)
	}
	o.Body, o.Dialogue = body, d
	done := m.Shrink(t.Context(), o)
	return jsonscan.AppendSpliced(nil, body, done.Edits), done
}
