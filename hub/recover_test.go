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

// shortened is what small makes of a text, as JSON writes it, with id for the one that it chose.
func shortened(text string) string {
	r := []rune(text)
	s := fmt.Sprintf("%s\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=%d head=4 tail=4] ...\n[recover: prune_id=@id chars=5-%d]\n%s",
		string(r[:4]), len(r), len(r)-4, string(r[len(r)-4:]))
	return strings.ReplaceAll(s, "\n", `\n`)
}

// G3, G4, G+1, G+4 on the MCP doors: long strings of results and of error data are cut, each under
// one id wherever it stands; binary data, addresses and everything else stay as they came.
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
		a := newFar(t, "a", mcp.EraLegacy, false).on(tt.method, says(strings.ReplaceAll(tt.answer, "@long", raw)))
		y := start(t, small, a)
		for _, era := range both {
			c := y.visit(t, "/mcp/a", era, "{}")
			id, reply := c.begin(t, tt.method, tt.params)
			got := wait(t, reply, name).body
			found := lineOfRecovery.FindStringSubmatch(got)
			if found == nil {
				t.Fatalf("%s: nothing was cut: %s", name, got)
			}
			want := envelope(strings.ReplaceAll(tt.answer, "@long", strings.ReplaceAll(shortened(long), "@id", found[1])), id)
			if strip(c, got) != want {
				t.Errorf("%s: got %s\nwant %s", name, strip(c, got), want)
			}
			if got := said(t, c.ask(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+found[1]+`"}}`)); got != long {
				t.Errorf("%s: recovered %q", name, got)
			}
		}
	}
}

// kept is a gateway that has cut a text, and the id it gave it.
func kept(t *testing.T, text string) (*yard, string) {
	t.Helper()
	raw, _ := json.Marshal(text)
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsCall, says(`{"content":[{"type":"text","text":`+string(raw)+`}]}`))
	y := start(t, small, a)
	got := y.visit(t, "/mcp", mcp.EraModern, "{}").ask(t, mcp.ToolsCall, `{"name":"a::x"}`)
	return y, lineOfRecovery.FindStringSubmatch(got)[1]
}

// G+1: recover_text gives all of an original or a part of it, at every door, and is not cut itself.
func TestRecoverText(t *testing.T) {
	t.Parallel()
	text := "one\ntwo é\n\nfour: " + strings.Repeat("x", 100) + "\nfive"
	y, id := kept(t, text)
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
		for _, era := range both {
			c := y.visit(t, "/mcp", era, "{}")
			got := c.ask(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+id+`"`+args+`}}`)
			if said(t, got) != want || strings.HasSuffix(got, `,"isError":false,"resultType":"complete"}`) != (era == mcp.EraModern) {
				t.Errorf("%s: got %s, want %q", args, got, want)
			}
		}
	}
	spelled := strings.ToUpper(strings.ReplaceAll(id, "0", "o"))
	if got := y.visit(t, "/mcp/a", mcp.EraModern, "{}").ask(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":" `+spelled+`"}}`); said(t, got) != text {
		t.Errorf("spelled %s: got %s", spelled, got)
	}
}

// P6 on the MCP doors: what cannot be given is said with the code of the contract.
func TestRecoverTextRefusals(t *testing.T) {
	t.Parallel()
	y, id := kept(t, strings.Repeat("a text to keep ", 10))
	const unknown = `!{"code":-32004,"message":"prune_id_not_found: unknown or expired prune_id","data":{"code":"prune_id_not_found"}}`
	const badRange = `!{"code":-32005,"message":"invalid_range: lines are counted from 1, and start_line is not after end_line","data":{"code":"invalid_range"}}`
	badParams := `!{"code":-32602,`
	for args, want := range map[string]string{
		`{"prune_id":"prn_00000000000000000000000000"}`:                          unknown,
		`{"prune_id":"prn_x"}`:                                                   unknown,
		`{"prune_id":"` + id[:len(id)-1] + `"}`:                                  unknown,
		`{"prune_id":"` + otherTenants(t, y) + `"}`:                              unknown,
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
		for _, era := range both {
			c := y.visit(t, "/mcp", era, "{}")
			g := c.call(t, mcp.ToolsCall, `{"name":"recover_text","arguments":`+args+`}`)
			if got := outcome(t, g.body); !strings.HasPrefix(got, want) || g.status != 200 {
				t.Errorf("%s: got %d %s, want %s", args, g.status, got, want)
			}
		}
	}
	if got := y.visit(t, "/mcp", mcp.EraModern, "{}").ask(t, mcp.ToolsCall, `{"name":"recover_text"}`); !strings.HasPrefix(got, badParams) {
		t.Errorf("got %s", got)
	}
}

// otherTenants keeps a text for somebody else, and gives its id.
func otherTenants(t *testing.T, y *yard) string {
	t.Helper()
	body := []byte(`{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("a text to keep ", 10) + `"}`)
	m, err := rpc.ParseMessage(body, 8, 20)
	if err != nil {
		t.Fatal(err)
	}
	cut := y.recall.Shrink(context.Background(), recall.Doc{Tenant: "other", Body: body, Strings: m.Strings}, y.set.hub.Masking)
	if len(cut.Edits) != 1 {
		t.Fatalf("%+v", cut)
	}
	return lineOfRecovery.FindStringSubmatch(string(cut.Edits[0].Text))[1]
}

// A policy for some tools holds on the MCP doors under the names that servers give them.
func TestPolicyOfTool(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 5)
	answer := says(`{"content":[{"type":"text","text":"` + long + `"}]}`)
	a, b := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsCall, answer), newFar(t, "b", mcp.EraLegacy, false).on(mcp.ToolsCall, answer)
	y := start(t, func(s *setup) {
		small(s)
		s.hub.Policies = []hub.Policy{{Server: "a", Tool: "raw*", Reduce: "none"}, {Server: "b", Tool: "*", Reduce: "none"}}
	}, a, b)
	for _, era := range both {
		c := y.visit(t, "/mcp", era, "{}")
		for tool, cut := range map[string]bool{"a::raw": false, "a::rawer": false, "a::x": true, "b::x": false} {
			if got := c.ask(t, mcp.ToolsCall, `{"name":"`+tool+`"}`); strings.Contains(got, long) == cut {
				t.Errorf("%s: got %s", tool, got)
			}
		}
	}
}
