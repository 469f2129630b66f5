package hub_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
)

const staleState = `!{"code":-32602,"message":"requestState is not valid any more: make the request again without it","data":{"reason":"bad_params","retryable":false}}`

// A5, A13: a server of the older era asks a client of the newer one by way of a result; the client
// comes back with the answer and gets the rest. The call is made once.
func TestParkedCallA5(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := asking(t, stdio)
		y := start(t, nil, a)
		for _, c := range []*client{y.visit(t, "/mcp", mcp.EraModern, able), onStdio(t, nil, mcp.EraModern, able, a)} {
			a.forget()
			params := asks(mcp.Elicit+` {"message":"\u003c\/","x":1.0}`, mcp.RootsList+` {}`)
			got := c.ask(t, mcp.ToolsCall, params)
			first, _ := interrupted(t, got)
			want := `{"resultType":"input_required","inputRequests":{"q1":{"method":"elicitation/create","params":{"message":"\u003c\/","x":1.0,` + tagOf +
				`}}},"requestState":"` + first + `"}`
			if got != want || len(first) < 60 {
				t.Fatalf("got %s\nwant %s", got, want)
			}
			got = c.ask(t, mcp.ToolsCall, retried(params, `{"q1":{"action":"accept", "content":{"n":12345678901234567890,"s":"\/"}},"other":{}}`, first))
			second, questions := interrupted(t, got)
			if second == first || string(questions["q2"]) != `{"method":"roots/list","params":{`+tagOf+`}}` || len(questions) != 1 {
				t.Fatalf("got %s", got)
			}
			got = c.ask(t, mcp.ToolsCall, retried(params, `{"q2":{"roots":[ 1.0]}}`, second))
			if !strings.HasSuffix(got, `,"resultType":"complete"}`) {
				t.Errorf("got %s", got)
			}
			lines := strings.Split(said(t, got), "\n")
			if len(lines) != 2 || !strings.HasSuffix(lines[0], `"result":{"action":"accept", "content":{"n":12345678901234567890,"s":"\/"}}}`) || !strings.HasSuffix(lines[1], `"result":{"roots":[ 1.0]}}`) {
				t.Errorf("the server got %q", lines)
			}
			for _, state := range []string{first, second} { // it is over
				if got := c.ask(t, mcp.ToolsCall, retried(params, `{"q2":{"roots":[]}}`, state)); got != staleState {
					t.Errorf("got %s", got)
				}
			}
			if n := len(a.got(mcp.ToolsCall)); n != 1 {
				t.Errorf("the tool was called %d times", n)
			}
		}
	}
}

// A5 (MRTR, Server Requirements): a state is good for the request and the client it was given to, and
// unchanged; what is refused changes nothing for who may go on.
func TestParkedStateA5(t *testing.T) {
	t.Parallel()
	a := asking(t, false)
	y := start(t, nil, a)
	c := y.visit(t, "/mcp", mcp.EraModern, able)
	c.tools(t) // the server has been greeted
	params := asks(mcp.Elicit + ` {"message":"?"}`)
	state, _ := interrupted(t, c.ask(t, mcp.ToolsCall, params))
	const yes = `{"q1":{"action":"accept"}}`
	for name, try := range map[string]string{
		"other arguments":    retried(asks(mcp.Elicit+` {"message":"!"}`), yes, state),
		"one member more":    strings.TrimSuffix(retried(params, yes, state), "}") + `,"task":{}}`,
		"tampered":           retried(params, yes, state[:30]+flip(state[30:31])+state[31:]),
		"cut":                retried(params, yes, state[:len(state)-8]),
		"nonsense":           retried(params, yes, "nonsense"),
		"of another purpose": retried(params, yes, sealed(t, "anonymous", "", time.Now().Add(time.Hour))),
	} {
		if got := c.ask(t, mcp.ToolsCall, try); got != staleState {
			t.Errorf("%s: got %s", name, got)
		}
	}
	if got := c.ask(t, mcp.PromptsGet, retried(strings.Replace(params, "a::ask", "a::p", 1), yes, state)); got != staleState {
		t.Errorf("another method: got %s", got)
	}
	one := y.visit(t, "/mcp/a", mcp.EraModern, able)
	if got := one.ask(t, mcp.ToolsCall, retried(params, yes, state)); got != staleState {
		t.Errorf("another door: got %s", got)
	}
	y.apply(func(s *setup) { s.auth.Token = secret.Literal("right") })
	c.header.Set("Authorization", "Bearer right")
	if got := c.ask(t, mcp.ToolsCall, retried(params, yes, state)); got != staleState {
		t.Errorf("another principal: got %s", got)
	}
	y.apply(func(s *setup) { s.auth.Token = secret.Text{} })
	c.header.Del("Authorization")

	// What is not answered is asked again, as often as need be.
	for range 2 {
		got := c.ask(t, mcp.ToolsCall, retried(params, `{"q9":{}}`, state))
		again, questions := interrupted(t, got)
		if len(questions) != 1 || again == "" {
			t.Fatalf("got %s", got)
		}
		state = again
	}
	for _, bad := range []string{`[]`, `"x"`, `null`} {
		if got := c.ask(t, mcp.ToolsCall, retried(params, bad, state)); got[0] != '!' && !strings.Contains(got, "input_required") {
			t.Errorf("inputResponses %s: got %s", bad, got)
		}
	}
	if got := c.ask(t, mcp.ToolsCall, retried(params, yes, state)); !strings.Contains(said(t, got), `"result":{"action":"accept"}`) {
		t.Errorf("got %s", got)
	}
	if n := len(a.got(mcp.ToolsCall)); n != 1 {
		t.Errorf("the tool was called %d times", n)
	}
}

// A5: questions asked at once are answered in one round.
func TestParkedTogetherA5(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, true).on(mcp.ToolsCall, func(c *turn) string {
		got := make(chan string, 3)
		for i := range 3 {
			go func() { got <- c.ask(mcp.Elicit, fmt.Sprintf(`{"message":"m%d"}`, i)) }()
		}
		return `{"content":[{"type":"text","text":"` + fmt.Sprint(len(<-got) > 0, len(<-got) > 0, len(<-got) > 0) + `"}]}`
	})
	c := start(t, nil, a).visit(t, "/mcp", mcp.EraModern, able)
	params := `{"name":"a::x"}`
	got := c.ask(t, mcp.ToolsCall, params)
	rounds := 0
	for state, questions := interrupted(t, got); state != ""; state, questions = interrupted(t, got) {
		rounds++
		answers := map[string]json.RawMessage{}
		for key := range questions {
			answers[key] = json.RawMessage(`{"action":"decline"}`)
		}
		list, _ := json.Marshal(answers)
		got = c.ask(t, mcp.ToolsCall, retried(params, string(list), state))
	}
	if said(t, got) != "true true true" || rounds > 2 { // a loaded machine may need a second one
		t.Errorf("%d rounds: %s", rounds, got)
	}
}

// A5: a client that leaves while its call waits takes the call with it.
func TestParkedCallLeftA5(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraLegacy, true).on(mcp.ToolsCall, func(c *turn) string {
		<-c.over
		return ""
	})
	c := start(t, nil, a).visit(t, "/mcp", mcp.EraModern, able)
	c.begin(t, mcp.ToolsCall, `{"name":"a::x"}`)
	a.await(t, mcp.ToolsCall, 1)
	c.leave()
	a.await(t, mcp.Cancelled, 1)
}

// wanting is a server of the newer era that wants to be told two things before it answers.
func wanting(t testing.TB, stdio bool) *far {
	t.Helper()
	return newFar(t, "a", mcp.EraModern, stdio).on(mcp.ToolsCall, func(c *turn) string {
		if !strings.Contains(string(c.Params), `"inputResponses"`) {
			return `{"requestState":"st\u0061te\/\u003c", "inputRequests":{"k\u0031":{"method":"elicitation\/create","params":{"message":"\/","x":1.0}},` +
				`"k2":{"params":{"_meta":{"y":1.0}},"method":"roots/list"}},"resultType":"input_required","_meta":{"z":1.0}}`
		}
		return `{"content":[{"type":"text","text":"done"}],"resultType":"complete"}`
	})
}

// A5, A13: what a server of the newer era wants to be told is asked of a client of the older one, one
// after the other, and the server gets the answers and its own state back byte for byte.
func TestInputOfOlderClientA5(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := wanting(t, stdio)
		y := start(t, nil, a)
		for _, c := range []*client{y.visit(t, "/mcp", mcp.EraLegacy, able), onStdio(t, nil, mcp.EraLegacy, able, a)} {
			a.forget()
			_, reply := c.begin(t, mcp.ToolsCall, `{"name":"a::x","arguments":{"n":1.0},"proxy":{"authToken":"x"}}`)
			q := c.next(t)
			if want := `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"\/","x":1.0,` + tagOf + `}}`; q.text != want || q.via == "get" {
				t.Errorf("%s: got %s\nwant %s", q.via, q.text, want)
			}
			c.answer(t, q, `{"action":"accept", "content":{"n":12345678901234567890}}`)
			q = c.next(t)
			if want := `{"jsonrpc":"2.0","id":2,"method":"roots/list","params":{"_meta":{"y":1.0,"ctxgate/server":"a"}}}`; q.text != want {
				t.Errorf("got %s\nwant %s", q.text, want)
			}
			c.answer(t, q, `{"roots":[1.0]}`)
			if got := outcome(t, wait(t, reply, "the result").body); got != `{"content":[{"type":"text","text":"done"}]}` {
				t.Errorf("got %s", got)
			}
			want := `"params":{"name":"x","arguments":{"n":1.0},"inputResponses":{"k1":{"action":"accept", "content":{"n":12345678901234567890}},"k2":{"roots":[1.0]}},"requestState":"st\u0061te\/\u003c"`
			if calls := a.got(mcp.ToolsCall); len(calls) != 2 || !strings.Contains(strip(c, calls[1].raw), want) {
				t.Errorf("%d calls: %s\nwant %s", len(calls), calls[len(calls)-1].raw, want)
			}
		}
	}
}

// A5, A13: between two of the newer era, questions, answers and state pass byte for byte.
func TestInputPassesA5(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := wanting(t, stdio)
		y := start(t, nil, a)
		for _, c := range []*client{y.visit(t, "/mcp", mcp.EraModern, able), onStdio(t, nil, mcp.EraModern, able, a)} {
			a.forget()
			id, reply := c.begin(t, mcp.ToolsCall, `{"name":"a::x"}`)
			if got, want := wait(t, reply, "the questions").body, envelope(a.acts[mcp.ToolsCall](&turn{}), id); got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
			more := `"inputResponses":{"k\u0031":{"action":"accept","x":1.0}, "k2":{}},"requestState":"st\u0061te\/\u003c"`
			if got := c.ask(t, mcp.ToolsCall, `{"name":"a::x",`+more+`}`); !strings.Contains(got, "done") {
				t.Errorf("got %s", got)
			}
			if seen := a.await(t, mcp.ToolsCall, 2).raw; !strings.Contains(seen, `{"name":"x",`+more+`,"_meta":`) {
				t.Errorf("the server got %s", seen)
			}
		}
	}
}

// A5: a server that asks without end is not followed without end.
func TestInputWithoutEndA5(t *testing.T) {
	t.Parallel()
	a := newFar(t, "a", mcp.EraModern, false).on(mcp.ToolsCall, says(`{"resultType":"input_required","requestState":"again"}`))
	c := start(t, nil, a).visit(t, "/mcp", mcp.EraLegacy, able)
	if got := c.ask(t, mcp.ToolsCall, `{"name":"a::x"}`); !strings.Contains(got, "asks for input without end") || len(a.got(mcp.ToolsCall)) != 32 {
		t.Errorf("%d calls: %s", len(a.got(mcp.ToolsCall)), got)
	}
}
