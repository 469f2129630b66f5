//go:build unix

package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// bridgeClient is the client of a bridge.
type bridgeClient struct {
	in    io.WriteCloser
	lines *bufio.Reader
	out   *os.File
	ended chan error
}

// startBridge starts a bridge to the gateway of an endpoint.
func startBridge(t *testing.T, connect func(context.Context) (*Conn, Gateway, error)) *bridgeClient {
	t.Helper()
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &bridgeClient{in: in, lines: bufio.NewReader(out), out: out, ended: make(chan error, 1)}
	go func() {
		c.ended <- RunBridge(context.Background(), BridgeOptions{In: theirIn, Out: theirOut, Connect: connect})
		_ = theirIn.Close()
	}()
	t.Cleanup(func() { _ = in.Close(); _ = out.Close() })
	return c
}

func dialer(e Endpoint) func(context.Context) (*Conn, Gateway, error) {
	return func(ctx context.Context) (*Conn, Gateway, error) { return Dial(ctx, e, Hello{Purpose: purposeMCP}) }
}

func (c *bridgeClient) write(t *testing.T, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if _, err := io.WriteString(c.in, m+"\n"); err != nil {
			t.Fatal(err)
		}
	}
}

func (c *bridgeClient) read(t *testing.T) string {
	t.Helper()
	_ = c.out.SetReadDeadline(time.Now().Add(patience))
	line, err := c.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

// close closes the client's side and returns how the bridge ended.
func (c *bridgeClient) close(t *testing.T) error {
	t.Helper()
	_ = c.in.Close()
	select {
	case err := <-c.ended:
		return err
	case <-time.After(patience):
		t.Fatal("the bridge did not end")
		return nil
	}
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

const (
	initialize  = `{"jsonrpc":"2.0", "id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"é"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// Messages pass unchanged in both directions; end of file passes too, after the replies.
func TestBridgeForwardsVerbatim(t *testing.T) {
	e := locate(t, "", Places{RuntimeDir: shortTempDir(t)})
	g := startTestGateway(t, e, nil)
	defer g.Close(ErrStopped)
	c := startBridge(t, dialer(e))
	at := g.next(t)
	for _, m := range []string{
		`{"jsonrpc":"2.0","id":1e0,"method":"tools/call", "params":{"n":12345678901234567890.10,"s":"\u00e9é"}}`, `[]`, `{"jsonrpc":"2.0","id":`,
		`{"jsonrpc":"2.0","method":"notifications/odd","x":{"a":1,"a":2}}`,
	} {
		c.write(t, m)
		expect(t, at.read(t), m)
	}
	for _, m := range []string{`{"jsonrpc":"2.0","id":1e0,"result":{"n":1.0, "big":` + "\"" + strings.Repeat("x", 3<<20) + "\"" + `}}`, `{"id":null,"jsonrpc":"2.0","error":{"code":-32700,"message":"x"}}`} {
		at.write(t, m)
		expect(t, c.read(t), m)
	}
	c.write(t, `{"jsonrpc":"2.0","id":5,"method":"x","params":"`+strings.Repeat("x", 2<<20)+`"}`) // over the gateway's limit
	if got := c.read(t); !strings.Contains(got, `-31413`) {
		t.Errorf("got %s", got)
	}
	c.write(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call"}`)
	at.read(t)
	_ = c.in.Close()
	if _, err := at.lines.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	at.write(t, `{"jsonrpc":"2.0","id":2,"result":{}}`)
	at.finish()
	expect(t, c.read(t), `{"jsonrpc":"2.0","id":2,"result":{}}`)
	if err := c.close(t); err != nil {
		t.Error(err)
	}
}

// A client that uses Content-Length framing is served in it.
func TestBridgeFraming(t *testing.T) {
	e := locate(t, "", Places{RuntimeDir: shortTempDir(t)})
	g := startTestGateway(t, e, nil)
	defer g.Close(ErrStopped)
	c := startBridge(t, dialer(e))
	at := g.next(t)
	body := "{\"jsonrpc\":\"2.0\",\n\"id\":1,\"method\":\"x\"}"
	_, _ = fmt.Fprintf(c.in, "Content-Length: %d\r\n\r\n%s", len(body), body)
	expect(t, at.read(t), strings.ReplaceAll(body, "\n", " "))
	at.write(t, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	expect(t, c.read(t), "Content-Length: 36\r")
	at.finish()
}

// When the gateway dies, the session is set up again at the next one: initialize, log level and subscriptions, once each.
// Calls in flight are answered with an error and not repeated; what is safe to repeat is.
func TestBridgeRestoresTheSession(t *testing.T) {
	e := locate(t, "", Places{RuntimeDir: shortTempDir(t)})
	g := startTestGateway(t, e, nil)
	c := startBridge(t, dialer(e))
	at := g.next(t)
	call := func(request, id string) {
		t.Helper()
		c.write(t, request)
		expect(t, at.read(t), request)
		at.write(t, `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`)
		c.read(t)
	}
	call(initialize, `"i"`)
	c.write(t, initialized)
	at.read(t)
	call(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`, "1")
	call(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a:1"}}`, "2")
	call(`{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a:2"}}`, "3")
	call(`{"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"a:1"}}`, "4")
	call(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`, "5")
	c.write(t, `{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"x"}}`, `{"jsonrpc":"2.0","id":7,"method":"prompts/list"}`)
	at.read(t)
	at.read(t)
	at.finish() // it dies
	var lost struct {
		ID    int
		Error struct {
			Message string
			Data    struct{ Retryable bool }
		}
	}
	if err := json.Unmarshal([]byte(c.read(t)), &lost); err != nil || lost.ID != 6 || !strings.Contains(lost.Error.Message, "may have been executed") || lost.Error.Data.Retryable {
		t.Errorf("%v: %+v", err, lost)
	}
	at = g.next(t)
	for _, want := range []string{
		strings.Replace(initialize, `"i"`, `"ctxgate-bridge-1"`, 1), initialized,
		`{"jsonrpc":"2.0","id":"ctxgate-bridge-2","method":"logging/setLevel","params":{"level":"info"}}`,
		`{"jsonrpc":"2.0","id":"ctxgate-bridge-3","method":"resources/subscribe","params":{"uri":"a:2"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"prompts/list"}`,
	} {
		expect(t, at.read(t), want)
	}
	at.write(t, `{"jsonrpc":"2.0","id":"ctxgate-bridge-1","result":{}}`, `{"jsonrpc":"2.0","id":"ctxgate-bridge-2","error":{"code":1,"message":"x"}}`, `{"jsonrpc":"2.0","id":7,"result":{}}`)
	got := []string{c.read(t), c.read(t), c.read(t)} // the lists that it has asked for may be others now
	for _, want := range []string{`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`, `{"jsonrpc":"2.0","id":7,"result":{}}`} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("got %q, want %s", got, want)
		}
	}
	call(`{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"x"}}`, "8")
	at.finish()
	g.Close(ErrStopped)
}

// A bridge that is told to leave sends new requests to the new gateway. The old one gets what belongs to its calls, answers
// them, and is left when it has. Listen streams move, and the client does not notice.
func TestBridgeMoves(t *testing.T) {
	e := locate(t, "", Places{RuntimeDir: shortTempDir(t)})
	old := startTestGateway(t, e, nil)
	c := startBridge(t, dialer(e))
	from := old.next(t)
	const listen = `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true}}}`
	const ack = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`
	c.write(t, listen, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
	from.read(t)
	from.read(t)
	from.write(t, ack)
	expect(t, c.read(t), ack)

	fresh := startTestGateway(t, e, nil)
	defer fresh.Close(ErrStopped)
	go old.Close(ErrReplaced)
	<-from.stopped
	notice, grace := from.drain()
	if grace != ReplaceGrace {
		t.Errorf("the client has %s", grace)
	}
	from.write(t, string(notice))
	to := fresh.next(t)
	expect(t, to.read(t), listen)
	to.write(t, ack, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`)
	if got := c.read(t); !strings.Contains(got, "list_changed") {
		t.Errorf("got %s, want what follows the acknowledgement", got)
	}
	c.write(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call"}`)
	expect(t, to.read(t), `{"jsonrpc":"2.0","id":2,"method":"tools/call"}`)

	// The old gateway's call asks the client, and is cancelled.
	const question = `{"jsonrpc":"2.0","id":77,"method":"elicitation/create","params":{}}`
	from.write(t, question)
	expect(t, c.read(t), question)
	c.write(t, `{"jsonrpc":"2.0","id":77,"result":{"action":"accept"}}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	expect(t, from.read(t), `{"jsonrpc":"2.0","id":77,"result":{"action":"accept"}}`)
	expect(t, from.read(t), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	from.write(t, `{"jsonrpc":"2.0","id":1,"result":{"from":"old"}}`)
	expect(t, c.read(t), `{"jsonrpc":"2.0","id":1,"result":{"from":"old"}}`)
	if _, err := from.lines.ReadString('\n'); !errors.Is(err, io.EOF) {
		t.Errorf("the old gateway is not left: %v", err)
	}
	from.write(t, `{"jsonrpc":"2.0","id":"l","result":{"resultType":"complete"}}`) // the end of the stream there
	from.finish()
	to.write(t, `{"jsonrpc":"2.0","id":2,"result":{"from":"new"}}`)
	expect(t, c.read(t), `{"jsonrpc":"2.0","id":2,"result":{"from":"new"}}`)
	to.finish()
}

// While no gateway can be reached, each request is answered with the reason; when one can be, requests work again.
func TestBridgeWithoutGateway(t *testing.T) {
	e := locate(t, "", Places{RuntimeDir: shortTempDir(t)})
	g := startTestGateway(t, e, nil)
	var fails atomic.Bool
	c := startBridge(t, func(ctx context.Context) (*Conn, Gateway, error) {
		if fails.Load() {
			return nil, Gateway{}, &StartError{"ctxgate.toml:1: no"}
		}
		return Dial(ctx, e, Hello{Purpose: purposeMCP})
	})
	at := g.next(t)
	fails.Store(true)
	c.write(t, `{"jsonrpc":"2.0","id":0,"method":"tools/call"}`)
	at.read(t)
	at.finish()
	c.read(t) // it may have been executed
	for range 2 {
		c.write(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
		if got := c.read(t); !strings.Contains(got, "ctxgate.toml:1: no") || !strings.Contains(got, `"retryable":true`) {
			t.Errorf("got %s", got)
		}
	}
	fails.Store(false)
	c.write(t, `{"jsonrpc":"2.0","id":2,"method":"tools/call"}`)
	g.next(t).finish()
	g.Close(ErrStopped)
}

// A bridge tracks a bounded number of requests.
func TestBridgeIsBounded(t *testing.T) {
	e := locate(t, "", Places{RuntimeDir: shortTempDir(t)})
	g := startTestGateway(t, e, nil)
	defer g.Close(ErrStopped)
	c := startBridge(t, dialer(e))
	at := g.next(t)
	go func() {
		for i := range maxInFlight + 1 {
			_, _ = fmt.Fprintf(c.in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call"}`+"\n", i)
		}
	}()
	for range maxInFlight {
		at.read(t)
	}
	if got := c.read(t); !strings.Contains(got, fmt.Sprintf(`"id":%d`, maxInFlight)) || !strings.Contains(got, "in flight already") {
		t.Errorf("got %s", got)
	}
	at.finish()
	go func() { _, _ = io.Copy(io.Discard, c.lines) }()
	_ = c.close(t)
}
