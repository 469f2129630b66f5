package chat_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/meter"
)

// The usage of a reply is read while it is relayed, counted and accounted, in all wire formats, streamed or not.
func TestUsage(t *testing.T) {
	for name, w := range wires {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " stream=", stream), func(t *testing.T) {
				answer := respond(200, w.reply)
				if stream {
					answer = streamEvents(w.events, nil)
				}
				f := newStubProvider(t, answer)
				g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL)})
				g.post(t, w.path, w.request(stream), nil)
				g.wantMetrics(t,
					fmt.Sprintf(`ctxgate_llm_tokens_total{kind="fresh",provider="p"} %d`, w.usage.Fresh),
					fmt.Sprintf(`ctxgate_llm_tokens_total{kind="cached",provider="p"} %d`, w.usage.Cached),
					fmt.Sprintf(`ctxgate_llm_tokens_total{kind="created",provider="p"} %d`, w.usage.Created),
					fmt.Sprintf(`ctxgate_llm_tokens_total{kind="output",provider="p"} %d`, w.usage.Output),
					`ctxgate_llm_requests_total{provider="p",result="ok"} 1`)
				accounted := g.meter.Savings().Models
				if len(accounted) != 1 || accounted[0].Usage != meter.Tokens(w.usage) || accounted[0].Model != "m-1-0825" || accounted[0].Provider != "p" || accounted[0].Tenant != auth.DefaultTenant {
					t.Errorf("got %+v", accounted)
				}
			})
		}
	}
}

// The usage that is read does not depend on how the reply is split.
func TestUsageInAnyPieces(t *testing.T) {
	for name, w := range wires {
		for _, stream := range []bool{false, true} {
			text := w.reply
			if stream {
				text = strings.Join(w.events, "")
			}
			for size := 1; size <= 7; size++ {
				used, model, ok := chat.Observe(w.path, stream, text, size)
				if !ok || used != w.usage || model != "m-1-0825" {
					t.Errorf("%s stream=%v in pieces of %d: %+v %q %v", name, stream, size, used, model, ok)
				}
			}
			for at := range len(text) {
				if used, _, ok := chat.Observe(w.path, stream, text[:at], 1<<10); ok && used.Output > 7 {
					t.Errorf("%s cut at %d: %+v", name, at, used)
				}
			}
		}
	}
}

// Missing or malformed usage is not counted; the spellings of all providers of a kind are read.
func TestUsageOddities(t *testing.T) {
	const cc, msg = "/v1/chat/completions", "/v1/messages"
	for _, tt := range []struct {
		path, text string
		want       llm.Usage
		ok         bool
	}{
		{cc, `{"choices":[]}`, llm.Usage{}, false},
		{cc, `{"usage":null}`, llm.Usage{}, false},
		{cc, `{"usage":{}}`, llm.Usage{}, false},
		{cc, `{"usage":"x"}`, llm.Usage{}, false},
		{cc, `{"usage":{"prompt_tokens":`, llm.Usage{}, false},
		{cc, `[{"usage":{"prompt_tokens":1}}]`, llm.Usage{}, false},
		{cc, `}}]]{"usage":{"prompt_tokens":3}}`, llm.Usage{Fresh: 3}, true},
		{cc, `{"choices":[{"usage":{"prompt_tokens":1}}],"deep":{"usage":{"prompt_tokens":2}}}`, llm.Usage{}, false},
		{cc, `{"x":"\"usage\":{\"prompt_tokens\":1}\\"}`, llm.Usage{}, false},
		{cc, `{"usage":{"prompt_tokens":-5,"completion_tokens":1e3}}`, llm.Usage{Output: 1000}, true},
		{cc, `{"usage":{"prompt_tokens":"NaN","completion_tokens":"12","cached_tokens":true}}`, llm.Usage{}, true},
		{cc, `{"usage":{"prompt_tokens":1e300,"completion_tokens":1e999}}`, llm.Usage{Fresh: meter.MaxTokens, Output: meter.MaxTokens}, true},
		{cc, `{"usage":{"prompt_tokens":9000000000000000000,"completion_tokens":99999999999999999999999}}`, llm.Usage{Fresh: meter.MaxTokens, Output: meter.MaxTokens}, true},
		{cc, `{"usage":{"prompt_tokens":1.5,"completion_tokens":-0}}`, llm.Usage{Fresh: 2}, true},
		{msg, `{"usage":{"input_tokens":9e18,"cache_read_input_tokens":9e18,"cache_creation_input_tokens":9e18,"output_tokens":-9e18}}`, llm.Usage{Fresh: meter.MaxTokens, Cached: meter.MaxTokens, Created: meter.MaxTokens}, true},
		{cc, `{"usage" : {"prompt_tokens":10,"completion_tokens":2,"cached_tokens":4}}`, llm.Usage{Fresh: 6, Cached: 4, Output: 2}, true},
		{cc, `{"usage":{"prompt_tokens":10,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6}}`, llm.Usage{Fresh: 6, Cached: 4}, true},
		{cc, `{"usage":{"prompt_tokens":10,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":5}}}`, llm.Usage{Fresh: 1, Cached: 4, Created: 5}, true},
		{cc, `{"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":4}}}`, llm.Usage{Cached: 4}, true},
		{cc, `{"usage":{"prompt_tokens":1,"pad":"` + strings.Repeat("x", 20<<10) + `"}}`, llm.Usage{}, false},
		{cc, `{"` + strings.Repeat("k", 100) + `":1,"usage":{"prompt_tokens":1}}`, llm.Usage{Fresh: 1}, true},
		{msg, `{"usage":{"input_tokens":3,"cache_creation":{"ephemeral_5m_input_tokens":9}}}`, llm.Usage{Fresh: 3}, true},
		{msg, `{"usage":{"input_tokens":3,"cache_creation_input_tokens":9,"cache_creation":{"ephemeral_5m_input_tokens":2,"ephemeral_1h_input_tokens":7}}}`, llm.Usage{Fresh: 3, Created: 9, Long: 7}, true},
		{msg, `{"usage":{"cache_creation_input_tokens":9,"cache_creation":{"ephemeral_1h_input_tokens":10}}}`, llm.Usage{Created: 9, Long: 9}, true},
	} {
		for _, size := range []int{1, 1 << 20} {
			if got, _, ok := chat.Observe(tt.path, false, tt.text, size); ok != tt.ok || got != tt.want {
				t.Errorf("%.80s in pieces of %d: got %+v %v, want %+v %v", tt.text, size, got, ok, tt.want, tt.ok)
			}
		}
	}
}

// Whatever figures a provider reports, its replies reach the client; each figure counts as at most
// meter.MaxTokens, so that sums do not overflow.
func TestAbsurdUsageIsClamped(t *testing.T) {
	figures := []string{"9000000000000000000", "9223372036854775807", "9e18", "1e300", "1e999", "-1", "-9223372036854775808", "-1e300", `"NaN"`, `"Infinity"`, "null", "[]", "0.5"}
	var reply atomic.Pointer[string]
	f := newStubProvider(t, func(w http.ResponseWriter, r *http.Request) { respond(http.StatusOK, *reply.Load())(w, r) })
	g := newGateway(t, []chat.Provider{providerConfig("p", "anthropic", f.URL, func(p *chat.Provider) {
		p.Cache.Write, p.Cache.Read, p.Price = 1.25, .1, chat.Price{Input: 3, Output: 15}
	})})
	replies := 0
	for _, figure := range figures {
		for _, keys := range []string{"input_tokens", "input_tokens,cache_read_input_tokens", "cache_creation_input_tokens,cache_read_input_tokens", "output_tokens,input_tokens,cache_creation_input_tokens,cache_read_input_tokens"} {
			var members []string
			for key := range strings.SplitSeq(keys, ",") {
				members = append(members, fmt.Sprintf("%q:%s", key, figure))
			}
			want := `{"model":"m","usage":{` + strings.Join(members, ",") + `}}`
			reply.Store(&want)
			resp, body := g.post(t, "/v1/messages", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, nil)
			if resp.StatusCode != http.StatusOK || body != want {
				t.Errorf("%s: got %d %s", want, resp.StatusCode, body)
			}
			replies++
		}
	}
	g.wantMetrics(t, fmt.Sprintf(`ctxgate_llm_requests_total{provider="p",result="ok"} %d`, replies)) // waits until the last is counted
	total := g.meter.Savings().Total
	if most := int64(replies) * meter.MaxTokens; total.Requests != int64(replies) || total.Usage.Fresh <= 0 || total.Usage.Fresh > most || total.Usage.Cached > most || total.Cost.Billed <= 0 || total.Spent <= 0 {
		t.Errorf("%d replies, accounted %+v", replies, total)
	}
}

// FuzzObserve checks that reading usage never fails and never depends on how the reply is split.
func FuzzObserve(f *testing.F) {
	for _, w := range wires {
		f.Add(w.path, w.reply, false, uint8(3))
		f.Add(w.path, strings.Join(w.events, ""), true, uint8(5))
	}
	f.Fuzz(func(t *testing.T, path, text string, stream bool, size uint8) {
		a, am, aok := chat.Observe(path, stream, text, int(size)+1)
		b, bm, bok := chat.Observe(path, stream, text, len(text)+1)
		if diff := cmp.Diff([]any{a, am, aok}, []any{b, bm, bok}); diff != "" {
			t.Error(diff)
		}
	})
}

// A failed reply is not accounted.
func TestFailedRepliesCostNothing(t *testing.T) {
	f := newStubProvider(t, respond(http.StatusBadRequest, wires["completions"].reply))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)})
	g.post(t, "/v1/chat/completions", "{}", nil)
	g.wantMetrics(t, `ctxgate_llm_requests_total{provider="p",result="rejected"} 1`)
	if accounted := g.meter.Savings().Total; accounted.Requests != 0 {
		t.Errorf("got %+v", accounted)
	}
}
