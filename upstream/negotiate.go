package upstream

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/child"
	"github.com/ctxgate/ctxgate/internal/frame"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

// discoverTimeout is the longest to wait for the answer to server/discover, or for an SSE endpoint.
const discoverTimeout = 5 * time.Second

// handshakeOrder says which handshake a server gets first. A server that speaks both protocols is bound to
// the one that it answers.
type handshakeOrder uint8

const (
	modernFirst handshakeOrder = iota // server/discover, and initialize when that is refused
	legacyFirst                       // for a legacy client: initialize, and server/discover when that is refused
	legacyOnly                        // initialize
)

// handshakeOrder is the order to use on a connection.
func (s *Server) handshakeOrder(m *ManagedConn) handshakeOrder {
	if m.key.legacy {
		return legacyOnly
	}
	known := s.knownProtocol()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.singleClient && s.protocol == 0 && mcp.ProtocolOf(m.client.Version) == mcp.Legacy {
		if s.handshakeFailed { // it did not survive initialize
			return modernFirst
		}
		return legacyFirst
	}
	if known == mcp.Legacy {
		return legacyOnly
	}
	return modernFirst
}

// knownProtocol is the protocol to start with; 0 to find out. A server that failed at server/discover gets
// initialize the next time.
func (s *Server) knownProtocol() mcp.Protocol {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.protocol == 0 && s.handshakeFailed {
		return mcp.Legacy
	}
	return s.protocol
}

// connect opens one connection and performs the handshake.
func (s *Server) connect(ctx context.Context, m *ManagedConn) (*Conn, error) {
	if s.entry.Fault != "" {
		return nil, fault.New(fault.Unavailable, s.entry.Fault)
	}
	limit, setting := s.startLimit()
	if setting == installSetting {
		m.setStarting(&starting{began: time.Now(), waiting: true})
		release, err := s.deps.Installs.acquire(ctx, s.launcher.key)
		if err != nil {
			return nil, err
		}
		defer release()
		m.setStarting(&starting{began: time.Now()})
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := newConn(s.entry.ID, limits{parse: s.deps.ParseLimits, timeout: s.entry.responseTimeout(s.cfg), start: limit}, s.deps.Budget)
	c.owner = m.owner
	c.singleClient = !m.IsShared() && m.key.kind != perClass || s.isSingleClient()
	c.onEvent = m.handleEvent
	c.onRequest = s.noteServerRequest
	c.onCause = func(method string, isKnown, isUnclear bool) { m.noteCause(c, method, isKnown, isUnclear) }
	var err error
	switch {
	case len(s.entry.Command) > 0:
		err = s.connectStdio(ctx, c, m)
	case s.entry.RPC != "":
		err = s.connectPlain(ctx, c)
	case s.entry.Transport == "sse":
		err = s.connectSSE(ctx, c, m)
	default:
		err = s.connectStreamable(ctx, c, m)
	}
	if err != nil {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, err
		}
		return nil, fault.Wrap(fault.KindOf(err), "the server did not start in time", &startTimeoutError{setting, limit})
	}
	return c, nil
}

func (s *Server) wireOptions(c *Conn) wire.Options {
	return wire.Options{Server: s.entry.ID, Receiver: receiver{c}, Memory: c.memory, MaxReply: int64(s.cfg.MaxReplyBytes)}
}

func (s *Server) httpOptions() wire.HTTPOptions {
	return wire.HTTPOptions{URL: s.entry.URL.Reveal(), Headers: s.entry.httpHeaders(), Transport: s.deps.Transport, OAuth: s.oauthServer()}
}

func (e ServerConfig) httpHeaders() http.Header {
	headers := http.Header{}
	for name, value := range e.Headers {
		headers.Set(name, value.Reveal())
	}
	return headers
}

// connectStdio starts the child process and performs the handshake.
func (s *Server) connectStdio(ctx context.Context, c *Conn, m *ManagedConn) error {
	w, err := wire.StartStdio(s.wireOptions(c), wire.ChildOptions{
		Command:  s.entry.Command,
		Dir:      s.entry.Cwd,
		Env:      child.Environment(s.deps.Env, revealAll(s.entry.Env)),
		Grace:    s.entry.ShutdownGrace.D(),
		Framing:  s.firstFraming(),
		OnStderr: m.noteStderr,
	})
	if err != nil {
		c.memory.Release() // the connection never had a wire to end
		return err
	}
	c.wire = w
	c.asksByCause = s.asksByCause(m)
	go w.Read()
	if err := c.negotiateStdio(ctx, s.handshakeOrder(m), m.client, func() mcp.Client { return s.declareClient(m, c) }); err != nil {
		crashed := c.Err() != nil
		c.end(err)
		c.Close()
		if m.key.legacy {
			return legacyFailure(err, crashed)
		}
		if !errors.Is(ctx.Err(), context.Canceled) { // a connection that is no longer wanted says nothing about the server
			framing, hasSpoken := w.Framing()
			s.noteHandshakeFailure(framing, hasSpoken, crashed)
		}
		return fault.Wrap(fault.Unavailable, "the server did not start", err)
	}
	s.noteFraming(w.Framing())
	return nil
}

// negotiateStdio performs the handshake with a child, within the time that a start may take. In the legacy one it declares
// the capabilities of another client: in the modern one each call has those of its own.
func (c *Conn) negotiateStdio(ctx context.Context, order handshakeOrder, client mcp.Client, legacyClient func() mcp.Client) error {
	var refused error
	if order != modernFirst {
		refused = c.initialize(ctx, legacyClient())
		if refused == nil || order == legacyOnly || fault.KindOf(refused) != fault.BadReply || c.Err() != nil {
			return refused
		}
	}
	discoverCtx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	isModern, err := c.discover(discoverCtx, client)
	switch {
	case isModern || err != nil:
		return err
	case refused != nil:
		return refused
	}
	wasSilent := discoverCtx.Err() != nil
	refused = c.initialize(ctx, legacyClient())
	if wasSilent && fault.KindOf(refused) == fault.BadReply && c.Err() == nil {
		// It may be a modern server that was still being installed when it was asked.
		if isModern, err := c.discover(ctx, client); isModern || err != nil {
			return err
		}
	}
	return refused
}

// firstFraming is the framing for a child that has not sent a message yet.
func (s *Server) firstFraming() frame.Framing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.framing
}

// noteFraming remembers the framing of a child that has sent a message: the next start begins with it.
func (s *Server) noteFraming(f frame.Framing, hasSpoken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if hasSpoken {
		s.framing = f
	}
}

// noteHandshakeFailure decides how the next start of a child differs. If the child may have failed at
// server/discover, it gets initialize. If it then lives and never sends a message, it may wait for the other
// framing.
func (s *Server) noteHandshakeFailure(f frame.Framing, hasSpoken, crashed bool) {
	s.noteFraming(f, hasSpoken)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.protocol != 0 { // it may have become another server
		s.protocol = 0
		return
	}
	if !hasSpoken && s.handshakeFailed && !crashed {
		s.framing = frame.ContentLength - s.framing
	}
	s.handshakeFailed = !s.handshakeFailed
}

// connectStreamable performs the handshake over Streamable HTTP. A server that refuses it as an HTTP+SSE
// server does is tried over HTTP+SSE (Backward Compatibility).
func (s *Server) connectStreamable(ctx context.Context, c *Conn, m *ManagedConn) error {
	w := wire.NewStreamableHTTP(s.wireOptions(c), s.httpOptions(), &s.toolHeaders)
	c.wire = w
	err := c.negotiateHTTP(ctx, w, s.handshakeOrder(m), m.client)
	if err == nil && m.key.legacy && !w.HasSession() { // without a session, it cannot send requests to its client
		err = legacyDeclined{fault.New(fault.BadReply, "the server keeps no legacy sessions")}
	}
	if err == nil {
		return nil
	}
	if m.key.legacy {
		c.end(err)
		return legacyFailure(err, false)
	}
	if w.RefusedLikeSSE() && c.Err() == nil {
		w.Close()
		if s.connectSSE(ctx, c, m) == nil {
			s.mu.Lock()
			s.speaksSSE = true
			s.mu.Unlock()
			slog.Info("server speaks only HTTP+SSE; set transport = \"sse\" to connect faster", "server", s.entry.ID)
			return nil
		}
	}
	c.end(err)
	if fault.KindOf(err) == fault.BadReply {
		s.forgetProtocol()
	}
	return err
}

// negotiateHTTP performs the handshake over Streamable HTTP. Unless the server is known to be a legacy one,
// server/discover is sent each time: the server may have been upgraded. For a legacy client, a server that
// lists both protocols then gets initialize.
func (c *Conn) negotiateHTTP(ctx context.Context, w *wire.StreamableHTTP, order handshakeOrder, client mcp.Client) error {
	if order != legacyOnly {
		w.UseModern()
		discoverCtx, cancel := context.WithTimeout(ctx, discoverTimeout)
		defer cancel()
		isModern, err := c.discover(discoverCtx, client)
		if isModern && order == legacyFirst && c.handshake.listsLegacy && c.downgradeHTTP(ctx, w, client) {
			return nil
		}
		if isModern && err == nil {
			w.SetNegotiated()
		}
		if isModern || err != nil {
			return err
		}
	}
	w.UseLegacy()
	if err := c.initialize(ctx, client); err != nil {
		return err
	}
	w.OpenEventStream(ctx)
	return nil
}

// downgradeHTTP starts a legacy session at a server that has answered server/discover. If that fails or gives
// no session, the connection stays modern.
func (c *Conn) downgradeHTTP(ctx context.Context, w *wire.StreamableHTTP, client mcp.Client) bool {
	modern := c.handshake
	initCtx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	w.UseLegacy()
	if err := c.initialize(initCtx, client); err == nil && w.HasSession() {
		w.OpenEventStream(ctx)
		return true
	}
	c.handshake = modern
	w.UseModern()
	return false
}

// connectSSE opens the event stream of HTTP+SSE and performs the legacy handshake.
func (s *Server) connectSSE(ctx context.Context, c *Conn, m *ManagedConn) error {
	w := wire.NewSSE(s.wireOptions(c), s.httpOptions())
	c.wire = w
	err := w.Open(ctx, discoverTimeout)
	if err == nil {
		err = c.initialize(ctx, m.client)
	}
	if err != nil {
		c.end(err)
	}
	return err
}

// connectPlain performs the legacy handshake with a plain JSON-RPC server. One that answers, but does not know
// initialize, is connected all the same, and is taken to have tools.
func (s *Server) connectPlain(ctx context.Context, c *Conn) error {
	w := wire.NewPlainRPC(s.wireOptions(c), NewRPCClient(s.entry, s.cfg, s.deps.Transport))
	c.wire = w
	err := c.initialize(ctx, mcp.Client{})
	if fault.KindOf(err) == fault.BadReply && w.AnsweredInitialize() {
		slog.Debug("server does not know initialize", "server", s.entry.ID, "error", err)
		c.handshake = Handshake{Protocol: mcp.Legacy, Version: mcp.V20251125, noHandshake: true}
		err = nil
	}
	if err != nil {
		c.end(err)
	}
	return err
}

// NewRPCClient returns a client for a server with an rpc URL. The entry is valid and its secrets are resolved.
func NewRPCClient(entry ServerConfig, cfg Config, transport http.RoundTripper) *wire.RPCClient {
	return wire.NewRPCClient(entry.RPC.Reveal(), entry.httpHeaders(), transport, entry.responseTimeout(cfg), int64(cfg.MaxReplyBytes))
}

func revealAll(m map[string]secret.Text) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v.Reveal()
	}
	return out
}
