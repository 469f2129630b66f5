package hub_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/clients"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/reduce"
)

// fitClients is the profile "agents" as far as the hub sees it, with texts left whole by policy.
func fitClients(s *setup) {
	s.hub.FitClients = true
	s.hub.Naming.Separator = "__"
	s.hub.Masking.Markers = reduce.PlainMarkers
	whole := hub.Policy{}
	whole.SetDefaults()
	whole.Reduce = reduce.None
	s.hub.Policies = []hub.Policy{whole}
}

func replyOf(result string) []byte { return []byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`) }

var (
	leftOut  = regexp.MustCompile(`\[… [\d,]+ characters left out; call recover_text with prune_id=(prn_\w+) chars=(\d+)-(\d+)\]`)
	nextPart = regexp.MustCompile(`\n\[cut after \d+ of \d+ characters: ask for the rest with prune_id=prn_\w+ chars=(\d+-\d+)\]$`)
)

// A result of 350 KB reaches each client below what it would cut, by its entry or by what it calls itself, in both
// revisions, and recover_text gives the rest in parts that the client does not cut either.
func TestResultsFitTheirClients(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("2026-11-16 INFO \"request\" é took 12 ms\n", 9000)
	server := newFakeServer(t, "fs", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("read")...)).
		handle(mcp.ToolsCall, respond(`{"content":[{"type":"text","text":`+quoted(text)+`}],"resultType":"complete"}`))
	gw := startGateway(t, fitClients, server)
	for name, tt := range map[string]struct {
		id, query, info string
		protocol        mcp.Protocol
	}{
		"codex by its entry":                {"codex", "?client=codex", "", mcp.Legacy},
		"codex by its name":                 {"codex", "", "codex-mcp-client", mcp.Legacy},
		"opencode, modern":                  {"opencode", "?client=opencode", "", mcp.Modern},
		"qwen by its name, modern":          {"qwen", "", "qwen-cli-mcp-client-ctxgate", mcp.Modern},
		"copilot":                           {"copilot", "?client=copilot", "", mcp.Legacy},
		"the entry wins over the name":      {"copilot", "?client=copilot", "claude-code", mcp.Modern},
		"a client without a known limit":    {"continue", "?client=continue", "", mcp.Legacy},
		"a client that nothing is known of": {"", "", "mine", mcp.Legacy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, tt.protocol, "{}")
			c.gateway, c.path = gw, "/mcp"+tt.query
			if tt.info != "" {
				c.info = `{"name":"` + tt.info + `","version":"1"}`
			}
			if tt.protocol == mcp.Legacy {
				c.initialize(t, mcp.V20251125)
			}
			known, _ := clients.ByID(tt.id)
			result := c.callResult(t, mcp.ToolsCall, `{"name":"fs__read","arguments":{}}`)
			shown := textOfResult(t, result)
			if known.Result.IsZero() {
				if shown != text {
					t.Errorf("%d of %d bytes", len(shown), len(text))
				}
				return
			}
			m := leftOut.FindStringSubmatchIndex(shown)
			if !recall.FitsClient(replyOf(result), known.Result) || m == nil {
				t.Fatalf("%d bytes: %.200s", len(result), shown)
			}
			got := shown[:m[0]-1]
			for chars := shown[m[4]:m[5]] + "-" + shown[m[6]:m[7]]; chars != ""; {
				answer := c.callResult(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+shown[m[2]:m[3]]+`","chars":"`+chars+`"}}`)
				if !recall.FitsClient(replyOf(answer), known.Result) {
					t.Fatalf("an answer of %d bytes", len(answer))
				}
				part := textOfResult(t, answer)
				chars = ""
				if next := nextPart.FindStringSubmatch(part); next != nil {
					part, chars = strings.TrimSuffix(part, next[0]), next[1]
				}
				got += part
			}
			if got += shown[m[1]+1:]; got != text {
				t.Errorf("%d of %d bytes can be read", len(got), len(text))
			}
		})
	}
}

// [clients] replaces figures, also for an id that only the configuration knows, and without fit_clients nothing else
// is limited.
func TestConfiguredLimitsOfClients(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 60_000)
	server := newFakeServer(t, "fs", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("read")...)).
		handle(mcp.ToolsCall, respond(`{"content":[{"type":"text","text":"`+text+`"}],"resultType":"complete"}`))
	most, none := 5000, 0
	for fit, want := range map[bool]map[string]bool{ // whether a client's result is cut
		true:  {"mine": true, "codex": false, "copilot": true, "": false},
		false: {"mine": true, "codex": false, "copilot": false, "": false},
	} {
		gw := startGateway(t, func(s *setup) {
			fitClients(s)
			s.hub.FitClients = fit
			s.hub.Clients = map[string]clients.Override{"mine": {MaxResultChars: &most}, "codex": {MaxResultBytes: &none}}
		}, server)
		for id, cut := range want {
			c := gw.connect(t, "/mcp?client="+id, mcp.Modern, "{}")
			if got := textOfResult(t, c.callResult(t, mcp.ToolsCall, `{"name":"fs__read","arguments":{}}`)); (got != text) != cut || id == "mine" && len(got) > most {
				t.Errorf("fit_clients = %v, %q: %d bytes", fit, id, len(got))
			}
		}
	}
	bad := hub.Default()
	small := 10
	bad.Clients = map[string]clients.Override{"b": {MaxToolName: &small}, "a": {MaxResultChars: &small}}
	if got := fmt.Sprint(bad.Validate()); got != "[clients.a.max_result_chars: must be 0 (no limit) or at least 1000 clients.b.max_tool_name: must be 0 (no limit) or at least 24]" {
		t.Error(got)
	}
}

// Claude Code passes on what a tool declares in its _meta, and so the gateway does, up to that; also for a tool whose
// policy lets long texts through, which is listed so.
func TestDeclaredResultSizeRaisesTheLimit(t *testing.T) {
	t.Parallel()
	block := `{"type":"text","text":"` + strings.Repeat("word ", 1000) + `"}`
	tools := []string{`{"name":"big","inputSchema":{"type":"object"},"_meta":{"anthropic/maxResultSizeChars":400000}}`, `{"name":"plain","inputSchema":{"type":"object"}}`}
	server := newFakeServer(t, "fs", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", tools...)).
		handle(mcp.ToolsCall, respond(`{"content":[`+strings.TrimSuffix(strings.Repeat(block+",", 20), ",")+`],"resultType":"complete"}`))
	gw := startGateway(t, func(s *setup) {
		fitClients(s)
		s.hub.Policies = nil
		s.hub.Masking.MaxChars, s.hub.Masking.HeadChars, s.hub.Masking.TailChars = 20_000, 5000, 5000
	}, server)
	c := gw.connect(t, "/mcp?client=claude-code", mcp.Modern, "{}")
	c.tools(t) // the lists are read
	for tool, whole := range map[string]bool{"big": true, "plain": false} {
		result := c.callResult(t, mcp.ToolsCall, `{"name":"fs__`+tool+`","arguments":{}}`)
		if fits := recall.FitsClient(replyOf(result), clients.Result{Chars: 50_000}); fits == whole || strings.Contains(result, "left out") == whole {
			t.Errorf("%s: %d bytes", tool, len(result))
		}
	}
}

// The entry of a client on stdin and stdout names it, whatever it calls itself, in both revisions.
func TestResultsFitClientsOnStdio(t *testing.T) {
	t.Parallel()
	server := newFakeServer(t, "fs", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("read")...)).
		handle(mcp.ToolsCall, respond(`{"content":[{"type":"text","text":"`+strings.Repeat("word ", 20_000)+`"}],"resultType":"complete"}`))
	gw := startGateway(t, fitClients, server)
	for _, protocol := range []mcp.Protocol{mcp.Legacy, mcp.Modern} {
		for _, id := range []string{"codex", "copilot", "qwen"} {
			c, _ := gw.joinStdio(t.Context(), t, protocol, "{}", hub.StdioOptions{Client: id})
			known, _ := clients.ByID(id)
			result := c.callResult(t, mcp.ToolsCall, `{"name":"fs__read","arguments":{}}`)
			if !recall.FitsClient(replyOf(result), known.Result) || !leftOut.MatchString(textOfResult(t, result)) {
				t.Errorf("%s: %d bytes", id, len(result))
			}
		}
	}
}
