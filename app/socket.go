package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ctxgate/ctxgate/daemon"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
)

const (
	// socketCheckInterval is how often a gateway looks whether it is idle, its executable has changed, or its socket is gone.
	socketCheckInterval = 2 * time.Second

	// warmupTimeout is how long a gateway that takes over waits for its servers before it does.
	warmupTimeout = 20 * time.Second

	// maxReplaceRetry is the longest pause between attempts to start the new version of a changed executable.
	maxReplaceRetry = 10 * time.Minute
)

// Socket is the gateway's part of [daemon]: its socket, and its life in the background.
type Socket struct {
	Program    daemon.Program     // starts a gateway like this one, and says where the socket is
	Background bool               // it was started by a client: it takes a free port where its own is in use, and ends when nobody uses it
	StartedBy  string             // the client that started it
	Executable *daemon.Executable // a change of which replaces a gateway in the background
	Handover   *daemon.Handover   // from the gateway that this one replaces; nil for none
	Ready      func()             // called when everything is served

	activity activity
}

// activity is the HTTP requests of clients, which keep a gateway in the background alive.
type activity struct {
	inFlight atomic.Int64
	last     atomic.Int64 // when the last one began or ended, in nanoseconds
}

// count wraps a handler: a gateway in the background does not end while it serves requests.
func (v *activity) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v.inFlight.Add(1)
		defer func() {
			v.last.Store(time.Now().UnixNano())
			v.inFlight.Add(-1)
		}()
		next.ServeHTTP(w, r)
	})
}

// openListener opens an address, or takes it over from the gateway that this one replaces. A gateway in the background
// takes a free port where its own is in use.
func (a *App) openListener(ctx context.Context, name, address string, h http.Handler) (*front.Listener, error) {
	s := a.opts.Socket
	if s == nil {
		return front.Listen(ctx, address, a.cfg.Front.HTTP, a.budget, h)
	}
	h = a.countActivity(name, h)
	var inherited net.Listener
	if s.Handover != nil {
		inherited = s.Handover.Listeners[name]
		delete(s.Handover.Listeners, name)
	}
	if inherited != nil && isAddressOf(inherited, address) {
		return front.NewListener(inherited, a.cfg.Front.HTTP, a.budget, h), nil
	}
	l, err := front.Listen(ctx, address, a.cfg.Front.HTTP, a.budget, h)
	inUse := errors.Is(err, syscall.EADDRINUSE)
	switch {
	case inUse && inherited != nil: // the other gateway found it in use too
		return front.NewListener(inherited, a.cfg.Front.HTTP, a.budget, h), nil
	case inherited != nil:
		_ = inherited.Close()
	case inUse && s.Background:
		host, _, _ := net.SplitHostPort(address)
		slog.WarnContext(ctx, "the address is in use, so another port is opened: 'ctxgate status' says which", "listener", name, "address", address)
		return front.Listen(ctx, net.JoinHostPort(host, "0"), a.cfg.Front.HTTP, a.budget, h)
	}
	return l, err
}

// countActivity counts the requests of a listener for clients; the operator's do not keep a gateway alive.
func (a *App) countActivity(name string, h http.Handler) http.Handler {
	if name == "admin" {
		return h
	}
	return a.opts.Socket.activity.count(h)
}

// isAddressOf reports whether a listener that was handed over has the configured address.
func isAddressOf(l net.Listener, address string) bool {
	host, port, err := net.SplitHostPort(address)
	tcp, ok := l.Addr().(*net.TCPAddr)
	if err != nil || !ok || port != "0" && port != strconv.Itoa(tcp.Port) {
		return false
	}
	want, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, "0"))
	return err == nil && (want.IP.Equal(tcp.IP) || len(want.IP) == 0 && tcp.IP.IsUnspecified())
}

// openSocket opens the socket, by which `ctxgate stdio` and the operator reach the gateway. A gateway that takes over
// waits for its servers first.
func (a *App) openSocket(ctx context.Context) error {
	s := a.opts.Socket
	if s == nil {
		return nil
	}
	if s.Handover != nil {
		warm, cancel := context.WithTimeout(ctx, warmupTimeout)
		a.hub.AwaitServers(warm)
		cancel()
	}
	mux := a.newAdminMux()
	mux.HandleFunc("POST /api/v1/stop", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		a.end(daemon.ErrStopped)
	})
	started := time.Now()
	s.activity.last.Store(started.UnixNano())
	server, err := daemon.NewServer(daemon.ServerOptions{
		Endpoint:   s.Program.Endpoint,
		Info:       func() daemon.Gateway { return a.describe(started) },
		CheckToken: a.checkHelloToken,
		ServeMCP: func(ctx context.Context, c *daemon.Conn, h daemon.Hello, drain func() ([]byte, time.Duration)) error {
			slog.Info("a client connected", "client", h.Client, "pid", h.PID)
			defer slog.Info("a client left", "client", h.Client, "pid", h.PID)
			return a.hub.ServeStdio(ctx, c, writeSide{c}, hub.StdioOptions{Client: h.Client, Token: h.Token, Drain: drain})
		},
		HTTP:       mux,
		Listeners:  a.openListeners,
		End:        func(cause error) { a.end(cause) },
		DrainGrace: func() time.Duration { return a.httpLimits().DrainGrace.D() },
	})
	if err != nil {
		return err
	}
	a.socket = server
	a.onRelease(func() error { server.Close(nil); return nil })
	slog.InfoContext(ctx, "listening", "listener", "socket", "path", s.Program.Endpoint.Socket())
	return nil
}

// writeSide closes only the side of a connection that is written.
type writeSide struct{ *daemon.Conn }

// Close says that no message follows.
func (w writeSide) Close() error { return w.CloseWrite() }

func (a *App) checkHelloToken(token string) error {
	a.mu.Lock()
	g := a.gate
	a.mu.Unlock()
	if isWrongToken(g.Authenticator, token) {
		return errors.New("the token in the variable CTXGATE_TOKEN or AUTH_TOKEN is not the auth_token of the configuration: correct it, or unset it and send the token with each request")
	}
	return nil
}

// describe says what the gateway is, to whoever connects.
func (a *App) describe(started time.Time) daemon.Gateway {
	s := a.opts.Socket
	a.mu.Lock()
	profile := a.cfg.Profile
	a.mu.Unlock()
	g := daemon.Gateway{
		Version: a.opts.Version, PID: os.Getpid(), Config: s.Program.Endpoint.Config, Profile: profile, Started: started, Background: s.Background,
		StartedBy: s.StartedBy, MaxMessage: int64(a.httpLimits().MaxRequestBytes),
	}
	if s.Background {
		g.Log = s.Program.Endpoint.Log
	}
	for name, l := range a.openListeners() {
		switch address := l.Addr().String(); name {
		case "main":
			g.Listen = address
		case "admin":
			g.Admin = address
		case "pruner":
			g.Pruner = address
		}
	}
	return g
}

// openListeners are the listeners of the gateway, by name.
func (a *App) openListeners() map[string]net.Listener {
	all := map[string]net.Listener{}
	for i, l := range a.listeners {
		all[a.listenerNames[i]] = l.Listener
	}
	return all
}

// MainAddress is the address of the main listener; "" without one.
func (a *App) MainAddress() string {
	if l, ok := a.openListeners()["main"]; ok {
		return l.Addr().String()
	}
	return ""
}

// AdminHandler serves the operator's API to this process.
func (a *App) AdminHandler() http.Handler { return a.newAdminMux() }

// Clients are the clients that are connected by `ctxgate stdio`.
func (a *App) Clients() []daemon.Client {
	if a.socket == nil {
		return nil
	}
	return a.socket.Clients()
}

// serveSocket serves the socket until ctx ends, and ends the gateway when nobody uses it or another one has its place.
func (a *App) serveSocket(ctx context.Context) {
	s := a.opts.Socket
	go func() {
		if err := a.socket.Serve(); err != nil {
			slog.Error("the socket is not served any more: new clients start another gateway", "error", err)
		}
	}()
	if s.Handover != nil {
		if err := s.Handover.Finish(); err != nil {
			slog.Warn("the other gateway may go on beside this one", "pid", s.Handover.Old.PID, "error", err)
		}
	}
	if s.Ready != nil {
		s.Ready()
	}
	go a.watchSocket(ctx)
}

func (a *App) watchSocket(ctx context.Context) {
	s := a.opts.Socket
	idle := a.cfg.Background.IdleTimeout.D()
	interval := socketCheckInterval
	if idle > 0 {
		interval = min(interval, max(idle/4, 50*time.Millisecond))
	}
	t := time.NewTicker(interval)
	defer t.Stop()
	retry, pause := time.Time{}, 10*time.Second
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if len(a.socket.Clients()) > 0 || s.activity.inFlight.Load() > 0 {
			s.activity.last.Store(time.Now().UnixNano())
		}
		if !a.socket.CheckSocket() {
			if s.Background {
				a.end(daemon.ErrReplaced)
				return
			}
			slog.Warn("another gateway has the socket of this config file: clients of 'ctxgate stdio' use that one")
			return
		}
		if !s.Background {
			continue
		}
		if idle > 0 && time.Since(time.Unix(0, s.activity.last.Load())) > idle {
			a.end(daemon.ErrIdle)
			return
		}
		if s.Executable != nil && time.Now().After(retry) && s.Executable.HasChanged() {
			// The other one ends this gateway, and must not be ended with it.
			slog.Info("the executable has changed: another gateway takes over", "path", s.Executable.Path)
			if err := s.Program.Replace(context.WithoutCancel(ctx), s.StartedBy, func(g daemon.Gateway) bool { return g.PID == os.Getpid() }); err != nil && ctx.Err() == nil {
				slog.Error("the changed executable did not start; this gateway goes on", "error", err)
				retry, pause = time.Now().Add(pause), min(2*pause, maxReplaceRetry)
			}
		}
	}
}

// drainAll lets the calls in flight finish, on the socket and on the listeners. When another gateway has taken over,
// nobody waits for this one, and calls may take as long as their own timeouts allow.
func (a *App) drainAll(cause error) error {
	replaced := errors.Is(cause, daemon.ErrReplaced)
	for _, l := range a.listeners {
		if replaced {
			l.SetDrainGrace(daemon.ReplaceGrace)
			l.StopAccepting()
		}
	}
	if !replaced {
		a.hub.EndStreams() // they would not end by themselves within the grace period
	}
	var wg sync.WaitGroup
	wg.Go(func() { a.socket.Close(cause) })
	errs := make([]error, len(a.listeners))
	if replaced { // streams over HTTP stay open while clients on the socket may be asked something
		wg.Wait()
		a.hub.EndStreams()
	}
	for i, l := range a.listeners {
		wg.Go(func() { errs[i] = l.Drain() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
