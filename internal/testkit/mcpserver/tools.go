//go:build linux

package mcpserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
)

// ToolNames are the tools with a function; any other name is an echo.
var ToolNames = []string{"echo", "progress", "slow", "big", "ask", "touch", "change", "broken"}

// toolTable are the tools that do more than echo. They return the text of the result.
var toolTable = map[string]func(ctx context.Context, x *call) (string, error){
	"progress": progressTool,
	"big":      bigTool,
	"ask":      elicitTool,
	"touch": func(_ context.Context, x *call) (string, error) {
		x.touchResource(x.Arguments.URI)
		return "touched", nil
	},
	"change": func(_ context.Context, x *call) (string, error) { x.changeTools(); return "changed", nil },
	"broken": brokenTool,
}

func callTool(ctx context.Context, x *call) (string, error) {
	if !slices.Contains(x.listedTools(), x.Name) {
		return "", &rpcError{-32602, "unknown tool"}
	}
	if !isRetry(x) {
		x.record(Event{What: Executed, Nonce: x.Arguments.Nonce, ID: string(x.id), Note: x.Name})
	}
	do, ok := toolTable[x.Name]
	if !ok {
		do = echoTool
	}
	text, err := do(ctx, x)
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errCancelled) {
		x.record(Event{What: HungUp, Nonce: x.Arguments.Nonce, ID: string(x.id)})
	}
	if err != nil || strings.HasPrefix(text, `"resultType":`) {
		return text, err
	}
	x.record(Event{What: Finished, Nonce: x.Arguments.Nonce, ID: string(x.id)})
	return ContentJSON(text), nil
}

// isRetry reports whether this is the second request of a modern call that required input: the same
// execution, not another one.
func isRetry(x *call) bool { return x.RequestState != "" }

// ContentJSON is the content member of a tool result with one text.
func ContentJSON(text string) string {
	return `"content":[{"type":"text","text":` + mcpwire.Quote(text) + `}]`
}

// EchoResult identifies a call and the process that served it.
type EchoResult struct {
	Nonce  string `json:"nonce"`
	Tenant string `json:"tenant"`
	Server string `json:"server"`
	Gen    string `json:"gen,omitempty"`
	PID    int    `json:"pid"`
	Answer string `json:"answer,omitempty"` // to an elicitation
}

func (x *call) echoJSON(answer string) string {
	return mcpwire.EncodeJSON(EchoResult{x.Arguments.Nonce, x.Arguments.Tenant, x.ServerID, x.Generation, os.Getpid(), answer})
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errNoReply
	}
}

func echoTool(ctx context.Context, x *call) (string, error) {
	return x.echoJSON(""), sleep(ctx, time.Duration(x.Arguments.DelayMS)*time.Millisecond)
}

// progressTool reports n steps; with Late, more after the response, which no client may see.
func progressTool(ctx context.Context, x *call) (string, error) {
	token := x.Meta.ProgressToken
	if token == nil && !x.Arguments.Late {
		return "", &rpcError{-32602, "no progress token"}
	}
	step := func(n int) {
		x.out.send(mcpwire.NewNotification("notifications/progress", fmt.Sprintf(
			`{"progressToken":%s,"progress":%d,"total":%d,"message":%s}`, token, n, x.Arguments.N, mcpwire.Quote(x.Arguments.Nonce))))
	}
	for n := range x.Arguments.N {
		step(n + 1)
		if err := sleep(ctx, time.Duration(x.Arguments.DelayMS)*time.Millisecond); err != nil {
			return "", err
		}
	}
	if !x.Arguments.Late {
		return x.echoJSON(""), nil
	}
	x.record(Event{What: Finished, Nonce: x.Arguments.Nonce, ID: string(x.id)})
	x.out.send(x.newResult(x.id, "tools/call", ContentJSON(x.echoJSON(""))))
	for n := range 3 {
		step(x.Arguments.N + n + 1)
	}
	return "", errNoReply
}

// bigTool returns one very long line that begins and ends with the nonce.
func bigTool(_ context.Context, x *call) (string, error) {
	head := fmt.Sprintf(`{"content":[{"type":"text","text":"%s `, x.Arguments.Nonce)
	if x.Revision == mcpwire.Modern {
		head = `{"resultType":"complete",` + head[1:]
	}
	line := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s`, x.id, head)
	filler := []byte("all work and no play makes a dull gateway. ")
	line = append(line, bytes.Repeat(filler, x.Arguments.MB<<20/len(filler))...)
	line = fmt.Appendf(line, ` %s"}]}}`, x.Arguments.Nonce)
	x.record(Event{What: Finished, Nonce: x.Arguments.Nonce, ID: string(x.id)})
	x.out.send(line)
	return "", errNoReply
}

const elicitation = `{"mode":"form","message":%s,"requestedSchema":{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}}`

// elicitTool needs an answer from the client.
func elicitTool(ctx context.Context, x *call) (string, error) {
	question := fmt.Sprintf(elicitation, mcpwire.Quote("what is "+x.Arguments.Nonce+"?"))
	if x.Revision == mcpwire.Modern {
		return elicitModern(x, question)
	}
	x.mu.Lock()
	x.requestCount++
	id := strconv.Itoa(x.requestCount)
	answered := make(chan mcpwire.Message, 1)
	x.pendingRequests[id] = answered
	x.mu.Unlock()
	x.out.send(mcpwire.NewRequest(id, "elicitation/create", question))
	select {
	case f := <-answered:
		if f.Result == nil {
			return "", &rpcError{-32603, "the client did not answer"}
		}
		return x.echoJSON(mcpwire.ElicitedAnswer(string(f.Result))), nil
	case <-ctx.Done():
		return "", errNoReply
	}
}

func elicitModern(x *call, question string) (string, error) {
	state := "state of " + x.Arguments.Nonce
	if x.RequestState == "" {
		return fmt.Sprintf(`"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":%s}},"requestState":%s`,
			question, mcpwire.Quote(state)), nil
	}
	if x.RequestState != state {
		x.violation("an unknown requestState: %.60q", x.RequestState)
		return "", &rpcError{-32602, "no such state"}
	}
	return x.echoJSON(x.InputResponses["q"].Content.Answer), nil
}

// brokenTool fails in the middle of a call in the given way.
func brokenTool(ctx context.Context, x *call) (string, error) {
	whole := x.newResult(x.id, "tools/call", ContentJSON(x.echoJSON("")))
	switch x.Arguments.How {
	case "exit":
		os.Exit(3)
	case "half": // exits in the middle of a frame
		writeRaw(x.out, whole[:len(whole)/2])
		os.Exit(3)
	case "utf8":
		x.out.send(bytes.Replace(whole, []byte(`\"tenant`), []byte("\xff\xfe\xc0\x80"), 1))
	case "surrogate":
		x.out.send(bytes.Replace(whole, []byte(`\"tenant`), []byte(`\ud800`), 1))
	case "wrongid":
		x.out.send(x.newResult([]byte(`987654321`), "tools/call", ContentJSON(x.echoJSON(""))))
	case "twice":
		x.out.send(whole)
		x.out.send(whole)
	case "noresult":
		x.out.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s}`, x.id))
	case "flood": // lines that are no messages, then the response
		for n := range x.Arguments.N {
			writeRaw(x.out, junk[n%len(junk)])
		}
		x.out.send(whole)
	case "ping": // a server request that needs no client
		return x.echoJSON(""), x.pingClient(ctx)
	case "cut": // the stream ends before the response
		if c, ok := x.out.(interface{ abort() }); ok {
			c.abort()
		}
	case "endless":
		writeEndlessLine(ctx, x.out)
	default:
		return "", &rpcError{-32602, "unknown value of how"}
	}
	return "", errNoReply
}

// pingClient pings the client, as either side may in the legacy revision.
func (x *call) pingClient(ctx context.Context) error {
	id := mcpwire.Quote("ping " + x.Arguments.Nonce)
	answered := make(chan mcpwire.Message, 1)
	x.mu.Lock()
	x.pendingRequests[id] = answered
	x.mu.Unlock()
	x.out.send(mcpwire.NewRequest(id, "ping", "{}"))
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
		return errNoReply
	}
}

// writeEndlessLine writes a line without an end: fast at first, then slowly as long as it is read.
func writeEndlessLine(ctx context.Context, out sender) {
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for n := 0; ctx.Err() == nil; n++ {
		writeRaw(out, chunk)
		if n > 300 {
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// writeRaw writes bytes that are no frame, if the transport allows it.
func writeRaw(out sender, b []byte) {
	if raw, ok := out.(interface{ writeRaw([]byte) }); ok {
		raw.writeRaw(b)
	}
}
