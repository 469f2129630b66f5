package hub_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/mcp"
)

// token is the progress token of a call, as its server got it.
func (c *turn) token() string {
	var params struct {
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(c.Params, &params)
	return string(params.Meta.Token)
}

// A7, A13: what a server says during a call arrives during the call, byte for byte but for the
// token and the tag, in any era, by any wire and any door; of log messages, those asked for.
func TestVerbatimDuringCall(t *testing.T) {
	t.Parallel()
	fars := four(t)
	const tag = `"ctxgate/server":"`
	talk := []struct{ sent, got string }{ // got is empty for what nobody asked for
		{`{"params":{"progress":1.0,"progressToken":@token, "total":12345678901234567890,"message":"\u0061"},"jsonrpc":"2.0","method":"notifications/progress"}`,
			`{"params":{"progress":1.0,"progressToken":"t\u0031", "total":12345678901234567890,"message":"\u0061"},"jsonrpc":"2.0","method":"notifications/progress"}`},
		{`{"jsonrpc":"2.0","method":"notifications/odd","params":{"a":1.0,"_meta":{"k":"\/"} },"x":1}`,
			`{"jsonrpc":"2.0","method":"notifications/odd","params":{"a":1.0,"_meta":{"k":"\/",` + tag + `@id"} },"x":1}`},
		{`{"jsonrpc":"2.0","method":"notifications/bare"}`, `{"jsonrpc":"2.0","method":"notifications/bare","params":{"_meta":{` + tag + `@id"}}}`},
		{`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1.0}}`, ``},
		{`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":{"b":1.0}}}`,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":{"b":1.0},"_meta":{` + tag + `@id"}}}`},
	}
	for _, f := range fars {
		f.on(mcp.ToolsCall, func(c *turn) string {
			for _, line := range talk {
				c.send(strings.ReplaceAll(line.sent, "@token", c.token()))
			}
			return `{"content":[]}`
		})
	}
	for _, era := range both {
		t.Run(era.String(), doors(era, fars, func(t *testing.T, c *client, f *far, names map[string]string) {
			f.forget()
			params := `{"name":@tool,"_meta":{@meta,"progressToken":"t\u0031"}}`
			if era == mcp.EraLegacy {
				c.ask(t, mcp.SetLevel, `{"level":"warning"}`)
			} else {
				params = strings.Replace(params, "@meta", `@meta,"`+mcp.KeyLogLevel+`":"warning"`, 1)
			}
			c.call(t, mcp.ToolsCall, write(params, names))
			for _, line := range talk {
				if line.got == "" {
					continue
				}
				want := strings.ReplaceAll(line.got, "@id", f.id)
				if n := c.next(t); n.text != want || n.via == "get" {
					t.Errorf("%s: got %s\nwant %s", n.via, n.text, want)
				}
			}
			heard := f.got(mcp.SetLevel)
			if call := f.got(mcp.ToolsCall)[0].raw; f.era == mcp.EraModern && (!strings.Contains(call, `"`+mcp.KeyLogLevel+`":"warning"`) || len(heard) > 0) {
				t.Errorf("the level did not go with the call: %s", call)
			}
		}))
	}
	for _, f := range fars {
		if got := f.got(mcp.SetLevel); len(got) > 0 && string(got[0].Params) != `{"level":"warning"}` {
			t.Errorf("%s: got %s", f.id, got[0].raw)
		}
	}
}

// watching makes a client watch a resource in its era, and gives what undoes that.
func watching(t *testing.T, c *client, uri string) (stop func()) {
	t.Helper()
	if c.era == mcp.EraLegacy {
		if got := c.ask(t, mcp.Subscribe, `{"uri":`+uri+`}`); got != `{}` {
			t.Errorf("got %s", got)
		}
		return func() {
			if got := c.ask(t, mcp.Unsubscribe, `{"uri":`+uri+`}`); got != `{}` {
				t.Errorf("got %s", got)
			}
		}
	}
	return c.hear(t, `{"resourceSubscriptions":[`+uri+`]}`)
}

// hear opens a stream of the newer era and takes its acknowledgement, which must be exactly of
// what was asked. The function it gives closes it.
func (c *client) hear(t testing.TB, wanted string) (stop func()) {
	t.Helper()
	one := newClient(t, c.era, c.caps) // with a life of its own
	one.yard, one.path, one.notes, one.in, one.header, one.n = c.yard, c.path, c.notes, c.in, c.header, c.n
	c.n++
	id, _ := one.begin(t, mcp.Listen, `{"notifications":`+wanted+`}`)
	want := `{"jsonrpc":"2.0","method":"` + mcp.Acknowledged + `","params":{"_meta":{"` + mcp.KeySubscription + `":` + id + `},"notifications":` + strings.ReplaceAll(wanted, `\/`, `/`) + `}}`
	n := c.next(t)
	for strings.Contains(n.text, mcp.ResourceUpdated) && !strings.Contains(n.text, mcp.KeySubscription+`":`+id) {
		n = c.next(t) // of a stream before: where two overlap, an update comes twice
	}
	if n.text != want {
		t.Errorf("got %s\nwant %s", n.text, want)
	}
	return func() {
		if c.in != nil {
			c.tell(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`,"_meta":{`+c.meta()+`}}}`)
			return
		}
		one.leave()
	}
}

// A4, A13: a resource that is watched in one era is watched at a server of the other, and its news
// arrive byte for byte but for the name and the stream they are for.
func TestVerbatimUpdates(t *testing.T) {
	t.Parallel()
	fars := four(t)
	for _, era := range both {
		t.Run(era.String(), doors(era, fars, func(t *testing.T, c *client, f *far, names map[string]string) {
			f.forget()
			if era == mcp.EraLegacy && c.in == nil {
				stop, _ := c.listen(t)
				defer stop()
			}
			stop := watching(t, c, names["@uri"])
			if f.era == mcp.EraLegacy {
				if got := string(f.await(t, mcp.Subscribe, 1).Params); got != `{"uri":"mem://a"}` {
					t.Errorf("got %s", got)
				}
			}
			f.push(t, `{"method":"notifications/resources/updated","jsonrpc":"2.0","params":{"x":1.0,"uri":"mem:\/\/a" @sub,"y":"\/"}}`)
			got := c.nextOf(t, mcp.ResourceUpdated).text
			shown := strings.ReplaceAll(names["@uri"], `\/`, `/`)
			want := `{"method":"notifications/resources/updated","jsonrpc":"2.0","params":{"x":1.0,"uri":` + shown + ` @sub,"y":"\/"}}`
			if err := sameBut(got, want, c.era); err != "" {
				t.Errorf("got %s\nwant %s (%s)", got, want, err)
			}
			stop()
			if f.era == mcp.EraLegacy {
				if got := string(f.await(t, mcp.Unsubscribe, 1).Params); got != `{"uri":"mem://a"}` {
					t.Errorf("got %s", got)
				}
			} else {
				f.unwatched(t)
			}
		}))
	}
}

// unwatched waits until no stream of news at a server of the newer era is for resources.
func (f *far) unwatched(t testing.TB) {
	t.Helper()
	eventually(t, "end of the watch at "+f.id, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.watchers == 0
	})
}

// sameBut compares a notification with what was sent, where @sub stands for what says which stream
// it is for: nothing in the older era; in the newer one the id of the client's request.
func sameBut(got, want string, era mcp.Era) string {
	head, tail, _ := strings.Cut(want, " @sub")
	if era == mcp.EraModern {
		rest, ok := strings.CutPrefix(got, head)
		if ok && strings.Contains(rest, `"`+mcp.KeySubscription+`":`) && strings.Count(rest, mcp.KeySubscription) == 1 {
			return ""
		}
		return "the newer era"
	}
	if got == head+" "+tail || got == head+` ,"_meta":{}`+tail || got == head+tail {
		return ""
	}
	return "the older era"
}

// A4: ping and server/discover are the gateway's own affair, and what an era does not have goes nowhere.
func TestOwnMethods(t *testing.T) {
	t.Parallel()
	fars := four(t)
	versions := `["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`
	caps := `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{}}`
	for _, era := range both {
		t.Run(era.String(), doors(era, fars, func(t *testing.T, c *client, f *far, _ map[string]string) {
			c.ask(t, mcp.PromptsList, `{}`) // the servers have been greeted
			f.forget()
			ping, discover := c.ask(t, mcp.Ping, `{}`), c.ask(t, mcp.Discover, `{}`)
			if era == mcp.EraLegacy {
				if got := c.ask(t, mcp.Listen, `{"notifications":{}}`); !strings.HasPrefix(got, `!{"code":-32601,`) || len(f.got(mcp.Listen)) > 0 {
					t.Errorf("got %s", got)
				}
			}
			unknown := `!{"code":-32601,"message":"Method not found","data":{"reason":"no_method","retryable":false}}`
			wantPing, wantDiscover := `{}`, unknown
			if era == mcp.EraModern {
				wantPing = unknown
				wantDiscover = `{"resultType":"complete","supportedVersions":` + versions + `,"capabilities":` + caps +
					`,"_meta":{"` + mcp.KeyServerInfo + `":{"name":"ctxgate","title":"ctxgate","version":"test"}},"ttlMs":0,"cacheScope":"private"}`
			}
			if ping != wantPing || discover != wantDiscover {
				t.Errorf("got %s\n%s", ping, discover)
			}
			if len(f.got(mcp.Ping))+len(f.got(mcp.Discover)) > 0 {
				t.Error("the server was asked")
			}
		}))
	}
}
