package upstream

import (
	"context"
	"errors"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

// legacySupport says whether a modern server also accepts initialize, in a way that lets it send requests to
// its client. It is found out anew at each modern handshake.
type legacySupport uint8

const (
	legacyUnknown  legacySupport = iota // not tried yet
	legacyAccepted                      // it has answered initialize
	legacyRefused                       // it refused initialize, or keeps no sessions
)

// legacyDeclined is the failure of a modern server that does not accept initialize.
type legacyDeclined struct{ error }

func (d legacyDeclined) Unwrap() error { return d.error }

// legacyFailure is why the handshake of a legacy connection to a modern server failed. A server that answered
// with anything but a handshake does not speak that protocol; one that did not answer may have failed.
func legacyFailure(err error, crashed bool) error {
	if fault.KindOf(err) == fault.BadReply && !crashed {
		return legacyDeclined{err}
	}
	return fault.Wrap(fault.Unavailable, "the server did not start", err)
}

// isLegacyDeclined reports whether a failed handshake of a legacy connection means that the server does not
// speak that protocol. A server that never listed a legacy revision may refuse in any way.
func (s *Server) isLegacyDeclined(m *ManagedConn, err error) bool {
	if !m.key.legacy {
		return false
	}
	if _, is := errors.AsType[legacyDeclined](err); is {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.legacy != legacyAccepted && !s.listsLegacy
}

// refuseLegacy remembers that the server does not speak the legacy protocol, and removes the connection that
// tried.
func (s *Server) refuseLegacy(m *ManagedConn) {
	m.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.legacy = legacyRefused
	if s.conns[m.key] == m {
		delete(s.conns, m.key)
	}
}

func (s *Server) setLegacySupport(l legacySupport) {
	s.mu.Lock()
	s.legacy = l
	s.mu.Unlock()
}

// needsLegacy reports whether a client gets a legacy connection at a modern server: a client with a legacy
// session that can answer server requests; the lock is held. In the modern protocol a server may not send it
// requests, and many tools know no other way to ask. A child need not list its legacy revisions. Over HTTP
// only a server that lists them gets initialize: at any other, a request without the modern headers would be
// an error, and most of them keep no sessions.
func (s *Server) needsLegacy(caller Caller) bool {
	return (s.listsLegacy || !s.isRemote()) && !s.closed && s.shared != nil && !s.singleClient && s.entry.sharing() != shareAlways && s.entry.RPC == "" &&
		s.protocol == mcp.Modern && s.legacy != legacyRefused && caller.SessionID != "" && caller.Client.SupportsInput()
}

// acquireLegacy is the connection of a legacy session at a server that speaks both protocols; nil when the
// session uses the shared one. The first session that needs it finds out whether the server speaks the legacy
// protocol, while others wait.
func (s *Server) acquireLegacy(ctx context.Context, caller Caller) (*ManagedConn, func(), error) {
	noRelease := func() {}
	for {
		m, release, trial, err := s.legacyConn(caller)
		switch {
		case trial != nil:
			select {
			case <-trial.FirstAttemptDone():
			case <-trial.stopped:
			case <-ctx.Done():
				return nil, noRelease, wire.CallError(ctx, ctx.Err())
			}
			continue
		case m == nil || err != nil:
			return nil, noRelease, err
		}
		if _, err = m.AwaitConn(ctx); err == nil {
			return m, release, nil
		}
		release()
		s.mu.Lock()
		maySpeakLegacy := s.legacy == legacyAccepted || s.legacy == legacyUnknown && s.listsLegacy
		s.mu.Unlock()
		if ctx.Err() == nil && !maySpeakLegacy {
			return nil, noRelease, nil
		}
		return nil, noRelease, err
	}
}

// legacyConn finds or creates that connection, or returns as trial the one of another session that is finding
// out whether the server speaks the legacy protocol.
func (s *Server) legacyConn(caller Caller) (m *ManagedConn, release func(), trial *ManagedConn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.needsLegacy(caller) {
		return nil, nil, nil, nil
	}
	key := legacyKey(caller)
	if s.conns[key] == nil && s.legacy == legacyUnknown && s.legacyTrial != nil && !s.legacyTrial.hasAttempted() {
		return nil, nil, s.legacyTrial, nil
	}
	if m, err = s.clientConn(key, caller); err != nil {
		return nil, nil, nil, err
	}
	if s.legacy == legacyUnknown {
		s.legacyTrial = m
	}
	return m, m.acquire(), nil, nil
}

func legacyKey(caller Caller) connKey {
	return connKey{class: ClientClass(caller.Client), kind: perSession, owner: caller.SessionID, legacy: true}
}
