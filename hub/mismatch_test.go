package hub_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/mcp"
)

// S2: 1,000 generated requests whose headers and body disagree are refused with 400 and -32020 before a rule, a limit or a server
// notices them. (The mismatches of the conformance suite are in TestModernRefusals, TestModernParamHeaders and e2e/peers.)
func TestS2HeaderMismatches(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsList, listResult("tools", itemsNamed("x")...))
	gw := startGateway(t, func(s *setup) { s.limit.PerMinute = 1 }, a)
	gw.hub.AwaitServers(t.Context())
	a.forgetMessages()
	meta := `"_meta":{"` + mcp.MetaProtocolVersion + `":"2026-07-28","` + mcp.MetaClientCapabilities + `":{}}`
	type request struct{ method, key, name string }
	pick := func(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }
	named := func(r *rand.Rand) request {
		return []request{
			{mcp.ToolsCall, "name", pick(r, "a::x", "x", "a::é", "recover_text", "a::x ", "A::X")},
			{mcp.PromptsGet, "name", pick(r, "a::p", "p")},
			{mcp.ResourcesRead, "uri", pick(r, "file:///a", "file:///a/../b", "proxy://resource/x")},
		}[r.IntN(3)]
	}
	// The same seed gives the same requests.
	r := rand.New(rand.NewPCG(2, 1))
	for i := range 1000 {
		body := named(r)
		head := map[string]string{mcp.HeaderVersion: "2026-07-28", mcp.HeaderMethod: body.method, mcp.HeaderName: mcp.EncodeHeader(body.name)}
		switch r.IntN(6) {
		case 0:
			delete(head, []string{mcp.HeaderVersion, mcp.HeaderMethod, mcp.HeaderName}[r.IntN(3)])
		case 1:
			head[mcp.HeaderMethod] = pick(r, "tools/list", strings.ToUpper(body.method), body.method+"x", "x"+body.method, strings.Replace(body.method, "/", "\\", 1))
		case 2:
			head[mcp.HeaderName] = pick(r, body.name+"x", "b"+body.name, "=?base64?AAAA?=", "=?base64?"+body.name, mcp.EncodeHeader(body.name+"\u200b"))
		case 3:
			head[mcp.HeaderVersion] = pick(r, "2025-11-25", "2025-06-18", "2024-11-05")
		case 4:
			other := named(r)
			for other == body {
				other = named(r)
			}
			head[mcp.HeaderMethod], head[mcp.HeaderName] = other.method, mcp.EncodeHeader(other.name)
		default:
			head[mcp.HeaderName] = mcp.EncodeHeader(body.name) + pick(r, ",", ", a::x", "\t.", "%00")
		}
		text := `{"jsonrpc":"2.0","id":"i","method":"` + body.method + `","params":{"` + body.key + `":"` + body.name + `",` + meta + `}}`
		g := gw.modernPost(t, pick(r, "/mcp", "/mcp/a"), head, text)
		if g.status != 400 || !strings.Contains(g.body, `"error":{"code":-32020,`) {
			t.Fatalf("request %d: %v %s\ngot %d %s", i, head, text, g.status, g.body)
		}
	}
	if n := gw.gate.Decisions(); n != 0 {
		t.Errorf("%d decisions of the rules", n)
	}
	a.mu.Lock()
	for _, m := range a.messages {
		if m.Method == mcp.ToolsCall || m.Method == mcp.PromptsGet || m.Method == mcp.ResourcesRead {
			t.Errorf("the server got %s", m.Method)
		}
	}
	a.mu.Unlock()
	// The one call that the limit allows is still there.
	if got := gw.connect(t, "/mcp", mcp.Modern, "{}").callResult(t, mcp.ToolsCall, `{"name":"a::x"}`); got[0] == '!' {
		t.Errorf("got %s", got)
	}
}
