//go:build linux

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// toolOrder lists the tools that do something; any other name does what echo does.
var toolOrder = []string{"echo", "progress", "slow", "big", "ask", "touch", "change", "broken"}

// tools are those that do more than echo. What they give is the text of their result.
var tools = map[string]func(ctx context.Context, x *exchange) (string, error){
	"progress": progressTool,
	"big":      bigTool,
	"ask":      askTool,
	"touch":    func(_ context.Context, x *exchange) (string, error) { x.touch(x.Arguments.URI); return "touched", nil },
	"change":   func(_ context.Context, x *exchange) (string, error) { x.change(); return "changed", nil },
	"broken":   brokenTool,
}

func callTool(ctx context.Context, x *exchange) (string, error) {
	if !contains(x.toolNames(), x.Name) {
		return "", &refused{-32602, "unknown tool"}
	}
	if !retried(x) {
		x.note(event{What: didExec, Nonce: x.Arguments.Nonce, ID: string(x.id), Note: x.Name})
	}
	do, ok := tools[x.Name]
	if !ok {
		do = echoTool
	}
	text, err := do(ctx, x)
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTakenBack) {
		x.note(event{What: didHangUp, Nonce: x.Arguments.Nonce, ID: string(x.id)})
	}
	if err != nil || strings.HasPrefix(text, `"resultType":`) {
		return text, err
	}
	x.note(event{What: didFinish, Nonce: x.Arguments.Nonce, ID: string(x.id)})
	return content(text), nil
}

// retried says whether this is the second leg of a modern call that asked for input: the same
// execution, not another one.
func retried(x *exchange) bool { return x.RequestState != "" }

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

func content(text string) string {
	return `"content":[{"type":"text","text":` + quote(text) + `}]`
}

// echoed is what a call gets back: enough to know whose it was and who answered.
type echoed struct {
	Nonce  string `json:"nonce"`
	Tenant string `json:"tenant"`
	Server string `json:"server"`
	Gen    string `json:"gen,omitempty"`
	PID    int    `json:"pid"`
	Said   string `json:"said,omitempty"` // what the far side answered to ask
}

func (x *exchange) echo(said string) string {
	return toJSON(echoed{x.Arguments.Nonce, x.Arguments.Tenant, x.server, x.gen, os.Getpid(), said})
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errSilent
	}
}

func echoTool(ctx context.Context, x *exchange) (string, error) {
	return x.echo(""), pause(ctx, time.Duration(x.Arguments.DelayMS)*time.Millisecond)
}

// progressTool reports n steps; late ones come after the answer, which no client may see.
func progressTool(ctx context.Context, x *exchange) (string, error) {
	token := x.Meta.ProgressToken
	if token == nil && !x.Arguments.Late {
		return "", &refused{-32602, "no progress token"}
	}
	step := func(n int) {
		x.out.send(notification("notifications/progress", fmt.Sprintf(
			`{"progressToken":%s,"progress":%d,"total":%d,"message":%s}`, token, n, x.Arguments.N, quote(x.Arguments.Nonce))))
	}
	for n := range x.Arguments.N {
		step(n + 1)
		if err := pause(ctx, time.Duration(x.Arguments.DelayMS)*time.Millisecond); err != nil {
			return "", err
		}
	}
	if !x.Arguments.Late {
		return x.echo(""), nil
	}
	x.note(event{What: didFinish, Nonce: x.Arguments.Nonce, ID: string(x.id)})
	x.out.send(x.result(x.id, "tools/call", content(x.echo(""))))
	for n := range 3 {
		step(x.Arguments.N + n + 1)
	}
	return "", errSilent
}

// bigTool answers with one very long line; its text begins and ends with the nonce.
func bigTool(_ context.Context, x *exchange) (string, error) {
	head := fmt.Sprintf(`{"content":[{"type":"text","text":"%s `, x.Arguments.Nonce)
	if x.era == modern {
		head = `{"resultType":"complete",` + head[1:]
	}
	line := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s`, x.id, head)
	filler := []byte("all work and no play makes a dull gateway. ")
	line = append(line, bytes.Repeat(filler, x.Arguments.MB<<20/len(filler))...)
	line = fmt.Appendf(line, ` %s"}]}}`, x.Arguments.Nonce)
	x.note(event{What: didFinish, Nonce: x.Arguments.Nonce, ID: string(x.id)})
	x.out.send(line)
	return "", errSilent
}

const elicitation = `{"mode":"form","message":%s,"requestedSchema":{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}}`

// askTool needs an answer of the client before it can give its own.
func askTool(ctx context.Context, x *exchange) (string, error) {
	question := fmt.Sprintf(elicitation, quote("what is "+x.Arguments.Nonce+"?"))
	if x.era == modern {
		return askModern(x, question)
	}
	x.mu.Lock()
	x.asked++
	id := fmt.Sprint(x.asked)
	answered := make(chan frame, 1)
	x.asks[id] = answered
	x.mu.Unlock()
	x.out.send(request(id, "elicitation/create", question))
	select {
	case f := <-answered:
		if f.Result == nil {
			return "", &refused{-32603, "the client did not say"}
		}
		return x.echo(saidIn(string(f.Result))), nil
	case <-ctx.Done():
		return "", errSilent
	}
}

func askModern(x *exchange, question string) (string, error) {
	state := "state of " + x.Arguments.Nonce
	if x.RequestState == "" {
		return fmt.Sprintf(`"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":%s}},"requestState":%s`,
			question, quote(state)), nil
	}
	if x.RequestState != state {
		x.violation("a requestState that was never given: %.60q", x.RequestState)
		return "", &refused{-32602, "no such state"}
	}
	return x.echo(x.InputResponses["q"].Content.Answer), nil
}

// brokenTool breaks in the ways a server can break in the middle of a call.
func brokenTool(ctx context.Context, x *exchange) (string, error) {
	whole := x.result(x.id, "tools/call", content(x.echo("")))
	switch x.Arguments.How {
	case "exit":
		os.Exit(3)
	case "half": // ends in the middle of a frame
		rawTo(x.out, whole[:len(whole)/2])
		os.Exit(3)
	case "utf8":
		x.out.send(bytes.Replace(whole, []byte(`\"tenant`), []byte("\xff\xfe\xc0\x80"), 1))
	case "surrogate":
		x.out.send(bytes.Replace(whole, []byte(`\"tenant`), []byte(`\ud800`), 1))
	case "wrongid":
		x.out.send(x.result([]byte(`987654321`), "tools/call", content(x.echo(""))))
	case "twice":
		x.out.send(whole)
		x.out.send(whole)
	case "noresult":
		x.out.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s}`, x.id))
	case "flood": // lines that are no messages, then the answer
		for n := range x.Arguments.N {
			rawTo(x.out, junk[n%len(junk)])
		}
		x.out.send(whole)
	case "ping": // a request of the server's own that needs no client
		return x.echo(""), x.ping(ctx)
	case "cut": // a stream that ends before its answer
		if c, ok := x.out.(interface{ abort() }); ok {
			c.abort()
		}
	case "endless":
		endless(ctx, x.out)
	default:
		return "", &refused{-32602, "break how?"}
	}
	return "", errSilent
}

// ping asks the far side whether it is there, as either side may in the legacy era.
func (x *exchange) ping(ctx context.Context) error {
	id := quote("ping " + x.Arguments.Nonce)
	answered := make(chan frame, 1)
	x.mu.Lock()
	x.asks[id] = answered
	x.mu.Unlock()
	x.out.send(request(id, "ping", "{}"))
	select {
	case f := <-answered:
		if f.Error != nil {
			x.violation("a ping was answered with %s", f.Error)
		}
		return nil
	case <-time.After(time.Second):
		x.violation("a ping was not answered")
		return nil
	case <-ctx.Done():
		return errSilent
	}
}

// endless writes a line that has no end: fast at first, then slowly for as long as anybody reads.
func endless(ctx context.Context, out link) {
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for n := 0; ctx.Err() == nil; n++ {
		rawTo(out, chunk)
		if n > 300 {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// rawTo writes bytes that are no frame, where the wire allows it.
func rawTo(out link, b []byte) {
	if raw, ok := out.(interface{ raw([]byte) }); ok {
		raw.raw(b)
	}
}
