// Package front opens the listeners and runs the middleware that every HTTP request passes. It does not
// know what is served: app mounts the endpoints.
//
// Path through the files: front.go has the configuration, the listeners and their shutdown, chain.go
// lists the middleware in order, guard.go protects against web pages, body.go reads request bodies
// within the memory budget, health.go answers health checks and swaps handlers on reload.
//
// When a middleware rejects a request, it calls the ErrorHandler that app passed, so that every error is
// written in the client's protocol. A panic ends only the request it happened in.
package front

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// Config is the main listener and the HTTP limits.
type Config struct {
	// The address of the main listener. Default "127.0.0.1:8000"; empty means none.
	Listen string `key:"listen" reload:"restart"`

	// The URL at which browsers reach the main listener, if it is not the listener's address:
	// authorization servers redirect them to <public_url>/oauth/callback. Default empty: http:// and
	// the listener's address.
	PublicURL string `key:"public_url" reload:"restart"`

	// Serve everybody, although the main listener is not on a loopback address and no credential is required: neither
	// auth_token nor any other is configured. Where one is, a request without it is refused whatever this says.
	// Default false: such a gateway does not start. The variable CTXGATE_ANONYMOUS=1 sets it too.
	Anonymous bool `key:"anonymous"`

	// Limits for every listener.
	HTTP HTTP `key:"http"`
}

// HTTP holds the limits of a listener.
type HTTP struct {
	// The host names that requests to any listener may use (the Host header), with or without a port;
	// loopback names and the listener's own address always work. Default none: a listener on a loopback
	// address accepts only those, which stops web pages that point their own name at this machine (DNS
	// rebinding); a listener beyond loopback accepts any name, but no web pages under it.
	AllowedHosts []string `key:"allowed_hosts"`

	// The origins of web pages, such as "https://app.example.com", that may use every listener and read the
	// replies (CORS). Default none: a request whose Origin is not its Host is rejected unless its
	// Content-Type is application/json, which browsers send to other origins only after a preflight.
	AllowedOrigins []string `key:"allowed_origins"`

	// The largest request body; a size. Default 64MiB. Must be positive.
	MaxRequestBytes unit.Bytes `key:"max_request_bytes"`

	// The largest request line and headers together; a size. Default 64KiB. Must be positive.
	MaxHeaderBytes unit.Bytes `key:"max_header_bytes" reload:"restart"`

	// How long the request line and headers may take to arrive; a duration. Default 10s. Must be positive.
	HeaderTimeout unit.Duration `key:"header_timeout" reload:"restart"`

	// How long a request body may take to arrive, and a client to read a reply; a duration. A second is
	// added for each MiB. Default 60s. Must be positive.
	BodyTimeout unit.Duration `key:"body_timeout"`

	// How long an idle connection stays open; a duration. Default 2m.
	IdleTimeout unit.Duration `key:"idle_timeout" reload:"restart"`

	// How long to keep serving at shutdown after /readyz reports draining, so that load balancers notice;
	// a duration. Default 0.
	DrainDelay unit.Duration `key:"drain_delay"`

	// How long calls in flight may take to finish at shutdown; a duration. Default 15s.
	DrainGrace unit.Duration `key:"drain_grace"`
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Listen: "127.0.0.1:8000",
		HTTP: HTTP{
			MaxRequestBytes: 64 << 20,
			MaxHeaderBytes:  64 << 10,
			HeaderTimeout:   unit.Duration(10 * time.Second),
			BodyTimeout:     unit.Duration(60 * time.Second),
			IdleTimeout:     unit.Duration(2 * time.Minute),
			DrainGrace:      unit.Duration(15 * time.Second),
		},
	}
}

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	if c.Listen != "" {
		if err := CheckAddress(c.Listen); err != nil {
			problems = append(problems, fmt.Errorf("listen: %w", err))
		}
	}
	if u, err := url.Parse(c.PublicURL); c.PublicURL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "") {
		problems = append(problems, fmt.Errorf("public_url: %q is not a URL such as https://gateway.example.com", c.PublicURL))
	}
	for _, limit := range []struct {
		key   string
		value int64
	}{
		{"max_request_bytes", int64(c.HTTP.MaxRequestBytes)},
		{"max_header_bytes", int64(c.HTTP.MaxHeaderBytes)},
		{"header_timeout", int64(c.HTTP.HeaderTimeout)},
		{"body_timeout", int64(c.HTTP.BodyTimeout)},
	} {
		if limit.value <= 0 {
			problems = append(problems, fmt.Errorf("http.%s: must be positive", limit.key))
		}
	}
	for i, host := range c.HTTP.AllowedHosts {
		if err := validateHost(host); err != nil {
			problems = append(problems, fmt.Errorf("http.allowed_hosts[%d]: %w", i, err))
		}
	}
	for i, origin := range c.HTTP.AllowedOrigins {
		if err := validateOrigin(origin); err != nil {
			problems = append(problems, fmt.Errorf("http.allowed_origins[%d]: %w", i, err))
		}
	}
	return problems
}

// CheckExposed rejects a main listener that everybody in the network can use without a credential,
// unless the operator allows it explicitly.
func (c Config) CheckExposed(authenticated bool) error {
	isAddress := CheckAddress(c.Listen) == nil // Validate reports other texts
	if !isAddress || IsLoopbackAddress(c.Listen) || authenticated || c.Anonymous {
		return nil
	}
	return errors.New("listen: " + c.Listen + " is not a loopback address and auth_token is not set, so everybody who can reach it " +
		"could use every server, and every provider with its configured key: set auth_token, or anonymous = true (CTXGATE_ANONYMOUS=1) to allow that")
}

// CheckAddress rejects texts that are not host:port.
func CheckAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("%q is not an address such as 127.0.0.1:8000", s)
	}
	return nil
}

// Listener is one open address and its HTTP server.
type Listener struct {
	net.Listener
	server *http.Server
	grace  atomic.Int64 // a time.Duration
}

// SetDrainGrace sets how long Drain lets calls finish.
func (l *Listener) SetDrainGrace(d time.Duration) { l.grace.Store(int64(d)) }

// Listen opens an address. Serve accepts connections; each is charged to the memory budget.
func Listen(ctx context.Context, address string, cfg HTTP, budget *membudget.Budget, handler http.Handler) (*Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("opening a listener: %w", err)
	}
	return NewListener(ln, cfg, budget, handler), nil
}

// NewListener is Listen for an address that is open already.
func NewListener(ln net.Listener, cfg HTTP, budget *membudget.Budget, handler http.Handler) *Listener {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // load balancers send many calls over few connections
	conns := &connections{budget: budget}
	l := &Listener{
		Listener: ln,
		server: &http.Server{
			Handler:           handler,
			Protocols:         protocols,
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1000},
			ReadHeaderTimeout: cfg.HeaderTimeout.D(),
			IdleTimeout:       cfg.IdleTimeout.D(),
			MaxHeaderBytes:    int(cfg.MaxHeaderBytes),
			ConnContext:       conns.onOpen,
			ConnState:         conns.onStateChange,
			ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		},
	}
	l.SetDrainGrace(cfg.DrainGrace.D())
	return l
}

// StopAccepting closes the listener and leaves its connections to Drain. Another process may have the same listener.
func (l *Listener) StopAccepting() { _ = l.Close() }

// SetTLS makes the listener speak TLS. Each connection gets the configuration that current returns when it is opened.
// It must be called before Serve.
func (l *Listener) SetTLS(current func() *tls.Config) {
	l.server.Protocols.SetHTTP2(true)
	l.server.Protocols.SetUnencryptedHTTP2(false)
	l.server.TLSConfig = &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current(), nil },
	}
}

// Serve accepts connections until Drain.
func (l *Listener) Serve() error {
	serve := l.server.Serve
	if l.server.TLSConfig != nil {
		serve = func(ln net.Listener) error { return l.server.ServeTLS(ln, "", "") }
	}
	if err := serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	}
	return nil
}

// Drain stops accepting connections, waits for calls in flight within the grace period, and then cuts
// the rest.
func (l *Listener) Drain() error {
	grace := time.Duration(l.grace.Load())
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	defer func() { _ = l.Close() }() // the server does not close a listener it never served
	if err := l.server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("calls were cut after %s (http.drain_grace): %w", grace, err), l.server.Close())
	}
	return nil
}

// connectionOverhead is the memory of an open connection: its buffers, its goroutine and typical headers.
const connectionOverhead = 24 << 10

// connections tracks the open connections of a listener.
type connections struct {
	budget *membudget.Budget
	open   sync.Map // net.Conn → func() to call when it closes
}

type connectionKey struct{}

// connection is what the requests on a connection know of it.
type connection struct {
	id   string
	life context.Context //nolint:containedctx // the connection outlives each request
}

// onOpen adds to the context of a new connection what [ConnectionOf] returns. If no memory is left, the
// connection is closed: there is no request yet that could be answered.
func (c *connections) onOpen(ctx context.Context, conn net.Conn) context.Context {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	memory := c.budget.Scope("connections@" + remoteHost(conn.RemoteAddr().String()))
	c.open.Store(conn, func() {
		end()
		memory.Release()
	})
	if memory.Reserve(connectionOverhead) != nil {
		_ = conn.Close()
	}
	return context.WithValue(ctx, connectionKey{}, &connection{id: rand.Text(), life: life})
}

func (c *connections) onStateChange(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	if end, ok := c.open.LoadAndDelete(conn); ok {
		end.(func())() //nolint:forcetypeassert // nothing else is stored there
	}
}

// ConnectionOf returns a unique name for the connection that a request came on, and a context that ends
// with it. The name tells clients apart that do not identify themselves otherwise. For a server that is
// not a [Listener], the name is the client's address and the context is nil.
func ConnectionOf(r *http.Request) (name string, life context.Context) {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		return c.id, c.life
	}
	return r.RemoteAddr, nil
}
