package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

const (
	sessionEndTimeout = 2 * time.Second // for the last cancellations and the DELETE of a session
	eventStreamWait   = time.Second     // how long the handshake waits for the server's own event stream
)

// StreamableHTTP is the wire of Streamable HTTP, in all its revisions: every message is a POST, and the
// response to a request is its reply or an event stream that leads to it.
type StreamableHTTP struct {
	endpoint
	toolHeaders *ToolHeaders
	ctx         context.Context // the wire's lifetime
	cancelAll   context.CancelFunc

	negotiated     atomic.Bool
	refusedLikeSSE atomic.Bool  // initialize was refused as a server of HTTP+SSE refuses it
	sessionGone    atomic.Bool  // the server has forgotten the session
	cancellations  atomic.Int64 // that are being sent

	mu    sync.Mutex
	proto protocolState
}

// protocolState is what the headers of every request say.
type protocolState struct {
	modern  bool
	version string // "" until a legacy server has answered initialize
	session string // of a legacy server that gave one
}

// NewStreamableHTTP returns a wire that has sent nothing. UseModern or UseLegacy comes first.
func NewStreamableHTTP(o Options, h HTTPOptions, tools *ToolHeaders) *StreamableHTTP {
	s := &StreamableHTTP{endpoint: newEndpoint(o, h), toolHeaders: tools}
	s.ctx, s.cancelAll = context.WithCancel(context.Background())
	return s
}

// UseModern makes the following requests modern ones.
func (s *StreamableHTTP) UseModern() {
	s.setProtocol(protocolState{modern: true, version: mcp.V20260728})
}

// UseLegacy makes the following requests legacy ones, without a session until initialize gives one.
func (s *StreamableHTTP) UseLegacy() { s.setProtocol(protocolState{}) }

// HasSession reports whether the server gave a session in its reply to initialize.
func (s *StreamableHTTP) HasSession() bool { return s.protocol().session != "" }

// RefusedLikeSSE reports whether the server refused initialize as one does that speaks only HTTP+SSE.
func (s *StreamableHTTP) RefusedLikeSSE() bool { return s.refusedLikeSSE.Load() }

// SetNegotiated notes that the handshake is over: an unreachable server does not end the connection then.
func (s *StreamableHTTP) SetNegotiated() { s.negotiated.Store(true) }

// OpenEventStream opens the stream for messages that belong to no request, after a legacy handshake. A
// server may use it as soon as it is called, so the stream is open first.
func (s *StreamableHTTP) OpenEventStream(ctx context.Context) {
	s.SetNegotiated()
	answered := make(chan struct{})
	go s.readServerEvents(sync.OnceFunc(func() { close(answered) }))
	select {
	case <-answered:
	case <-time.After(eventStreamWait):
	case <-ctx.Done():
	}
}

func (s *StreamableHTTP) setProtocol(p protocolState) {
	s.mu.Lock()
	s.proto = p
	s.mu.Unlock()
}

func (s *StreamableHTTP) protocol() protocolState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proto
}

// requestHeaders are the headers of a POST; req is nil for a message that starts no request.
func (s *StreamableHTTP) requestHeaders(p protocolState, req Request) http.Header {
	header := s.headers.Clone()
	p.setHeaders(header)
	if p.modern && req != nil {
		s.toolHeaders.set(header, req)
	}
	return header
}

func (p protocolState) setHeaders(header http.Header) {
	if p.version != "" {
		header.Set(mcp.HeaderVersion, p.version)
	}
	if p.session != "" {
		header.Set(mcp.HeaderSession, p.session)
	}
}

// Send starts the POST of a request and does not wait for its reply. Any other message is sent when Send
// returns.
func (s *StreamableHTTP) Send(req Request, msg []byte) error {
	if req == nil {
		ctx, cancel := context.WithTimeout(s.ctx, oneWayTimeout)
		defer cancel()
		return s.sendOneWay(ctx, msg)
	}
	ctx, cancel := requestContext(s.ctx, req)
	go func() {
		defer s.recoverPanic(req)
		defer cancel()
		x := &exchange{StreamableHTTP: s, req: req, msg: msg, endRead: cancel}
		if err := x.perform(ctx); err != nil {
			req.Fail(err)
		}
	}()
	return nil
}

// sendOneWay sends a message that has no reply.
func (s *StreamableHTTP) sendOneWay(ctx context.Context, msg []byte) error {
	p := s.protocol()
	header := s.requestHeaders(p, nil)
	if fields, err := jsonscan.FieldsOf(msg); err == nil && p.modern {
		header.Set(mcp.HeaderMethod, fields.Text("method")) // a modern client sends no replies, so there is one
	}
	resp, err := s.post(ctx, s.url, msg, header)
	if err != nil {
		return CallError(ctx, err)
	}
	defer resp.Body.Close()
	if isOK(resp) {
		if !isEventStream(resp) {
			drain(resp.Body)
		}
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, drainBytes))
	refused := newStatusError(resp, body)
	if s.noteForgotten(p, refused, false) {
		return sessionForgotten()
	}
	return refused.callError()
}

// Cancel sends a cancellation to a legacy server, even if the connection is about to end: a tool may wait
// for nothing else. To a modern server, the end of the POST is the cancellation.
func (s *StreamableHTTP) Cancel(req Request, reason string) {
	if s.protocol().modern || req.Method() == mcp.Initialize {
		return
	}
	s.cancellations.Add(1)
	go func() {
		defer s.cancellations.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), sessionEndTimeout)
		defer cancel()
		if err := s.sendOneWay(ctx, cancelNotification(req.ID(), reason)); err != nil {
			slog.Debug("cancellation not delivered", "server", s.Server, "error", err)
		}
	}()
}

// Close ends everything that is in flight, and then the session.
func (s *StreamableHTTP) Close() {
	s.cancelAll()
	p := s.protocol()
	if p.session == "" || s.sessionGone.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sessionEndTimeout)
	defer cancel()
	for s.cancellations.Load() > 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	resp, err := s.do(ctx, http.MethodDelete, s.url, nil, s.requestHeaders(p, nil))
	if err != nil {
		slog.Debug("session not deleted", "server", s.Server, "error", err)
		return
	}
	drain(resp.Body)
	resp.Body.Close()
}

// exchange is the HTTP exchange of one request.
type exchange struct {
	*StreamableHTTP
	req            Request
	msg            []byte
	endRead        context.CancelFunc // frees the connection before the reply is delivered
	headersRetried bool               // it was sent again because its headers were refused
}

// perform sends the POST and delivers the response. An error is the request's failure; nil means that it
// has its reply.
func (x *exchange) perform(ctx context.Context) error {
	p := x.protocol()
	resp, err := x.post(ctx, x.url, x.msg, x.requestHeaders(p, x.req))
	if err != nil {
		return x.unreachable(CallError(ctx, err))
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode/100 == 3:
		return newStatusError(resp, nil).callError()
	case isOK(resp) && isEventStream(resp):
		x.noteSession(resp)
		return x.followEvents(ctx, resp.Body, p)
	}
	body, err := readReply(ctx, resp, x.MaxReply, x.req.Memory())
	if err != nil {
		return err
	}
	if !isOK(resp) {
		return x.handleRefusal(ctx, p, newStatusError(resp, body))
	}
	x.noteSession(resp)
	x.endRead()
	x.deliver(body, x.req)
	if !x.req.IsFinished() {
		return newStatusError(resp, body).callError()
	}
	return nil
}

// unreachable returns the failure of a request that did not reach the server. During the handshake it also
// ends the connection: a server that did not answer server/discover has not shown that it is a legacy one.
func (x *exchange) unreachable(err error) error {
	if x.req.Method() == mcp.ServerDiscover && !x.negotiated.Load() && fault.KindOf(err) != fault.Canceled {
		x.Receiver.End(err)
	}
	return err
}

// noteSession stores the session that came with the reply to initialize.
func (x *exchange) noteSession(resp *http.Response) {
	if x.req.Method() != mcp.Initialize {
		return
	}
	x.mu.Lock()
	x.proto.session = resp.Header.Get(mcp.HeaderSession)
	x.mu.Unlock()
}

// followEvents reads the request's event stream up to the reply. A legacy stream that breaks off is
// resumed if its events have ids.
func (x *exchange) followEvents(ctx context.Context, body io.ReadCloser, p protocolState) error {
	var pos streamPosition
	for {
		err := x.readEvents(body, x.req, &pos)
		switch {
		case x.req.IsFinished():
			return nil
		case errors.Is(err, sse.ErrTooLarge):
			return tooLarge(err)
		case fault.KindOf(err) == fault.Full:
			return err
		case p.modern || pos.lastEventID == "":
			return fault.Wrap(fault.Unavailable, "the server went away during the call", err)
		}
		if body, err = x.resumeEvents(ctx, &pos); err != nil {
			return err
		}
	}
}

// deliver hands over what came: one message, or a batch as servers of 2025-03-26 may send. req is nil on
// the stream that all requests share.
func (s *StreamableHTTP) deliver(body []byte, req Request) {
	if body = bytes.TrimLeft(body, " \t\r\n"); len(body) == 0 {
		return
	}
	if body[0] != '[' {
		s.deliverOne(body, req)
		return
	}
	err := jsonscan.EachElement(body, jsonscan.Span{End: len(body)}, func(at jsonscan.Span) error {
		s.deliverOne(at.Of(body), req)
		return nil
	})
	switch {
	case err != nil && req != nil:
		req.Malformed("a server sent something that is not a message", err)
	case err != nil:
		s.Receiver.Malformed("a server sent something that is not a message", err)
	}
}

// deliverOne hands over one message, after it noted what a reply means for the requests to come: the
// negotiated revision, and which tool arguments are sent as headers.
func (s *StreamableHTTP) deliverOne(msg []byte, req Request) {
	if req == nil {
		s.Receiver.Receive(msg, 0)
		return
	}
	switch {
	case req.Method() == mcp.Initialize:
		if result, ok := resultFields(msg); ok {
			s.mu.Lock()
			s.proto.version = result.Text("protocolVersion")
			s.mu.Unlock()
		}
	case req.Method() == mcp.ToolsList && s.protocol().modern:
		s.toolHeaders.learn(msg)
	}
	req.Deliver(msg)
}

// resultFields are the members of a reply's result.
func resultFields(body []byte) (jsonscan.Fields, bool) {
	fields, err := jsonscan.FieldsOf(body)
	if err != nil {
		return jsonscan.Fields{}, false
	}
	result, ok := fields.Field("result")
	if !ok {
		return jsonscan.Fields{}, false
	}
	members, err := jsonscan.ReadFields(body, result.Value)
	return members, err == nil
}
