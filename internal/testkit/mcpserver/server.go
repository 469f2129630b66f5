//go:build linux

// Package mcpserver is an MCP server for tests that records what it receives, checks its clients against the
// protocol, and misbehaves on request. It speaks either protocol revision.
//
// Files: server.go serves requests and sessions; lists.go and tools.go are its methods and tools; stdio.go
// runs it as a child process, with quirks.go's unusual framing and trees of grandchildren; http.go serves it over
// Streamable HTTP and HTTP+SSE; eventlog.go is the file to which all server processes of a test write what
// they did and saw.
package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

// Options configure a server.
type Options struct {
	ServerID         string // its id in the gateway's configuration
	EventLog         string // path of the event log
	Generation       string // which version of the configuration started it
	Revision         mcpwire.Revision
	ToolCount        int    // number of listed tools; 0: only those with a function
	PageSize         int    // tools per page; 0: all
	HangMethod       string // a method that is never answered
	IgnoreDiscover   bool   // legacy: do not answer server/discover
	ChangesPerSecond int    // of the tool list
	RugPullFile      string // once this file exists, echo has another description, and only that changes
}

// Server is a server on any transport.
type Server struct {
	Options
	events *EventLog

	mu          sync.Mutex
	subscribers map[*subscriber]bool
	changes     int // of the tool list
}

func newServer(o Options, book *EventLog) *Server {
	return &Server{Options: o, events: book, subscribers: map[*subscriber]bool{}}
}

// sender sends messages to the client.
type sender interface{ send(message []byte) }

// subscriber is a client to be notified of changes.
type subscriber struct {
	sender sender
	tools  bool
	uris   map[string]bool
	id     json.RawMessage // a modern subscription's
}

func (f *Server) setSubscribed(w *subscriber, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.subscribers, w); on {
		f.subscribers[w] = true
	}
}

// notifySubscribers sends a notification to the selected subscribers.
func (f *Server) notifySubscribers(method, params string, wants func(*subscriber) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.subscribers {
		if !wants(w) {
			continue
		}
		p := params
		if w.id != nil {
			p = mcpwire.WithMember(p, fmt.Sprintf(`"_meta":{%q:%s}`, mcpwire.MetaSubscription, w.id))
		}
		w.sender.send(mcpwire.NewNotification(method, p))
	}
}

func (f *Server) touchResource(uri string) {
	f.notifySubscribers("notifications/resources/updated", `{"uri":`+mcpwire.Quote(uri)+`}`, func(w *subscriber) bool { return w.uris[uri] })
}

// changeTools changes the tool list and notifies subscribers.
func (f *Server) changeTools() {
	f.mu.Lock()
	f.changes++
	f.mu.Unlock()
	f.notifySubscribers("notifications/tools/list_changed", `{}`, func(w *subscriber) bool { return w.tools })
}

// changeToolsRepeatedly changes the tool list at a steady rate until ctx ends.
func (f *Server) changeToolsRepeatedly(ctx context.Context) {
	if f.ChangesPerSecond <= 0 {
		return
	}
	tick := time.NewTicker(time.Second / time.Duration(f.ChangesPerSecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.changeTools()
		case <-ctx.Done():
			return
		}
	}
}

func (f *Server) record(e Event) {
	e.Server = f.ServerID
	f.events.record(e)
}

func (f *Server) violation(format string, args ...any) {
	f.record(Event{What: Violated, Note: fmt.Sprintf(format, args...)})
}

// session is a client: the other end of a pipe, an Mcp-Session-Id, or one modern HTTP request.
type session struct {
	*Server
	subscriber *subscriber

	mu              sync.Mutex
	isInitialized   bool // initialize was answered
	isReady         bool // notifications/initialized was received
	usedIDs         map[string]bool
	inFlight        map[string]context.CancelCauseFunc
	pendingRequests map[string]chan mcpwire.Message // of this server to the client
	requestCount    int
}

func (f *Server) newSession(out sender) *session {
	return &session{
		Server: f, subscriber: &subscriber{sender: out, tools: true, uris: map[string]bool{}},
		usedIDs: map[string]bool{}, inFlight: map[string]context.CancelCauseFunc{}, pendingRequests: map[string]chan mcpwire.Message{},
	}
}

// closeSession cancels the session's requests.
func (s *session) closeSession() {
	s.setSubscribed(s.subscriber, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.inFlight {
		cancel(context.Canceled)
	}
}

// errCancelled is the cause when a client cancels a request by its id.
var errCancelled = errors.New("cancelled by the client")

// handleMessage handles the client's notifications and responses.
func (s *session) handleMessage(f mcpwire.Message) {
	switch {
	case f.IsResponse():
		s.mu.Lock()
		waiting := s.pendingRequests[string(f.ID)]
		delete(s.pendingRequests, string(f.ID))
		s.mu.Unlock()
		if waiting == nil {
			s.violation("a response to %s, which was not requested", f.ID)
			return
		}
		waiting <- f
	case f.Method == "notifications/initialized":
		s.mu.Lock()
		s.isReady = true
		s.mu.Unlock()
		s.setSubscribed(s.subscriber, true)
	case f.Method == "notifications/cancelled":
		id := string(f.ParseParams().RequestID)
		s.record(Event{What: Cancelled, ID: id})
		s.mu.Lock()
		cancel := s.inFlight[id]
		s.mu.Unlock()
		if cancel != nil {
			cancel(errCancelled)
		}
	default:
		s.record(Event{What: Called, Note: f.Method})
	}
}

// call is a request with its reply's sender.
type call struct {
	*session
	out sender
	id  json.RawMessage
	mcpwire.Params
}

// rpcError is an error response.
type rpcError struct {
	code int
	text string
}

func (r *rpcError) Error() string { return r.text }

// errNoReply: the request is not answered, or already is.
var errNoReply = errors.New("no answer")

// method returns the members of the result as JSON.
type method func(ctx context.Context, x *call) (string, error)

// serveRequest serves a request.
func (s *session) serveRequest(ctx context.Context, out sender, f mcpwire.Message) {
	x := &call{session: s, out: out, id: f.ID, Params: f.ParseParams()}
	ctx, done := s.trackRequest(ctx, f)
	defer done()
	if f.Method != "tools/call" {
		s.record(Event{What: Called, Note: f.Method, ID: string(f.ID)})
	}
	result, err := s.callMethod(ctx, x, f.Method)
	var no *rpcError
	switch {
	case ctx.Err() != nil || errors.Is(err, errNoReply):
	case errors.As(err, &no):
		out.send(mcpwire.NewError(f.ID, no.code, no.text))
	case err != nil:
		out.send(mcpwire.NewError(f.ID, -32603, err.Error()))
	default:
		out.send(s.newResult(f.ID, f.Method, result))
	}
}

func (s *session) callMethod(ctx context.Context, x *call, name string) (string, error) {
	if s.HangMethod == name {
		<-ctx.Done()
		return "", errNoReply
	}
	if err := s.checkRequest(x, name); err != nil {
		return "", err
	}
	do, ok := methodTable[name]
	if !ok {
		return "", &rpcError{-32601, "no such method"}
	}
	return do(ctx, x)
}

// trackRequest makes the request cancellable until it is done.
func (s *session) trackRequest(ctx context.Context, f mcpwire.Message) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	id := string(f.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usedIDs[id] {
		s.violation("request id %s was used before", id)
	}
	s.usedIDs[id], s.inFlight[id] = true, cancel
	return ctx, func() {
		s.mu.Lock()
		delete(s.inFlight, id)
		s.mu.Unlock()
		cancel(nil)
	}
}

// checkRequest rejects what the server's revision does not allow.
func (s *session) checkRequest(x *call, name string) error {
	s.mu.Lock()
	begun, ready := s.isInitialized, s.isReady
	s.mu.Unlock()
	switch {
	case s.Revision == mcpwire.Modern && name == "initialize":
		return &rpcError{-32022, "supported versions: " + string(mcpwire.Modern)}
	case s.Revision == mcpwire.Modern && (x.Meta.Version != string(mcpwire.Modern) || x.Meta.Capabilities == nil):
		s.violation("%s without the modern metadata", name)
		return &rpcError{-32602, "the metadata is incomplete"}
	case s.Revision == mcpwire.Modern, name == "ping":
		return nil
	case name == "server/discover" && s.IgnoreDiscover:
		return errNoReply
	case name == "server/discover":
		return &rpcError{-32601, "no such method"}
	case name == "initialize" && begun:
		s.violation("a second initialize")
	case name != "initialize" && !ready:
		s.violation("%s before notifications/initialized", name)
		return &rpcError{-32600, "not initialized"}
	}
	return nil
}

// cacheable methods have a TTL in their results.
var cacheable = map[string]bool{
	"server/discover": true, "tools/list": true, "prompts/list": true, "resources/list": true,
	"resources/templates/list": true, "resources/read": true,
}

// newResult encodes a response with the members that every result of the revision has.
func (s *session) newResult(id json.RawMessage, name, members string) []byte {
	object := "{" + members + "}"
	if s.Revision == mcpwire.Modern {
		if cacheable[name] {
			object = mcpwire.WithMember(object, `"ttlMs":60000,"cacheScope":"public"`)
		}
		if len(members) < 13 || members[:13] != `"resultType":` {
			object = mcpwire.WithMember(object, `"resultType":"complete"`)
		}
	}
	return mcpwire.NewResponse(id, object)
}

// recordStart records the start of this process.
func (f *Server) recordStart() {
	born, _ := process.StartTime(os.Getpid())
	f.record(Event{What: Started, PPID: os.Getppid(), Born: born, Note: f.Generation})
}
