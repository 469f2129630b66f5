package hub_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
)

const (
	allCapabilities = `{"elicitation":{"form":{}},"sampling":{},"roots":{}}`
	tagOf           = `"_meta":{"ctxgate/server":"a"}`
)

// newAskingServer returns a legacy server whose tools send requests: "<method> <params>", one line each, one after
// the other.
func newAskingServer(t testing.TB, stdio bool) *fakeServer {
	t.Helper()
	return newFakeServer(t, "a", mcp.Legacy, stdio).handle(mcp.ToolsCall, func(c *serverCall) string {
		var p struct{ Arguments struct{ Ask []string } }
		_ = json.Unmarshal(c.Params, &p)
		var got []string
		for _, q := range p.Arguments.Ask {
			method, params, _ := strings.Cut(q, " ")
			got = append(got, c.askClient(method, params))
		}
		text, _ := json.Marshal(strings.Join(got, "\n"))
		return `{"content":[{"type":"text","text":` + string(text) + `}]}`
	})
}

// textOfResult returns the text of a tool's result.
func textOfResult(t testing.TB, result string) string {
	t.Helper()
	var p struct{ Content []struct{ Text string } }
	if err := json.Unmarshal([]byte(result), &p); err != nil || len(p.Content) != 1 {
		t.Fatalf("no text in %s", result)
	}
	return p.Content[0].Text
}

// askParams returns the params of a call that makes the server send these requests.
func askParams(questions ...string) string {
	list, _ := json.Marshal(questions)
	return `{"name":"a::ask","arguments":{"ask":` + string(list) + `}}`
}

// A5: a legacy server's request during a call reaches the client that made the call, on the call's own stream,
// with the server's id; the reply comes back to that server, byte for byte both ways.
func TestServerRequestsA5(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := newAskingServer(t, stdio)
		gw := startGateway(t, nil, a)
		other := gw.connect(t, "/mcp", mcp.Legacy, allCapabilities)
		other.openStream(t)
		clients := map[string]*client{"post": gw.connect(t, "/mcp", mcp.Legacy, allCapabilities), "stdio": connectStdio(t, nil, mcp.Legacy, allCapabilities, a)}
		for via, c := range clients {
			for n, method := range []string{mcp.ElicitationCreate, mcp.SamplingCreateMessage, mcp.RootsList} {
				_, reply := c.startCall(t, mcp.ToolsCall, askParams(method+` {"message":"\u003c\/","x":1.0 }`))
				q := c.nextMessage(t)
				want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"%s","params":{"message":"\u003c\/","x":1.0,%s }}`, n+1, method, tagOf)
				if q.text != want || q.via != via {
					t.Errorf("%s: got %s\nwant %s", q.via, q.text, want)
				}
				c.answer(t, q, `{"action":"accept", "content":{"n":12345678901234567890,"f":1.0,"s":"\/"} }`)
				got := textOfResult(t, resultOrError(t, receiveWithin(t, reply, "the result").body))
				if want := `"result":{"action":"accept", "content":{"n":12345678901234567890,"f":1.0,"s":"\/"} }}`; !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"ask-`) || !strings.HasSuffix(got, want) {
					t.Errorf("the server got %s", got)
				}
			}
			_, reply := c.startCall(t, mcp.ToolsCall, askParams(mcp.SamplingCreateMessage+` {}`))
			c.notify(t, `{"jsonrpc":"2.0","id":`+idOf(c.nextMessage(t))+`,"error":{"code":-1,"message":"n\u006f","data":1.0}}`)
			if got := textOfResult(t, resultOrError(t, receiveWithin(t, reply, "the result").body)); !strings.HasSuffix(got, `"error":{"code":-1,"message":"n\u006f","data":1.0}}`) {
				t.Errorf("the server got %s", got)
			}
		}
		other.expectSilence(t, 50*time.Millisecond)
	}
}

func idOf(n message) string {
	var m struct{ ID json.RawMessage }
	_ = json.Unmarshal([]byte(n.text), &m)
	return string(m.ID)
}

// A5: concurrent clients never get each other's requests, in any protocol.
func TestConcurrentServerRequestsA5(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := newAskingServer(t, stdio)
		gw := startGateway(t, nil, a)
		var wg sync.WaitGroup
		for i := range 6 {
			c := gw.connect(t, "/mcp", protocols[i%2], allCapabilities)
			wg.Go(func() {
				for round := range 4 {
					mine := fmt.Sprintf("client %d round %d", i, round)
					g := c.callAnswering(t, askParams(mcp.ElicitationCreate+` {"message":"`+mine+`"}`), func(question string) string {
						if !strings.Contains(question, mine) {
							t.Errorf("%s was asked %s", mine, question)
						}
						return `{"action":"accept","content":{"who":"` + mine + `"}}`
					})
					if !strings.Contains(g, mine) {
						t.Errorf("%s got %s", mine, g)
					}
				}
			})
		}
		wg.Wait()
	}
}

// callAnswering makes a call and answers the requests during it, in the client's protocol.
func (c *client) callAnswering(t testing.TB, params string, answer func(question string) string) string {
	t.Helper()
	if c.protocol == mcp.Legacy {
		_, reply := c.startCall(t, mcp.ToolsCall, params)
		for {
			select {
			case q := <-c.received:
				if idOf(q) != "" {
					c.answer(t, q, answer(q.text))
				}
			case g := <-reply:
				return g.body
			case <-time.After(patience):
				t.Error("no answer")
				return ""
			}
		}
	}
	got := c.callResult(t, mcp.ToolsCall, params)
	for range 10 {
		state, questions := parseInputRequired(t, got)
		if state == "" {
			return got
		}
		answers := map[string]json.RawMessage{}
		for key, q := range questions {
			answers[key] = json.RawMessage(answer(string(q)))
		}
		list, _ := json.Marshal(answers)
		got = c.callResult(t, mcp.ToolsCall, withInput(params, string(list), state))
	}
	return got
}

// parseInputRequired parses a result that asks for input; the state is empty for any other result.
func parseInputRequired(t testing.TB, result string) (state string, questions map[string]json.RawMessage) {
	t.Helper()
	var p struct {
		ResultType, RequestState string
		InputRequests            map[string]json.RawMessage
	}
	_ = json.Unmarshal([]byte(result), &p)
	if p.ResultType != "input_required" {
		return "", nil
	}
	return p.RequestState, p.InputRequests
}

// withInput returns params with answers and a state.
func withInput(params, answers, state string) string {
	return strings.TrimSuffix(params, "}") + `,"inputResponses":` + answers + `,"requestState":"` + state + `"}`
}

// A5: a client without the capability is not sent the request; the server gets an error.
func TestClientWithoutCapabilityA5(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := newAskingServer(t, stdio)
		gw := startGateway(t, nil, a)
		for _, protocol := range protocols {
			for _, caps := range []string{`{}`, `{"roots":{}}`} {
				for _, c := range []*client{gw.connect(t, "/mcp", protocol, caps), connectStdio(t, nil, protocol, caps, a)} {
					got := textOfResult(t, c.callResult(t, mcp.ToolsCall, askParams(mcp.ElicitationCreate+` {"message":"?"}`, "vendor/odd {}", "ping {}")))
					lines := strings.Split(got, "\n")
					if len(lines) != 3 || !strings.Contains(lines[0], `"error":{"code":-326`) || strings.Contains(lines[0], "internal") || !strings.Contains(lines[1], `"error":{"code":-32601`) || !strings.Contains(lines[2], `"result":{}`) {
						t.Errorf("%s %s: the server got %s", protocol, caps, got)
					}
					c.expectSilence(t, 20*time.Millisecond)
				}
			}
		}
	}
	b := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsCall, respond(`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{}}},"requestState":"s"}`))
	c := startGateway(t, nil, b).connect(t, "/mcp", mcp.Legacy, `{"roots":{}}`)
	if got := c.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`); !strings.Contains(got, "the server asks for what the client does not offer") || len(b.messagesOf(mcp.ToolsCall)) != 1 {
		t.Errorf("got %s", got)
	}
	c.expectSilence(t, 20*time.Millisecond)
}

// A5: a request that its server cancels is cancelled at the client.
func TestCancelledServerRequestA5(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsCall, func(c *serverCall) string {
		c.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`)
		return `{"content":[]}`
	})
	c := startGateway(t, nil, a).connect(t, "/mcp", mcp.Legacy, allCapabilities)
	// The two may overtake each other on the server's side: the request is either never sent, or cancelled.
	c.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`)
	for len(c.received) > 0 {
		n := c.nextMessage(t)
		if !strings.Contains(n.text, mcp.ElicitationCreate) && n.text != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` {
			t.Errorf("got %s", n.text)
		}
	}
}

// A5: a request of a child process outside of any call reaches the client that the process belongs to, and no
// client if it is shared. Such a request makes it known that the server asks its clients: a client that comes later has a
// process of its own, and one that has used the shared process stays there, since the process may hold what it works on.
func TestServerRequestOutsideCallA5(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsCall, func(c *serverCall) string {
		return fmt.Sprintf(`{"content":[{"type":"text","text":"%d"}]}`, c.pid)
	})
	gw := startGateway(t, nil, a)
	connect := func(capabilities string) *client { return gw.connect(t, "/mcp", mcp.Legacy, capabilities) }
	processOf := func(c *client) (pid int) {
		t.Helper()
		pid, err := strconv.Atoi(textOfResult(t, c.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`)))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	replies := func() string {
		var all []string
		for _, m := range a.messagesOf("") {
			all = append(all, m.raw)
		}
		return strings.Join(all, "\n")
	}
	user, plain := connect(allCapabilities), connect("{}")
	shared := processOf(user)
	wait.For(t, "end of the process that was not told of capabilities", func() bool { return a.aliveChildren() == 1 })
	a.broadcast(t, `{"jsonrpc":"2.0","id":"first","method":"roots/list"}`)
	wait.For(t, "refusal", func() bool { return replies() != "" })
	if got := replies(); !strings.Contains(got, `"id":"first","error":{"code":-32601`) {
		t.Errorf("the shared process got %s", got)
	}
	later := connect(allCapabilities)
	own := processOf(later)
	if got := processOf(user); own == shared || got != shared || processOf(plain) != shared {
		t.Errorf("the process is %d for the client that used the shared one, %d for a later one; shared is %d", got, own, shared)
	}
	later.openStream(t)
	plain.openStream(t)
	a.broadcast(t, `{"jsonrpc":"2.0","id":"out","method":"roots/list"}`)
	q := later.nextOfMethod(t, mcp.RootsList)
	if want := `{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{` + tagOf + `}}`; q.text != want || q.via != "get" {
		t.Errorf("%s %s", q.via, q.text)
	}
	later.answer(t, q, `{"roots":[]}`)
	for _, want := range []string{`{"jsonrpc":"2.0","id":"out","result":{"roots":[]}}`, `"id":"out","error":{"code":-32601`} {
		wait.For(t, "reply "+want, func() bool { return strings.Contains(replies(), want) })
	}
	plain.expectSilence(t, 50*time.Millisecond)
	if g := gw.do(t, http.MethodDelete, "/mcp", nil, http.Header{mcp.HeaderSession: {later.session}}); g.status != 204 {
		t.Errorf("got %d", g.status)
	}
	wait.For(t, "end of the client's own process", func() bool { return !alive(own) })
	if !alive(shared) {
		t.Error("the shared process ended, too")
	}
}

// A5: clients that call before the handshake with the server never get each other's requests either.
func TestServerRequestsBeforeHandshakeA5(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		a := newAskingServer(t, true)
		free := make(chan struct{})
		hello := a.handlers[mcp.Initialize]
		a.handle(mcp.Initialize, func(c *serverCall) string {
			<-free
			return hello(c)
		})
		gw := startGateway(t, func(s *setup) { s.hub.ListWait = seconds(0.05) }, a)
		var wg sync.WaitGroup
		for i := range 4 {
			c := gw.connect(t, "/mcp", protocol, allCapabilities)
			mine := fmt.Sprintf("client %d", i)
			wg.Go(func() {
				g := c.callAnswering(t, askParams(mcp.ElicitationCreate+` {"message":"`+mine+`"}`), func(question string) string {
					if !strings.Contains(question, mine) {
						t.Errorf("%s was asked %s", mine, question)
					}
					return `{"action":"accept","content":{"who":"` + mine + `"}}`
				})
				if strings.Contains(g, "client") && !strings.Contains(g, mine) {
					t.Errorf("%s got %s", mine, g)
				}
			})
		}
		time.Sleep(200 * time.Millisecond)
		close(free)
		wg.Wait()
	}
}

// shared = true: all clients share one child process, which cannot send them requests.
func TestSharedChildAsksNobodyA5(t *testing.T) {
	t.Parallel()
	a := newAskingServer(t, true)
	gw := startGateway(t, func(s *setup) { shared := true; s.upstream.Servers[0].Shared = &shared }, a)
	c := gw.connect(t, "/mcp", mcp.Legacy, allCapabilities)
	c.tools(t)
	got := c.callAnswering(t, askParams(mcp.ElicitationCreate+` {}`), func(question string) string {
		t.Errorf("the client was asked %s", question)
		return `{}`
	})
	if !strings.Contains(got, "-32601") {
		t.Errorf("the server got %s", got)
	}
}

// A5: a client that does not accept a stream for its call gets requests on the stream of its session.
func TestServerRequestOnSessionStreamA5(t *testing.T) {
	t.Parallel()
	a := newAskingServer(t, false)
	c := startGateway(t, nil, a).connect(t, "/mcp", mcp.Legacy, allCapabilities)
	c.tools(t)
	c.header.Set("Accept", "application/json")
	_, reply := c.startCall(t, mcp.ToolsCall, askParams(mcp.RootsList+` {}`))
	a.awaitMessage(t, mcp.ToolsCall, 1)
	c.openStream(t)
	q := c.nextOfMethod(t, mcp.RootsList)
	if q.via != "get" {
		t.Errorf("%s %s", q.via, q.text)
	}
	c.answer(t, q, `{"roots":[]}`)
	if g := receiveWithin(t, reply, "the result"); g.head.Get("Content-Type") != "application/json" || !strings.Contains(g.body, "roots") {
		t.Errorf("got %v %s", g.head, g.body)
	}
}
