package chat_test

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// patientStore is a store config whose timeout a busy machine does not reach: after a timeout the circuit
// breaker would open, and requests would rightly go unmasked or without their hidden calls.
func patientStore() state.Config {
	cfg := state.Default()
	cfg.Timeout = unitDuration(time.Minute)
	return cfg
}

// newRecall returns a recall on an in-memory store.
func newRecall(t *testing.T, change func(*recall.Config)) *recall.Recall {
	t.Helper()
	store := state.New(memory.New(), patientStore(), time.Now)
	t.Cleanup(func() { _ = store.Close() })
	cfg := recall.Default()
	if change != nil {
		change(&cfg)
	}
	r, err := recall.New(store, bytes.Repeat([]byte("s"), recall.MinSecretBytes), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func withMasking(r *recall.Recall, change func(*history.Policy)) option {
	return func(s *chat.Settings, d *chat.Deps) {
		d.Shrink = masking.New(r, time.Now).Shrink
		change(&s.Chat.ObservationMasking.Schema1)
	}
}

// twoTurnWindow masks all but the last two turns, at every turn, with a prune_id in the placeholder.
func twoTurnWindow(p *history.Policy) {
	p.Advance, p.WindowTurns, p.KeepHandles = history.AdvanceEachTurn, 2, 0
	p.Template = "[masqué {tool_call_id} {tool_name} {original_chars} {prune_id}]"
}

// resultText is the text of the result of tool call n.
func resultText(n int) string {
	return strings.Repeat(fmt.Sprintf("line of result %d é\n", n), 20)
}

// requestBodies builds, by endpoint path, a request of n tool turns with one result each.
var requestBodies = map[string]func(n int) string{
	"/v1/chat/completions": func(n int) string {
		b := `{"model":"m-1","messages":[{"role":"user","content":"go"}`
		for i := range n {
			b += fmt.Sprintf(`, {"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"read","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c%d","content":%q}`, i, i, resultText(i))
		}
		return b + `]}`
	},
	"/v1/responses": func(n int) string {
		b := `{"model":"m-1","input":[{"role":"user","content":"go"}`
		for i := range n {
			b += fmt.Sprintf(`, {"type":"function_call","call_id":"c%d","name":"read","arguments":"{}"},{"type":"function_call_output","call_id":"c%d","output":%q}`, i, i, resultText(i))
		}
		return b + `]}`
	},
	"/v1/messages": func(n int) string {
		b := `{"model":"m-1","max_tokens":9,"messages":[{"role":"user","content":"go"}`
		for i := range n {
			b += fmt.Sprintf(`, {"role":"assistant","content":[{"type":"tool_use","id":"c%d","name":"read","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c%d","content":%q}]}`, i, i, resultText(i))
		}
		return b + `]}`
	},
	geminiPath: func(n int) string {
		b := `{"contents":[{"role":"user","parts":[{"text":"go"}]}`
		for i := range n {
			b += fmt.Sprintf(`, {"role":"model","parts":[{"functionCall":{"id":"c%d","name":"read","args":{}},"thoughtSignature":"c2ln"}]},{"role":"user","parts":[{"functionResponse":{"id":"c%d","name":"read","response":{"exit":0,"output":%q}}}]}`, i, i, resultText(i))
		}
		return b + `]}`
	},
}

var placeholder = regexp.MustCompile(`\[masqué (c\d+) read (\d+) (prn_\w+)\]`)

// H2, H3, H+2: old results become placeholders, everything else is sent unchanged, and the id in the
// placeholder gives the original back.
func TestOldResultsAreMasked(t *testing.T) {
	for path, kind := range map[string]string{"/v1/chat/completions": "openai", "/v1/responses": "openai", "/v1/messages": "anthropic", geminiPath: "gemini"} {
		t.Run(path, func(t *testing.T) {
			f, r := newStubProvider(t, respond(http.StatusOK, `{}`)), newRecall(t, nil)
			g := newGateway(t, []chat.Provider{providerConfig("p", kind, f.URL)}, withMasking(r, twoTurnWindow))
			sent := requestBodies[path](5)
			g.post(t, path, sent, nil)
			got := string(f.requests()[0].body)
			marks := placeholder.FindAllStringSubmatch(got, -1)
			if len(marks) != 3 {
				t.Fatalf("%d placeholders in %s", len(marks), got)
			}
			back := got
			for i, m := range marks {
				original, err := r.Open(t.Context(), auth.DefaultTenant, m[3])
				if err != nil {
					t.Fatal(err)
				}
				var text bytes.Buffer
				if err := original.WriteText(t.Context(), &text); err != nil || text.String() != resultText(i) {
					t.Errorf("%s gives %q, %v", m[3], text.String(), err)
				}
				quoted := fmt.Sprintf("%q", resultText(i))
				back = strings.Replace(back, m[0], quoted[1:len(quoted)-1], 1)
			}
			if back != sent {
				t.Errorf("got %s\nwant %s", back, sent)
			}
		})
	}
}

// H4, H7, H10, I1: a request is sent byte for byte as it came if masking is off, if it has no old
// results or cannot be parsed, or if originals cannot be stored.
func TestUnmaskableRequestsAreSentUnchanged(t *testing.T) {
	off := func(c *recall.Config) { c.Enabled = false }
	for name, c := range map[string]struct {
		path, kind, body string
		recallConfig     func(*recall.Config)
		policy           func(*history.Policy)
	}{
		"disabled":         {"/v1/chat/completions", "openai", requestBodies["/v1/chat/completions"](5), nil, func(p *history.Policy) { twoTurnWindow(p); p.Enabled = false }},
		"no window":        {"/v1/chat/completions", "openai", requestBodies["/v1/chat/completions"](5), nil, func(p *history.Policy) { twoTurnWindow(p); p.WindowTurns = 0 }},
		"only new results": {"/v1/chat/completions", "openai", requestBodies["/v1/chat/completions"](2), nil, twoTurnWindow},
		"recall disabled":  {"/v1/chat/completions", "openai", requestBodies["/v1/chat/completions"](5), off, twoTurnWindow},
		"no messages":      {"/v1/chat/completions", "openai", `{"model":"m-1","messages":7}`, nil, twoTurnWindow},
		"duplicate key":    {"/v1/chat/completions", "openai", `{"model":"m-1","messages":[{"role":"tool","role":"user"}]}`, nil, func(p *history.Policy) { p.Enabled = false }},
		"all cache-marked": {"/v1/messages", "anthropic", markLast(requestBodies["/v1/messages"](5)), nil, twoTurnWindow},
	} {
		t.Run(name, func(t *testing.T) {
			f := newStubProvider(t, respond(http.StatusOK, `{}`))
			g := newGateway(t, []chat.Provider{providerConfig("p", c.kind, f.URL)}, withMasking(newRecall(t, c.recallConfig), c.policy))
			g.post(t, c.path, c.body, nil)
			if calls := f.requests(); len(calls) != 1 || string(calls[0].body) != c.body {
				t.Errorf("got %q", calls)
			}
		})
	}
}

// H+1, I4: if cache reads are discounted, each request extends the previous one at nearly every turn.
func TestPrefixesAreStableWithCacheDiscount(t *testing.T) {
	f, r := newStubProvider(t, respond(http.StatusOK, `{}`)), newRecall(t, nil)
	cached := providerConfig("p", "openai", f.URL, func(p *chat.Provider) { p.Cache.Write, p.Cache.Read = 1.25, .1 })
	g := newGateway(t, []chat.Provider{cached}, withMasking(r, func(p *history.Policy) { twoTurnWindow(p); p.Advance = history.AdvanceAuto }))
	breaks, last := 0, ""
	for n := 1; n <= 40; n++ {
		g.post(t, "/v1/chat/completions", requestBodies["/v1/chat/completions"](n), nil)
		now := strings.TrimSuffix(string(f.requests()[n-1].body), "]}")
		if !strings.HasPrefix(now, last) {
			breaks++
		}
		last = now
	}
	if breaks > 5 {
		t.Errorf("the prefix broke at %d of 40 turns", breaks)
	}
}

// H5, H+5: a placeholder names its prune_id if and only if the model has recover_text.
func TestHPlus5PlaceholdersNameRecoveryWhereItWorks(t *testing.T) {
	const path = "/v1/chat/completions"
	for name, c := range map[string]struct {
		tools string
		named bool
	}{
		"no tools":                   {``, false},
		"other tools":                {`"tools":[{"type":"function","function":{"name":"read"}}],`, false},
		"the gateway's recover_text": {`"tools":[{"type":"function","function":{"name":"mcp__ctxgate__recover_text","parameters":{"properties":{"prune_id":{}}}}}],`, true},
		"another recover_text":       {`"tools":[{"type":"function","function":{"name":"recover_text"}}],`, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newStubProvider(t, respond(http.StatusOK, `{}`))
			g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)}, withMasking(newRecall(t, nil), func(p *history.Policy) {
				twoTurnWindow(p)
				p.Template = history.DefaultTemplate
			}))
			g.post(t, path, strings.Replace(requestBodies[path](5), `"messages"`, c.tools+`"messages"`, 1), nil)
			got := string(f.requests()[0].body)
			const bare = "[Observation masquée: résultat d’outil ancien (tool_call_id=c0, outil=read, chars=380)]"
			if !strings.Contains(got, bare) || strings.Contains(got, bare+" [recover: prune_id=prn_") != c.named {
				t.Errorf("got %s", got)
			}
			// The same in the words of the profile "agents": the id that can be used is named, not both.
			g = newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)}, withMasking(newRecall(t, nil), func(p *history.Policy) {
				twoTurnWindow(p)
				p.Template, p.Agents = history.PlainTemplate, true
			}))
			g.post(t, path, strings.Replace(requestBodies[path](5), `"messages"`, c.tools+`"messages"`, 1), nil)
			got = string(f.requests()[1].body)
			const plain = "[… 380 characters of an old read result left out; "
			if strings.Contains(got, plain+"call recover_text with prune_id=prn_") != c.named || strings.Contains(got, plain+"tool_call_id=c0]") == c.named {
				t.Errorf("got %s", got)
			}
		})
	}
}
