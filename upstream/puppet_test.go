package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// puppet is a far server without a socket, so that a bubble of synctest can hold it. Until a test
// makes it another, it is one of the older era whose messages share one stream.
type puppet struct {
	t *testing.T

	mu      sync.Mutex
	away    bool // it refuses connections
	http    bool // Streamable HTTP, not HTTP+SSE
	forgets bool // it keeps no sessions
	acts    map[string]act
	got     []message
	dials   []time.Time      // when it was connected to, or somebody tried
	streams []*io.PipeWriter // open or not, in order
}

// message is what it got.
type message struct {
	stream int // of HTTP+SSE, from 0
	Method string
	ID     json.RawMessage
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
	left   <-chan struct{} // closed when nobody waits for it
}

// pause takes so long, unless nobody waits.
func (m message) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-m.left:
	}
}

// act is what it does with a message: the members of the reply, or silence, or a status.
type act func(message) string

const (
	silence = ""
	greeted = `"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"p"}}`
	found   = `"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true}}}`
	unknown = `"error":{"code":-32601,"message":"Method not found"}`
)

func says(text string) act { return func(message) string { return text } }

func newPuppet(t *testing.T) *puppet {
	return &puppet{t: t, acts: map[string]act{mcp.Initialize: says(greeted), mcp.Discover: says(unknown)}}
}

// newer makes it a server of the newer era.
func (p *puppet) newer() *puppet {
	p.http = true
	return p.on(mcp.Discover, says(found)).on(mcp.Initialize, says(unknown))
}

// bothEras makes it a server that speaks both, with sessions in the older one. It lists the older revisions
// if they are given.
func (p *puppet) bothEras(versions ...string) *puppet {
	p.newer()
	listed := `"supportedVersions":` + string(mcp.QuoteAll(append([]string{mcp.V20260728}, versions...)))
	return p.on(mcp.Initialize, says(greeted)).on(mcp.Discover, says(strings.Replace(found, `"supportedVersions":["2026-07-28"]`, listed, 1)))
}

func (p *puppet) on(method string, a act) *puppet {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acts[method] = a
	return p
}

func (p *puppet) leave(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

// hangUp ends the stream that was opened last.
func (p *puppet) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams[len(p.streams)-1].Close()
}

// tells says something on the stream that was opened last.
func (p *puppet) tells(text string) {
	p.mu.Lock()
	w := p.streams[len(p.streams)-1]
	p.mu.Unlock()
	_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
}

// heard are the params of what it got of a method.
func (p *puppet) heard(method string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for _, m := range p.got {
		if m.Method == method {
			out = append(out, string(m.Params))
		}
	}
	return out
}

// times are when it was connected to, tries included.
func (p *puppet) times() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.dials)
}

// connections is how often it was connected to, tries included.
func (p *puppet) connections() int { return len(p.times()) }

// RoundTrip is its side of HTTP.
func (p *puppet) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	away, opens := p.away, r.Method == http.MethodGet && !p.http
	if opens {
		p.dials = append(p.dials, time.Now())
	}
	p.mu.Unlock()
	switch {
	case away:
		return nil, errors.New("connection refused")
	case r.Method == http.MethodPost:
		return p.post(r)
	case opens:
		w, n, resp := p.open(r)
		_, _ = fmt.Fprintf(w, "event: endpoint\ndata: /m?n=%d\n\n", n)
		return resp, nil
	}
	return response(405, "", strings.NewReader("")), nil
}

// open begins a stream of events. Its first write does not wait to be read.
func (p *puppet) open(r *http.Request) (w *io.PipeWriter, n int, resp *http.Response) {
	out, w := io.Pipe()
	in, first := io.Pipe()
	go func() { // a buffer, as a socket has one
		_, err := io.Copy(first, out)
		first.CloseWithError(err)
	}()
	context.AfterFunc(r.Context(), func() {
		w.CloseWithError(r.Context().Err())
		in.CloseWithError(r.Context().Err())
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams = append(p.streams, w)
	return w, len(p.streams) - 1, response(200, eventStream, in)
}

func response(status int, kind string, body io.Reader) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, ContentLength: -1}
	resp.Header.Set("Content-Type", kind)
	closer, ok := body.(io.ReadCloser)
	if !ok {
		closer = io.NopCloser(body)
	}
	resp.Body = closer
	return resp
}

func (p *puppet) post(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	var m message
	if err := json.Unmarshal(body, &m); err != nil {
		p.t.Errorf("it was sent %s", body)
	}
	m.left = r.Context().Done()
	m.stream, _ = strconv.Atoi(r.URL.Query().Get("n"))
	p.mu.Lock()
	p.got = append(p.got, m)
	a, own, forgets := p.acts[m.Method], p.http, p.forgets
	p.mu.Unlock()
	text := `"result":{}`
	if a != nil {
		text = a(m)
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if status, err := strconv.Atoi(text); err == nil {
		return response(status, "", strings.NewReader("")), nil
	}
	if m.ID == nil || m.Method == "" {
		return response(202, "", strings.NewReader("")), nil
	}
	reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, text)
	switch {
	case own && m.Method == mcp.Listen && text != unknown:
		w, _, resp := p.open(r)
		_, _ = fmt.Fprintf(w, "data: %s\n\n", `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{}}`)
		return resp, nil
	case own && text == silence:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case own:
		resp := response(200, "application/json", strings.NewReader(reply))
		if m.Method == mcp.Initialize && !forgets {
			resp.Header.Set(mcp.HeaderSession, "s")
		}
		return resp, nil
	case text != silence:
		p.mu.Lock()
		w := p.streams[m.stream]
		p.mu.Unlock()
		go func() { _, _ = fmt.Fprintf(w, "data: %s\n\n", reply) }()
	}
	return response(202, "", strings.NewReader("")), nil
}

// ear notes what a server says outside any call, and how its lanes turn.
type ear struct {
	mu    sync.Mutex
	said  []string
	turns []string
	why   []error // connections that were lost or not made
}

func (e *ear) note(kind string, m rpc.Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said = append(e.said, kind+" "+string(m.Params.Of(m.Body)))
}

func (e *ear) Changed(_ *Lane, m rpc.Message) { e.note("changed", m) }
func (e *ear) Updated(_ *Lane, m rpc.Message) { e.note("updated", m) }
func (e *ear) Said(_ *Lane, m rpc.Message)    { e.note("said", m) }

func (e *ear) Turned(_ *Lane, up bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.turns = append(e.turns, map[bool]string{true: "up", false: "down"}[up])
}

// turned and lost are read when the bubble has come to rest: a lane is up before it says so.
func (e *ear) turned() string {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.turns, " ")
}

func (e *ear) lost() []error {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.why
}

// remote is a Remote of the puppet, not started.
func (p *puppet) remote(mend ...func(*Config, *Server)) (*Remote, *ear) {
	cfg, entry, e := Default(), Server{}, &ear{}
	cfg.HealthcheckInterval = 0
	entry.SetDefaults()
	entry.ID, entry.URL, entry.OAuth.Off = "a", "http://far.test/mcp", true
	if !p.http {
		entry.Transport = "sse"
	}
	for _, m := range mend {
		m(&cfg, &entry)
	}
	r := NewRemote(entry, cfg, Deps{
		Transport: p, Listener: e, Limits: func() (int, int) { return 64, 4000 },
		Count: func(err error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.why = append(e.why, err)
		},
	})
	p.t.Cleanup(func() {
		r.Close()
		time.Sleep(retireTime) // a session that was being given up knows then that it is over
	})
	return r, e
}

// lane is the shared lane of a Remote that is started now.
func (p *puppet) lane(mend ...func(*Config, *Server)) (*Lane, *ear) {
	r, e := p.remote(mend...)
	r.Start()
	return r.Shared(), e
}

// tool calls a tool of no name on a lane.
func tool(ctx context.Context, l *Lane) outcome {
	m, err := l.Call(ctx, calling(mcp.ToolsCall, `{}`))
	return outcome{string(m.Result.Of(m.Body)), err}
}

// probed turns probes on.
func probed(every, within time.Duration) func(*Config, *Server) {
	return func(c *Config, _ *Server) {
		c.HealthcheckInterval, c.HealthcheckTimeout = unit.Duration(every), unit.Duration(within)
	}
}
