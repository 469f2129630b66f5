package hub_test

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
)

const focusMember = `"context_focus_question":{"type":"string","description":"What you are looking for in the result: of a long text ` +
	`only the lines that matter for it are shown, and the rest can be read back with recover_text."}`

// pruning configures pruning for the tools read* of server a, whose results are logs.
func pruning(s *setup) {
	var rule hub.Policy
	rule.SetDefaults()
	rule.Server, rule.Tool, rule.Reduce, rule.Prune.Type = "a", "read*", "prune", "logs"
	s.hub.Policies = []hub.Policy{rule}
}

// The tools of a, as it lists them and as clients see them, under the name @<name>.
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

// readerList returns the tools in one of these forms, with a prefix before their names.
func readerList(form int, prefix string) (items []string) {
	for _, r := range readers {
		items = append(items, toolName.ReplaceAllString(r[form], `"`+prefix+`$1"`))
	}
	return items
}

// journal returns a long text of which one line matters.
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

// newReaderServer returns a server with those tools, all of which return the journal.
func newReaderServer(t testing.TB, id string, protocol mcp.Protocol, stdio bool) *fakeServer {
	return newFakeServer(t, id, protocol, stdio).handle(mcp.ToolsList, listResult("tools", readerList(0, "")...)).
		handle(mcp.ToolsCall, respond(`{"content":[{"type":"text","text":`+quoted(journal())+`}],"structuredContent":{"result":`+quoted(journal())+`,"n":1.0}}`))
}

// Policy prune, I2, I3: a tool is listed with one more argument where its schema surely accepts it, at every
// endpoint but the gateway for single messages, where lists are the server's own; all other bytes stay.
func TestFocusIsOffered(t *testing.T) {
	t.Parallel()
	a, b := newReaderServer(t, "a", mcp.Modern, false), newReaderServer(t, "b", mcp.Legacy, false)
	gw := startGateway(t, pruning, a, b)
	for _, protocol := range protocols {
		for range 2 {
			checkList(t, gw.connect(t, "/mcp", protocol, "{}"), mcp.ToolsList, "tools", append(readerList(1, "a::"), readerList(0, "b::")...))
			checkList(t, gw.connect(t, "/mcp/a", protocol, "{}"), mcp.ToolsList, "tools", readerList(1, ""))
			checkList(t, gw.connect(t, "/mcp/b", protocol, "{}"), mcp.ToolsList, "tools", readerList(0, ""))
		}
	}
	if got := gw.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); !strings.Contains(got.body, `{"tools":[`+strings.Join(readerList(0, ""), ",")+`]`) {
		t.Errorf("the gateway of one message: got %s", got.body)
	}
	c := gw.connect(t, "/mcp", mcp.Legacy, "{}")
	stop, _ := c.openStream(t)
	defer stop()
	c.tools(t)
	gw.reload(func(s *setup) { s.hub.Policies = nil })
	c.nextOfMethod(t, mcp.NotifyToolsChanged)
	checkList(t, c, mcp.ToolsList, "tools", append(readerList(0, "a::"), readerList(0, "b::")...))
}

var prunedBlock = regexp.MustCompile(`(?m)^⟦PRUNÉ: prune_id=(prn_[0-9a-z]{26}) lignes (\d+)-(\d+) \(\d+\) raison=hors focus⟧$`)

// normalizeBlocks describes how a result was shortened: pruned, masked or not, in content and structuredContent
// alike.
func normalizeBlocks(t testing.TB, result string) string {
	t.Helper()
	var p struct{ StructuredContent struct{ Result string } }
	text := textOfResult(t, result)
	if err := json.Unmarshal([]byte(result), &p); err != nil || p.StructuredContent.Result != text {
		t.Errorf("content and structuredContent differ: %.200s, %.200s", text, p.StructuredContent.Result)
	}
	switch {
	case prunedBlock.MatchString(text):
		if n, most := utf8.RuneCountInString(text), recall.DefaultPolicy().MaxChars; n > most {
			t.Errorf("%d characters, max_chars is %d", n, most)
		}
		return "pruned"
	case lineOfRecovery.MatchString(text):
		return "masked"
	}
	return "whole"
}

// focusCalls is calls of the tools of a: what the client sends, what the server gets, and how the result is
// shortened.
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

// Policy prune, P4, G+4: the focus of a call is removed from its arguments and decides which lines of the result
// stay, at every endpoint, protocol and transport; all other bytes of the call arrive.
func TestFocusDecidesWhatStays(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		for _, stdio := range []bool{true, false} {
			a := newReaderServer(t, "a", protocol, stdio)
			gw := startGateway(t, pruning, a)
			clients := map[string]*client{}
			for _, protocol := range protocols {
				clients["mcp "+protocol.String()] = gw.connect(t, "/mcp", protocol, "{}")
				clients["mcp/a "+protocol.String()] = gw.connect(t, "/mcp/a", protocol, allCapabilities)
			}
			for name, c := range clients {
				prefix := map[string]string{"/mcp": "a::"}[c.path]
				for _, tt := range focusCalls {
					a.forgetMessages()
					got := c.callResult(t, mcp.ToolsCall, `{"name":"`+prefix+tt.tool+`","arguments":`+tt.sent+`}`)
					var p struct{ Arguments json.RawMessage }
					_ = json.Unmarshal(a.awaitMessage(t, mcp.ToolsCall, 1).Params, &p)
					if string(p.Arguments) != tt.got || normalizeBlocks(t, got) != tt.want {
						t.Errorf("%s to %s %v: %s %s: the server got %s, and the result is %s", name, a.protocol, stdio, tt.tool, tt.sent, p.Arguments, normalizeBlocks(t, got))
					}
				}
			}
		}
	}
}

// Policy prune at the gateway for single messages, over an MCP connection and to a plain JSON-RPC server.
func TestFocusAtRPCGateway(t *testing.T) {
	t.Parallel()
	a := newReaderServer(t, "a", mcp.Legacy, false)
	plain := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":`+quoted(journal())+`}],"structuredContent":{"result":`+quoted(journal())+`}}}`)
	gw := startGateway(t, func(s *setup) {
		pruning(s)
		s.addRPCServer("p", plain.URL)
		rule := s.hub.Policies[0]
		rule.Server = "p"
		s.hub.Policies = append(s.hub.Policies, rule)
	}, a)
	for _, tt := range focusCalls {
		a.forgetMessages()
		message := `{"jsonrpc":"2.0", "id":1,"method":"tools/call","params":{"name":"` + tt.tool + `","arguments":@args} }`
		got := gw.post(t, "a", strings.Replace(message, "@args", tt.sent, 1)).body
		seen := a.awaitMessage(t, mcp.ToolsCall, 1)
		if !strings.Contains(seen.raw, `"arguments":`+tt.got) || normalizeBlocks(t, resultOrError(t, got)) != tt.want {
			t.Errorf("%s %s: the server got %s, and the result is %s", tt.tool, tt.sent, seen.raw, normalizeBlocks(t, resultOrError(t, got)))
		}
		if tt.tool != "read" {
			continue // it is not known which arguments that server's tools take
		}
		got = gw.post(t, "p", strings.Replace(message, "@args", tt.sent, 1)).body
		all := plain.requests()
		if last := all[len(all)-1].body; last != strings.Replace(message, "@args", tt.got, 1) || normalizeBlocks(t, resultOrError(t, got)) != tt.want {
			t.Errorf("plain: %s: the server got %s, and the result is %s", tt.sent, last, normalizeBlocks(t, resultOrError(t, got)))
		}
	}
}

// P4, P6, P+3: pruned lines are read back by the marker's range, exactly, at every endpoint; the same question
// gives the same bytes.
func TestFocusReadsBackByLines(t *testing.T) {
	t.Parallel()
	a := newReaderServer(t, "a", mcp.Legacy, false)
	gw := startGateway(t, pruning, a)
	first := ""
	for _, protocol := range protocols {
		for _, path := range []string{"/mcp", "/mcp/a"} {
			c := gw.connect(t, path, protocol, "{}")
			prefix := map[string]string{"/mcp": "a::"}[path]
			text := textOfResult(t, c.callResult(t, mcp.ToolsCall, `{"name":"`+prefix+`read","arguments":{"context_focus_question":"which order was declined?"}}`))
			if first == "" {
				first = text
			}
			if text != first || !strings.Contains(text, "card expired") || len(text) > len(journal())*2/3 {
				t.Errorf("%s: %d bytes of %d", path, len(text), len(journal()))
			}
			back := prunedBlock.ReplaceAllStringFunc(text, func(marker string) string {
				m := prunedBlock.FindStringSubmatch(marker)
				lines := textOfResult(t, c.callResult(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+m[1]+`","ranges":[{"start_line":`+m[2]+`,"end_line":`+m[3]+`}]}}`))
				return strings.TrimSuffix(lines, "\n")
			})
			if back != journal() {
				t.Errorf("%s: read back %q", path, back)
			}
		}
	}
}

// Policy prune, A5: requests of the server during a call do not lose the focus of the call, nor does the server
// see it in a later round.
func TestFocusSurvivesServerRequests(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		a := newReaderServer(t, "a", protocol, false)
		answer := a.handlers[mcp.ToolsCall]
		a.handle(mcp.ToolsCall, func(c *serverCall) string {
			switch {
			case protocol == mcp.Legacy:
				c.askClient(mcp.ElicitationCreate, `{"message":"x"}`)
			case !strings.Contains(c.raw, `"inputResponses"`):
				return `{"requestState":"s","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"x"}}},"resultType":"input_required"}`
			}
			return answer(c)
		})
		gw := startGateway(t, pruning, a)
		for _, protocol := range protocols {
			c := gw.connect(t, "/mcp", protocol, allCapabilities)
			got := c.callAnswering(t, `{"name":"a::read","arguments":{"context_focus_question":"which order was declined?","q":1.0}}`,
				func(string) string { return `{"action":"accept","content":{}}` })
			if c.protocol == mcp.Legacy {
				got = resultOrError(t, got)
			}
			if normalizeBlocks(t, got) != "pruned" {
				t.Errorf("%s at %s: got %.300s", c.protocol, a.protocol, got)
			}
		}
		for _, turn := range a.messagesOf(mcp.ToolsCall) {
			if !strings.Contains(turn.raw, `"arguments":{"q":1.0}`) {
				t.Errorf("the server got %s", turn.raw)
			}
		}
	}
}

// A13 (Custom Headers) with pruning: headers mirror the tool's own arguments, and never ours.
func TestFocusBesideParamHeaders(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools",
		`{"name":"read","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}`))
	gw := startGateway(t, pruning, a)
	for path, tool := range map[string]string{"/mcp": "a::read", "/mcp/a": "read"} {
		c := gw.connect(t, path, mcp.Modern, "{}")
		c.tools(t)
		a.forgetMessages()
		c.header.Set("Mcp-Param-Region", "eu")
		g := c.call(t, mcp.ToolsCall, `{"name":"`+tool+`","arguments":{"context_focus_question":"why?","region":"eu"}}`)
		seen := a.awaitMessage(t, mcp.ToolsCall, 1)
		if g.status != 200 || seen.header.Get("Mcp-Param-Region") != "eu" || !strings.Contains(seen.raw, `"arguments":{"region":"eu"}`) {
			t.Errorf("got %d; the server got %v %s", g.status, seen.header, seen.raw)
		}
		for key := range seen.header {
			if strings.HasPrefix(key, "Mcp-Param-") && key != "Mcp-Param-Region" {
				t.Errorf("the server got %s", key)
			}
		}
	}
}

// Which pruning settings of a rule are valid.
func TestPrunePolicyIsChecked(t *testing.T) {
	for want, configure := range map[string]func(*hub.Policy){
		"": func(*hub.Policy) {},
		"policies[0].prune_ratio: must be between 0 and 1":         func(p *hub.Policy) { p.Prune.Ratio = 1.1 },
		"policies[0].prune_min_keep: must not be negative":         func(p *hub.Policy) { p.Prune.MinKeep = -1 },
		"policies[0].prune_ratio: must be between 0 and 1\n":       func(p *hub.Policy) { p.Prune.Ratio = math.NaN() },
		"policies[0].server: the pattern is longer than 512 bytes": func(p *hub.Policy) { p.Server = strings.Repeat("x", 513) },
	} {
		var rule hub.Policy
		rule.SetDefaults()
		configure(&rule)
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
