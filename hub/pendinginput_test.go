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

// A5, A13: a request of a legacy server during a call becomes the reply to a modern client, who makes the request
// again with the input and gets the rest. The upstream call is made once.
func TestPendingCallA5(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := newAskingServer(t, stdio)
		gw := startGateway(t, nil, a)
		for _, c := range []*client{gw.connect(t, "/mcp", mcp.Modern, allCapabilities), connectStdio(t, nil, mcp.Modern, allCapabilities, a)} {
			a.forgetMessages()
			params := askParams(mcp.ElicitationCreate+` {"message":"\u003c\/","x":1.0}`, mcp.RootsList+` {}`)
			got := c.callResult(t, mcp.ToolsCall, params)
			first, _ := parseInputRequired(t, got)
			want := `{"resultType":"input_required","inputRequests":{"q1":{"method":"elicitation/create","params":{"message":"\u003c\/","x":1.0,` + tagOf +
				`}}},"requestState":"` + first + `"}`
			if got != want || len(first) < 60 {
				t.Fatalf("got %s\nwant %s", got, want)
			}
			got = c.callResult(t, mcp.ToolsCall, withInput(params, `{"q1":{"action":"accept", "content":{"n":12345678901234567890,"s":"\/"}},"other":{}}`, first))
			second, questions := parseInputRequired(t, got)
			if second == first || string(questions["q2"]) != `{"method":"roots/list","params":{`+tagOf+`}}` || len(questions) != 1 {
				t.Fatalf("got %s", got)
			}
			got = c.callResult(t, mcp.ToolsCall, withInput(params, `{"q2":{"roots":[ 1.0]}}`, second))
			if !strings.HasSuffix(got, `,"resultType":"complete"}`) {
				t.Errorf("got %s", got)
			}
			lines := strings.Split(textOfResult(t, got), "\n")
			if len(lines) != 2 || !strings.HasSuffix(lines[0], `"result":{"action":"accept", "content":{"n":12345678901234567890,"s":"\/"}}}`) || !strings.HasSuffix(lines[1], `"result":{"roots":[ 1.0]}}`) {
				t.Errorf("the server got %q", lines)
			}
			for _, state := range []string{first, second} { // it is over
				if got := c.callResult(t, mcp.ToolsCall, withInput(params, `{"q2":{"roots":[]}}`, state)); got != staleState {
					t.Errorf("got %s", got)
				}
			}
			if n := len(a.messagesOf(mcp.ToolsCall)); n != 1 {
				t.Errorf("the tool was called %d times", n)
			}
		}
	}
}

// A5 (MRTR, Server Requirements): a state is valid only for the request and the client it was given to, and
// unchanged; a refused one changes nothing for the rightful client.
func TestPendingStateA5(t *testing.T) {
	t.Parallel()
	a := newAskingServer(t, false)
	gw := startGateway(t, nil, a)
	c := gw.connect(t, "/mcp", mcp.Modern, allCapabilities)
	c.tools(t) // the handshake with the server is done
	params := askParams(mcp.ElicitationCreate + ` {"message":"?"}`)
	state, _ := parseInputRequired(t, c.callResult(t, mcp.ToolsCall, params))
	const yes = `{"q1":{"action":"accept"}}`
	for name, try := range map[string]string{
		"other arguments":    withInput(askParams(mcp.ElicitationCreate+` {"message":"!"}`), yes, state),
		"one member more":    strings.TrimSuffix(withInput(params, yes, state), "}") + `,"task":{}}`,
		"tampered":           withInput(params, yes, state[:30]+flipByte(state[30:31])+state[31:]),
		"cut":                withInput(params, yes, state[:len(state)-8]),
		"nonsense":           withInput(params, yes, "nonsense"),
		"of another purpose": withInput(params, yes, sealSessionID(t, "anonymous", "", time.Now().Add(time.Hour))),
	} {
		if got := c.callResult(t, mcp.ToolsCall, try); got != staleState {
			t.Errorf("%s: got %s", name, got)
		}
	}
	if got := c.callResult(t, mcp.PromptsGet, withInput(strings.Replace(params, "a::ask", "a::p", 1), yes, state)); got != staleState {
		t.Errorf("another method: got %s", got)
	}
	one := gw.connect(t, "/mcp/a", mcp.Modern, allCapabilities)
	if got := one.callResult(t, mcp.ToolsCall, withInput(params, yes, state)); got != staleState {
		t.Errorf("another endpoint: got %s", got)
	}
	gw.reload(func(s *setup) { s.auth.Token = secret.Literal("right") })
	c.header.Set("Authorization", "Bearer right")
	if got := c.callResult(t, mcp.ToolsCall, withInput(params, yes, state)); got != staleState {
		t.Errorf("another principal: got %s", got)
	}
	gw.reload(func(s *setup) { s.auth.Token = secret.Text{} })
	c.header.Del("Authorization")

	// What is not answered is asked for again, as often as needed.
	for range 2 {
		got := c.callResult(t, mcp.ToolsCall, withInput(params, `{"q9":{}}`, state))
		again, questions := parseInputRequired(t, got)
		if len(questions) != 1 || again == "" {
			t.Fatalf("got %s", got)
		}
		state = again
	}
	for _, bad := range []string{`[]`, `"x"`, `null`} {
		if got := c.callResult(t, mcp.ToolsCall, withInput(params, bad, state)); got[0] != '!' && !strings.Contains(got, "input_required") {
			t.Errorf("inputResponses %s: got %s", bad, got)
		}
	}
	if got := c.callResult(t, mcp.ToolsCall, withInput(params, yes, state)); !strings.Contains(textOfResult(t, got), `"result":{"action":"accept"}`) {
		t.Errorf("got %s", got)
	}
	if n := len(a.messagesOf(mcp.ToolsCall)); n != 1 {
		t.Errorf("the tool was called %d times", n)
	}
}

// A5: requests that a server sends at once are answered in one round.
func TestPendingQuestionsTogetherA5(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsCall, func(c *serverCall) string {
		got := make(chan string, 3)
		for i := range 3 {
			go func() { got <- c.askClient(mcp.ElicitationCreate, fmt.Sprintf(`{"message":"m%d"}`, i)) }()
		}
		return `{"content":[{"type":"text","text":"` + fmt.Sprint(len(<-got) > 0, len(<-got) > 0, len(<-got) > 0) + `"}]}`
	})
	c := startGateway(t, nil, a).connect(t, "/mcp", mcp.Modern, allCapabilities)
	params := `{"name":"a::x"}`
	got := c.callResult(t, mcp.ToolsCall, params)
	rounds := 0
	for state, questions := parseInputRequired(t, got); state != ""; state, questions = parseInputRequired(t, got) {
		rounds++
		answers := map[string]json.RawMessage{}
		for key := range questions {
			answers[key] = json.RawMessage(`{"action":"decline"}`)
		}
		list, _ := json.Marshal(answers)
		got = c.callResult(t, mcp.ToolsCall, withInput(params, string(list), state))
	}
	if textOfResult(t, got) != "true true true" || rounds > 2 { // a loaded machine may need a second round
		t.Errorf("%d rounds: %s", rounds, got)
	}
}

// A5: when a client disconnects during a call that may become pending, the upstream call is cancelled.
func TestPendingCallCancelledA5(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Legacy, true).handle(mcp.ToolsCall, func(c *serverCall) string {
		<-c.done
		return ""
	})
	c := startGateway(t, nil, a).connect(t, "/mcp", mcp.Modern, allCapabilities)
	c.startCall(t, mcp.ToolsCall, `{"name":"a::x"}`)
	a.awaitMessage(t, mcp.ToolsCall, 1)
	c.cancel()
	a.awaitMessage(t, mcp.NotifyCancelled, 1)
}

// newInputServer returns a modern server that asks for two inputs before it answers.
func newInputServer(t testing.TB, stdio bool) *fakeServer {
	t.Helper()
	return newFakeServer(t, "a", mcp.Modern, stdio).handle(mcp.ToolsCall, func(c *serverCall) string {
		if !strings.Contains(string(c.Params), `"inputResponses"`) {
			return `{"requestState":"st\u0061te\/\u003c", "inputRequests":{"k\u0031":{"method":"elicitation\/create","params":{"message":"\/","x":1.0}},` +
				`"k2":{"params":{"_meta":{"y":1.0}},"method":"roots/list"}},"resultType":"input_required","_meta":{"z":1.0}}`
		}
		return `{"content":[{"type":"text","text":"done"}],"resultType":"complete"}`
	})
}

// A5, A13: the inputs that a modern server asks for are requested from a legacy client, one after the other, and
// the server gets the answers and its own state back byte for byte.
func TestInputFromLegacyClientA5(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := newInputServer(t, stdio)
		gw := startGateway(t, nil, a)
		for _, c := range []*client{gw.connect(t, "/mcp", mcp.Legacy, allCapabilities), connectStdio(t, nil, mcp.Legacy, allCapabilities, a)} {
			a.forgetMessages()
			_, reply := c.startCall(t, mcp.ToolsCall, `{"name":"a::x","arguments":{"n":1.0},"proxy":{"authToken":"x"}}`)
			q := c.nextMessage(t)
			if want := `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"\/","x":1.0,` + tagOf + `}}`; q.text != want || q.via == "get" {
				t.Errorf("%s: got %s\nwant %s", q.via, q.text, want)
			}
			c.answer(t, q, `{"action":"accept", "content":{"n":12345678901234567890}}`)
			q = c.nextMessage(t)
			if want := `{"jsonrpc":"2.0","id":2,"method":"roots/list","params":{"_meta":{"y":1.0,"ctxgate/server":"a"}}}`; q.text != want {
				t.Errorf("got %s\nwant %s", q.text, want)
			}
			c.answer(t, q, `{"roots":[1.0]}`)
			if got := resultOrError(t, receiveWithin(t, reply, "the result").body); got != `{"content":[{"type":"text","text":"done"}]}` {
				t.Errorf("got %s", got)
			}
			want := `"params":{"name":"x","arguments":{"n":1.0},"inputResponses":{"k1":{"action":"accept", "content":{"n":12345678901234567890}},"k2":{"roots":[1.0]}},"requestState":"st\u0061te\/\u003c"`
			if calls := a.messagesOf(mcp.ToolsCall); len(calls) != 2 || !strings.Contains(stripGatewayChanges(c, calls[1].raw), want) {
				t.Errorf("%d calls: %s\nwant %s", len(calls), calls[len(calls)-1].raw, want)
			}
		}
	}
}

// A5, A13: between a modern client and a modern server, input requests, answers and state pass byte for byte.
func TestInputPassesA5(t *testing.T) {
	t.Parallel()
	for _, stdio := range []bool{true, false} {
		a := newInputServer(t, stdio)
		gw := startGateway(t, nil, a)
		for _, c := range []*client{gw.connect(t, "/mcp", mcp.Modern, allCapabilities), connectStdio(t, nil, mcp.Modern, allCapabilities, a)} {
			a.forgetMessages()
			id, reply := c.startCall(t, mcp.ToolsCall, `{"name":"a::x"}`)
			if got, want := receiveWithin(t, reply, "the questions").body, wrapReply(a.handlers[mcp.ToolsCall](&serverCall{}), id); got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
			more := `"inputResponses":{"k\u0031":{"action":"accept","x":1.0}, "k2":{}},"requestState":"st\u0061te\/\u003c"`
			if got := c.callResult(t, mcp.ToolsCall, `{"name":"a::x",`+more+`}`); !strings.Contains(got, "done") {
				t.Errorf("got %s", got)
			}
			if seen := a.awaitMessage(t, mcp.ToolsCall, 2).raw; !strings.Contains(seen, `{"name":"x",`+more+`,"_meta":`) {
				t.Errorf("the server got %s", seen)
			}
		}
	}
}

// A5: a server that keeps asking for input is given up after a number of rounds.
func TestInputWithoutEndA5(t *testing.T) {
	t.Parallel()
	a := newFakeServer(t, "a", mcp.Modern, false).handle(mcp.ToolsCall, respond(`{"resultType":"input_required","requestState":"again"}`))
	c := startGateway(t, nil, a).connect(t, "/mcp", mcp.Legacy, allCapabilities)
	if got := c.callResult(t, mcp.ToolsCall, `{"name":"a::x"}`); !strings.Contains(got, "asks for input without end") || len(a.messagesOf(mcp.ToolsCall)) != 32 {
		t.Errorf("%d calls: %s", len(a.messagesOf(mcp.ToolsCall)), got)
	}
}
