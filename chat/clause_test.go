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

// One test for each clause of the contract, H1–H9 and H+1–H+4: each compares what the provider gets with what
// the client sent. (H10 is in bytes_test.go; more of H+1 is in conversationstate_test.go.)

// oneTurnWindow sets the document's policy with a window of one turn and no handles.
func oneTurnWindow(p *history.Policy) {
	p.Advance, p.WindowTurns, p.KeepHandles = history.AdvanceEachTurn, 1, 0
}

// sendMasked sends a request through a masking gateway and returns what the provider got.
func sendMasked(t *testing.T, path, body string, change ...func(*history.Policy)) string {
	t.Helper()
	return sendAll(t, newRecall(t, nil), path, []string{body}, 1, change...)[0]
}

// sendAll sends requests in order to a provider whose cached input costs read, and returns what it got.
func sendAll(t *testing.T, r *recall.Recall, path string, bodies []string, read float64, change ...func(*history.Policy)) []string {
	t.Helper()
	f := newStubProvider(t, respond(http.StatusOK, `{}`))
	kind := "openai"
	switch path {
	case "/v1/messages":
		kind = "anthropic"
	case geminiPath:
		kind = "gemini"
	}
	p := providerConfig("p", kind, f.URL, func(p *chat.Provider) { p.Cache.Read = read })
	g := newGateway(t, []chat.Provider{p}, withMasking(r, func(p *history.Policy) {
		oneTurnWindow(p)
		for _, f := range change {
			f(p)
		}
	}))
	var out []string
	for i, body := range bodies {
		if resp, reply := g.post(t, path, body, nil); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, reply)
		}
		out = append(out, string(f.requests()[i].body))
	}
	return out
}

const completions = "/v1/chat/completions"

// completionRequest is a chat completions request.
func completionRequest(messages ...string) string {
	return `{"model":"m-1","messages":[` + strings.Join(messages, ",") + `]}`
}

// callsMessage is an assistant message that calls a tool, once for each id.
func callsMessage(name string, ids ...string) string {
	var list []string
	for _, id := range ids {
		list = append(list, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%q,"arguments":"{}"}}`, id, name))
	}
	return `{"role":"assistant","content":null,"tool_calls":[` + strings.Join(list, ",") + `]}`
}

// resultMessage is the result of a call.
func resultMessage(id, text string) string {
	return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":%q}`, id, text)
}

// turnMessages is a tool turn of one call with its result.
func turnMessages(id, text string) string {
	return callsMessage("read", id) + "," + resultMessage(id, text)
}

// longText is a text of n characters that does not look like an error.
func longText(n int) string { return strings.Repeat("é", n) }

// placeholderText is the document's placeholder.
func placeholderText(id, name string, chars int) string {
	return fmt.Sprintf("[Observation masquée: résultat d’outil ancien (tool_call_id=%s, outil=%s, chars=%d)]", id, name, chars)
}

// withMasks replaces texts of a body by their masks and changes nothing else (H3).
func withMasks(t *testing.T, body string, masks map[string]string) string {
	t.Helper()
	for text, mask := range masks {
		if strings.Count(body, `"`+text+`"`) != 1 {
			t.Fatalf("the body does not contain %.40q exactly once", text)
		}
		body = strings.Replace(body, `"`+text+`"`, `"`+mask+`"`, 1)
	}
	return body
}

func wantEqual(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

// H1: a turn is an assistant message with at least one call whose id is a string; a result belongs to the turn
// that names its id, wherever it stands.
func TestH1Turns(t *testing.T) {
	const noTurns = `{"role":"assistant","content":"x","tool_calls":[{"id":7},null]},{"role":"assistant","tool_calls":[]},` +
		`{"role":"assistant","tool_calls":{"id":"a"}},{"role":"user","content":"u","tool_calls":[{"id":"u"}]}`
	sent := completionRequest(turnMessages("a", longText(300)), noTurns, turnMessages("b", longText(301)), noTurns)
	wantEqual(t, "window 1", sendMasked(t, completions, sent), withMasks(t, sent, map[string]string{longText(300): placeholderText("a", "read", 300)}))
	wantEqual(t, "window 2", sendMasked(t, completions, sent, func(p *history.Policy) { p.WindowTurns = 2 }), sent)
	late := completionRequest(callsMessage("read", "a"), turnMessages("b", longText(301)), resultMessage("a", longText(300)))
	wantEqual(t, "a late result", sendMasked(t, completions, late), withMasks(t, late, map[string]string{longText(300): placeholderText("a", "read", 300)}))
}

// H2: the results of the last turns stay and older ones are masked; the results of one turn move together.
func TestH2TheWindowMoves(t *testing.T) {
	three := callsMessage("read", "a", "b", "c") + "," + resultMessage("a", longText(300)) + "," + resultMessage("b", longText(301)) + "," + resultMessage("c", longText(302))
	all := map[string]string{longText(300): placeholderText("a", "read", 300), longText(301): placeholderText("b", "read", 301), longText(302): placeholderText("c", "read", 302)}
	sent := completionRequest(three, turnMessages("d", longText(303)))
	two := func(p *history.Policy) { p.WindowTurns = 2 }
	wantEqual(t, "in the window", sendMasked(t, completions, sent, two), sent)
	sent = completionRequest(three, turnMessages("d", longText(303)), turnMessages("e", longText(304)))
	wantEqual(t, "outside the window", sendMasked(t, completions, sent, two), withMasks(t, sent, all))
}

// H2: where the window moves at every turn, short and empty results are masked too; in profile = "agents", and
// with every other policy, a result that would not get shorter stays (I5).
func TestH2ShortResultsAreMasked(t *testing.T) {
	sent := completionRequest(turnMessages("a", "ok"), turnMessages("b", ""), turnMessages("c", longText(300)), turnMessages("d", "last"))
	short := map[string]string{"ok": placeholderText("a", "read", 2), "": placeholderText("b", "read", 0), longText(300): placeholderText("c", "read", 300)}
	long := map[string]string{longText(300): placeholderText("c", "read", 300)}
	wantEqual(t, "turn", sendMasked(t, completions, sent), withMasks(t, sent, short))
	wantEqual(t, "auto without a discount", sendMasked(t, completions, sent, func(p *history.Policy) { p.Advance = history.AdvanceAuto }), withMasks(t, sent, short))
	wantEqual(t, "agents", sendMasked(t, completions, sent, func(p *history.Policy) { p.Agents = true }), withMasks(t, sent, long))
	wantEqual(t, "stride", sendMasked(t, completions, sent, func(p *history.Policy) { p.Advance, p.Stride = history.AdvanceStride, 1 }), withMasks(t, sent, long))
	wantEqual(t, "pressure", sendMasked(t, completions, sent, func(p *history.Policy) {
		p.Advance, p.TriggerTokens, p.ClearAtLeast = history.AdvancePressure, 0, 0
	}), withMasks(t, sent, long))
}

// H3: nothing is added, removed or moved; every byte outside the masked text is the client's, however the JSON
// is written.
func TestH3OnlyTheTextIsReplaced(t *testing.T) {
	odd := "{ \"n\":1e0,\t\"messages\" : [ {\"tool_calls\":[ {\"id\":\"\\u0061\",\"function\":{\"arguments\":\"{}\",\"name\":\"re\\u0061d\"},\"type\":\"function\"} ],\"role\":\"assistant\", \"x\":-0.0}," +
		" {\"content\" : \"" + longText(300) + "\", \"tool_call_id\":\"\\u0061\" ,\"role\":\"t\\u006fol\"},\n" + turnMessages("b", longText(301)) + " ] , \"model\":\"m-1\" }\n"
	wantEqual(t, "odd spelling", sendMasked(t, completions, odd), withMasks(t, odd, map[string]string{longText(300): placeholderText("a", "read", 300)}))
}

// H4: the policy has these defaults, and these settings turn it off.
func TestH4Policy(t *testing.T) {
	p := chat.Default().ObservationMasking.Schema1
	if !p.Enabled || p.WindowTurns != 8 || !p.KeepErrors || p.KeepLastK != 0 || p.Template != history.DefaultTemplate {
		t.Errorf("the defaults are %+v", p)
	}
	sent := completionRequest(turnMessages("a", longText(300)), turnMessages("b", longText(301)), turnMessages("c", longText(302)))
	for name, change := range map[string]func(*history.Policy){
		"not enabled": func(p *history.Policy) { p.Enabled = false },
		"no window":   func(p *history.Policy) { p.WindowTurns = 0 },
		"negative":    func(p *history.Policy) { p.WindowTurns = -3 },
	} {
		wantEqual(t, name, sendMasked(t, completions, sent, change), sent)
	}
}

// H5: the placeholder is the document's, or follows the template.
func TestH5ThePlaceholder(t *testing.T) {
	nameless := `{"role":"assistant","tool_calls":[{"id":"a"}]},` + resultMessage("a", longText(300))
	sent := completionRequest(nameless, turnMessages("b", longText(301)))
	wantEqual(t, "no name", sendMasked(t, completions, sent), withMasks(t, sent, map[string]string{longText(300): placeholderText("a", "inconnu", 300)}))
	sent = completionRequest(turnMessages("a", longText(300)), turnMessages("b", longText(301)))
	id := newRecall(t, nil).ID(auth.DefaultTenant, longText(300))
	got := sendMasked(t, completions, sent, func(p *history.Policy) {
		p.Template = "{tool_name}|{tool_call_id}|{original_chars}|{prune_id}|{x}"
	})
	wantEqual(t, "a template", got, withMasks(t, sent, map[string]string{longText(300): "read|a|300|" + id + "|{x}"}))
}

// H6, H7: a result is masked only if its content is a string and a known turn names its id.
func TestH6H7ResultsThatAreNotMasked(t *testing.T) {
	for name, message := range map[string]string{
		"no id":        `{"role":"tool","content":"` + longText(300) + `"}`,
		"an empty id":  resultMessage("", longText(300)),
		"a numeric id": `{"role":"tool","tool_call_id":1,"content":"` + longText(300) + `"}`,
		"an orphan":    resultMessage("unknown", longText(300)),
		"another role": `{"role":"function","tool_call_id":"a","content":"` + longText(300) + `"}`,
		"a list":       `{"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"` + longText(300) + `"}]}`,
		"null":         `{"role":"tool","tool_call_id":"a","content":null}`,
		"an object":    `{"role":"tool","tool_call_id":"a","content":{"text":"` + longText(300) + `"}}`,
		"no content":   `{"role":"tool","tool_call_id":"a"}`,
	} {
		sent := completionRequest(callsMessage("read", "a"), message, turnMessages("b", longText(301)), turnMessages("c", longText(302)))
		wantEqual(t, name, sendMasked(t, completions, sent), withMasks(t, sent, map[string]string{longText(301): placeholderText("b", "read", 301)}))
	}
}

// H8: with keep_errors, what looks like an error stays. What only mentions one stays in profile = "document" and
// is masked in profile = "agents".
func TestH8ErrorsStay(t *testing.T) {
	more := strings.Repeat(" and so on", 40)
	const document = true // stays in profile = "document", not in "agents"
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
		sent := completionRequest(callsMessage("read", "a")+`,{"role":"tool","tool_call_id":"a","content":"`+quoted+`"}`, turnMessages("b", longText(301)))
		masked := withMasks(t, sent, map[string]string{quoted: placeholderText("a", "read", len(text))})
		want := masked
		if stays {
			want = sent
		}
		wantEqual(t, "kept", sendMasked(t, completions, sent), want)
		wantEqual(t, "not kept", sendMasked(t, completions, sent, func(p *history.Policy) { p.KeepErrors = false }), masked)
		if mentions[text] {
			want = masked
		}
		wantEqual(t, "kept, agents", sendMasked(t, completions, sent, func(p *history.Policy) { p.Agents = true }), want)
	}
}

// H9: the last K results of each tool stay, wherever they stand.
func TestH9TheLastOfEachToolStay(t *testing.T) {
	sent := completionRequest(
		callsMessage("read", "a"), resultMessage("a", longText(300)), callsMessage("grep", "b"), resultMessage("b", longText(301)),
		callsMessage("read", "c"), resultMessage("c", longText(302)), callsMessage("read", "d"), resultMessage("d", longText(303)), callsMessage("list", "e"), resultMessage("e", longText(304)))
	for k, masks := range map[int]map[string]string{
		0: {longText(300): placeholderText("a", "read", 300), longText(301): placeholderText("b", "grep", 301), longText(302): placeholderText("c", "read", 302), longText(303): placeholderText("d", "read", 303)},
		1: {longText(300): placeholderText("a", "read", 300), longText(302): placeholderText("c", "read", 302)},
		2: {longText(300): placeholderText("a", "read", 300)},
		3: {},
	} {
		wantEqual(t, fmt.Sprint(k), sendMasked(t, completions, sent, func(p *history.Policy) { p.KeepLastK = k }), withMasks(t, sent, masks))
	}
}

// growingRequests returns n requests of one conversation, each with one more turn.
func growingRequests(path string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, requestBodies[path](i+1))
	}
	return out
}

// movedTurns returns the turns at which the bytes sent before changed.
func movedTurns(sent []string) []int {
	var out []int
	for i := 1; i < len(sent); i++ {
		if !strings.HasPrefix(sent[i], strings.TrimSuffix(sent[i-1], "]}")) {
			out = append(out, i+1)
		}
	}
	return out
}

// H+1: the window moves only when the policy says so; otherwise the last request is a prefix of the next. (A
// turn here has about 170 tokens, of which masking clears 97: hence the numbers of the pressure policy.)
func TestHPlus1WindowMovesBySchedule(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*history.Policy)
		read   float64
		want   string
	}{
		"turn":                     {oneTurnWindow, 1, "[2 3 4 5 6 7 8 9 10 11 12]"},
		"turn, whatever the cache": {oneTurnWindow, .1, "[2 3 4 5 6 7 8 9 10 11 12]"},
		"stride":                   {func(p *history.Policy) { p.Advance, p.Stride = history.AdvanceStride, 4 }, .1, "[5 9]"},
		"pressure": {func(p *history.Policy) {
			p.Advance, p.TriggerTokens, p.ClearAtLeast = history.AdvancePressure, 700, 400
		}, .1, "[6 11]"},
		"pressure below its trigger":  {func(p *history.Policy) { p.Advance = history.AdvancePressure }, .1, "[]"},
		"auto, without a discount":    {func(p *history.Policy) { p.Advance = history.AdvanceAuto }, 1, "[2 3 4 5 6 7 8 9 10 11 12]"},
		"auto, where it does not pay": {func(p *history.Policy) { p.Advance, p.WindowTurns = history.AdvanceAuto, 8 }, .01, "[]"},
	} {
		for _, path := range []string{completions, "/v1/responses"} {
			sent := sendAll(t, newRecall(t, nil), path, growingRequests(path, 12), c.read, c.change)
			if got := fmt.Sprint(movedTurns(sent)); got != c.want {
				t.Errorf("%s, %s: the window moved at %s, want %s", path, name, got, c.want)
			}
		}
	}
}

// H+2: the same text has the same prune_id on every turn, at every replica and in every wire format.
func TestHPlus2IDsDependOnlyOnTheText(t *testing.T) {
	ids := map[string]string{}
	for path := range requestBodies {
		for replica := range 2 {
			sent := sendAll(t, newRecall(t, nil), path, growingRequests(path, 6), 1, twoTurnWindow)
			for i, body := range sent {
				for _, m := range placeholder.FindAllStringSubmatch(body, -1) {
					if id, ok := ids[m[1]]; ok && id != m[3] {
						t.Fatalf("%s, replica %d, turn %d: the id of %s is %s, and was %s", path, replica, i, m[1], m[3], id)
					}
					ids[m[1]] = m[3]
				}
			}
		}
	}
	if len(ids) != 4 {
		t.Errorf("got %v, want 4 ids", ids)
	}
}

// H+3: the results of the other wire formats are masked by the same rules, in all their forms.
func TestHPlus3OtherWires(t *testing.T) {
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
	text, image := `"`+longText(300)+`"`, `{"type":"image","source":{"type":"url","url":"u"}}`
	last := use("z") + "," + block("z", `"content":"`+longText(301)+`"`)
	lastItem := call("z") + "," + output("z", `"`+longText(301)+`"`)
	for name, c := range map[string]struct {
		path, first, last string
		masks             map[string]string
	}{
		"a text":            {"/v1/messages", use("a") + "," + block("a", `"content":`+text), last, map[string]string{longText(300): placeholderText("a", "read", 300)}},
		"blocks":            {"/v1/messages", use("a") + "," + block("a", `"content":[{"type":"text","text":`+text+`},{"type":"text","text":"second"}]`), last, map[string]string{longText(300): placeholderText("a", "read", 307), "second": "…"}},
		"an image":          {"/v1/messages", use("a") + "," + block("a", `"content":[{"type":"text","text":`+text+`},`+image+`]`), last, nil},
		"an error":          {"/v1/messages", use("a") + "," + block("a", `"is_error":true,"content":`+text), last, nil},
		"no content":        {"/v1/messages", use("a") + "," + block("a", `"is_error":false`), last, nil},
		"an orphan":         {"/v1/messages", block("b", `"content":`+text), last, nil},
		"an item":           {"/v1/responses", call("a") + "," + output("a", text), lastItem, map[string]string{longText(300): placeholderText("a", "read", 300)}},
		"parts":             {"/v1/responses", call("a") + "," + output("a", `[{"type":"input_text","text":`+text+`}]`), lastItem, map[string]string{longText(300): placeholderText("a", "read", 300)}},
		"a picture":         {"/v1/responses", call("a") + "," + output("a", `[{"type":"input_text","text":`+text+`},{"type":"input_image","image_url":"data:"}]`), lastItem, nil},
		"an orphan item":    {"/v1/responses", output("b", text), lastItem, nil},
		"an item reference": {"/v1/responses", `{"type":"item_reference","id":"a"},` + call("a") + "," + output("a", text), lastItem, map[string]string{longText(300): placeholderText("a", "read", 300)}},
	} {
		list := "messages"
		if c.path == "/v1/responses" {
			list = "input"
		}
		sent := fmt.Sprintf(`{"model":"m-1",%q:[%s,%s]}`, list, c.first, c.last)
		wantEqual(t, name, sendMasked(t, c.path, sent), withMasks(t, sent, c.masks))
	}
}

// H+4: a placeholder names the identifiers of its result that later messages use.
func TestHPlus4HandlesSurvive(t *testing.T) {
	text := "see src/main.go and src/other.go, user-4211. " + longText(300)
	later := `{"role":"assistant","content":"I look at src/other.go, then at user-4211."}`
	sent := completionRequest(turnMessages("a", text), later, turnMessages("b", longText(301)))
	for n, want := range map[int]string{0: "", 1: " [repères: src/other.go]", 4: " [repères: src/other.go, user-4211]"} {
		got := sendMasked(t, completions, sent, func(p *history.Policy) { p.KeepHandles = n })
		wantEqual(t, fmt.Sprint(n), got, withMasks(t, sent, map[string]string{text: placeholderText("a", "read", len([]rune(text))) + want}))
	}
}
