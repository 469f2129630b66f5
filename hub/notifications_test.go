package hub_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
)

// token returns the progress token of a call, as its server got it.
func (c *serverCall) token() string {
	var params struct {
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(c.Params, &params)
	return string(params.Meta.Token)
}

// A7, A13: a notification during a call arrives during the call, byte for byte but for the progress token and the
// server's tag, in any protocol, transport and endpoint; of log messages, those asked for.
func TestVerbatimDuringCall(t *testing.T) {
	t.Parallel()
	servers := fourServers(t)
	const tag = `"ctxgate/server":"`
	talk := []struct{ sent, got string }{ // got is empty for what the client did not ask for
		{`{"params":{"progress":1.0,"progressToken":@token, "total":12345678901234567890,"message":"\u0061"},"jsonrpc":"2.0","method":"notifications/progress"}`,
			`{"params":{"progress":1.0,"progressToken":"t\u0031", "total":12345678901234567890,"message":"\u0061"},"jsonrpc":"2.0","method":"notifications/progress"}`},
		{`{"jsonrpc":"2.0","method":"notifications/odd","params":{"a":1.0,"_meta":{"k":"\/"} },"x":1}`,
			`{"jsonrpc":"2.0","method":"notifications/odd","params":{"a":1.0,"_meta":{"k":"\/",` + tag + `@id"} },"x":1}`},
		{`{"jsonrpc":"2.0","method":"notifications/bare"}`, `{"jsonrpc":"2.0","method":"notifications/bare","params":{"_meta":{` + tag + `@id"}}}`},
		{`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}`, ``},
		{`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":{"b":1.0}}}`,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":{"b":1.0},"_meta":{` + tag + `@id"}}}`},
	}
	for _, f := range servers {
		f.handle(mcp.ToolsCall, func(c *serverCall) string {
			for _, line := range talk {
				c.send(strings.ReplaceAll(line.sent, "@token", c.token()))
			}
			return `{"content":[]}`
		})
	}
	for _, protocol := range protocols {
		t.Run(protocol.String(), forEachEndpoint(protocol, servers, func(t *testing.T, c *client, f *fakeServer, names map[string]string) {
			f.forgetMessages()
			params := `{"name":@tool,"_meta":{@meta,"progressToken":"t\u0031"}}`
			if protocol == mcp.Legacy {
				c.callResult(t, mcp.LoggingSetLevel, `{"level":"warning"}`)
			} else {
				params = strings.Replace(params, "@meta", `@meta,"`+mcp.MetaLogLevel+`":"warning"`, 1)
			}
			c.call(t, mcp.ToolsCall, replaceNames(params, names))
			for _, line := range talk {
				if line.got == "" {
					continue
				}
				want := strings.ReplaceAll(line.got, "@id", f.id)
				if n := c.nextMessage(t); n.text != want || n.via == "get" {
					t.Errorf("%s: got %s\nwant %s", n.via, n.text, want)
				}
			}
			sent := f.messagesOf(mcp.LoggingSetLevel)
			if call := f.messagesOf(mcp.ToolsCall)[0].raw; f.protocol == mcp.Modern && (!strings.Contains(call, `"`+mcp.MetaLogLevel+`":"warning"`) || len(sent) > 0) {
				t.Errorf("the level did not go with the call: %s", call)
			}
		}))
	}
	for _, f := range servers {
		if got := f.messagesOf(mcp.LoggingSetLevel); len(got) > 0 && string(got[0].Params) != `{"level":"warning"}` {
			t.Errorf("%s: got %s", f.id, got[0].raw)
		}
	}
}

// watchResource makes a client watch a resource in its protocol, and returns what ends that.
func watchResource(t *testing.T, c *client, uri string) (stop func()) {
	t.Helper()
	if c.protocol == mcp.Legacy {
		if got := c.callResult(t, mcp.ResourcesSubscribe, `{"uri":`+uri+`}`); got != `{}` {
			t.Errorf("got %s", got)
		}
		return func() {
			if got := c.callResult(t, mcp.ResourcesUnsubscribe, `{"uri":`+uri+`}`); got != `{}` {
				t.Errorf("got %s", got)
			}
		}
	}
	return c.listenFor(t, `{"resourceSubscriptions":[`+uri+`]}`)
}

// listenFor opens a listen stream and reads its acknowledgement, which must be exactly what was asked for. The
// function it returns closes it.
func (c *client) listenFor(t testing.TB, wanted string) (stop func()) {
	t.Helper()
	one := newClient(t, c.protocol, c.caps) // which ends on its own
	one.gateway, one.path, one.received, one.in, one.header, one.lastID = c.gateway, c.path, c.received, c.in, c.header, c.lastID
	c.lastID++
	id, _ := one.startCall(t, mcp.SubscriptionsListen, `{"notifications":`+wanted+`}`)
	want := `{"jsonrpc":"2.0","method":"` + mcp.NotifySubscriptionsAcknowledged + `","params":{"_meta":{"` + mcp.MetaSubscriptionID + `":` + id + `},"notifications":` + strings.ReplaceAll(wanted, `\/`, `/`) + `}}`
	n := c.nextMessage(t)
	for strings.Contains(n.text, mcp.NotifyResourceUpdated) && !strings.Contains(n.text, mcp.MetaSubscriptionID+`":`+id) {
		n = c.nextMessage(t) // of an earlier stream: where two overlap, an update comes twice
	}
	if n.text != want {
		t.Errorf("got %s\nwant %s", n.text, want)
	}
	return func() {
		if c.in != nil {
			c.notify(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`,"_meta":{`+c.meta()+`}}}`)
			return
		}
		one.cancel()
	}
}

// A4, A13: a resource that is watched in one protocol is watched at a server of the other, and updates arrive byte
// for byte but for the name and the stream's id.
func TestVerbatimUpdates(t *testing.T) {
	t.Parallel()
	servers := fourServers(t)
	for _, protocol := range protocols {
		t.Run(protocol.String(), forEachEndpoint(protocol, servers, func(t *testing.T, c *client, f *fakeServer, names map[string]string) {
			f.forgetMessages()
			if protocol == mcp.Legacy && c.in == nil {
				stop, _ := c.openStream(t)
				defer stop()
			}
			stop := watchResource(t, c, names["@uri"])
			if f.protocol == mcp.Legacy {
				if got := string(f.awaitMessage(t, mcp.ResourcesSubscribe, 1).Params); got != `{"uri":"mem://a"}` {
					t.Errorf("got %s", got)
				}
			}
			f.broadcast(t, `{"method":"notifications/resources/updated","jsonrpc":"2.0","params":{"x":1.0,"uri":"mem:\/\/a" @sub,"y":"\/"}}`)
			got := c.nextOfMethod(t, mcp.NotifyResourceUpdated).text
			shown := strings.ReplaceAll(names["@uri"], `\/`, `/`)
			want := `{"method":"notifications/resources/updated","jsonrpc":"2.0","params":{"x":1.0,"uri":` + shown + ` @sub,"y":"\/"}}`
			if err := compareUpdate(got, want, c.protocol); err != "" {
				t.Errorf("got %s\nwant %s (%s)", got, want, err)
			}
			stop()
			if f.protocol == mcp.Legacy {
				if got := string(f.awaitMessage(t, mcp.ResourcesUnsubscribe, 1).Params); got != `{"uri":"mem://a"}` {
					t.Errorf("got %s", got)
				}
			} else {
				f.awaitUnwatched(t)
			}
		}))
	}
}

// awaitUnwatched waits until no listen stream at a modern server is for resources.
func (f *fakeServer) awaitUnwatched(t testing.TB) {
	t.Helper()
	wait.For(t, "end of the watch at "+f.id, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.watchers == 0
	})
}

// compareUpdate compares a notification with what was sent, where @sub stands for what names the stream: nothing
// for legacy clients, the id of the client's request for modern ones.
func compareUpdate(got, want string, protocol mcp.Protocol) string {
	head, tail, _ := strings.Cut(want, " @sub")
	if protocol == mcp.Modern {
		rest, ok := strings.CutPrefix(got, head)
		if ok && strings.Contains(rest, `"`+mcp.MetaSubscriptionID+`":`) && strings.Count(rest, mcp.MetaSubscriptionID) == 1 {
			return ""
		}
		return "modern"
	}
	if got == head+" "+tail || got == head+` ,"_meta":{}`+tail || got == head+tail {
		return ""
	}
	return "legacy"
}

// A4: the gateway itself answers ping and server/discover, and methods that a protocol does not have go nowhere.
func TestGatewayMethods(t *testing.T) {
	t.Parallel()
	servers := fourServers(t)
	versions := `["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`
	caps := `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{}}`
	for _, protocol := range protocols {
		t.Run(protocol.String(), forEachEndpoint(protocol, servers, func(t *testing.T, c *client, f *fakeServer, _ map[string]string) {
			c.callResult(t, mcp.PromptsList, `{}`) // the handshakes with the servers are done
			f.forgetMessages()
			ping, discover := c.callResult(t, mcp.Ping, `{}`), c.callResult(t, mcp.ServerDiscover, `{}`)
			if protocol == mcp.Legacy {
				if got := c.callResult(t, mcp.SubscriptionsListen, `{"notifications":{}}`); !strings.HasPrefix(got, `!{"code":-32601,`) || len(f.messagesOf(mcp.SubscriptionsListen)) > 0 {
					t.Errorf("got %s", got)
				}
			}
			unknown := `!{"code":-32601,"message":"Method not found","data":{"reason":"no_method","retryable":false}}`
			wantPing, wantDiscover := `{}`, unknown
			if protocol == mcp.Modern {
				wantPing = unknown
				wantDiscover = `{"resultType":"complete","supportedVersions":` + versions + `,"capabilities":` + caps +
					`,"_meta":{"` + mcp.MetaServerInfo + `":{"name":"ctxgate","title":"ctxgate","version":"test"}},"ttlMs":0,"cacheScope":"private"}`
			}
			if ping != wantPing || discover != wantDiscover {
				t.Errorf("got %s\n%s", ping, discover)
			}
			if len(f.messagesOf(mcp.Ping))+len(f.messagesOf(mcp.ServerDiscover)) > 0 {
				t.Error("the server was asked")
			}
		}))
	}
}
