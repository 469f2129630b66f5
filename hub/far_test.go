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
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// far is a server behind the gateway, of either era and on either wire. It is written by hand, so
// that its bytes are known; a program is only a pipe into this process.
type far struct {
	id    string
	era   mcp.Era
	stdio bool
	at    string // its URL, or the address that its programs call

	mu    sync.Mutex
	acts  map[string]act
	seen  []*turn
	links map[int]func(msg string) bool // the ways to speak outside of a call; false where this is not wanted
	asked map[string]chan string
	pids  []int
	n     int

	watchers int // streams of news that are for resources
}

// act gives the raw result of a request; with a "!" before it, it is an error; "" is no answer.
type act func(c *turn) string

// turn is one message that a server got.
type turn struct {
	far    *far
	raw    string
	head   http.Header
	send   func(msg string) // on the call's own way
	over   <-chan struct{}  // nobody waits for the answer any more
	Method string           `json:"method"`
	ID     json.RawMessage  `json:"id"`
	Params json.RawMessage  `json:"params"`
}

const (
	legacyCaps = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{}}`
	modernCaps = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"completions":{}}`
)

// newFar makes a server and starts it where it needs no program.
func newFar(t testing.TB, id string, era mcp.Era, stdio bool) *far {
	t.Helper()
	f := &far{id: id, era: era, stdio: stdio, links: map[int]func(string) bool{}, asked: map[string]chan string{}}
	f.acts = map[string]act{
		mcp.ToolsList: page("tools"), mcp.PromptsList: page("prompts"), mcp.ResourcesList: page("resources"),
		mcp.TemplatesList: page("resourceTemplates"), mcp.ToolsCall: says(`{"content":[]}`),
		mcp.ResourcesRead: says(`{"contents":[]}`), mcp.PromptsGet: says(`{"messages":[]}`),
	}
	if era == mcp.EraLegacy {
		f.on(mcp.Initialize, says(`{"protocolVersion":"2025-11-25","capabilities":`+legacyCaps+`,"serverInfo":{"name":"`+id+`","version":"1"}}`))
		for _, m := range []string{mcp.Ping, mcp.SetLevel, mcp.Subscribe, mcp.Unsubscribe} {
			f.on(m, says(`{}`))
		}
	} else {
		f.on(mcp.Discover, says(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+modernCaps+`}`))
		f.on(mcp.Listen, listenAct)
	}
	if stdio {
		f.accept(t)
		return f
	}
	srv := httptest.NewServer(f)
	f.at = srv.URL
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return f
}

// entry is the server's line in the table.
func (f *far) entry() upstream.Server {
	var s upstream.Server
	s.SetDefaults()
	s.ID = f.id
	if f.stdio {
		self, _ := os.Executable()
		s.Command = []string{self, "run:join", f.at}
	} else {
		s.URL = secret.URL(f.at)
	}
	return s
}

func says(result string) act { return func(*turn) string { return result } }

// page is a list of these items.
func page(member string, items ...string) act {
	return says(`{"` + member + `":[` + strings.Join(items, ",") + `],"resultType":"complete","ttlMs":60000,"cacheScope":"public"}`)
}

func named(names ...string) []string {
	for i, n := range names {
		names[i] = `{"name":"` + n + `","inputSchema":{"type":"object"}}`
	}
	return names
}

func located(uris ...string) []string {
	for i, u := range uris {
		uris[i] = `{"uri":"` + u + `","name":"r"}`
	}
	return uris
}

func (f *far) on(method string, a act) *far {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acts[method] = a
	return f
}

// listenAct is subscriptions/listen: a stream of news that begins with an acknowledgement.
func listenAct(c *turn) string {
	sub := `,"_meta":{"` + mcp.KeySubscription + `":` + string(c.ID) + `}`
	c.send(`{"jsonrpc":"2.0","method":"` + mcp.Acknowledged + `","params":{"notifications":{}` + sub + `}}`)
	defer c.far.link(func(msg string) bool {
		wanted := strings.Contains(string(c.Params), `"`+wishes[methodOf(msg)]+`":`)
		if wanted {
			c.send(strings.ReplaceAll(msg, "@sub", sub))
		}
		return wanted
	})()
	if strings.Contains(string(c.Params), `"resourceSubscriptions":`) {
		c.far.watched(1)
		defer c.far.watched(-1)
	}
	<-c.over
	return ""
}

func (f *far) watched(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers += n
}

// wishes are what a client says in subscriptions/listen to be told of something.
var wishes = map[string]string{
	mcp.ToolsChanged: "toolsListChanged", mcp.PromptsChanged: "promptsListChanged", mcp.ResourcesChanged: "resourcesListChanged",
	mcp.ResourceUpdated: "resourceSubscriptions",
}

func methodOf(msg string) string {
	var m struct{ Method string }
	_ = json.Unmarshal([]byte(strings.ReplaceAll(msg, "@sub", "")), &m)
	return m.Method
}

// link adds a way to speak outside of a call; the function it gives takes it back.
func (f *far) link(send func(string) bool) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	n := f.n
	f.links[n] = send
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.links, n)
	}
}

// push says something outside of any call, to all who want to hear it, of whom there must be one. @sub in it is where a server
// of the newer era says which stream it is for.
func (f *far) push(t testing.TB, msg string) {
	t.Helper()
	eventually(t, "way from "+f.id+" to the gateway", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		heard := false
		for _, send := range f.links {
			heard = send(msg) || heard
		}
		return heard
	})
}

// plainly is how the older era says something: to all.
func plainly(send func(string)) func(string) bool {
	return func(msg string) bool {
		send(strings.ReplaceAll(msg, "@sub", ""))
		return true
	}
}

// take notes a message and gives what to do with a request; nil when there is nothing to answer.
func (f *far) take(c *turn) act {
	_ = json.Unmarshal([]byte(c.raw), c)
	c.far = f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, c)
	switch {
	case c.Method == "":
		if ch := f.asked[string(c.ID)]; ch != nil {
			ch <- c.raw
		}
		return nil
	case c.ID == nil:
		return nil
	case f.acts[c.Method] == nil:
		return says(`!{"code":-32601,"message":"Method not found"}`)
	}
	return f.acts[c.Method]
}

// ask asks the client something in the middle of a call, and gives its whole answer.
func (c *turn) ask(method, params string) string {
	f := c.far
	f.mu.Lock()
	f.n++
	id := strconv.Quote("ask-" + strconv.Itoa(f.n))
	answer := make(chan string, 1)
	f.asked[id] = answer
	f.mu.Unlock()
	c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`)
	select {
	case a := <-answer:
		return a
	case <-c.over:
		return ""
	}
}

// envelope puts an answer into its envelope, with white space where it may stand and the id last.
func envelope(answer, id string) string {
	if e, ok := strings.CutPrefix(answer, "!"); ok {
		return `{ "jsonrpc":"2.0", "error" : ` + e + `,"id": ` + id + ` }`
	}
	return `{"odd" : {"x":1.0}, "jsonrpc":"2.0", "result" : ` + answer + ` ,"id":  ` + id + "}"
}

// got are the messages of a method that came, in order; "" for answers.
func (f *far) got(method string) []*turn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.seen), func(c *turn) bool { return c.Method != method })
}

// await waits for the n-th message of a method.
func (f *far) await(t testing.TB, method string, n int) *turn {
	t.Helper()
	eventually(t, fmt.Sprintf("message %d of %q at %s", n, method, f.id), func() bool { return len(f.got(method)) >= n })
	return f.got(method)[n-1]
}

// forget forgets what came so far.
func (f *far) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = nil
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("there was no %s", what)
		}
	}
}

// ServeHTTP is Streamable HTTP in the server's era.
func (f *far) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &sink{w: w}
	defer out.shut()
	switch {
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
		return
	case r.Method == http.MethodGet && f.era == mcp.EraLegacy:
		out.begin()
		defer f.link(plainly(out.send))()
		<-r.Context().Done()
		return
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	c := &turn{raw: string(body), head: r.Header, send: out.send, over: r.Context().Done()}
	act := f.take(c)
	switch {
	case act == nil:
		w.WriteHeader(http.StatusAccepted)
		return
	case f.era == mcp.EraLegacy && c.Method == mcp.Discover:
		http.Error(w, "no session", http.StatusBadRequest)
		return
	case c.Method == mcp.Initialize:
		w.Header().Set(mcp.HeaderSession, "far-"+f.id)
	}
	if answer := act(c); answer != "" {
		out.finish(envelope(answer, string(c.ID)))
	}
}

// sink is a reply, or a stream of events once something comes before it.
type sink struct {
	mu    sync.Mutex
	w     http.ResponseWriter
	begun bool
	over  bool
}

func (s *sink) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

func (s *sink) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open()
}

func (s *sink) open() {
	if !s.begun {
		s.begun = true
		s.w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(s.w).Flush()
	}
}

func (s *sink) send(msg string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.open()
	_, _ = io.WriteString(s.w, "event: message\ndata: "+msg+"\n\n")
	_ = http.NewResponseController(s.w).Flush()
}

func (s *sink) finish(msg string) {
	if s.begun {
		s.send(msg)
		return
	}
	s.w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(s.w, msg)
}

// join is the program: what comes on stdin goes to the test, and back.
func join(addr string) {
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

// accept takes the calls of the server's programs.
func (f *far) accept(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.at = l.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.program(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
}

// program is one program: its stdin and stdout.
func (f *far) program(conn net.Conn) {
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
	if f.era == mcp.EraLegacy {
		defer f.link(plainly(send))()
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
		c := &turn{raw: strings.TrimSuffix(line, "\n"), send: send, over: call.Done()}
		act := f.take(c)
		if act == nil {
			f.cancelled(c, calls)
			cancel()
			continue
		}
		calls[string(c.ID)] = cancel
		wg.Go(func() {
			defer cancel()
			if answer := act(c); answer != "" {
				send(envelope(answer, string(c.ID)))
			}
		})
	}
}

func (f *far) cancelled(c *turn, calls map[string]context.CancelFunc) {
	var params struct {
		ID json.RawMessage `json:"requestId"`
	}
	if c.Method == mcp.Cancelled && json.Unmarshal(c.Params, &params) == nil && calls[string(params.ID)] != nil {
		calls[string(params.ID)]()
	}
}

// alone waits until nobody is connected to hear what the server says.
func (f *far) alone(t testing.TB) {
	t.Helper()
	eventually(t, "end of the streams of "+f.id, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.links) == 0
	})
}

// programs are the pids of the server's programs, in the order they were started.
func (f *far) programs() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.pids)
}
