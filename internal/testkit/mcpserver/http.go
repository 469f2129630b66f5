//go:build linux

package mcpserver

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

	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
)

// HTTPServer serves Streamable HTTP at /mcp and the older HTTP+SSE at /sse, in the test's own process.
type HTTPServer struct {
	*Server
	address     string
	NoGET       atomic.Bool                      // reply 405 to GET
	Initializes atomic.Int64                     // number of sessions started
	Override    atomic.Pointer[http.HandlerFunc] // serves all requests instead

	mu         sync.Mutex
	server     *http.Server
	sessions   map[string]*httpSession
	streamsCut chan struct{} // closed to cut all GET streams
}

// httpSession is a legacy session.
type httpSession struct {
	*session
	stream *sessionStream
}

// sessionStream sends to the session's current GET stream, if there is one.
type sessionStream struct {
	mu      sync.Mutex
	current sender
}

func (m *sessionStream) attach(to sender) {
	m.mu.Lock()
	m.current = to
	m.mu.Unlock()
}

func (m *sessionStream) send(message []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current != nil {
		m.current.send(message)
	}
}

// StartHTTP starts a server for one test.
func StartHTTP(t *testing.T, o Options, book *EventLog) *HTTPServer {
	t.Helper()
	h := &HTTPServer{Server: newServer(o, book), address: "127.0.0.1:0", sessions: map[string]*httpSession{}, streamsCut: make(chan struct{})}
	if err := h.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var storm sync.WaitGroup
	storm.Go(func() { h.changeToolsRepeatedly(ctx) })
	t.Cleanup(func() { cancel(); storm.Wait(); h.Stop() })
	return h
}

// URL is the URL of a path.
func (h *HTTPServer) URL(path string) string { return "http://" + h.address + path }

// Listen starts to listen, after a stop on the same address.
func (h *HTTPServer) Listen() error {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", h.address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", h.serveStreamable)
	mux.HandleFunc("GET /sse", h.serveSSE)
	mux.HandleFunc("POST /messages", h.serveMessages)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.address = ln.Addr().String()
	h.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(ln) }(h.server)
	return nil
}

// Stop closes all connections and drops all sessions, as the end of a process would.
func (h *HTTPServer) Stop() {
	h.mu.Lock()
	server := h.server
	h.mu.Unlock()
	_ = server.Close()
	h.ExpireSessions()
	h.CutStreams()
}

// Restart stops the server for a while and starts it without sessions.
func (h *HTTPServer) Restart(down time.Duration) error {
	h.Stop()
	time.Sleep(down)
	return h.Listen()
}

// ExpireSessions drops all sessions: their next requests get 404.
func (h *HTTPServer) ExpireSessions() {
	h.mu.Lock()
	old := h.sessions
	h.sessions = map[string]*httpSession{}
	h.mu.Unlock()
	for _, s := range old {
		s.closeSession()
	}
}

// CutStreams cuts all GET streams.
func (h *HTTPServer) CutStreams() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.streamsCut)
	h.streamsCut = make(chan struct{})
}

func (h *HTTPServer) session(id string) (*httpSession, chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions[id], h.streamsCut
}

func (h *HTTPServer) startSession() (string, *httpSession) {
	mail := &sessionStream{}
	s := &httpSession{session: h.newSession(mail), stream: mail}
	id := rand.Text()
	h.mu.Lock()
	h.sessions[id] = s
	h.mu.Unlock()
	h.Initializes.Add(1)
	return id, s
}

func (h *HTTPServer) serveStreamable(w http.ResponseWriter, r *http.Request) {
	if override := h.Override.Load(); override != nil {
		(*override)(w, r)
		return
	}
	switch {
	case r.Method == http.MethodPost && h.Revision == mcpwire.Modern:
		h.postModern(w, r)
	case r.Method == http.MethodPost:
		h.postLegacy(w, r)
	case r.Method == http.MethodGet && h.Revision == mcpwire.Legacy && !h.NoGET.Load():
		h.serveGET(w, r)
	case r.Method == http.MethodDelete && h.Revision == mcpwire.Legacy:
		h.mu.Lock()
		delete(h.sessions, r.Header.Get("Mcp-Session-Id"))
		h.mu.Unlock()
	default:
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

func (h *HTTPServer) postLegacy(w http.ResponseWriter, r *http.Request) {
	f, ok := h.readMessage(w, r)
	if !ok {
		return
	}
	id := r.Header.Get("Mcp-Session-Id")
	s, _ := h.session(id)
	switch {
	case f.Method == "initialize":
		id, s = h.startSession()
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
	if !f.IsRequest() {
		s.handleMessage(f)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	out := newHTTPReply(w)
	// In the legacy revision a disconnect does not cancel the call.
	stop := context.AfterFunc(r.Context(), func() { h.record(Event{What: HungUp, ID: string(f.ID)}) })
	s.serveRequest(context.WithoutCancel(r.Context()), out, f)
	stop()
	out.finishReply()
}

func (h *HTTPServer) readMessage(w http.ResponseWriter, r *http.Request) (mcpwire.Message, bool) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return mcpwire.Message{}, false
	}
	f, err := mcpwire.ParseMessage(data)
	if err != nil {
		h.violation("%v", err)
		http.Error(w, "not a message", http.StatusBadRequest)
		return f, false
	}
	if accept := r.Header.Get("Accept"); r.URL.Path == "/mcp" && (!strings.Contains(accept, "application/json") || !strings.Contains(accept, "text/event-stream")) {
		h.violation("Accept is %q", accept)
	}
	return f, true
}

func (h *HTTPServer) serveGET(w http.ResponseWriter, r *http.Request) {
	s, cut := h.session(r.Header.Get("Mcp-Session-Id"))
	if s == nil {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	out := newHTTPReply(w)
	defer out.finishReply()
	s.stream.attach(out) // before the client knows that there is a stream
	defer s.stream.attach(nil)
	out.openStream()
	select {
	case <-r.Context().Done():
	case <-cut:
		out.abort()
	}
}

func (h *HTTPServer) postModern(w http.ResponseWriter, r *http.Request) {
	f, ok := h.readMessage(w, r)
	if !ok {
		return
	}
	if r.Header.Get("Mcp-Session-Id") != "" {
		h.violation("a modern request with a session id")
	}
	// The revision does not define headers for notifications.
	if why := checkHeaders(r.Header, f); why != "" && f.IsRequest() {
		if f.Method != "initialize" {
			h.violation("%s: %s", f.Method, why)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(mcpwire.NewError(f.ID, -32020, why))
		return
	}
	s := h.newSession(nil)
	if !f.IsRequest() {
		s.handleMessage(f)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	out := newHTTPReply(w)
	s.serveRequest(r.Context(), out, f) // in the modern revision a disconnect cancels the call
	out.finishReply()
}

// checkHeaders compares a modern request's headers with its body and returns the problem.
func checkHeaders(h http.Header, f mcpwire.Message) string {
	p := f.ParseParams()
	switch {
	case h.Get("Mcp-Protocol-Version") != string(mcpwire.Modern) || p.Meta.Version != string(mcpwire.Modern):
		return "MCP-Protocol-Version and _meta do not both say " + string(mcpwire.Modern)
	case h.Get("Mcp-Method") != f.Method:
		return "Mcp-Method is not the method"
	}
	named := map[string]string{"tools/call": p.Name, "prompts/get": p.Name, "resources/read": p.URI}
	if want, ok := named[f.Method]; ok && decodeHeader(h.Get("Mcp-Name")) != want {
		return "Mcp-Name is not the name"
	}
	return ""
}

// decodeHeader decodes the Base64 form of a header value.
func decodeHeader(v string) string {
	inner, ok := strings.CutPrefix(v, "=?base64?")
	if inner, end := strings.CutSuffix(inner, "?="); ok && end {
		if b, err := base64.StdEncoding.DecodeString(inner); err == nil {
			return string(b)
		}
	}
	return v
}

// httpReply is a reply to a POST: one JSON object if the response comes first, otherwise a stream.
type httpReply struct {
	mu        sync.Mutex
	w         http.ResponseWriter
	streaming bool
	done      bool
	aborted   bool
}

func newHTTPReply(w http.ResponseWriter) *httpReply { return &httpReply{w: w} }

func (p *httpReply) send(message []byte) {
	f, err := mcpwire.ParseMessage(message)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.done:
	case err == nil && f.IsResponse() && !p.streaming:
		p.done = true
		p.w.Header().Set("Content-Type", "application/json")
		if strings.Contains(string(f.Error), `"code":-32601`) {
			p.w.WriteHeader(http.StatusNotFound)
		}
		_, _ = p.w.Write(message)
	default:
		p.startStream()
		p.writeEvent("message", string(message))
	}
}

// openStream starts the stream before the first message.
func (p *httpReply) openStream() {
	p.mu.Lock()
	p.startStream()
	p.mu.Unlock()
}

// sendEvent sends an event with any name.
func (p *httpReply) sendEvent(name, data string) {
	p.mu.Lock()
	p.writeEvent(name, data)
	p.mu.Unlock()
}

func (p *httpReply) writeEvent(name, data string) {
	_, _ = p.w.Write([]byte("event: " + name + "\ndata: " + data + "\n\n"))
	_ = http.NewResponseController(p.w).Flush()
}

// startStream starts the stream if it is not started. The caller holds the lock.
func (p *httpReply) startStream() {
	if p.streaming {
		return
	}
	p.streaming = true
	p.w.Header().Set("Content-Type", "text/event-stream")
	p.w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(p.w).Flush()
}

// abort makes finishReply cut the connection.
func (p *httpReply) abort() {
	p.mu.Lock()
	p.aborted = true
	p.mu.Unlock()
}

// finishReply ends the reply; later messages are dropped.
func (p *httpReply) finishReply() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = true
	if p.aborted {
		panic(http.ErrAbortHandler)
	}
}

// sseReply is the stream of HTTP+SSE (2024-11-05), which carries all messages of the server; each message of
// the client is a POST.
type sseReply struct{ *httpReply }

func (s sseReply) send(message []byte) {
	s.openStream()
	s.httpReply.send(message)
}

func (h *HTTPServer) serveSSE(w http.ResponseWriter, r *http.Request) {
	id, s := h.startSession()
	out := sseReply{newHTTPReply(w)}
	out.openStream()
	s.stream.attach(out)
	defer s.stream.attach(nil)
	defer h.dropSession(id)
	defer out.finishReply()
	_, cut := h.session(id)
	out.sendEvent("endpoint", "/messages?session="+id)
	select {
	case <-r.Context().Done():
	case <-cut:
		out.abort()
	}
}

// dropSession closes a session.
func (h *HTTPServer) dropSession(id string) {
	h.mu.Lock()
	s := h.sessions[id]
	delete(h.sessions, id)
	h.mu.Unlock()
	if s != nil {
		s.closeSession()
	}
}

func (h *HTTPServer) serveMessages(w http.ResponseWriter, r *http.Request) {
	s, _ := h.session(r.URL.Query().Get("session"))
	if s == nil {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	f, ok := h.readMessage(w, r)
	if !ok {
		return
	}
	w.WriteHeader(http.StatusAccepted)
	if f.IsRequest() {
		go s.serveRequest(context.WithoutCancel(r.Context()), s.stream, f)
		return
	}
	s.handleMessage(f)
}
