package legacy

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
)

// OpenStdio opens the session of a client on byte streams. Of many such clients each has a session in the table, in
// use until the client leaves; a single one gets everything that no call caused.
func (e *endpoint) OpenStdio(out hub.Sender, callerKey string) hub.StdioSession {
	name := "stdio"
	if callerKey != "" {
		name = rand.Text()
	}
	s := e.newSession(auth.LocalCaller(), mcp.Client{Capabilities: []byte("{}")}, "", name)
	s.isStdio, s.stdout, s.place.callerKey = true, out, callerKey
	if callerKey != "" { // a client that moves to another gateway may still be answering requests of this one
		s.lastRequestID = mathrand.IntN(1 << 40)
	}
	return s
}

// Join makes a request on byte streams one of the session's. The first request decides who the client is.
func (s *session) Join(req *hub.Request) error {
	isFirst := !s.clientKnown && !req.IsNotification() && req.Method != mcp.Ping
	if req.Method == mcp.Initialize {
		if !s.clientKnown {
			s.client = clientOf(req.Params)
		}
		s.muted.Store(false)
	}
	if isFirst {
		s.caller = req.Caller
		if err := s.setKnown(); err != nil {
			return err
		}
	}
	s.join(req)
	if req.Method == mcp.Initialize {
		req.Client = clientOf(req.Params) // it may have made modern requests before
	}
	req.Peer = s.callPeer(req, s.stdout)
	return nil
}

// SetModern notes that the client's first request is modern.
func (s *session) SetModern(req *hub.Request) error {
	s.client, s.caller = req.Client, req.Caller
	s.muted.Store(true)
	return s.setKnown()
}

// setKnown puts the session of a client that is known now where notifications find it.
func (s *session) setKnown() error {
	e := s.endpoint
	if s.place.callerKey == "" {
		s.clientKnown = true
		e.sessions.setSingle(s)
		return nil
	}
	client, err := hub.LimitClient(s.client)
	if err != nil {
		return err
	}
	s.client = client
	if _, err := e.addSession(s, s.place.callerKey); err != nil {
		return err
	}
	s.clientKnown = true
	return nil
}

// Attach sends messages that belong to no request on stdout.
func (s *session) Attach() { _ = s.attachStream(s.stdout) }

// EndRequests ends the requests of servers that wait for the client's reply.
func (s *session) EndRequests() { s.goneOnce.Do(func() { close(s.gone) }) }

// Close ends the session of a client that has left, and its connections to servers.
func (s *session) Close() {
	s.EndRequests()
	if s.place.callerKey != "" {
		s.endpoint.endSession(context.Background(), s)
	}
}
