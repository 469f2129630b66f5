package chat_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/recall"
)

// A test for each clause of the contract, H1–H10 and H+1–H+4, by what the provider gets for what the
// client sent. (H10 is also in bytes_test.go, H+1 in memory_test.go, H+2 in history_test.go.)

// policy is the document's window of one turn, with the document's placeholder.
func policy(p *history.Policy) { p.Advance, p.WindowTurns, p.KeepHandles = history.EachTurn, 1, 0 }

// through sends a request through a door that masks, and gives what the provider got.
func through(t *testing.T, path, body string, change ...func(*history.Policy)) string {
	t.Helper()
	return sendAll(t, keeper(t, nil), path, []string{body}, 1, change...)[0]
}

// sendAll sends requests one after the other to a provider whose cached input costs read.
func sendAll(t *testing.T, r *recall.Recall, path string, bodies []string, read float64, change ...func(*history.Policy)) []string {
	t.Helper()
	f := newFar(t, says(http.StatusOK, `{}`))
	kind := "openai"
	if path == "/v1/messages" {
		kind = "anthropic"
	}
	p := provider("p", kind, f.URL, func(p *chat.Provider) { p.Cache.Read = read })
	g := open(t, []chat.Provider{p}, masking(r, func(p *history.Policy) {
		policy(p)
		for _, f := range change {
			f(p)
		}
	}))
	var out []string
	for i, body := range bodies {
		if resp, said := g.post(t, path, body, nil); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, said)
		}
		out = append(out, string(f.calls()[i].body))
	}
	return out
}

const completions = "/v1/chat/completions"

// conversation is a request for a completion.
func conversation(messages ...string) string {
	return `{"model":"m-1","messages":[` + strings.Join(messages, ",") + `]}`
}

// calls is a tool turn.
func calls(name string, ids ...string) string {
	var list []string
	for _, id := range ids {
		list = append(list, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":"{}"}}`, id, name))
	}
	return `{"role":"assistant","content":null,"tool_calls":[` + strings.Join(list, ",") + `]}`
}

// answers is what a tool said.
func answers(id, text string) string {
	return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":%q}`, id, text)
}

// turn is a tool turn of one call with its result.
func turn(id, text string) string { return calls("read", id) + "," + answers(id, text) }

// long is a text of n characters that is no error.
func long(n int) string { return strings.Repeat("é", n) }

// mask is the document's placeholder.
func mask(id, name string, chars int) string {
	return fmt.Sprintf("[Observation masquée: résultat d’outil ancien (tool_call_id=%s, outil=%s, chars=%d)]", id, name, chars)
}

// swap is a body in which the results of some calls are masked, and nothing else is changed (H3).
func swap(t *testing.T, body string, masks map[string]string) string {
	t.Helper()
	for old, now := range masks {
		if strings.Count(body, `"`+old+`"`) != 1 {
			t.Fatalf("%.40q is not there once", old)
		}
		body = strings.Replace(body, `"`+old+`"`, `"`+now+`"`, 1)
	}
	return body
}

func check(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// H1: a turn is a message of the assistant with at least one id that is a string; a result belongs
// to the turn that names its id, wherever it stands.
func TestH1WhatATurnIs(t *testing.T) {
	const noTurns = `{"role":"assistant","content":"x","tool_calls":[{"id":7},null]},{"role":"assistant","tool_calls":[]},` +
		`{"role":"assistant","tool_calls":{"id":"a"}},{"role":"user","content":"u","tool_calls":[{"id":"u"}]}`
	sent := conversation(turn("a", long(300)), noTurns, turn("b", long(301)), noTurns)
	check(t, "window 1", through(t, completions, sent), swap(t, sent, map[string]string{long(300): mask("a", "read", 300)}))
	check(t, "window 2", through(t, completions, sent, func(p *history.Policy) { p.WindowTurns = 2 }), sent)
	late := conversation(calls("read", "a"), turn("b", long(301)), answers("a", long(300)))
	check(t, "a late result", through(t, completions, late), swap(t, late, map[string]string{long(300): mask("a", "read", 300)}))
}

// H2: the results of the last turns stay, those of older ones are masked; the calls of one turn move
// together.
func TestH2TheWindowMoves(t *testing.T) {
	three := calls("read", "a", "b", "c") + "," + answers("a", long(300)) + "," + answers("b", long(301)) + "," + answers("c", long(302))
	all := map[string]string{long(300): mask("a", "read", 300), long(301): mask("b", "read", 301), long(302): mask("c", "read", 302)}
	sent := conversation(three, turn("d", long(303)))
	two := func(p *history.Policy) { p.WindowTurns = 2 }
	check(t, "in the window", through(t, completions, sent, two), sent)
	sent = conversation(three, turn("d", long(303)), turn("e", long(304)))
	check(t, "out of it", through(t, completions, sent, two), swap(t, sent, all))
}

// H2: where the window moves at every turn, short results are masked too, the empty one as well; in
// profile = "agents", and with every other policy, one that would not get shorter stays (I5).
func TestH2ShortResultsAreMasked(t *testing.T) {
	sent := conversation(turn("a", "ok"), turn("b", ""), turn("c", long(300)), turn("d", "last"))
	short := map[string]string{"ok": mask("a", "read", 2), "": mask("b", "read", 0), long(300): mask("c", "read", 300)}
	long := map[string]string{long(300): mask("c", "read", 300)}
	check(t, "turn", through(t, completions, sent), swap(t, sent, short))
	check(t, "auto without a discount", through(t, completions, sent, func(p *history.Policy) { p.Advance = history.Auto }), swap(t, sent, short))
	check(t, "agents", through(t, completions, sent, func(p *history.Policy) { p.Agents = true }), swap(t, sent, long))
	check(t, "stride", through(t, completions, sent, func(p *history.Policy) { p.Advance, p.Stride = history.Stride, 1 }), swap(t, sent, long))
	check(t, "pressure", through(t, completions, sent, func(p *history.Policy) {
		p.Advance, p.TriggerTokens, p.ClearAtLeast = history.Pressure, 0, 0
	}), swap(t, sent, long))
}

// H3: nothing is added, removed or moved; ids and calls stay; every byte but those of the masked
// text is the client's, however it spells them.
func TestH3OnlyTheTextIsReplaced(t *testing.T) {
	odd := "{ \"n\":1e0,\t\"messages\" : [ {\"tool_calls\":[ {\"id\":\"\\u0061\",\"function\":{\"arguments\":\"{}\",\"name\":\"re\\u0061d\"},\"type\":\"function\"} ],\"role\":\"assistant\", \"x\":-0.0}," +
		" {\"content\" : \"" + long(300) + "\", \"tool_call_id\":\"\\u0061\" ,\"role\":\"t\\u006fol\"},\n" + turn("b", long(301)) + " ] , \"model\":\"m-1\" }\n"
	check(t, "odd spelling", through(t, completions, odd), swap(t, odd, map[string]string{long(300): mask("a", "read", 300)}))
}

// H4: the policy's defaults, and what turns it off.
func TestH4Policy(t *testing.T) {
	p := chat.Default().Observation.Schema1
	if !p.Enabled || p.WindowTurns != 8 || !p.KeepErrors || p.KeepLastK != 0 || p.Template != history.DefaultTemplate {
		t.Errorf("the defaults are %+v", p)
	}
	sent := conversation(turn("a", long(300)), turn("b", long(301)), turn("c", long(302)))
	for name, change := range map[string]func(*history.Policy){
		"not enabled": func(p *history.Policy) { p.Enabled = false },
		"no window":   func(p *history.Policy) { p.WindowTurns = 0 },
		"less":        func(p *history.Policy) { p.WindowTurns = -3 },
	} {
		check(t, name, through(t, completions, sent, change), sent)
	}
}

// H5: the placeholder is the document's, or what the template says.
func TestH5ThePlaceholder(t *testing.T) {
	nameless := `{"role":"assistant","tool_calls":[{"id":"a"}]},` + answers("a", long(300))
	sent := conversation(nameless, turn("b", long(301)))
	check(t, "no name", through(t, completions, sent), swap(t, sent, map[string]string{long(300): mask("a", "inconnu", 300)}))
	sent = conversation(turn("a", long(300)), turn("b", long(301)))
	id := keeper(t, nil).ID(auth.DefaultTenant, long(300))
	got := through(t, completions, sent, func(p *history.Policy) {
		p.Template = "{tool_name}|{tool_call_id}|{original_chars}|{prune_id}|{x}"
	})
	check(t, "a template", got, swap(t, sent, map[string]string{long(300): "read|a|300|" + id + "|{x}"}))
}

// H6, H7: only a result with an id that a known turn named, and that is a string, can be masked.
func TestH6H7WhatIsNoCandidate(t *testing.T) {
	for name, message := range map[string]string{
		"no id":           `{"role":"tool","content":"` + long(300) + `"}`,
		"an empty id":     answers("", long(300)),
		"an id of number": `{"role":"tool","tool_call_id":1,"content":"` + long(300) + `"}`,
		"an orphan":       answers("nobody", long(300)),
		"another's role":  `{"role":"function","tool_call_id":"a","content":"` + long(300) + `"}`,
		"a list":          `{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"` + long(300) + `"}]}`,
		"null":            `{"role":"tool","tool_call_id":"a","content":null}`,
		"an object":       `{"role":"tool","tool_call_id":"a","content":{"text":"` + long(300) + `"}}`,
		"nothing":         `{"role":"tool","tool_call_id":"a"}`,
	} {
		sent := conversation(calls("read", "a"), message, turn("b", long(301)), turn("c", long(302)))
		check(t, name, through(t, completions, sent), swap(t, sent, map[string]string{long(301): mask("b", "read", 301)}))
	}
}

// H8: what looks like an error stays, where keep_errors says so. What only mentions one stays in
// profile = "document", and does not in profile = "agents".
func TestH8ErrorsStay(t *testing.T) {
	more := strings.Repeat(" and so on", 40)
	const document = true // and agents: no
	mentions := map[string]bool{
		`{"error":null,"rows":"` + more + `"}`:              document,
		`{"error":"","status":"ok","rows":"` + more + `"}`:  document,
		"def f(timeout=3):\n    raise MyException()" + more: document,
	}
	for text, stays := range map[string]bool{
		"Traceback (most recent call last):" + more:                           true,
		"java.lang.IllegalStateException: Exception in thread" + more:         true,
		"Error: no such file" + more:                                          true,
		"calling\nerror: it broke" + more:                                     true,
		"dial tcp: connection refused" + more:                                 true,
		`{"error":{"code":1},"x":"` + more + `"}`:                             true,
		`{"status":"error","x":"` + more + `"}`:                               true,
		`{"error":null,"rows":"` + more + `"}`:                                document,
		`{"error":"","status":"ok","rows":"` + more + `"}`:                    document,
		"def f(timeout=3):\n    raise MyException()" + more:                   document,
		"func f() error {\n\treturn errors.New(\"x\")\n}\n// raise it" + more: false,
		"The build went well." + more:                                         false,
	} {
		quoted := strings.Trim(fmt.Sprintf("%q", text), `"`)
		sent := conversation(calls("read", "a")+`,{"role":"tool","tool_call_id":"a","content":"`+quoted+`"}`, turn("b", long(301)))
		masked := swap(t, sent, map[string]string{quoted: mask("a", "read", len(text))})
		want := masked
		if stays {
			want = sent
		}
		check(t, "kept", through(t, completions, sent), want)
		check(t, "not kept", through(t, completions, sent, func(p *history.Policy) { p.KeepErrors = false }), masked)
		if mentions[text] {
			want = masked
		}
		check(t, "kept, agents", through(t, completions, sent, func(p *history.Policy) { p.Agents = true }), want)
	}
}

// H9: the last results of each tool stay, wherever they stand.
func TestH9TheLastOfEachToolStay(t *testing.T) {
	sent := conversation(
		calls("read", "a"), answers("a", long(300)), calls("grep", "b"), answers("b", long(301)),
		calls("read", "c"), answers("c", long(302)), calls("read", "d"), answers("d", long(303)), calls("list", "e"), answers("e", long(304)))
	for k, masks := range map[int]map[string]string{
		0: {long(300): mask("a", "read", 300), long(301): mask("b", "grep", 301), long(302): mask("c", "read", 302), long(303): mask("d", "read", 303)},
		1: {long(300): mask("a", "read", 300), long(302): mask("c", "read", 302)},
		2: {long(300): mask("a", "read", 300)},
		3: {},
	} {
		check(t, fmt.Sprint(k), through(t, completions, sent, func(p *history.Policy) { p.KeepLastK = k }), swap(t, sent, masks))
	}
}

// grown are the requests of a conversation as it grows by a turn each.
func grown(path string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, talks[path](i+1))
	}
	return out
}

// moves are the requests, by their turns, at which the prefix of what was sent before changed.
func moves(sent []string) []int {
	var out []int
	for i := 1; i < len(sent); i++ {
		if !strings.HasPrefix(sent[i], strings.TrimSuffix(sent[i-1], "]}")) {
			out = append(out, i+1)
		}
	}
	return out
}

// H+1: the window moves when the policy says so, and else what was sent stays a prefix of what is
// sent next. (A turn here is about 170 tokens, of which masking clears 97: hence the pressure's.)
func TestHPlus1TheWindowMovesWhenItIsDue(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*history.Policy)
		read   float64
		want   string
	}{
		"turn":                        {policy, 1, "[2 3 4 5 6 7 8 9 10 11 12]"},
		"turn, whatever the cache":    {policy, .1, "[2 3 4 5 6 7 8 9 10 11 12]"},
		"stride":                      {func(p *history.Policy) { p.Advance, p.Stride = history.Stride, 4 }, .1, "[5 9]"},
		"pressure":                    {func(p *history.Policy) { p.Advance, p.TriggerTokens, p.ClearAtLeast = history.Pressure, 700, 400 }, .1, "[6 11]"},
		"pressure that is not felt":   {func(p *history.Policy) { p.Advance = history.Pressure }, .1, "[]"},
		"auto, without a discount":    {func(p *history.Policy) { p.Advance = history.Auto }, 1, "[2 3 4 5 6 7 8 9 10 11 12]"},
		"auto, where it does not pay": {func(p *history.Policy) { p.Advance, p.WindowTurns = history.Auto, 8 }, .01, "[]"},
	} {
		for _, path := range []string{completions, "/v1/responses"} {
			sent := sendAll(t, keeper(t, nil), path, grown(path, 12), c.read, c.change)
			if got := fmt.Sprint(moves(sent)); got != c.want {
				t.Errorf("%s, %s: it moved at %s, want %s", path, name, got, c.want)
			}
		}
	}
}

// H+2: the same text has the same id on every turn, at every replica, in every shape, and can be
// read back by it.
func TestHPlus2IdsAreTheText(t *testing.T) {
	ids := map[string]string{}
	for path := range talks {
		for replica := range 2 {
			sent := sendAll(t, keeper(t, nil), path, grown(path, 6), 1, rolling)
			for i, body := range sent {
				for _, m := range placeholder.FindAllStringSubmatch(body, -1) {
					if id, ok := ids[m[1]]; ok && id != m[3] {
						t.Fatalf("%s, replica %d, turn %d: %s is %s, and was %s", path, replica, i, m[1], m[3], id)
					}
					ids[m[1]] = m[3]
				}
			}
		}
	}
	if len(ids) != 4 {
		t.Errorf("got %v", ids)
	}
}

// H+3: the results of the other shapes are masked by the same rules, in all their forms.
func TestHPlus3OtherShapes(t *testing.T) {
	use := func(id string) string {
		return fmt.Sprintf(`{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"tool_use","id":%q,"name":"read","input":{}}]}`, id)
	}
	block := func(id, rest string) string {
		return fmt.Sprintf(`{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,%s}]}`, id, rest)
	}
	call := func(id string) string {
		return fmt.Sprintf(`{"type":"function_call","call_id":%q,"name":"read","arguments":"{}"}`, id)
	}
	output := func(id, value string) string {
		return fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":%s}`, id, value)
	}
	text, image := `"`+long(300)+`"`, `{"type":"image","source":{"type":"url","url":"u"}}`
	last := use("z") + "," + block("z", `"content":"`+long(301)+`"`)
	lastItem := call("z") + "," + output("z", `"`+long(301)+`"`)
	for name, c := range map[string]struct {
		path, first, last string
		masks             map[string]string
	}{
		"a text":            {"/v1/messages", use("a") + "," + block("a", `"content":`+text), last, map[string]string{long(300): mask("a", "read", 300)}},
		"blocks":            {"/v1/messages", use("a") + "," + block("a", `"content":[{"type":"text","text":`+text+`},{"type":"text","text":"second"}]`), last, map[string]string{long(300): mask("a", "read", 307), "second": "…"}},
		"an image":          {"/v1/messages", use("a") + "," + block("a", `"content":[{"type":"text","text":`+text+`},`+image+`]`), last, nil},
		"an error":          {"/v1/messages", use("a") + "," + block("a", `"is_error":true,"content":`+text), last, nil},
		"nothing":           {"/v1/messages", use("a") + "," + block("a", `"is_error":false`), last, nil},
		"an orphan":         {"/v1/messages", block("b", `"content":`+text), last, nil},
		"an item":           {"/v1/responses", call("a") + "," + output("a", text), lastItem, map[string]string{long(300): mask("a", "read", 300)}},
		"parts":             {"/v1/responses", call("a") + "," + output("a", `[{"type":"input_text","text":`+text+`}]`), lastItem, map[string]string{long(300): mask("a", "read", 300)}},
		"a picture":         {"/v1/responses", call("a") + "," + output("a", `[{"type":"input_text","text":`+text+`},{"type":"input_image","image_url":"data:"}]`), lastItem, nil},
		"an orphan of them": {"/v1/responses", output("b", text), lastItem, nil},
		"kept elsewhere":    {"/v1/responses", `{"type":"item_reference","id":"a"},` + call("a") + "," + output("a", text), lastItem, map[string]string{long(300): mask("a", "read", 300)}},
	} {
		list := "messages"
		if c.path == "/v1/responses" {
			list = "input"
		}
		sent := fmt.Sprintf(`{"model":"m-1",%q:[%s,%s]}`, list, c.first, c.last)
		check(t, name, through(t, c.path, sent), swap(t, sent, c.masks))
	}
}

// H+4: a placeholder names the identifiers of its result that the conversation went on to use.
func TestHPlus4HandlesSurvive(t *testing.T) {
	text := "see src/main.go and src/other.go, user-4211. " + long(300)
	later := `{"role":"assistant","content":"I look at src/other.go, then at user-4211."}`
	sent := conversation(turn("a", text), later, turn("b", long(301)))
	for n, want := range map[int]string{0: "", 1: " [repères: src/other.go]", 4: " [repères: src/other.go, user-4211]"} {
		got := through(t, completions, sent, func(p *history.Policy) { p.KeepHandles = n })
		check(t, fmt.Sprint(n), got, swap(t, sent, map[string]string{text: mask("a", "read", len([]rune(text))) + want}))
	}
}
