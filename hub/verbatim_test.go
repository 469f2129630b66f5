package hub_test

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/mcp"
)

// The messages of servers and clients here are full of what typed decoding would lose: unknown members, large
// numbers, 1.0, needless escapes, and white space. In the texts, @tool, @uri and @prompt stand for a name as it is
// written on that side.
const (
	oddItem = `{"name":@tool , "title":"a \/ b \u003cx\u003e","inputSchema":{"type":"object","properties":{"q":{"const":12345678901234567890}} }, ` +
		`"annotations":{ "readOnlyHint":true,"x-new":1.0 },"icons":[{"src":"data:image\/png;base64,AA==","sizes":["48x48"]}],` +
		`"execution":{"taskSupport":"forbidden"},"_meta":{"vendor\/x":[1e3,-0.0]},"unknown":null }`
	oddPrompt   = `{"arguments":[{"name":"q","required":true , "x":1.0}],"name":@prompt,"icons":[]}`
	oddResource = `{"size":12345678901234567890,"uri":@uri,"name":"\u0061","annotations":{"lastModified":"x"} }`
	oddTemplate = `{ "uriTemplate":@template,"name":"t","_meta":{"n":1.50}}`

	oddMeta = `"_meta":{"a\/b":1.0,@meta,"z":null}`
)

// verbatimCase is a method, what the client sends and what the server answers.
type verbatimCase struct {
	method, params, answer string
}

var verbatimCases = []verbatimCase{
	{mcp.ToolsCall, `{ "name" : @tool, "arguments":{"q":"a \/ \u003cb\u003e","n":12345678901234567890,"f":1.0, "in":{"proxy":{"keep":1}}},` +
		`"extra":[1e2],"proxy":{"authToken":"x"},` + oddMeta + ` }`,
		`{ "content":[ {"type":"text","text":"caf\u00e9 \/ \u003c \ud83d\ude00","annotations":{"audience":["user"],"priority":1.0},"_meta":{"k":1}},` +
			`{"type":"image","data":"AAAA","mimeType":"image\/png"},{"type":"resource_link","uri":@uri,"name":"n","size":12345678901234567890},` +
			`{"resource":{"text":"t","uri":@uri,"x":1},"type":"resource"} ],"structuredContent":{"big":12345678901234567890,"f":1.0,"e":1E+2,"n":-0,"uri":"mem://a"},` +
			`"isError" : false,"_meta":{"io.x\/y":true},"resultType":"complete","zz":[] }`},
	{mcp.ToolsCall, `{"arguments":{},"name":@tool}`, `!{"code":-32055,"message":"n\u00f6","data":{"big":12345678901234567890,"f":1.0},"x":null}`},
	{mcp.ToolsCall, `{"name":@tool,"_meta":{@meta,"progressToken":"t\u0031"},"task":{"ttl":1.0}}`, `{"content":[ ]}`},
	{mcp.ResourcesRead, `{"x":1.0,"uri":@uri,` + oddMeta + `}`,
		`{"contents":[{"uri":@uri,"mimeType":"text\/plain","text":"\u0061\/","_meta":{"k":1.0}},{"blob":"AAAA" ,"uri":@other}],"ttlMs":1500,"cacheScope":"public","resultType":"complete"}`},
	{mcp.ResourcesRead, `{"uri":@uri}`, `{ "contents" : [] }`},
	{mcp.ResourcesRead, `{"uri":@uri}`, `!{"code":-32002,"message":"gone","data":{"uri":"mem:\/\/a"}}`},
	{mcp.PromptsGet, `{"name":@prompt,"arguments":{"a":"\u0062"},"y":[1.0]}`,
		`{"description":"d\/","messages":[{"role":"user","content":{"type":"text","text":"x"}},{"content":{"resource":{"uri":@uri,"text":"y"},"type":"resource"},"role":"assistant"}],"resultType":"complete"}`},
	{mcp.CompletionComplete, `{"argument":{"name":"q","value":"\u0061"},"ref":{"type":"ref\/prompt", "name":@prompt,"w":1.0},"context":{"arguments":{}}}`,
		`{"completion":{"values":["a","\u0062"],"total":1.0,"hasMore":false}}`},
	{mcp.CompletionComplete, `{"ref":{"uri":@template,"type":"ref\/resource"},"argument":{"name":"q","value":""}}`, `{"completion":{"values":[]},"resultType":"complete"}`},
}

// serverNames returns the names as the server writes them.
func serverNames() map[string]string {
	return map[string]string{
		"@tool": `"s\u0065arch"`, "@prompt": `"ask"`, "@uri": `"mem:\/\/a"`, "@other": `"mem:\/\/b"`, "@template": `"mem:\/\/{q}"`,
	}
}

func shownURI(server, uri string) string {
	return "proxy://resource/" + base64.RawURLEncoding.EncodeToString([]byte(`{"server":"`+server+`","uri":"`+uri+`"}`))
}

func prefixedNames(server string) map[string]string {
	return map[string]string{
		"@tool": `"` + server + `::search"`, "@prompt": `"` + server + `::ask"`, "@uri": `"` + shownURI(server, "mem://a") + `"`,
		"@other": `"` + shownURI(server, "mem://b") + `"`, "@template": `"proxy://template/` + server + `/mem://{q}"`,
	}
}

func replaceNames(text string, names map[string]string) string {
	for token, name := range names {
		text = strings.ReplaceAll(text, token, name)
	}
	return text
}

// fourServers returns servers of both protocols over both transports, all with the same unusual items.
func fourServers(t testing.TB) []*fakeServer {
	var out []*fakeServer
	for _, protocol := range protocols {
		for _, stdio := range []bool{true, false} {
			wire := "http"
			if stdio {
				wire = "stdio"
			}
			f := newFakeServer(t, protocol.String()+"-"+wire, protocol, stdio)
			own := serverNames()
			f.handle(mcp.ToolsList, listResult("tools", replaceNames(oddItem, own), `{"name":"aaa","inputSchema":{}}`)).
				handle(mcp.PromptsList, listResult("prompts", replaceNames(oddPrompt, own))).
				handle(mcp.ResourcesList, listResult("resources", replaceNames(oddResource, own))).
				handle(mcp.ResourceTemplatesList, listResult("resourceTemplates", replaceNames(oddTemplate, own)))
			out = append(out, f)
		}
	}
	return out
}

// stripGatewayChanges removes what the gateway may change: the members that a protocol requires, the progress
// token and the proxy.
func stripGatewayChanges(c *client, text string) string {
	members := []string{
		`"proxy":{"authToken":"x"}`, `"resultType":"complete"`, `"ttlMs":0`, `"cacheScope":"private"`, `"` + mcp.MetaProtocolVersion + `":"2026-07-28"`,
		`"` + mcp.MetaClientInfo + `":` + c.info, `"` + mcp.MetaClientCapabilities + `":` + c.caps, `"_meta":{}`,
	}
	text = progressToken.ReplaceAllString(text, `"progressToken":0`)
	for _, m := range members {
		text = strings.NewReplacer(","+m, "", m+",", "", m, "").Replace(text)
	}
	return text
}

var progressToken = regexp.MustCompile(`"progressToken":("[^"]*"|\d+)`)

// forEachEndpoint runs a test at every endpoint of the same four servers, with the names as they are written
// there.
func forEachEndpoint(protocol mcp.Protocol, servers []*fakeServer, each func(t *testing.T, c *client, f *fakeServer, names map[string]string)) func(*testing.T) {
	return func(t *testing.T) {
		t.Run("http", func(t *testing.T) {
			gw := startGateway(t, nil, servers...)
			for _, f := range servers {
				t.Run("mcp to "+f.id, func(t *testing.T) { each(t, gw.connect(t, "/mcp", protocol, "{}"), f, prefixedNames(f.id)) })
				t.Run("mcp of "+f.id, func(t *testing.T) { each(t, gw.connect(t, "/mcp/"+f.id, protocol, "{}"), f, serverNames()) })
			}
		})
		for _, f := range servers {
			f.awaitDisconnected(t)
		}
		c := connectStdio(t, nil, protocol, "{}", servers...)
		for _, f := range servers {
			t.Run("stdio to "+f.id, func(t *testing.T) { each(t, c, f, prefixedNames(f.id)) })
		}
	}
}

// A4, A12, A13: what a client sends and what a server answers arrive byte for byte, in any protocol, transport and
// endpoint, but for names, ids, protocol metadata and the proxy member.
func TestVerbatim(t *testing.T) {
	t.Parallel()
	servers := fourServers(t)
	for _, protocol := range protocols {
		t.Run(protocol.String(), forEachEndpoint(protocol, servers, func(t *testing.T, c *client, f *fakeServer, names map[string]string) {
			for _, r := range verbatimCases {
				checkRow(t, c, f, r, names)
			}
		}))
	}
}

func checkRow(t *testing.T, c *client, f *fakeServer, r verbatimCase, names map[string]string) {
	t.Helper()
	f.handle(r.method, respond(replaceNames(r.answer, serverNames())))
	f.forgetMessages()
	id, reply := c.startCall(t, r.method, replaceNames(r.params, names))
	got := receiveWithin(t, reply, r.method)

	seen := f.awaitMessage(t, r.method, 1)
	sent := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, seen.ID, r.method, c.withMeta(replaceNames(r.params, unprefixedNames(names))))
	if got, want := stripGatewayChanges(c, seen.raw), stripGatewayChanges(c, sent); got != want {
		t.Errorf("%s to %s:\nthe server got %s\nwant           %s", r.method, f.id, got, want)
	}

	answer := r.answer
	if r.method == mcp.ResourcesRead && c.protocol == mcp.Modern { // the code of the modern protocol
		answer = strings.Replace(answer, "-32002", "-32602", 1)
	}
	want := wrapReply(replaceNames(answer, names), id)
	if stripGatewayChanges(c, got.body) != stripGatewayChanges(c, want) {
		t.Errorf("%s from %s:\nthe client got %s\nwant           %s", r.method, f.id, stripGatewayChanges(c, got.body), stripGatewayChanges(c, want))
	}
	checkProtocolMembers(t, c, r, got.body)
	if f.protocol == mcp.Modern && strings.Count(seen.raw, mcp.MetaProtocolVersion) != 1 || f.protocol == mcp.Legacy && strings.Contains(seen.raw, mcp.MetaProtocolVersion) {
		t.Errorf("%s to %s: the protocol metadata: %s", r.method, f.id, seen.raw)
	}
	if strings.Contains(seen.raw, "authToken") {
		t.Errorf("%s to %s: the token was passed on: %s", r.method, f.id, seen.raw)
	}
}

// unprefixedNames returns the names that a server gets for those that a client wrote.
func unprefixedNames(names map[string]string) map[string]string {
	if !strings.Contains(names["@uri"], "proxy://") {
		return names // at the endpoint of one server they stay as they were written
	}
	return map[string]string{"@tool": `"search"`, "@prompt": `"ask"`, "@uri": `"mem://a"`, "@template": `"mem://{q}"`}
}

// checkProtocolMembers checks that a result has the members that the client's protocol requires.
func checkProtocolMembers(t *testing.T, c *client, r verbatimCase, body string) {
	t.Helper()
	want := map[string]int{`"resultType":"complete"`: 0}
	if c.protocol == mcp.Modern && r.answer[0] != '!' {
		want[`"resultType":"complete"`] = 1
		if r.method == mcp.ResourcesRead {
			want[`"ttlMs":`], want[`"cacheScope":`] = 1, 1
		}
	}
	for text, n := range want {
		if strings.Count(body, text) != n {
			t.Errorf("%s: %d times %s in %s", r.method, n, text, body)
		}
	}
}

// A6, A13: lists hold every item byte for byte under its name, servers in the order of the configuration.
func TestVerbatimLists(t *testing.T) {
	t.Parallel()
	servers := fourServers(t)
	items := map[string][]string{ // in the order of their names
		mcp.ToolsList: {`{"name":@aaa,"inputSchema":{}}`, oddItem}, mcp.PromptsList: {oddPrompt}, mcp.ResourcesList: {oddResource}, mcp.ResourceTemplatesList: {oddTemplate},
	}
	members := map[string]string{mcp.ToolsList: "tools", mcp.PromptsList: "prompts", mcp.ResourcesList: "resources", mcp.ResourceTemplatesList: "resourceTemplates"}
	for _, protocol := range protocols {
		t.Run(protocol.String(), forEachEndpoint(protocol, servers, func(t *testing.T, c *client, f *fakeServer, names map[string]string) {
			listed := servers
			if !strings.Contains(names["@uri"], "proxy://") {
				listed = []*fakeServer{f}
			} else if f != servers[0] {
				return // the list is the same for all
			}
			for method, texts := range items {
				var all []string
				for _, one := range listed {
					if len(listed) > 1 {
						names = prefixedNames(one.id)
						names["@aaa"] = `"` + one.id + `::aaa"`
					} else {
						names["@aaa"] = `"aaa"`
					}
					for _, text := range texts {
						all = append(all, replaceNames(text, names))
					}
				}
				checkList(t, c, method, members[method], all)
			}
		}))
	}
}

func checkList(t *testing.T, c *client, method, member string, items []string) {
	t.Helper()
	got := c.callResult(t, method, `{}`)
	want := `{"` + member + `":[` + strings.Join(items, ",")
	tail := "]}"
	if c.protocol == mcp.Modern {
		tail = `],"resultType":"complete","cacheScope":"private","ttlMs":60000}`
	}
	if method == mcp.ToolsList {
		rest, ok := strings.CutPrefix(got, want+`,{"name":"recover_text"`)
		if !ok || !strings.HasSuffix(rest, tail) || strings.Contains(rest, "inputSchema\":{}") {
			t.Errorf("got  %s\nwant %s, recover_text", got, want)
		}
		return
	}
	if got != want+tail {
		t.Errorf("got  %s\nwant %s", got, want+tail)
	}
}
