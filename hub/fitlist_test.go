package hub_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/state/memory"
)

const longName = "create_a_new_virtual_machine_with_all_of_its_disks_and_networks"

// Names are within each client's limit and of characters that model APIs accept. A call may use the long name, the short
// one of any client, and either separator, in every profile.
func TestToolNamesFitTheirClients(t *testing.T) {
	t.Parallel()
	servers := []*fakeServer{
		newFakeServer(t, "cloud", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed(longName, "list.all", "get")...)),
		newFakeServer(t, "fs", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("read")...)),
	}
	agents := startGateway(t, fitClients, servers...)
	document := startGateway(t, func(*setup) {}, servers...)
	short := map[string]bool{}
	for id, most := range map[string]int{"codex": 64, "cursor": 52, "gemini": 51, "claude-code": 114, "continue": 64, "": 50} {
		names := agents.connect(t, "/mcp?client="+id, mcp.Modern, "{}").tools(t)
		if len(names) != 4 || !slices.Contains(names, "cloud__get") || !slices.Contains(names, "fs__read") {
			t.Errorf("%s: %q", id, names)
		}
		for _, n := range names {
			if len(n) > most || !catalog.IsPlain(n) {
				t.Errorf("%s: %q has %d characters", id, n, len(n))
			}
			if strings.HasPrefix(n, "cloud__create") {
				short[n] = true
			}
		}
		if again := agents.connect(t, "/mcp?client="+id, mcp.Legacy, "{}").tools(t); !slices.Equal(names, again) {
			t.Errorf("%s: another list: %q", id, again)
		}
	}
	if len(short) < 3 || !short["cloud__"+longName] {
		t.Errorf("names of the long tool: %v", short)
	}
	listed := agents.connect(t, "/mcp?client=inspector", mcp.Modern, "{}").tools(t)
	if want := []string{"cloud__" + longName, "cloud__get", "cloud__list.all", "fs__read"}; !slices.Equal(listed, want) {
		t.Errorf("inspector: %q", listed)
	}
	for n := range short {
		checkCalled(t, agents, "/mcp?client=codex", n, "cloud "+longName, servers...)
	}
	for _, gw := range []*mcpGateway{agents, document} {
		for _, n := range []string{"cloud__" + longName, "cloud::" + longName} {
			checkCalled(t, gw, "/mcp", n, "cloud "+longName, servers...)
		}
		for _, n := range []string{"cloud__list.all", "cloud::list.all"} {
			checkCalled(t, gw, "/mcp", n, "cloud list.all", servers...)
		}
	}
	// At the endpoint of one server, and where the short name of the default form is called.
	own := agents.connect(t, "/mcp/cloud?client=gemini", mcp.Modern, "{}").tools(t)
	for _, n := range own {
		if strings.HasPrefix(n, "create") {
			checkCalled(t, agents, "/mcp/cloud?client=gemini", n, "cloud "+longName, servers...)
		}
	}
}

func checkCalled(t *testing.T, gw *mcpGateway, path, name, want string, servers ...*fakeServer) {
	t.Helper()
	c := gw.connect(t, path, mcp.Modern, "{}")
	c.callResult(t, mcp.ToolsCall, `{"name":"`+name+`"}`)
	if server, own := receivedBy(t, mcp.ToolsCall, servers...); server+" "+own != want {
		t.Errorf("%s reached %s %s, want %s", name, server, own, want)
	}
}

func describedTool(name, description string) string {
	return `{"name":"` + name + `","description":` + quoted(description) + `,"inputSchema":{"type":"object"}}`
}

func listedDescriptions(t *testing.T, c *client) map[string]string {
	t.Helper()
	var list struct {
		Tools []struct{ Name, Description string }
	}
	if err := json.Unmarshal([]byte(c.callResult(t, mcp.ToolsList, "{}")), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, tool := range list.Tools {
		out[tool.Name] = tool.Description
	}
	return out
}

var endLeftOut = regexp.MustCompile(`\n\[… [\d,]+ characters left out; call recover_text with prune_id=(prn_\w+) chars=(\d+-\d+)\]$`)

// readEnd returns a text whose end was cut off, with the end read back.
func readEnd(t *testing.T, c *client, text string) string {
	t.Helper()
	m := endLeftOut.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	end := textOfResult(t, c.callResult(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+m[1]+`","chars":"`+m[2]+`"}}`))
	return strings.TrimSuffix(text, m[0]) + end
}

// A description that Claude Code would cut silently loses its end to a marker, which is stored before; other clients get
// it whole.
func TestDescriptionsFitTheirClients(t *testing.T) {
	t.Parallel()
	descriptions := map[string]string{
		"fs__short": "Reads.", "fs__exact": strings.Repeat("x", 2048), "fs__long": strings.Repeat("A sentence \"about\" the tool. ", 200) + "The end.",
		"fs__wide": strings.Repeat("😀é", 1500),
	}
	var tools []string
	for name, d := range descriptions {
		tools = append(tools, describedTool(strings.TrimPrefix(name, "fs__"), d))
	}
	gw := startGateway(t, fitClients, newFakeServer(t, "fs", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", tools...)))
	c := gw.connect(t, "/mcp?client=claude-code", mcp.Modern, "{}")
	got := listedDescriptions(t, c)
	for name, want := range descriptions {
		shown := got[name]
		if n := catalog.UTF16Len(shown); n > 2048 || (shown == want) != (catalog.UTF16Len(want) <= 2048) {
			t.Errorf("%s: %d characters: %.100s", name, n, shown)
		}
		if back := readEnd(t, c, shown); back != want {
			t.Errorf("%s: reads back as %.100s", name, back)
		}
		if n := catalog.UTF16Len(shown); shown != want && name != "fs__wide" && n < 1950 {
			t.Errorf("%s: only %d characters stay", name, n)
		}
	}
	if again := listedDescriptions(t, gw.connect(t, "/mcp", mcp.Legacy, "{}")); again["fs__long"] != descriptions["fs__long"] {
		t.Error("another client gets a cut description")
	}
	other := newClient(t, mcp.Legacy, "{}")
	other.gateway, other.path, other.info = gw, "/mcp", `{"name":"claude-code","version":"2"}`
	other.initialize(t, mcp.V20251125)
	if again := listedDescriptions(t, other); again["fs__long"] != got["fs__long"] {
		t.Error("the list is not the same for the next client")
	}
}

// What cannot be stored is not cut: neither descriptions nor instructions.
func TestDescriptionsStayWholeWhenTheStoreIsDown(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("A sentence about the tool. ", 200)
	down := &refusingDriver{Driver: memory.New()}
	down.refuse.Store(true)
	gw := startGateway(t, func(s *setup) {
		fitClients(s)
		s.driver = down
	}, instructingServer(t, "fs", text).handle(mcp.ToolsList, listResult("tools", describedTool("long", text))))
	c := gw.connect(t, "/mcp?client=claude-code", mcp.Modern, "{}")
	if got := listedDescriptions(t, c)["fs__long"]; got != text {
		t.Errorf("got %d of %d characters", len(got), len(text))
	}
	if got := instructionsOf(t, c); got != "# fs\n"+strings.TrimSpace(text) {
		t.Errorf("got %d of %d characters of the instructions", len(got), len(text))
	}
}

func instructingServer(t *testing.T, id, text string) *fakeServer {
	return newFakeServer(t, id, mcp.Modern, false).
		handle(mcp.ServerDiscover, respond(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"instructions":`+quoted(text)+`}`))
}

func instructionsOf(t *testing.T, c *client) string {
	t.Helper()
	var hello struct{ Instructions string }
	if err := json.Unmarshal([]byte(c.callResult(t, mcp.ServerDiscover, "{}")), &hello); err != nil {
		t.Fatal(err)
	}
	return hello.Instructions
}

// Instructions of many servers are joined within what Claude Code keeps: short ones whole, the ends of long ones left
// out with a marker, and nothing lost.
func TestInstructionsFitTheirClients(t *testing.T) {
	t.Parallel()
	for _, count := range []int{3, 30} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			var servers []*fakeServer
			texts := map[string]string{}
			for i := range count {
				id := fmt.Sprintf("s%02d", i)
				texts[id] = strings.Repeat("Do this with "+id+". ", 1+i%3*100)
				servers = append(servers, instructingServer(t, id, texts[id]))
			}
			gw := startGateway(t, fitClients, servers...)
			c := gw.connect(t, "/mcp?client=claude-code", mcp.Modern, "{}")
			c.tools(t)
			got := instructionsOf(t, c)
			if n := catalog.UTF16Len(got); n > 2000 || n < 1000 {
				t.Errorf("%d characters", n)
			}
			var whole string
			for _, part := range strings.Split(got, "\n\n") {
				whole += readEnd(t, c, part) + "\n\n"
			}
			for id, text := range texts {
				if !strings.Contains(whole, "# "+id+"\n"+strings.TrimSpace(text)) {
					t.Errorf("the instructions of %s are lost", id)
				}
			}
			one := gw.connect(t, "/mcp/s02?client=claude-code", mcp.Modern, "{}")
			if own := instructionsOf(t, one); catalog.UTF16Len(own) > 2000 || readEnd(t, one, own) != texts["s02"] {
				t.Errorf("the endpoint of one server: %d characters", len(own))
			}
			if again := instructionsOf(t, c); again != got {
				t.Error("not the same each time")
			}
			if other := instructionsOf(t, gw.connect(t, "/mcp", mcp.Modern, "{}")); catalog.UTF16Len(other) < 2000 {
				t.Errorf("another client gets %d characters", len(other))
			}
		})
	}
}

// A tool whose policy lets long texts through is listed for Claude Code with the size that it should pass on.
func TestLargeResultsAreDeclaredForClaudeCode(t *testing.T) {
	t.Parallel()
	server := newFakeServer(t, "fs", mcp.Modern, false).handle(mcp.ToolsList,
		listResult("tools", `{"name":"read","inputSchema":{"type":"object"},"_meta":{"x":1}}`, `{"name":"own","inputSchema":{"type":"object"},"_meta":{"anthropic/maxResultSizeChars":7}}`))
	gw := startGateway(t, fitClients, server)
	for id, want := range map[string]bool{"claude-code": true, "codex": false} {
		list := gw.connect(t, "/mcp?client="+id, mcp.Modern, "{}").callResult(t, mcp.ToolsList, "{}")
		if strings.Contains(list, `"_meta":{"x":1,"anthropic/maxResultSizeChars":500000}`) != want || !strings.Contains(list, `"_meta":{"anthropic/maxResultSizeChars":7}`) {
			t.Errorf("%s: %s", id, list)
		}
	}
}
