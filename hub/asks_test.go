package hub_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/mcp"
)

const (
	able  = `{"elicitation":{"form":{}},"sampling":{},"roots":{}}`
	tagOf = `"_meta":{"ctxgate/server":"a"}`
)

// asking is a server of the older era whose tools ask: "<method> <params>", one line each, in turn.
func asking(t testing.TB, stdio bool) *far {
	t.Helper()
	return newFar(t, "a", mcp.EraLegacy, stdio).on(mcp.ToolsCall, func(c *turn) string {
		var p struct{ Arguments struct{ Ask []string } }
		_ = json.Unmarshal(c.Params, &p)
		var got []string
		for _, q := range p.Arguments.Ask {
			method, params, _ := strings.Cut(q, " ")
			got = append(got, c.ask(method, params))
		}
		text, _ := json.Marshal(strings.Join(got, "\n"))
		return `{"content":[{"type":"text","text":` + string(text) + `}]}`
	})
}

// said is the text of a tool's result.
func said(t testing.TB, result string) string {
	t.Helper()
	var p struct{ Content []struct{ Text string } }
	if err := json.Unmarshal([]byte(result), &p); err != nil || len(p.Content) != 1 {
		t.Fatalf("no text in %s", result)
	}
	return p.Content[0].Text
}

// asks are the params of a call that makes the server ask these things.
func asks(questions ...string) string {
	list, _ := json.Marshal(questions)
	return `{"name":"a::ask","arguments":{"ask":` + string(list) + `}}`
}

// A5: what a server of the older era asks in a call reaches the client that made it, on the call's own
// stream, with the server's id; the answer comes back to that server, byte for byte both ways.
func TestQuestionsA5(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := asking(t, stdio)
		y := start(t, nil, a)
		other := y.visit(t, "/mcp", mcp.EraLegacy, able)
		other.listen(t)
		clients := map[string]*client{"post": y.visit(t, "/mcp", mcp.EraLegacy, able), "stdio": onStdio(t, nil, mcp.EraLegacy, able, a)}
		for via, c := range clients {
			for n, method := range []string{mcp.Elicit, mcp.Sampling, mcp.RootsList} {
				_, reply := c.begin(t, mcp.ToolsCall, asks(method+` {"message":"\u003c\/","x":1.0 }`))
				q := c.next(t)
				want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"%s","params":{"message":"\u003c\/","x":1.0,%s }}`, n+1, method, tagOf)
				if q.text != want || q.via != via {
					t.Errorf("%s: got %s\nwant %s", q.via, q.text, want)
				}
				c.answer(t, q, `{"action":"accept", "content":{"n":12345678901234567890,"f":1.0,"s":"\/"} }`)
				got := said(t, outcome(t, wait(t, reply, "the result").body))
				if want := `"result":{"action":"accept", "content":{"n":12345678901234567890,"f":1.0,"s":"\/"} }}`; !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":"ask-`) || !strings.HasSuffix(got, want) {
					t.Errorf("the server got %s", got)
				}
			}
			_, reply := c.begin(t, mcp.ToolsCall, asks(mcp.Sampling+` {}`))
			c.tell(t, `{"jsonrpc":"2.0","id":`+idOf(c.next(t))+`,"error":{"code":-1,"message":"n\u006f","data":1.0}}`)
			if got := said(t, outcome(t, wait(t, reply, "the result").body)); !strings.HasSuffix(got, `"error":{"code":-1,"message":"n\u006f","data":1.0}}`) {
				t.Errorf("the server got %s", got)
			}
		}
		other.quiet(t, 50*time.Millisecond)
	}
}

func idOf(n note) string {
	var m struct{ ID json.RawMessage }
	_ = json.Unmarshal([]byte(n.text), &m)
	return string(m.ID)
}

// A5: clients who ask at once are never taken for each other, in any era.
func TestQuestionsAtOnceA5(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := asking(t, stdio)
		y := start(t, nil, a)
		var wg sync.WaitGroup
		for i := range 6 {
			c := y.visit(t, "/mcp", both[i%2], able)
			wg.Go(func() {
				for round := range 4 {
					mine := fmt.Sprintf("client %d round %d", i, round)
					g := c.converse(t, asks(mcp.Elicit+` {"message":"`+mine+`"}`), func(question string) string {
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

// converse makes a call and answers what is asked meanwhile, in the client's era.
func (c *client) converse(t testing.TB, params string, answer func(question string) string) string {
	t.Helper()
	if c.era == mcp.EraLegacy {
		_, reply := c.begin(t, mcp.ToolsCall, params)
		for {
			select {
			case q := <-c.notes:
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
	got := c.ask(t, mcp.ToolsCall, params)
	for range 10 {
		state, questions := interrupted(t, got)
		if state == "" {
			return got
		}
		answers := map[string]json.RawMessage{}
		for key, q := range questions {
			answers[key] = json.RawMessage(answer(string(q)))
		}
		list, _ := json.Marshal(answers)
		got = c.ask(t, mcp.ToolsCall, retried(params, string(list), state))
	}
	return got
}

// interrupted reads a result that asks for input; the state is empty for any other.
func interrupted(t testing.TB, result string) (state string, questions map[string]json.RawMessage) {
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

// retried are params with answers and a state.
func retried(params, answers, state string) string {
	return strings.TrimSuffix(params, "}") + `,"inputResponses":` + answers + `,"requestState":"` + state + `"}`
}

// A5: who cannot answer is not asked; the server is told.
func TestUnableA5(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := asking(t, stdio)
		y := start(t, nil, a)
		for _, era := range both {
			for _, caps := range []string{`{}`, `{"roots":{}}`} {
				for _, c := range []*client{y.visit(t, "/mcp", era, caps), onStdio(t, nil, era, caps, a)} {
					got := said(t, c.ask(t, mcp.ToolsCall, asks(mcp.Elicit+` {"message":"?"}`, "vendor/odd {}", "ping {}")))
					lines := strings.Split(got, "\n")
					if len(lines) != 3 || !strings.Contains(lines[0], `"error":{"code":-326`) || strings.Contains(lines[0], "internal") || !strings.Contains(lines[1], `"error":{"code":-32601`) || !strings.Contains(lines[2], `"result":{}`) {
						t.Errorf("%s %s: the server got %s", era, caps, got)
					}
					c.quiet(t, 20*time.Millisecond)
				}
			}
		}
	}
	b := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsCall, says(`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{}}},"requestState":"s"}`))
	c := start(t, nil, b).visit(t, "/mcp", mcp.EraLegacy, `{"roots":{}}`)
	if got := c.ask(t, mcp.ToolsCall, `{"name":"a::x"}`); !strings.Contains(got, "the server asks for what the client does not offer") || len(b.got(mcp.ToolsCall)) != 1 {
		t.Errorf("got %s", got)
	}
	c.quiet(t, 20*time.Millisecond)
}

// A5: a question that its server takes back is taken back from the client.
func TestQuestionTakenBackA5(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, true).on(mcp.ToolsCall, func(c *turn) string {
		c.send(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}`)
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`)
		return `{"content":[]}`
	})
	c := start(t, nil, a).visit(t, "/mcp", mcp.EraLegacy, able)
	// The two may overtake each other on the server's side: it is either never asked, or taken back.
	c.ask(t, mcp.ToolsCall, `{"name":"a::x"}`)
	for len(c.notes) > 0 {
		n := c.next(t)
		if !strings.Contains(n.text, mcp.Elicit) && n.text != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` {
			t.Errorf("got %s", n.text)
		}
	}
}

// A5: what a program asks outside of any call reaches the client it belongs to, and nobody where
// it belongs to all.
func TestQuestionOutsideCallA5(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, true)
	y := start(t, nil, a)
	c, other := y.visit(t, "/mcp", mcp.EraLegacy, able), y.visit(t, "/mcp", mcp.EraLegacy, "{}")
	c.ask(t, mcp.ToolsCall, `{"name":"a::x"}`) // now it has a program of its own
	c.listen(t)
	other.listen(t)
	a.push(t, `{"jsonrpc":"2.0","id":"out","method":"roots/list"}`)
	q := c.nextOf(t, mcp.RootsList)
	if want := `{"jsonrpc":"2.0","id":1,"method":"roots/list","params":{` + tagOf + `}}`; q.text != want || q.via != "get" {
		t.Errorf("%s %s", q.via, q.text)
	}
	c.answer(t, q, `{"roots":[]}`)
	eventually(t, "an answer for each program", func() bool { return len(a.got("")) == 2 })
	var texts []string
	for _, got := range a.got("") {
		texts = append(texts, got.raw)
	}
	all := strings.Join(texts, "\n")
	if !strings.Contains(all, `{"jsonrpc":"2.0","id":"out","result":{"roots":[]}}`) || !strings.Contains(all, `"id":"out","error":{"code":-32601`) {
		t.Errorf("the programs got %s", all)
	}
	other.quiet(t, 50*time.Millisecond)
	if g := y.do(t, http.MethodDelete, "/mcp", nil, http.Header{mcp.HeaderSession: {c.session}}); g.status != 204 {
		t.Errorf("got %d", g.status)
	}
	eventually(t, "end of the client's own program", func() bool { return !alive(a.programs()[1]) })
	if !alive(a.programs()[0]) {
		t.Error("the program of all ended too")
	}
}

// A5: clients that call before the server has been greeted are never taken for each other either.
func TestQuestionsBeforeGreetingA5(t *testing.T) {
	t.Parallel()
	for _, era := range both {
		a := asking(t, true)
		free := make(chan struct{})
		hello := a.acts[mcp.Initialize]
		a.on(mcp.Initialize, func(c *turn) string {
			<-free
			return hello(c)
		})
		y := start(t, func(s *setup) { s.hub.ListWait = seconds(0.05) }, a)
		var wg sync.WaitGroup
		for i := range 4 {
			c := y.visit(t, "/mcp", era, able)
			mine := fmt.Sprintf("client %d", i)
			wg.Go(func() {
				g := c.converse(t, asks(mcp.Elicit+` {"message":"`+mine+`"}`), func(question string) string {
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

// shared = true: all clients share one program, and it cannot ask them anything.
func TestSharedProgramAsksNobodyA5(t *testing.T) {
	t.Parallel()
	a := asking(t, true)
	y := start(t, func(s *setup) { s.upstream.Servers[0].Shared = true }, a)
	c := y.visit(t, "/mcp", mcp.EraLegacy, able)
	c.tools(t)
	got := c.converse(t, asks(mcp.Elicit+` {}`), func(question string) string {
		t.Errorf("the client was asked %s", question)
		return `{}`
	})
	if !strings.Contains(got, "-32601") {
		t.Errorf("the server got %s", got)
	}
}

// A5: a client that takes no stream for its call is asked on the stream of its session.
func TestQuestionOnSessionStreamA5(t *testing.T) {
	t.Parallel()
	a := asking(t, false)
	c := start(t, nil, a).visit(t, "/mcp", mcp.EraLegacy, able)
	c.tools(t)
	c.header.Set("Accept", "application/json")
	_, reply := c.begin(t, mcp.ToolsCall, asks(mcp.RootsList+` {}`))
	a.await(t, mcp.ToolsCall, 1)
	c.listen(t)
	q := c.nextOf(t, mcp.RootsList)
	if q.via != "get" {
		t.Errorf("%s %s", q.via, q.text)
	}
	c.answer(t, q, `{"roots":[]}`)
	if g := wait(t, reply, "the result"); g.head.Get("Content-Type") != "application/json" || !strings.Contains(g.body, "roots") {
		t.Errorf("got %v %s", g.head, g.body)
	}
}
