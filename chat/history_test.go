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
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// keeper is a recall over memory.
func keeper(t *testing.T, change func(*recall.Config)) *recall.Recall {
	t.Helper()
	store := state.New(memory.New(), state.Default(), time.Now)
	t.Cleanup(func() { _ = store.Close() })
	cfg := recall.Default()
	if change != nil {
		change(&cfg)
	}
	r, err := recall.New(store, bytes.Repeat([]byte("s"), recall.MinSecret), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func masking(r *recall.Recall, change func(*history.Policy)) option {
	return func(s *chat.Settings, d *chat.Deps) {
		d.Shrink = chat.Mask(r, time.Now)
		change(&s.Chat.Observation.Schema1)
	}
}

// rolling is the document's window of two turns, with an id in the placeholder.
func rolling(p *history.Policy) {
	p.Advance, p.WindowTurns, p.KeepHandles = history.EachTurn, 2, 0
	p.Template = "[masqué {tool_call_id} {tool_name} {original_chars} {prune_id}]"
}

// result is what tool call n answered.
func result(n int) string {
	return strings.Repeat(fmt.Sprintf("line of result %d é\n", n), 20)
}

// talks are conversations of n tool turns in each shape, with one way to write each result.
var talks = map[string]func(n int) string{
	"/v1/chat/completions": func(n int) string {
		b := `{"model":"m-1","messages":[{"role":"user","content":"go"}`
		for i := range n {
			b += fmt.Sprintf(`, {"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"read","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c%d","content":%q}`, i, i, result(i))
		}
		return b + `]}`
	},
	"/v1/responses": func(n int) string {
		b := `{"model":"m-1","input":[{"role":"user","content":"go"}`
		for i := range n {
			b += fmt.Sprintf(`, {"type":"function_call","call_id":"c%d","name":"read","arguments":"{}"},{"type":"function_call_output","call_id":"c%d","output":%q}`, i, i, result(i))
		}
		return b + `]}`
	},
	"/v1/messages": func(n int) string {
		b := `{"model":"m-1","max_tokens":9,"messages":[{"role":"user","content":"go"}`
		for i := range n {
			b += fmt.Sprintf(`, {"role":"assistant","content":[{"type":"tool_use","id":"c%d","name":"read","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c%d","content":%q}]}`, i, i, result(i))
		}
		return b + `]}`
	},
}

var placeholder = regexp.MustCompile(`\[masqué (c\d+) read (\d+) (prn_\w+)\]`)

// H2, H3, H+2: old results become placeholders, everything else goes as it came, and the id in the
// placeholder gives the original back.
func TestOldResultsAreMasked(t *testing.T) {
	for path, kind := range map[string]string{"/v1/chat/completions": "openai", "/v1/responses": "openai", "/v1/messages": "anthropic"} {
		t.Run(path, func(t *testing.T) {
			f, r := newFar(t, says(http.StatusOK, `{}`)), keeper(t, nil)
			g := open(t, []chat.Provider{provider("p", kind, f.URL)}, masking(r, rolling))
			sent := talks[path](5)
			g.post(t, path, sent, nil)
			got := string(f.calls()[0].body)
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
				if err := original.WriteText(t.Context(), &text); err != nil || text.String() != result(i) {
					t.Errorf("%s gives %q, %v", m[3], text.String(), err)
				}
				quoted := fmt.Sprintf("%q", result(i))
				back = strings.Replace(back, m[0], quoted[1:len(quoted)-1], 1)
			}
			if back != sent {
				t.Errorf("got %s\nwant %s", back, sent)
			}
		})
	}
}

// H4, H7, H10, I1: what is off, has no old results, or cannot be kept or read, goes byte for byte as
// it came.
func TestRestGoesAsItCame(t *testing.T) {
	off := func(c *recall.Config) { c.Enabled = false }
	for name, c := range map[string]struct {
		path, kind, body string
		kept             func(*recall.Config)
		policy           func(*history.Policy)
	}{
		"disabled":      {"/v1/chat/completions", "openai", talks["/v1/chat/completions"](5), nil, func(p *history.Policy) { rolling(p); p.Enabled = false }},
		"no window":     {"/v1/chat/completions", "openai", talks["/v1/chat/completions"](5), nil, func(p *history.Policy) { rolling(p); p.WindowTurns = 0 }},
		"young":         {"/v1/chat/completions", "openai", talks["/v1/chat/completions"](2), nil, rolling},
		"nothing kept":  {"/v1/chat/completions", "openai", talks["/v1/chat/completions"](5), off, rolling},
		"no messages":   {"/v1/chat/completions", "openai", `{"model":"m-1","messages":7}`, nil, rolling},
		"doubled key":   {"/v1/chat/completions", "openai", `{"model":"m-1","messages":[{"role":"tool","role":"user"}]}`, nil, func(p *history.Policy) { p.Enabled = false }},
		"all is marked": {"/v1/messages", "anthropic", markLast(talks["/v1/messages"](5)), nil, rolling},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t, says(http.StatusOK, `{}`))
			g := open(t, []chat.Provider{provider("p", c.kind, f.URL)}, masking(keeper(t, c.kept), c.policy))
			g.post(t, c.path, c.body, nil)
			if calls := f.calls(); len(calls) != 1 || string(calls[0].body) != c.body {
				t.Errorf("got %q", calls)
			}
		})
	}
}

// H+1, I4: where a provider's cache gives a discount, what was sent stays a prefix of what is sent
// next but for few turns.
func TestPrefixesHoldWhereTheyPay(t *testing.T) {
	f, r := newFar(t, says(http.StatusOK, `{}`)), keeper(t, nil)
	cached := provider("p", "openai", f.URL, func(p *chat.Provider) { p.Cache.Write, p.Cache.Read = 1.25, .1 })
	g := open(t, []chat.Provider{cached}, masking(r, func(p *history.Policy) { rolling(p); p.Advance = history.Auto }))
	broken, last := 0, ""
	for n := 1; n <= 40; n++ {
		g.post(t, "/v1/chat/completions", talks["/v1/chat/completions"](n), nil)
		now := strings.TrimSuffix(string(f.calls()[n-1].body), "]}")
		if !strings.HasPrefix(now, last) {
			broken++
		}
		last = now
	}
	if broken > 5 {
		t.Errorf("the prefix broke at %d of 40 turns", broken)
	}
}

// H5, H+5: a placeholder names recovery where the model has a tool for it, and only there.
func TestHPlus5PlaceholdersNameRecoveryWhereItWorks(t *testing.T) {
	const path = "/v1/chat/completions"
	for name, c := range map[string]struct {
		tools string
		named bool
	}{
		"no tools":        {``, false},
		"others":          {`"tools":[{"type":"function","function":{"name":"read"}}],`, false},
		"the hub's":       {`"tools":[{"type":"function","function":{"name":"mcp__ctxgate__recover_text","parameters":{"properties":{"prune_id":{}}}}}],`, true},
		"somebody else's": {`"tools":[{"type":"function","function":{"name":"recover_text"}}],`, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFar(t, says(http.StatusOK, `{}`))
			g := open(t, []chat.Provider{provider("p", "openai", f.URL)}, masking(keeper(t, nil), func(p *history.Policy) {
				rolling(p)
				p.Template = history.DefaultTemplate
			}))
			g.post(t, path, strings.Replace(talks[path](5), `"messages"`, c.tools+`"messages"`, 1), nil)
			got := string(f.calls()[0].body)
			const bare = "[Observation masquée: résultat d’outil ancien (tool_call_id=c0, outil=read, chars=380)]"
			if !strings.Contains(got, bare) || strings.Contains(got, bare+" [recover: prune_id=prn_") != c.named {
				t.Errorf("got %s", got)
			}
		})
	}
}
