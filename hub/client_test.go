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

	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/mcp"
)

// client is an MCP client of either era at any door. Its bytes are its own.
type client struct {
	era   mcp.Era
	caps  string
	notes chan note // everything that is no reply
	info  string

	yard    *yard
	own     *http.Client // with connections of its own; nil for those that all clients share
	path    string
	session string
	header  http.Header // beside what the era wants
	ctx     context.Context
	leave   context.CancelFunc
	wg      *sync.WaitGroup

	in      io.Writer // on stdio
	mu      sync.Mutex
	n       int
	waiting map[string]chan got
}

// note is a message that answers nothing, and the way it came: "post", "get" or "stdio".
type note struct{ via, text string }

// got is what came back for a request.
type got struct {
	status int
	head   http.Header
	body   string
}

const info = `{"name":"n\u00e9ar","version":"1.0"}`

func newClient(t testing.TB, era mcp.Era, caps string) *client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{
		era: era, caps: caps, info: info, notes: make(chan note, 4096), header: http.Header{}, ctx: ctx, leave: cancel, wg: &sync.WaitGroup{},
		waiting: map[string]chan got{},
	}
	t.Cleanup(func() {
		cancel()
		c.wg.Wait()
	})
	return c
}

// visit is a client over HTTP; one of the older era begins a session.
func (y *yard) visit(t testing.TB, path string, era mcp.Era, caps string) *client {
	t.Helper()
	c := newClient(t, era, caps)
	c.yard, c.path = y, path
	if era == mcp.EraLegacy {
		c.initialize(t, mcp.V20251125)
	}
	return c
}

func (c *client) initialize(t testing.TB, version string) got {
	t.Helper()
	g := c.call(t, mcp.Initialize, `{"protocolVersion":"`+version+`","capabilities":`+c.caps+`,"clientInfo":`+c.info+`}`)
	c.session = g.head.Get(mcp.HeaderSession)
	c.tell(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return g
}

// onStdio is the one client of a gateway on stdin and stdout.
func onStdio(t testing.TB, mend func(*setup), era mcp.Era, caps string, fars ...*far) *client {
	t.Helper()
	c := connectStdio(t, mend, era, caps, fars...)
	if era == mcp.EraLegacy {
		c.call(t, mcp.Initialize, `{"protocolVersion":"2025-11-25","capabilities":`+c.caps+`,"clientInfo":`+c.info+`}`)
		c.tell(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return c
}

// connectStdio is onStdio before anything is said.
func connectStdio(t testing.TB, mend func(*setup), era mcp.Era, caps string, fars ...*far) *client {
	t.Helper()
	y := build(t, mend, true, fars...)
	c := newClient(t, era, caps)
	c.yard = y
	theirs, ours := pipes(t)
	back, out := pipes(t)
	ended := make(chan error, 1)
	go func() { ended <- y.door.ServeStdio(context.Background(), theirs, out) }()
	c.in = ours
	c.wg.Go(func() { c.listenTo(back) })
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

// listenTo reads what the gateway writes to its stdout.
func (c *client) listenTo(r *os.File) {
	defer r.Close()
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		c.arrive("stdio", strings.TrimSuffix(line, "\n"), nil)
	}
}

// arrive sorts a message: a reply to who waits for it, else a note.
func (c *client) arrive(via, msg string, here chan<- got) {
	var m struct {
		Method string          `json:"method"`
		ID     json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal([]byte(msg), &m)
	if m.Method != "" {
		c.notes <- note{via, msg}
		return
	}
	if here == nil {
		c.mu.Lock()
		here = c.waiting[string(m.ID)]
		c.mu.Unlock()
	}
	if here != nil {
		here <- got{body: msg}
	}
}

// newID alternates between the kinds of id that there are.
func (c *client) newID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if c.n%2 == 0 {
		return strconv.Itoa(c.n)
	}
	return `"r\u00e9q-` + strconv.Itoa(c.n) + `"`
}

// meta are the members of _meta that the client's era asks for.
func (c *client) meta() string {
	return `"` + mcp.KeyVersion + `":"2026-07-28","` + mcp.KeyClientInfo + `":` + c.info + `,"` + mcp.KeyCapabilities + `":` + c.caps
}

// dress puts the era's members where params say @meta, or at their end.
func (c *client) dress(params string) string {
	switch {
	case c.era == mcp.EraLegacy:
		return strings.NewReplacer("@meta,", "", "@meta", "").Replace(params)
	case strings.Contains(params, "@meta"):
		return strings.Replace(params, "@meta", c.meta(), 1)
	case params == "{}":
		return `{"_meta":{` + c.meta() + `}}`
	}
	return strings.TrimSuffix(params, "}") + `,"_meta":{` + c.meta() + `}}`
}

// call makes a request and gives what came back.
func (c *client) call(t testing.TB, method, params string) got {
	t.Helper()
	_, reply := c.begin(t, method, params)
	return wait(t, reply, method)
}

func wait[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("nothing came: %s", what)
		panic("unreachable")
	}
}

// ask is call for the result alone, raw, or the error with a "!" before it.
func (c *client) ask(t testing.TB, method, params string) string {
	t.Helper()
	return outcome(t, c.call(t, method, params).body)
}

func outcome(t testing.TB, body string) string {
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

// begin makes a request; its reply comes on the channel, everything else with the notes.
func (c *client) begin(t testing.TB, method, params string) (id string, reply <-chan got) {
	t.Helper()
	id = c.newID()
	return id, c.send(t, id, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+c.dress(params)+`}`)
}

// tell sends what has no reply.
func (c *client) tell(t testing.TB, msg string) {
	t.Helper()
	if c.in != nil {
		_, _ = io.WriteString(c.in, msg+"\n")
		return
	}
	if g := wait(t, c.send(t, "", msg), msg); g.status != http.StatusAccepted {
		t.Fatalf("status %d: %s", g.status, g.body)
	}
}

// answer answers a server's question.
func (c *client) answer(t testing.TB, question note, result string) {
	t.Helper()
	var m struct{ ID json.RawMessage }
	_ = json.Unmarshal([]byte(question.text), &m)
	c.tell(t, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+result+`}`)
}

func (c *client) send(t testing.TB, id, msg string) <-chan got {
	t.Helper()
	reply := make(chan got, 1)
	if c.in != nil {
		c.mu.Lock()
		c.waiting[id] = reply
		c.mu.Unlock()
		_, _ = io.WriteString(c.in, msg+"\n")
		return reply
	}
	req, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.yard.URL+c.path, strings.NewReader(msg))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = c.headers(msg)
	c.wg.Go(func() { c.exchange(req, "post", reply) })
	return reply
}

// headers are those of a message in the client's era.
func (c *client) headers(msg string) http.Header {
	head := c.header.Clone()
	set := func(key, value string) {
		if _, ok := head[key]; !ok && value != "" {
			head.Set(key, value)
		}
	}
	set("Content-Type", "application/json")
	set("Accept", "application/json, text/event-stream")
	if c.era == mcp.EraLegacy {
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
	switch mcp.IdentityOf(m.Method) {
	case "name":
		set(mcp.HeaderName, mcp.EncodeHeader(m.Params.Name))
	case "uri":
		set(mcp.HeaderName, mcp.EncodeHeader(m.Params.URI))
	}
	return head
}

// exchange makes an HTTP request and reads what comes back to its end.
func (c *client) exchange(req *http.Request, via string, reply chan<- got) {
	over := c.own
	if over == nil {
		over = c.yard.Client()
	}
	resp, err := over.Do(req)
	if err != nil {
		reply <- got{body: err.Error()}
		return
	}
	defer resp.Body.Close()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body, _ := io.ReadAll(resp.Body)
		reply <- got{resp.StatusCode, resp.Header, string(body)}
		return
	}
	events := sse.NewReader(resp.Body, 16<<20)
	here := make(chan got, 1)
	for {
		e, err := events.Next()
		if err != nil {
			break
		}
		c.arrive(via, string(e.Data), here)
	}
	select {
	case g := <-here:
		g.status, g.head = resp.StatusCode, resp.Header
		reply <- g
	default:
		reply <- got{status: resp.StatusCode, head: resp.Header}
	}
}

// listen opens the stream of a session of the older era. The function it gives closes it; the
// channel has what came in place of a stream, or at its end.
func (c *client) listen(t testing.TB) (stop func(), end <-chan got) {
	t.Helper()
	ctx, cancel := context.WithCancel(c.ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.yard.URL+c.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = c.header.Clone()
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set(mcp.HeaderSession, c.session)
	over := make(chan got, 1)
	c.wg.Go(func() {
		defer cancel()
		c.exchange(req, "get", over)
	})
	return cancel, over
}

// next is the next note.
func (c *client) next(t testing.TB) note {
	t.Helper()
	return wait(t, c.notes, "a message of the server")
}

// nextOf is the next note of a method; others are passed over.
func (c *client) nextOf(t testing.TB, method string) note {
	t.Helper()
	for {
		if n := c.next(t); strings.Contains(n.text, `"method":"`+method+`"`) {
			return n
		}
	}
}

// quiet says that no note comes for a while.
func (c *client) quiet(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case n := <-c.notes:
		t.Errorf("unexpected: %s %s", n.via, n.text)
	case <-time.After(d):
	}
}
