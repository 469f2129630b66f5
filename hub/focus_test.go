package hub_test

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
)

const focusMember = `"context_focus_question":{"type":"string","description":"What you are looking for in the result: of a long text ` +
	`only the lines that matter for it are shown, and the rest can be read back with recover_text."}`

// pruning prunes what the tools read* of server a give, looked at as logs.
func pruning(s *setup) {
	var rule hub.Policy
	rule.SetDefaults()
	rule.Server, rule.Tool, rule.Reduce, rule.PruneType = "a", "read*", "prune", "logs"
	s.hub.Policies = []hub.Policy{rule}
}

// The tools of a, as it lists them and as they are listed here, under the name @<name>.
var readers = [][2]string{
	{`{"name":@other,"inputSchema":{"type":"object"}}`, `{"name":@other,"inputSchema":{"type":"object"}}`},
	{
		`{"name":@read , "x":1.0,"inputSchema":{"type":"object","properties":{"q":{"const":12345678901234567890} },"required":["q"]} }`,
		`{"name":@read , "x":1.0,"inputSchema":{"type":"object","properties":{"q":{"const":12345678901234567890},` + focusMember + ` },"required":["q"]} }`,
	},
	{`{"inputSchema":{"type":"object"},"name":@read2}`, `{"inputSchema":{"type":"object","properties":{` + focusMember + `}},"name":@read2}`},
	{`{"name":@readOdd,"inputSchema":{"type":"object","oneOf":[{}]}}`, `{"name":@readOdd,"inputSchema":{"type":"object","oneOf":[{}]}}`},
	{
		`{"name":@readOwn,"inputSchema":{"type":"object","properties":{"context_focus_question":{"type":"string"}}}}`,
		`{"name":@readOwn,"inputSchema":{"type":"object","properties":{"context_focus_question":{"type":"string"}}}}`,
	},
}

var toolName = regexp.MustCompile(`@(\w+)`)

// readerList are the tools in one of their forms, with a prefix before their names.
func readerList(form int, prefix string) (items []string) {
	for _, r := range readers {
		items = append(items, toolName.ReplaceAllString(r[form], `"`+prefix+`$1"`))
	}
	return items
}

// journal is a long text of which one line matters.
func journal() string {
	var b strings.Builder
	for i := range 150 {
		if i == 70 {
			b.WriteString("the payment of order 4711 was declined: card expired\n")
			continue
		}
		fmt.Fprintf(&b, "worker %d has fetched page %d of the catalogue in %d ms\n", i%7, i*i, i%90)
	}
	return b.String()
}

func quoted(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

// reading is a server with those tools, all of which give the journal.
func reading(t testing.TB, id string, era mcp.Era, stdio bool) *far {
	return newFar(t, id, era, stdio).on(mcp.ToolsList, page("tools", readerList(0, "")...)).
		on(mcp.ToolsCall, says(`{"content":[{"type":"text","text":`+quoted(journal())+`}],"structuredContent":{"result":`+quoted(journal())+`,"n":1.0}}`))
}

// Policy prune, I2, I3: a tool is listed with one more argument where its schema surely takes it, at
// every door but that of the documents, where lists are the server's own; all other bytes stay.
func TestFocusIsOffered(t *testing.T) {
	t.Parallel()
	a, b := reading(t, "a", mcp.EraModern, false), reading(t, "b", mcp.EraLegacy, false)
	y := start(t, pruning, a, b)
	for _, era := range both {
		for range 2 {
			checkList(t, y.visit(t, "/mcp", era, "{}"), mcp.ToolsList, "tools", append(readerList(1, "a::"), readerList(0, "b::")...))
			checkList(t, y.visit(t, "/mcp/a", era, "{}"), mcp.ToolsList, "tools", readerList(1, ""))
			checkList(t, y.visit(t, "/mcp/b", era, "{}"), mcp.ToolsList, "tools", readerList(0, ""))
		}
	}
	if got := y.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); !strings.Contains(got.body, `{"tools":[`+strings.Join(readerList(0, ""), ",")+`]`) {
		t.Errorf("the gateway of one message: got %s", got.body)
	}
	c := y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	stop, _ := c.listen(t)
	defer stop()
	c.tools(t)
	y.apply(func(s *setup) { s.hub.Policies = nil })
	c.nextOf(t, mcp.ToolsChanged)
	checkList(t, c, mcp.ToolsList, "tools", append(readerList(0, "a::"), readerList(0, "b::")...))
}

var prunedBlock = regexp.MustCompile(`(?m)^⟦PRUNÉ: prune_id=(prn_[0-9a-z]{26}) lignes (\d+)-(\d+) \(\d+\) raison=hors focus⟧$`)

// looks says how a result was cut: pruned, masked or not, in content and structuredContent alike.
func looks(t testing.TB, result string) string {
	t.Helper()
	var p struct{ StructuredContent struct{ Result string } }
	text := said(t, result)
	if err := json.Unmarshal([]byte(result), &p); err != nil || p.StructuredContent.Result != text {
		t.Errorf("content and structuredContent differ: %.200s, %.200s", text, p.StructuredContent.Result)
	}
	switch {
	case prunedBlock.MatchString(text):
		return "pruned"
	case lineOfRecovery.MatchString(text):
		return "masked"
	}
	return "whole"
}

// focusCalls are calls of the tools of a: what the client says, what the server gets, and what
// becomes of the result.
var focusCalls = []struct{ tool, sent, got, want string }{
	{"read", `{ "q":"a \/ \u003cb","context_focus_question":"which order was declined?" , "n":12345678901234567890,"f":1.0 }`,
		`{ "q":"a \/ \u003cb","n":12345678901234567890,"f":1.0 }`, "pruned"},
	{"read2", `{"context_focus_question":"which order was d\u0065clined?"}`, `{}`, "pruned"},
	{"read_unlisted", `{"context\u005ffocus_question":"which order was declined?","x":{"context_focus_question":1}}`, `{"x":{"context_focus_question":1}}`, "pruned"},
	{"read", `{"q":1.0 }`, `{"q":1.0 }`, "masked"},
	{"read", `{"q":1,"context_focus_question":""}`, `{"q":1}`, "masked"},
	{"read", `{"q":1,"context_focus_question":" \n"}`, `{"q":1}`, "masked"},
	{"read", `{"q":1,"context_focus_question":null}`, `{"q":1}`, "masked"},
	{"read", `{"q":1,"context_focus_question":["x"]}`, `{"q":1}`, "masked"},
	{"readOwn", `{"context_focus_question":"why?" }`, `{"context_focus_question":"why?" }`, "masked"},
	{"readOdd", `{"context_focus_question":"why?" }`, `{"context_focus_question":"why?" }`, "masked"},
	{"other", `{"context_focus_question":"why?" }`, `{"context_focus_question":"why?" }`, "masked"},
}

// Policy prune, P4, G+4: what a call looks for is taken out of its arguments and decides what stays
// of the result, at every door, in every era and on every wire; all other bytes of the call arrive.
func TestFocusDecidesWhatStays(t *testing.T) {
	t.Parallel()
	for _, era := range both {
		for _, stdio := range []bool{true, false} {
			a := reading(t, "a", era, stdio)
			y := start(t, pruning, a)
			clients := map[string]*client{}
			for _, era := range both {
				clients["mcp "+era.String()] = y.visit(t, "/mcp", era, "{}")
				clients["mcp/a "+era.String()] = y.visit(t, "/mcp/a", era, able)
			}
			for name, c := range clients {
				prefix := map[string]string{"/mcp": "a::"}[c.path]
				for _, tt := range focusCalls {
					a.forget()
					got := c.ask(t, mcp.ToolsCall, `{"name":"`+prefix+tt.tool+`","arguments":`+tt.sent+`}`)
					var p struct{ Arguments json.RawMessage }
					_ = json.Unmarshal(a.await(t, mcp.ToolsCall, 1).Params, &p)
					if string(p.Arguments) != tt.got || looks(t, got) != tt.want {
						t.Errorf("%s to %s %v: %s %s: the server got %s, and the result is %s", name, a.era, stdio, tt.tool, tt.sent, p.Arguments, looks(t, got))
					}
				}
			}
		}
	}
}

// Policy prune at the gateway of one message, over a connection and to a server of plain JSON-RPC.
func TestFocusAtTheGatewayOfOneMessage(t *testing.T) {
	t.Parallel()
	a := reading(t, "a", mcp.EraLegacy, false)
	plain := replying(t, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":`+quoted(journal())+`}],"structuredContent":{"result":`+quoted(journal())+`}}}`)
	y := start(t, func(s *setup) {
		pruning(s)
		s.server("p", plain.URL)
		rule := s.hub.Policies[0]
		rule.Server = "p"
		s.hub.Policies = append(s.hub.Policies, rule)
	}, a)
	for _, tt := range focusCalls {
		a.forget()
		message := `{"jsonrpc":"2.0", "id":1,"method":"tools/call","params":{"name":"` + tt.tool + `","arguments":@args} }`
		got := y.post(t, "a", strings.Replace(message, "@args", tt.sent, 1)).body
		seen := a.await(t, mcp.ToolsCall, 1)
		if !strings.Contains(seen.raw, `"arguments":`+tt.got) || looks(t, outcome(t, got)) != tt.want {
			t.Errorf("%s %s: the server got %s, and the result is %s", tt.tool, tt.sent, seen.raw, looks(t, outcome(t, got)))
		}
		if tt.tool != "read" {
			continue // what that server's tools take nobody can know
		}
		got = y.post(t, "p", strings.Replace(message, "@args", tt.sent, 1)).body
		all := plain.requests()
		if last := all[len(all)-1].body; last != strings.Replace(message, "@args", tt.got, 1) || looks(t, outcome(t, got)) != tt.want {
			t.Errorf("plain: %s: the server got %s, and the result is %s", tt.sent, last, looks(t, outcome(t, got)))
		}
	}
}

// P4, P6, P+3: what was left out is read back by the marker's range, exactly, at every door; the
// same question gives the same bytes.
func TestFocusReadsBackByLines(t *testing.T) {
	t.Parallel()
	a := reading(t, "a", mcp.EraLegacy, false)
	y := start(t, pruning, a)
	first := ""
	for _, era := range both {
		for _, path := range []string{"/mcp", "/mcp/a"} {
			c := y.visit(t, path, era, "{}")
			prefix := map[string]string{"/mcp": "a::"}[path]
			text := said(t, c.ask(t, mcp.ToolsCall, `{"name":"`+prefix+`read","arguments":{"context_focus_question":"which order was declined?"}}`))
			if first == "" {
				first = text
			}
			if text != first || !strings.Contains(text, "card expired") || len(text) > len(journal())*2/3 {
				t.Errorf("%s: %d bytes of %d", path, len(text), len(journal()))
			}
			back := prunedBlock.ReplaceAllStringFunc(text, func(marker string) string {
				m := prunedBlock.FindStringSubmatch(marker)
				lines := said(t, c.ask(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+m[1]+`","ranges":[{"start_line":`+m[2]+`,"end_line":`+m[3]+`}]}}`))
				return strings.TrimSuffix(lines, "\n")
			})
			if back != journal() {
				t.Errorf("%s: read back %q", path, back)
			}
		}
	}
}

// Policy prune, A5: a server that asks in the middle of a call does not make the gateway forget what
// the call looks for, nor does the server see it in a later round.
func TestFocusSurvivesQuestions(t *testing.T) {
	t.Parallel()
	for _, era := range both {
		a := reading(t, "a", era, false)
		answer := a.acts[mcp.ToolsCall]
		a.on(mcp.ToolsCall, func(c *turn) string {
			switch {
			case era == mcp.EraLegacy:
				c.ask(mcp.Elicit, `{"message":"x"}`)
			case !strings.Contains(c.raw, `"inputResponses"`):
				return `{"requestState":"s","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"x"}}},"resultType":"input_required"}`
			}
			return answer(c)
		})
		y := start(t, pruning, a)
		for _, era := range both {
			c := y.visit(t, "/mcp", era, able)
			got := c.converse(t, `{"name":"a::read","arguments":{"context_focus_question":"which order was declined?","q":1.0}}`,
				func(string) string { return `{"action":"accept","content":{}}` })
			if c.era == mcp.EraLegacy {
				got = outcome(t, got)
			}
			if looks(t, got) != "pruned" {
				t.Errorf("%s at %s: got %.300s", c.era, a.era, got)
			}
		}
		for _, turn := range a.got(mcp.ToolsCall) {
			if !strings.Contains(turn.raw, `"arguments":{"q":1.0}`) {
				t.Errorf("the server got %s", turn.raw)
			}
		}
	}
}

// A13 (Custom Headers) with the policy: headers mirror the tool's own arguments, and never ours.
func TestFocusBesideParamHeaders(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsList, page("tools",
		`{"name":"read","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}`))
	y := start(t, pruning, a)
	for path, tool := range map[string]string{"/mcp": "a::read", "/mcp/a": "read"} {
		c := y.visit(t, path, mcp.EraModern, "{}")
		c.tools(t)
		a.forget()
		c.header.Set("Mcp-Param-Region", "eu")
		g := c.call(t, mcp.ToolsCall, `{"name":"`+tool+`","arguments":{"context_focus_question":"why?","region":"eu"}}`)
		seen := a.await(t, mcp.ToolsCall, 1)
		if g.status != 200 || seen.head.Get("Mcp-Param-Region") != "eu" || !strings.Contains(seen.raw, `"arguments":{"region":"eu"}`) {
			t.Errorf("got %d; the server got %v %s", g.status, seen.head, seen.raw)
		}
		for key := range seen.head {
			if strings.HasPrefix(key, "Mcp-Param-") && key != "Mcp-Param-Region" {
				t.Errorf("the server got %s", key)
			}
		}
	}
}

// What a rule may say of pruning.
func TestPrunePolicyIsChecked(t *testing.T) {
	for want, mend := range map[string]func(*hub.Policy){
		"": func(*hub.Policy) {},
		"policies[0].prune_ratio: must be between 0 and 1":         func(p *hub.Policy) { p.PruneRatio = 1.1 },
		"policies[0].prune_min_keep: must not be negative":         func(p *hub.Policy) { p.PruneMinKeep = -1 },
		"policies[0].prune_ratio: must be between 0 and 1\n":       func(p *hub.Policy) { p.PruneRatio = math.NaN() },
		"policies[0].server: the pattern is longer than 512 bytes": func(p *hub.Policy) { p.Server = strings.Repeat("x", 513) },
	} {
		var rule hub.Policy
		rule.SetDefaults()
		mend(&rule)
		cfg := hub.Default()
		cfg.Policies = []hub.Policy{rule}
		got := ""
		for _, err := range cfg.Validate() {
			got += err.Error()
		}
		if got != strings.TrimSpace(want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
