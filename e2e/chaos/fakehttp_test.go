//go:build linux

package chaos

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// httpFake is a fake behind Streamable HTTP at /mcp, in either era, and behind the old HTTP+SSE
// at /sse. It lives in the test's own process.
type httpFake struct {
	*fake
	address string
	noGET   atomic.Bool                      // 405 instead of a stream
	inits   atomic.Int64                     // how often somebody began a session
	odd     atomic.Pointer[http.HandlerFunc] // answers in place of everything else

	mu       sync.Mutex
	server   *http.Server
	sessions map[string]*webSession
	cut      chan struct{} // closed when the streams are to be cut
}

// webSession is a legacy session: its stream comes and goes.
type webSession struct {
	*session
	mail *mailbox
}

// mailbox is the link of a session that may have no stream just now.
type mailbox struct {
	mu sync.Mutex
	to link
}

func (m *mailbox) attach(to link) {
	m.mu.Lock()
	m.to = to
	m.mu.Unlock()
}

func (m *mailbox) send(message []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.to != nil {
		m.to.send(message)
	}
}

func startHTTPFake(t *testing.T, o options, book *ledger) *httpFake {
	t.Helper()
	h := &httpFake{fake: newFake(o, book), address: "127.0.0.1:0", sessions: map[string]*webSession{}, cut: make(chan struct{})}
	if err := h.begin(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var storm sync.WaitGroup
	storm.Go(func() { h.storms(ctx) })
	t.Cleanup(func() { cancel(); storm.Wait(); h.end() })
	return h
}

func (h *httpFake) url(path string) string { return "http://" + h.address + path }

// begin listens, on the same address when it did before.
func (h *httpFake) begin() error {
	ln, err := net.Listen("tcp", h.address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", h.streamable)
	mux.HandleFunc("GET /sse", h.sse)
	mux.HandleFunc("POST /messages", h.messages)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.address = ln.Addr().String()
	h.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(ln) }(h.server)
	return nil
}

// end cuts every connection and forgets every session, as the end of a process would.
func (h *httpFake) end() {
	h.mu.Lock()
	server := h.server
	h.mu.Unlock()
	_ = server.Close()
	h.expire()
	h.cutStreams()
}

// restart is gone for a while and comes back knowing nobody.
func (h *httpFake) restart(down time.Duration) error {
	h.end()
	time.Sleep(down)
	return h.begin()
}

// expire forgets every session: the next request of each gets 404.
func (h *httpFake) expire() {
	h.mu.Lock()
	old := h.sessions
	h.sessions = map[string]*webSession{}
	h.mu.Unlock()
	for _, s := range old {
		s.close()
	}
}

// cutStreams ends the streams of GET without a word.
func (h *httpFake) cutStreams() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.cut)
	h.cut = make(chan struct{})
}

func (h *httpFake) session(id string) (*webSession, chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions[id], h.cut
}

func (h *httpFake) newSession() (string, *webSession) {
	mail := &mailbox{}
	s := &webSession{session: h.open(mail), mail: mail}
	id := rand.Text()
	h.mu.Lock()
	h.sessions[id] = s
	h.mu.Unlock()
	h.inits.Add(1)
	return id, s
}

func (h *httpFake) streamable(w http.ResponseWriter, r *http.Request) {
	if odd := h.odd.Load(); odd != nil {
		(*odd)(w, r)
		return
	}
	switch {
	case r.Method == http.MethodPost && h.era == modern:
		h.postModern(w, r)
	case r.Method == http.MethodPost:
		h.postLegacy(w, r)
	case r.Method == http.MethodGet && h.era == legacy && !h.noGET.Load():
		h.get(w, r)
	case r.Method == http.MethodDelete && h.era == legacy:
		h.mu.Lock()
		delete(h.sessions, r.Header.Get("Mcp-Session-Id"))
		h.mu.Unlock()
	default:
		http.Error(w, "not here", http.StatusMethodNotAllowed)
	}
}

func (h *httpFake) postLegacy(w http.ResponseWriter, r *http.Request) {
	f, ok := h.body(w, r)
	if !ok {
		return
	}
	id := r.Header.Get("Mcp-Session-Id")
	s, _ := h.session(id)
	switch {
	case f.Method == "initialize":
		id, s = h.newSession()
		w.Header().Set("Mcp-Session-Id", id)
	case id == "":
		http.Error(w, "Bad Request: no session", http.StatusBadRequest)
		return
	case s == nil:
		http.Error(w, "no such session", http.StatusNotFound)
		return
	case r.Header.Get("Mcp-Protocol-Version") == "":
		h.violation("%s without MCP-Protocol-Version", f.Method)
	}
	if !f.isRequest() {
		s.take(f)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	out := newPostLink(w)
	// In this era who hangs up has not taken the call back.
	stop := context.AfterFunc(r.Context(), func() { h.note(event{What: didHangUp, ID: string(f.ID)}) })
	s.serve(context.WithoutCancel(r.Context()), out, f)
	stop()
	out.end()
}

func (h *httpFake) body(w http.ResponseWriter, r *http.Request) (frame, bool) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return frame{}, false
	}
	f, err := parse(data)
	if err != nil {
		h.violation("%v", err)
		http.Error(w, "no message", http.StatusBadRequest)
		return f, false
	}
	if accept := r.Header.Get("Accept"); r.URL.Path == "/mcp" && (!strings.Contains(accept, "application/json") || !strings.Contains(accept, "text/event-stream")) {
		h.violation("Accept is %q", accept)
	}
	return f, true
}

func (h *httpFake) get(w http.ResponseWriter, r *http.Request) {
	s, cut := h.session(r.Header.Get("Mcp-Session-Id"))
	if s == nil {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	out := newPostLink(w)
	defer out.end()
	s.mail.attach(out) // before the far side can know that there is a stream
	defer s.mail.attach(nil)
	out.open()
	select {
	case <-r.Context().Done():
	case <-cut:
		out.abort()
	}
}

func (h *httpFake) postModern(w http.ResponseWriter, r *http.Request) {
	f, ok := h.body(w, r)
	if !ok {
		return
	}
	if r.Header.Get("Mcp-Session-Id") != "" {
		h.violation("a modern request with a session id")
	}
	// The revision does not say which headers a notification has.
	if why := mirrored(r.Header, f); why != "" && f.isRequest() {
		if f.Method != "initialize" {
			h.violation("%s: %s", f.Method, why)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(refusal(f.ID, -32020, why))
		return
	}
	s := h.open(nil)
	if !f.isRequest() {
		s.take(f)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	out := newPostLink(w)
	s.serve(r.Context(), out, f) // in this era who hangs up takes the call back
	out.end()
}

// mirrored compares a modern request's headers with its body.
func mirrored(h http.Header, f frame) string {
	p := f.read()
	switch {
	case h.Get("Mcp-Protocol-Version") != string(modern) || p.Meta.Version != string(modern):
		return "MCP-Protocol-Version and _meta do not both say " + string(modern)
	case h.Get("Mcp-Method") != f.Method:
		return "Mcp-Method is not the method"
	}
	named := map[string]string{"tools/call": p.Name, "prompts/get": p.Name, "resources/read": p.URI}
	if want, ok := named[f.Method]; ok && headerText(h.Get("Mcp-Name")) != want {
		return "Mcp-Name is not the name"
	}
	return ""
}

// headerText undoes the Base64 form of a header's value.
func headerText(v string) string {
	inner, ok := strings.CutPrefix(v, "=?base64?")
	if inner, end := strings.CutSuffix(inner, "?="); ok && end {
		if b, err := base64.StdEncoding.DecodeString(inner); err == nil {
			return string(b)
		}
	}
	return v
}

// postLink answers a POST: with one JSON object if that is all there is to say, else as a stream.
type postLink struct {
	mu        sync.Mutex
	w         http.ResponseWriter
	streaming bool
	done      bool
	aborted   bool
}

func newPostLink(w http.ResponseWriter) *postLink { return &postLink{w: w} }

func (p *postLink) send(message []byte) {
	f, err := parse(message)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.done:
	case err == nil && f.isResponse() && !p.streaming:
		p.done = true
		p.w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(f.Error), `"code":-32601`) {
			p.w.WriteHeader(http.StatusNotFound)
		}
		_, _ = p.w.Write(message)
	default:
		p.stream()
		p.write("message", string(message))
	}
}

// open begins the stream before there is anything to say.
func (p *postLink) open() {
	p.mu.Lock()
	p.stream()
	p.mu.Unlock()
}

// event writes an event of any name.
func (p *postLink) event(name, data string) {
	p.mu.Lock()
	p.write(name, data)
	p.mu.Unlock()
}

func (p *postLink) write(name, data string) {
	_, _ = p.w.Write([]byte("event: " + name + "\ndata: " + data + "\n\n"))
	_ = http.NewResponseController(p.w).Flush()
}

// stream begins a stream of events, once; the lock is held.
func (p *postLink) stream() {
	if p.streaming {
		return
	}
	p.streaming = true
	p.w.Header().Set("Content-Type", "text/event-stream")
	p.w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(p.w).Flush()
}

// abort cuts the connection in the middle of the answer.
func (p *postLink) abort() {
	p.mu.Lock()
	p.aborted = true
	p.mu.Unlock()
}

// end lets nothing more out.
func (p *postLink) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	if p.aborted {
		panic(http.ErrAbortHandler)
	}
}
