package hub_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// fakeServer is an MCP server of either protocol, over HTTP or as a child process. It writes its messages itself,
// so that their bytes are known; a child process is only a pipe into this process.
type fakeServer struct {
	id       string
	protocol mcp.Protocol
	stdio    bool
	address  string // its URL, or the address that its child processes connect to

	mu       sync.Mutex
	handlers map[string]handler
	messages []*serverCall
	senders  map[int]func(msg string) bool // for messages outside of a call; they return false for one that is not wanted
	replies  map[string]chan string
	pids     []int
	lastID   int

	watchers int // listen streams that are for resources
}

// handler returns the raw result of a request; with a "!" before it, an error; "" for no answer.
type handler func(c *serverCall) string

// serverCall is one message that a server got.
type serverCall struct {
	server *fakeServer
	raw    string
	header http.Header
	send   func(msg string) // on the stream of the call
	done   <-chan struct{}  // closed when the caller no longer waits for the answer
	pid    int              // of the child process that got it
	Method string           `json:"method"`
	ID     json.RawMessage  `json:"id"`
	Params json.RawMessage  `json:"params"`
}

const (
	legacyCaps = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{}}`
	modernCaps = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{}}`
)

// newFakeServer returns a server; over HTTP it is listening.
func newFakeServer(t testing.TB, id string, protocol mcp.Protocol, stdio bool) *fakeServer {
	t.Helper()
	f := &fakeServer{id: id, protocol: protocol, stdio: stdio, senders: map[int]func(string) bool{}, replies: map[string]chan string{}}
	f.handlers = map[string]handler{
		mcp.ToolsList: listResult("tools"), mcp.PromptsList: listResult("prompts"), mcp.ResourcesList: listResult("resources"),
		mcp.ResourceTemplatesList: listResult("resourceTemplates"), mcp.ToolsCall: respond(`{"content":[]}`),
		mcp.ResourcesRead: respond(`{"contents":[]}`), mcp.PromptsGet: respond(`{"messages":[]}`),
	}
	if protocol == mcp.Legacy {
		f.handle(mcp.Initialize, respond(`{"protocolVersion":"2025-11-25","capabilities":`+legacyCaps+`,"serverInfo":{"name":"`+id+`","version":"1"}}`))
		for _, m := range []string{mcp.Ping, mcp.LoggingSetLevel, mcp.ResourcesSubscribe, mcp.ResourcesUnsubscribe} {
			f.handle(m, respond(`{}`))
		}
	} else {
		f.handle(mcp.ServerDiscover, respond(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+modernCaps+`}`))
		f.handle(mcp.SubscriptionsListen, serveListen)
	}
	if stdio {
		f.acceptChildren(t)
		return f
	}
	srv := httptest.NewServer(f)
	f.address = srv.URL
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return f
}

// config returns the server's entry in the configuration.
func (f *fakeServer) config() upstream.ServerConfig {
	var s upstream.ServerConfig
	s.SetDefaults()
	s.ID = f.id
	if f.stdio {
		self, _ := os.Executable()
		s.Command = []string{self, "run:join", f.address}
	} else {
		s.URL = secret.URL(f.address)
	}
	return s
}

func respond(result string) handler { return func(*serverCall) string { return result } }

// listResult returns the result of a list request with these items.
func listResult(member string, items ...string) handler {
	return respond(`{"` + member + `":[` + strings.Join(items, ",") + `],"resultType":"complete","ttlMs":60000,"cacheScope":"public"}`)
}

func itemsNamed(names ...string) []string {
	for i, n := range names {
		names[i] = `{"name":"` + n + `","inputSchema":{"type":"object"}}`
	}
	return names
}

func resourcesAt(uris ...string) []string {
	for i, u := range uris {
		uris[i] = `{"uri":"` + u + `","name":"r"}`
	}
	return uris
}

func (f *fakeServer) handle(method string, a handler) *fakeServer {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handlers[method] = a
	return f
}

// serveListen serves subscriptions/listen: a stream of notifications that begins with an acknowledgement.
func serveListen(c *serverCall) string {
	sub := `,"_meta":{"` + mcp.MetaSubscriptionID + `":` + string(c.ID) + `}`
	c.send(`{"jsonrpc":"2.0","method":"` + mcp.NotifySubscriptionsAcknowledged + `","params":{"notifications":{}` + sub + `}}`)
	defer c.server.addSender(func(msg string) bool {
		wanted := strings.Contains(string(c.Params), `"`+listenFlags[methodOf(msg)]+`":`)
		if wanted {
			c.send(strings.ReplaceAll(msg, "@sub", sub))
		}
		return wanted
	})()
	if strings.Contains(string(c.Params), `"resourceSubscriptions":`) {
		c.server.addWatchers(1)
		defer c.server.addWatchers(-1)
	}
	<-c.done
	return ""
}

func (f *fakeServer) addWatchers(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers += n
}

// listenFlags is the members by which a client asks for notifications in subscriptions/listen.
var listenFlags = map[string]string{
	mcp.NotifyToolsChanged: "toolsListChanged", mcp.NotifyPromptsChanged: "promptsListChanged", mcp.NotifyResourcesChanged: "resourcesListChanged",
	mcp.NotifyResourceUpdated: "resourceSubscriptions",
}

func methodOf(msg string) string {
	var m struct{ Method string }
	_ = json.Unmarshal([]byte(strings.ReplaceAll(msg, "@sub", "")), &m)
	return m.Method
}

// addSender adds a connection for messages outside of a call; the function it returns removes it.
func (f *fakeServer) addSender(send func(string) bool) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastID++
	n := f.lastID
	f.senders[n] = send
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.senders, n)
	}
}

// broadcast sends a message outside of any call on all connections that want it; there must be one. @sub in it is
// where a modern server names the stream.
func (f *fakeServer) broadcast(t testing.TB, msg string) {
	t.Helper()
	wait.For(t, "way from "+f.id+" to the gateway", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		sent := false
		for _, send := range f.senders {
			sent = send(msg) || sent
		}
		return sent
	})
}

// sendToAll is a sender of a legacy server, which sends everything to every client.
func sendToAll(send func(string)) func(string) bool {
	return func(msg string) bool {
		send(strings.ReplaceAll(msg, "@sub", ""))
		return true
	}
}

// receive records a message and returns the handler of a request; nil when there is nothing to answer.
func (f *fakeServer) receive(c *serverCall) handler {
	_ = json.Unmarshal([]byte(c.raw), c)
	c.server = f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages = append(f.messages, c)
	switch {
	case c.Method == "":
		if ch := f.replies[string(c.ID)]; ch != nil {
			ch <- c.raw
		}
		return nil
	case c.ID == nil:
		return nil
	case f.handlers[c.Method] == nil:
		return respond(`!{"code":-32601,"message":"Method not found"}`)
	}
	return f.handlers[c.Method]
}

// askClient sends a request to the client during a call, and returns the raw reply.
func (c *serverCall) askClient(method, params string) string {
	f := c.server
	f.mu.Lock()
	f.lastID++
	id := strconv.Quote("ask-" + strconv.Itoa(f.lastID))
	answer := make(chan string, 1)
	f.replies[id] = answer
	f.mu.Unlock()
	c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	select {
	case a := <-answer:
		return a
	case <-c.done:
		return ""
	}
}

// wrapReply returns the reply message, with white space wherever it is allowed and the id last.
func wrapReply(answer, id string) string {
	if e, ok := strings.CutPrefix(answer, "!"); ok {
		return `{ "jsonrpc":"2.0", "error" : ` + e + `,"id": ` + id + ` }`
	}
	return `{"odd" : {"x":1.0}, "jsonrpc":"2.0", "result" : ` + answer + ` ,"id":  ` + id + "}"
}

// messagesOf returns the messages of a method that were received, in order; "" for replies.
func (f *fakeServer) messagesOf(method string) []*serverCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.messages), func(c *serverCall) bool { return c.Method != method })
}

// awaitMessage waits for the n-th message of a method.
func (f *fakeServer) awaitMessage(t testing.TB, method string, n int) *serverCall {
	t.Helper()
	wait.For(t, fmt.Sprintf("message %d of %q at %s", n, method, f.id), func() bool { return len(f.messagesOf(method)) >= n })
	return f.messagesOf(method)[n-1]
}

// forgetMessages forgets what was received so far.
func (f *fakeServer) forgetMessages() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages = nil
}

// ServeHTTP serves Streamable HTTP in the server's protocol.
func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &replyWriter{w: w}
	defer out.shut()
	switch {
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
		return
	case r.Method == http.MethodGet && f.protocol == mcp.Legacy:
		out.begin()
		defer f.addSender(sendToAll(out.send))()
		<-r.Context().Done()
		return
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	c := &serverCall{raw: string(body), header: r.Header, send: out.send, done: r.Context().Done()}
	act := f.receive(c)
	switch {
	case act == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	case f.protocol == mcp.Legacy && c.Method == mcp.ServerDiscover:
		http.Error(w, "no session", http.StatusBadRequest)
		return
	case c.Method == mcp.Initialize:
		w.Header().Set(mcp.HeaderSession, "far-"+f.id)
	}
	if answer := act(c); answer != "" {
		out.finish(wrapReply(answer, string(c.ID)))
	}
}

// replyWriter writes a reply, or an event stream once a message comes before it.
type replyWriter struct {
	mu    sync.Mutex
	w     http.ResponseWriter
	begun bool
	over  bool
}

func (s *replyWriter) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

func (s *replyWriter) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open()
}

func (s *replyWriter) open() {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(s.w).Flush()
	}
}

func (s *replyWriter) send(msg string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.open()
	_, _ = io.WriteString(s.w, "event: message\ndata: "+msg+"\n\n")
	_ = http.NewResponseController(s.w).Flush()
}

func (s *replyWriter) finish(msg string) {
	if s.begun {
		s.send(msg)
		return
	}
	s.w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(s.w, msg)
}

// runChild is the child process: it copies stdin to the test, and back to stdout.
func runChild(addr string) {
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", addr)
	if err == nil {
		fmt.Fprintln(conn, os.Getpid())
		go func() {
			_, _ = io.Copy(conn, os.Stdin)
			_ = conn.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(os.Stdout, conn)
	}
	syscall.Exit(0) // not os.Exit: the race detector would sleep there
}

// acceptChildren accepts the connections of the server's child processes.
func (f *fakeServer) acceptChildren(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = l.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.serveChild(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
}

// serveChild serves one child process, by its stdin and stdout.
func (f *fakeServer) serveChild(conn net.Conn) {
	var mu sync.Mutex
	send := func(msg string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(conn, msg+"\n")
	}
	var wg sync.WaitGroup
	ctx, end := context.WithCancel(context.Background())
	defer wg.Wait()
	defer conn.Close()
	defer end()
	if f.protocol == mcp.Legacy {
		defer f.addSender(sendToAll(send))()
	}
	in := bufio.NewReaderSize(conn, 1<<20)
	first, _ := in.ReadString('\n')
	pid, _ := strconv.Atoi(strings.TrimSpace(first))
	f.mu.Lock()
	f.pids = append(f.pids, pid)
	f.mu.Unlock()
	calls := map[string]context.CancelFunc{}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		call, cancel := context.WithCancel(ctx)
		c := &serverCall{raw: strings.TrimSuffix(line, "\n"), send: send, done: call.Done(), pid: pid}
		act := f.receive(c)
		if act == nil {
			f.cancelCall(c, calls)
			cancel()
			continue
		}
		calls[string(c.ID)] = cancel
		wg.Go(func() {
			defer cancel()
			if answer := act(c); answer != "" {
				send(wrapReply(answer, string(c.ID)))
			}
		})
	}
}

func (f *fakeServer) cancelCall(c *serverCall, calls map[string]context.CancelFunc) {
	var params struct {
		ID json.RawMessage `json:"requestId"`
	}
	if c.Method == mcp.NotifyCancelled && json.Unmarshal(c.Params, &params) == nil && calls[string(params.ID)] != nil {
		calls[string(params.ID)]()
	}
}

// awaitDisconnected waits until no connection for messages outside of calls is open.
func (f *fakeServer) awaitDisconnected(t testing.TB) {
	t.Helper()
	wait.For(t, "end of the streams of "+f.id, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.senders) == 0
	})
}

// childPIDs returns the pids of the server's child processes, in the order they were started.
func (f *fakeServer) childPIDs() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.pids)
}
