package hub_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/mcp"
)

// client is an MCP client of either protocol at any endpoint. It writes its messages itself, so that their bytes
// are known.
type client struct {
	protocol mcp.Protocol
	caps     string
	received chan message // everything but replies
	info     string

	gateway    *mcpGateway
	httpClient *http.Client // with TCP connections of its own; nil for the shared ones
	path       string
	session    string
	header     http.Header // beside what the protocol requires
	ctx        context.Context
	cancel     context.CancelFunc
	wg         *sync.WaitGroup

	in      io.Writer // on stdio
	mu      sync.Mutex
	lastID  int
	pending map[string]chan httpReply
}

// message is a notification or request that the client got, and how it came: "post", "get" or "stdio".
type message struct{ via, text string }

// httpReply is the answer to a request.
type httpReply struct {
	status int
	head   http.Header
	body   string
}

const info = `{"name":"n\u00e9ar","version":"1.0"}`

func newClient(t testing.TB, protocol mcp.Protocol, caps string) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{
		protocol: protocol, caps: caps, info: info, received: make(chan message, 4096), header: http.Header{}, ctx: ctx, cancel: cancel, wg: &sync.WaitGroup{},
		pending: map[string]chan httpReply{},
	}
	t.Cleanup(func() {
		cancel()
		c.wg.Wait()
	})
	return c
}

// connect returns a client over HTTP; a legacy client opens a session.
func (gw *mcpGateway) connect(t testing.TB, path string, protocol mcp.Protocol, caps string) *client {
	t.Helper()
	c := newClient(t, protocol, caps)
	c.gateway, c.path = gw, path
	if protocol == mcp.Legacy {
		c.initialize(t, mcp.V20251125)
	}
	return c
}

func (c *client) initialize(t testing.TB, version string) httpReply {
	t.Helper()
	g := c.call(t, mcp.Initialize, `{"protocolVersion":"`+version+`","capabilities":`+c.caps+`,"clientInfo":`+c.info+`}`)
	c.session = g.head.Get(mcp.HeaderSession)
	c.notify(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return g
}

// connectStdio returns the single client of a gateway on stdin and stdout.
func connectStdio(t testing.TB, configure func(*setup), protocol mcp.Protocol, caps string, servers ...*fakeServer) *client {
	t.Helper()
	c := connectStdioUninitialized(t, configure, protocol, caps, servers...)
	if protocol == mcp.Legacy {
		c.call(t, mcp.Initialize, `{"protocolVersion":"2025-11-25","capabilities":`+c.caps+`,"clientInfo":`+c.info+`}`)
		c.notify(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return c
}

// connectStdioUninitialized is connectStdio without initialize.
func connectStdioUninitialized(t testing.TB, configure func(*setup), protocol mcp.Protocol, caps string, servers ...*fakeServer) *client {
	t.Helper()
	gw := buildGateway(t, configure, true, servers...)
	c := newClient(t, protocol, caps)
	c.gateway = gw
	theirs, ours := pipes(t)
	back, out := pipes(t)
	ended := make(chan error, 1)
	go func() {
		ended <- gw.hub.ServeStdio(context.Background(), theirs, out, hub.StdioOptions{Token: gw.setup.token})
	}()
	c.in = ours
	c.wg.Go(func() { c.readStdout(back) })
	t.Cleanup(func() {
		ours.Close()
		if err := <-ended; err != nil {
			t.Errorf("stdio ended: %v", err)
		}
		out.Close()
	})
	return c
}

func pipes(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// readStdout reads what the gateway writes to its stdout.
func (c *client) readStdout(r *os.File) {
	defer r.Close()
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		c.dispatch("stdio", strings.TrimSuffix(line, "\n"), nil)
	}
}

// dispatch passes a reply to the call that waits for it, and any other message to received.
func (c *client) dispatch(via, msg string, here chan<- httpReply) {
	var m struct {
		Method string          `json:"method"`
		ID     json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal([]byte(msg), &m)
	if m.Method != "" {
		c.received <- message{via, msg}
		return
	}
	if here == nil {
		c.mu.Lock()
		here = c.pending[string(m.ID)]
		c.mu.Unlock()
	}
	if here != nil {
		here <- httpReply{body: msg}
	}
}

// newID alternates between string and number ids.
func (c *client) newID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	if c.lastID%2 == 0 {
		return strconv.Itoa(c.lastID)
	}
	return `"r\u00e9q-` + strconv.Itoa(c.lastID) + `"`
}

// meta returns the members of _meta that the modern protocol requires.
func (c *client) meta() string {
	return `"` + mcp.MetaProtocolVersion + `":"2026-07-28","` + mcp.MetaClientInfo + `":` + c.info + `,"` + mcp.MetaClientCapabilities + `":` + c.caps
}

// withMeta puts the members that the client's protocol requires where params say @meta, or at their end.
func (c *client) withMeta(params string) string {
	switch {
	case c.protocol == mcp.Legacy:
		return strings.NewReplacer("@meta,", "", "@meta", "").Replace(params)
	case strings.Contains(params, "@meta"):
		return strings.Replace(params, "@meta", c.meta(), 1)
	case params == "{}":
		return `{"_meta":{` + c.meta() + `}}`
	}
	return strings.TrimSuffix(params, "}") + `,"_meta":{` + c.meta() + `}}`
}

// call makes a request and returns the answer.
func (c *client) call(t testing.TB, method, params string) httpReply {
	t.Helper()
	_, reply := c.startCall(t, method, params)
	return receiveWithin(t, reply, method)
}

func receiveWithin[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("nothing came: %s", what)
		panic("unreachable")
	}
}

// callResult is call for the raw result alone, or the error with a "!" before it.
func (c *client) callResult(t testing.TB, method, params string) string {
	t.Helper()
	return resultOrError(t, c.call(t, method, params).body)
}

func resultOrError(t testing.TB, body string) string {
	t.Helper()
	var m struct{ Result, Error json.RawMessage }
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	if m.Error != nil {
		return "!" + string(m.Error)
	}
	return string(m.Result)
}

// startCall makes a request; its reply comes on the channel.
func (c *client) startCall(t testing.TB, method, params string) (id string, reply <-chan httpReply) {
	t.Helper()
	id = c.newID()
	return id, c.send(t, id, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+c.withMeta(params)+`}`)
}

// notify sends a message that has no reply.
func (c *client) notify(t testing.TB, msg string) {
	t.Helper()
	if c.in != nil {
		_, _ = io.WriteString(c.in, msg+"\n")
		return
	}
	if g := receiveWithin(t, c.send(t, "", msg), msg); g.status != http.StatusAccepted {
		t.Fatalf("status %d: %s", g.status, g.body)
	}
}

// answer replies to a server's request.
func (c *client) answer(t testing.TB, question message, result string) {
	t.Helper()
	var m struct{ ID json.RawMessage }
	_ = json.Unmarshal([]byte(question.text), &m)
	c.notify(t, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+result+`}`)
}

func (c *client) send(t testing.TB, id, msg string) <-chan httpReply {
	t.Helper()
	reply := make(chan httpReply, 1)
	if c.in != nil {
		c.mu.Lock()
		c.pending[id] = reply
		c.mu.Unlock()
		_, _ = io.WriteString(c.in, msg+"\n")
		return reply
	}
	req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.gateway.URL+c.path, strings.NewReader(msg))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = c.headers(msg)
	over := c.transport()
	c.wg.Go(func() { c.roundTrip(over, req, "post", reply) })
	return reply
}

// headers returns the headers of a message in the client's protocol.
func (c *client) headers(msg string) http.Header {
	head := c.header.Clone()
	set := func(key, value string) {
		if _, ok := head[key]; !ok && value != "" {
			head.Set(key, value)
		}
	}
	set("Content-Type", "application/json")
	set("Accept", "application/json, text/event-stream")
	if c.protocol == mcp.Legacy {
		set(mcp.HeaderSession, c.session)
		return head
	}
	var m struct {
		Method string
		Params struct{ Name, URI string }
	}
	_ = json.Unmarshal([]byte(msg), &m)
	set(mcp.HeaderVersion, mcp.V20260728)
	set(mcp.HeaderMethod, m.Method)
	switch mcp.NameParam(m.Method) {
	case "name":
		set(mcp.HeaderName, mcp.EncodeHeader(m.Params.Name))
	case "uri":
		set(mcp.HeaderName, mcp.EncodeHeader(m.Params.URI))
	}
	return head
}

// transport is the HTTP client of the gateway that the client talks to now.
func (c *client) transport() *http.Client {
	if c.httpClient != nil {
		return c.httpClient
	}
	return c.gateway.Client()
}

// roundTrip makes an HTTP request and reads the answer to its end.
func (c *client) roundTrip(over *http.Client, req *http.Request, via string, reply chan<- httpReply) {
	resp, err := over.Do(req)
	if err != nil {
		reply <- httpReply{body: err.Error()}
		return
	}
	defer resp.Body.Close()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body, _ := io.ReadAll(resp.Body)
		reply <- httpReply{resp.StatusCode, resp.Header, string(body)}
		return
	}
	events := sse.NewReader(resp.Body, 16<<20)
	here := make(chan httpReply, 1)
	for {
		e, err := events.Next()
		if err != nil {
			break
		}
		c.dispatch(via, string(e.Data), here)
	}
	select {
	case g := <-here:
		g.status, g.head = resp.StatusCode, resp.Header
		reply <- g
	default:
		reply <- httpReply{status: resp.StatusCode, head: resp.Header}
	}
}

// openStream opens the stream of a legacy session. The function it returns closes it; the channel gets what came
// instead of a stream, or its end.
func (c *client) openStream(t testing.TB) (stop func(), end <-chan httpReply) {
	t.Helper()
	ctx, cancel := context.WithCancel(c.ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.gateway.URL+c.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = c.header.Clone()
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set(mcp.HeaderSession, c.session)
	over, ended := c.transport(), make(chan httpReply, 1)
	c.wg.Go(func() {
		defer cancel()
		c.roundTrip(over, req, "get", ended)
	})
	return cancel, ended
}

// nextMessage returns the next message that is no reply.
func (c *client) nextMessage(t testing.TB) message {
	t.Helper()
	return receiveWithin(t, c.received, "a message of the server")
}

// nextOfMethod returns the next message of a method, and skips others.
func (c *client) nextOfMethod(t testing.TB, method string) message {
	t.Helper()
	for {
		if n := c.nextMessage(t); strings.Contains(n.text, `"method":"`+method+`"`) {
			return n
		}
	}
}

// expectSilence checks that no message comes for a while.
func (c *client) expectSilence(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case n := <-c.received:
		t.Errorf("unexpected: %s %s", n.via, n.text)
	case <-time.After(d):
	}
}
