package hub_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rpc"
)

var lineOfRecovery = regexp.MustCompile(`\[recover: prune_id=(prn_[0-9a-z]{26}) chars=(\d+-\d+)\]`)

// shortened returns what maskSmall makes of a text, as JSON writes it, with "id" for its id.
func shortened(text string) string {
	r := []rune(text)
	s := fmt.Sprintf("%s\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=%d head=4 tail=4] ...\n[recover: prune_id=@id chars=5-%d]\n%s",
		string(r[:4]), len(r), len(r)-4, string(r[len(r)-4:]))
	return strings.ReplaceAll(s, "\n", `\n`)
}

// G3, G4, G+1, G+4 at the MCP endpoint: long strings of results and of error data are masked, each under one id
// wherever it stands; binary data, URIs and everything else stay as they came.
func TestMaskedResults(t *testing.T) {
	t.Parallel()
	const long = "first line é\nsecond line\nthird line"
	raw := strings.ReplaceAll(long, "\n", `\n`)
	data := strings.Repeat("QUJD", 20)
	uri := "mem://" + strings.Repeat("u", 60)
	for name, tt := range map[string]struct{ method, params, answer string }{
		"tool": {mcp.ToolsCall, `{"name":"x"}`, `{"content":[{"type":"text","text":"@long","x":1.0},{"type":"image","data":"` + data + `","mimeType":"m"},` +
			`{"type":"audio","data":"` + data + `"},{"type":"resource","resource":{"uri":"` + uri + `","blob":"` + data + `"}},` +
			`{"type":"resource","resource":{"uri":"` + uri + `","text":"@long"}},{"type":"resource_link","uri":"` + uri + `","description":"@long"}],` +
			`"structuredContent":{"same":"@long","n":12345678901234567890,"short":"exactly twenty chars"},"_meta":{"k":"@long"}}`},
		"error":    {mcp.ToolsCall, `{"name":"x"}`, `!{"code":-1,"message":"a message of more than twenty characters","data":{"trace":["@long"],"n":1.0}}`},
		"resource": {mcp.ResourcesRead, `{"uri":"` + uri + `"}`, `{"contents":[{"uri":"` + uri + `","text":"@long"},{"uri":"` + uri + `","blob":"` + data + `"}]}`},
		"prompt": {mcp.PromptsGet, `{"name":"p"}`, `{"description":"@long","messages":[{"role":"user","content":{"type":"text","text":"@long"}},` +
			`{"role":"user","content":{"type":"image","data":"` + data + `"}},{"role":"user","content":[{"type":"text","text":"@long"}]}]}`},
	} {
		a := newFakeServer(t, "a", mcp.Legacy, false).handle(tt.method, respond(strings.ReplaceAll(tt.answer, "@long", raw)))
		gw := startGateway(t, maskSmall, a)
		for _, protocol := range protocols {
			c := gw.connect(t, "/mcp/a", protocol, "{}")
			id, reply := c.startCall(t, tt.method, tt.params)
			got := receiveWithin(t, reply, name).body
			found := lineOfRecovery.FindStringSubmatch(got)
			if found == nil {
				t.Fatalf("%s: nothing was cut: %s", name, got)
			}
			want := wrapReply(strings.ReplaceAll(tt.answer, "@long", strings.ReplaceAll(shortened(long), "@id", found[1])), id)
			if stripGatewayChanges(c, got) != want {
				t.Errorf("%s: got %s\nwant %s", name, stripGatewayChanges(c, got), want)
			}
			if got := textOfResult(t, c.callResult(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+found[1]+`"}}`)); got != long {
				t.Errorf("%s: recovered %q", name, got)
			}
		}
	}
}

// newGatewayWithRecoverable returns a gateway that has masked a text, and the text's id.
func newGatewayWithRecoverable(t *testing.T, text string) (*mcpGateway, string) {
	t.Helper()
	raw, _ := json.Marshal(text)
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsCall, respond(`{"content":[{"type":"text","text":`+string(raw)+`}]}`))
	gw := startGateway(t, maskSmall, a)
	got := gw.connect(t, "/mcp", mcp.Modern, "{}").callResult(t, mcp.ToolsCall, `{"name":"a::x"}`)
	return gw, lineOfRecovery.FindStringSubmatch(got)[1]
}

// G+1: recover_text returns all or part of an original, at every endpoint, and its result is not masked.
func TestRecoverText(t *testing.T) {
	t.Parallel()
	text := "one\ntwo é\n\nfour: " + strings.Repeat("x", 100) + "\nfive"
	gw, id := newGatewayWithRecoverable(t, text)
	lines := strings.Split(text, "\n")
	for args, want := range map[string]string{
		``: text,
		`,"ranges":[{"start_line":2,"end_line":2}]`:                                            lines[1] + "\n",
		`,"ranges":[{"start_line":4,"end_line":99},{"start_line":1,"end_line":1}]`:             lines[3] + "\n" + lines[4] + "\none\n",
		`,"ranges":[{"start_line":2,"end_line":3}],"include_line_numbers":true`:                "2│ two é\n3│ \n",
		`,"include_line_numbers":true`:                                                         "1│ one\n2│ two é\n3│ \n4│ " + lines[3] + "\n5│ five\n",
		`,"pattern":"^[of]"`:                                                                   "one\n" + lines[3] + "\nfive\n",
		`,"pattern":"^f","ranges":[{"start_line":5,"end_line":5}],"include_line_numbers":true`: "5│ five\n",
		`,"pattern":"nothing"`:                                                                 "",
		`,"chars":"5-9"`:                                                                       "two é",
		`,"chars":"7"`:                                                                         "o",
		fmt.Sprintf(`,"chars":"%d-9999"`, len([]rune(text))-3):                                 "five",
		`,"chars":"9000-9999"`:                                                                 "",
		`,"ranges":[]`:                                                                         text,
		`,"include_line_numbers":false`:                                                        text,
		`,"ranges":[{"start_line":9,"end_line":9}]`:                                            "",
	} {
		for _, protocol := range protocols {
			c := gw.connect(t, "/mcp", protocol, "{}")
			got := c.callResult(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+id+`"`+args+`}}`)
			if textOfResult(t, got) != want || strings.HasSuffix(got, `,"isError":false,"resultType":"complete"}`) != (protocol == mcp.Modern) {
				t.Errorf("%s: got %s, want %q", args, got, want)
			}
		}
	}
	spelled := strings.ToUpper(strings.ReplaceAll(id, "0", "o"))
	if got := gw.connect(t, "/mcp/a", mcp.Modern, "{}").callResult(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":" `+spelled+`"}}`); textOfResult(t, got) != text {
		t.Errorf("spelled %s: got %s", spelled, got)
	}
}

// P6 at the MCP endpoint: what cannot be read back is refused with the code of the contract.
func TestRecoverTextRefusals(t *testing.T) {
	t.Parallel()
	gw, id := newGatewayWithRecoverable(t, strings.Repeat("a text to keep ", 10))
	const unknown = `!{"code":-32004,"message":"prune_id_not_found: unknown or expired prune_id","data":{"code":"prune_id_not_found"}}`
	const badRange = `!{"code":-32005,"message":"invalid_range: lines are counted from 1, and start_line is not after end_line","data":{"code":"invalid_range"}}`
	badParams := `!{"code":-32602,`
	for args, want := range map[string]string{
		`{"prune_id":"prn_00000000000000000000000000"}`:                          unknown,
		`{"prune_id":"prn_x"}`:                                                   unknown,
		`{"prune_id":"` + id[:len(id)-1] + `"}`:                                  unknown,
		`{"prune_id":"` + otherTenants(t, gw) + `"}`:                             unknown,
		`{"prune_id":"` + id + `","ranges":[{"start_line":2,"end_line":1}]}`:     badRange,
		`{"prune_id":"` + id + `","ranges":[{"start_line":0,"end_line":1}]}`:     badRange,
		`{"prune_id":"` + id + `","ranges":[{"start_line":1}]}`:                  badRange,
		`{"prune_id":"` + id + `","ranges":[{"start_line":"1","end_line":2}]}`:   badRange,
		`{"prune_id":"` + id + `","ranges":[7]}`:                                 badRange,
		`{"prune_id":"` + id + `","pattern":"("}`:                                badParams,
		`{"prune_id":"` + id + `","pattern":"` + strings.Repeat("x", 513) + `"}`: badParams,
		`{"prune_id":"` + id + `","chars":"x"}`:                                  badParams,
		`{"prune_id":"` + id + `","chars":"1-2,4"}`:                              badParams,
		`{"prune_id":"` + id + `","extra":1}`:                                    badParams,
		`{"prune_id":""}`:                                                        badParams,
		`{"prune_id":1}`:                                                         badParams,
		`{}`:                                                                     badParams,
		`[]`:                                                                     badParams,
	} {
		for _, protocol := range protocols {
			c := gw.connect(t, "/mcp", protocol, "{}")
			g := c.call(t, mcp.ToolsCall, `{"name":"recover_text","arguments":`+args+`}`)
			if got := resultOrError(t, g.body); !strings.HasPrefix(got, want) || g.status != 200 {
				t.Errorf("%s: got %d %s, want %s", args, g.status, got, want)
			}
		}
	}
	if got := gw.connect(t, "/mcp", mcp.Modern, "{}").callResult(t, mcp.ToolsCall, `{"name":"recover_text"}`); !strings.HasPrefix(got, badParams) {
		t.Errorf("got %s", got)
	}
}

// otherTenants stores a text for another tenant, and returns its id.
func otherTenants(t *testing.T, gw *mcpGateway) string {
	t.Helper()
	body := []byte(`{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("a text to keep ", 10) + `"}`)
	m, err := rpc.ParseMessage(body, 8, 20)
	if err != nil {
		t.Fatal(err)
	}
	cut := gw.recall.Shrink(context.Background(), recall.ShrinkRequest{Tenant: "other", Body: body, Strings: m.LongStrings}, gw.setup.hub.Masking)
	if len(cut.Edits) != 1 {
		t.Fatalf("%+v", cut)
	}
	return lineOfRecovery.FindStringSubmatch(string(cut.Edits[0].Text))[1]
}

// A policy for some tools applies at the MCP endpoint under the servers' own names.
func TestPolicyOfTool(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 5)
	answer := respond(`{"content":[{"type":"text","text":"` + long + `"}]}`)
	a, b := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsCall, answer), newFakeServer(t, "b", mcp.Legacy, false).handle(mcp.ToolsCall, answer)
	gw := startGateway(t, func(s *setup) {
		maskSmall(s)
		s.hub.Policies = []hub.Policy{{Server: "a", Tool: "raw*", Reduce: "none"}, {Server: "b", Tool: "*", Reduce: "none"}}
	}, a, b)
	for _, protocol := range protocols {
		c := gw.connect(t, "/mcp", protocol, "{}")
		for tool, cut := range map[string]bool{"a::raw": false, "a::rawer": false, "a::x": true, "b::x": false} {
			if got := c.callResult(t, mcp.ToolsCall, `{"name":"`+tool+`"}`); strings.Contains(got, long) == cut {
				t.Errorf("%s: got %s", tool, got)
			}
		}
	}
}
