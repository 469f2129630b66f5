// Package front is the house's front: listeners with limits, the chain every HTTP request
// passes (chain.go), who may be a browser's page (guard.go), health (health.go), and an orderly
// end (drain in this file). It does not know what is served: app mounts the doors.
//
// A refusal of the chain is handed to the function app gave it, so that every failure a client
// sees is in that client's protocol. A panic ends the request it happened in and nothing else.
package front

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// Config is the main listener and the limits of HTTP.
type Config struct {
	// The address of the main listener. Default "127.0.0.1:8000"; empty means none.
	Listen string `key:"listen" reload:"restart"`

	// The URL at which browsers reach the main listener, where that is not its address: a page of
	// an authorization server sends them to <public_url>/oauth/callback. Default empty:
	// http:// and the listener's address.
	PublicURL string `key:"public_url" reload:"restart"`

	// Serve everybody where the main listener is not on a loopback address and no auth_token is set.
	// Default false: such a gateway does not start. The variable CTXGATE_ANONYMOUS=1 sets it too.
	Anonymous bool `key:"anonymous"`

	// Limits of HTTP, for every listener.
	HTTP HTTP `key:"http"`
}

// HTTP holds the limits of a listener.
type HTTP struct {
	// The host names under which every listener may be asked, with a port or for any; loopback names and
	// the address itself always work. Default none: a listener on a loopback address then answers to those
	// alone, so that a page that points its own name at this machine is refused; one beyond loopback answers
	// to any name, but not to web pages under it.
	AllowedHosts []string `key:"allowed_hosts"`

	// The origins of web pages, such as "https://app.example.com", that may use every listener and read the
	// replies (CORS). Default none: a request whose Origin is not its Host is refused unless its Content-Type
	// is application/json, which browsers do not send to other origins without asking first.
	AllowedOrigins []string `key:"allowed_origins"`

	// The largest request body; a size. Default 64MiB. Zero is refused.
	MaxRequestBytes unit.Bytes `key:"max_request_bytes"`

	// The largest request head; a size. Default 64KiB. Zero is refused.
	MaxHeaderBytes unit.Bytes `key:"max_header_bytes" reload:"restart"`

	// The longest a request head may take to arrive; a duration. Default 10s. Zero is refused.
	HeaderTimeout unit.Duration `key:"header_timeout" reload:"restart"`

	// The longest a request body may take to arrive, and a reply to be taken; a duration, plus a
	// second for each MiB. Default 60s. Zero is refused.
	BodyTimeout unit.Duration `key:"body_timeout"`

	// How long an idle connection is kept; a duration. Default 2m.
	IdleTimeout unit.Duration `key:"idle_timeout" reload:"restart"`

	// How long to go on serving after readiness is withdrawn at shutdown, so that load balancers
	// notice; a duration. Default 0.
	DrainDelay unit.Duration `key:"drain_delay"`

	// How long calls under way may take to finish at shutdown; a duration. Default 15s.
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
		if err := checkHost(host); err != nil {
			problems = append(problems, fmt.Errorf("http.allowed_hosts[%d]: %w", i, err))
		}
	}
	for i, origin := range c.HTTP.AllowedOrigins {
		if err := checkOrigin(origin); err != nil {
			problems = append(problems, fmt.Errorf("http.allowed_origins[%d]: %w", i, err))
		}
	}
	return problems
}

// CheckExposed refuses a main listener that everybody in the network can reach without a credential,
// unless the operator says that this is meant.
func (c Config) CheckExposed(authenticated bool) error {
	known := CheckAddress(c.Listen) == nil // what is no address is told by Validate
	if !known || IsLocal(c.Listen) || authenticated || c.Anonymous {
		return nil
	}
	return errors.New("listen: beyond loopback whoever can reach " + c.Listen +
		" may use every server, and every provider with its configured key: set auth_token, or anonymous = true (CTXGATE_ANONYMOUS=1) if that is meant")
}

// CheckAddress refuses what is not host:port.
func CheckAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("%q is not an address such as 127.0.0.1:8000", s)
	}
	return nil
}

// Listener is one open address and the server behind it.
type Listener struct {
	net.Listener
	server *http.Server
	grace  atomic.Int64 // how long Drain lets calls finish, as a time.Duration
}

// SetGrace says how long Drain lets calls finish.
func (l *Listener) SetGrace(d time.Duration) { l.grace.Store(int64(d)) }

// Listen opens an address. Connections are taken when Serve runs; each takes its part of the memory
// budget.
func Listen(ctx context.Context, address string, cfg HTTP, budget *membudget.Budget, handler http.Handler) (*Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("opening a listener: %w", err)
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // many calls over few connections, from a load balancer
	open := &connections{budget: budget}
	l := &Listener{
		Listener: ln,
		server: &http.Server{
			Handler:           handler,
			Protocols:         protocols,
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1000},
			ReadHeaderTimeout: cfg.HeaderTimeout.D(),
			IdleTimeout:       cfg.IdleTimeout.D(),
			MaxHeaderBytes:    int(cfg.MaxHeaderBytes),
			ConnContext:       open.begin,
			ConnState:         open.changed,
			ErrorLog:          slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		},
	}
	l.SetGrace(cfg.DrainGrace.D())
	return l, nil
}

// Serve takes connections until Drain.
func (l *Listener) Serve() error {
	if err := l.server.Serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	}
	return nil
}

// Drain stops taking connections, lets calls under way finish within the grace, and then cuts
// what is left.
func (l *Listener) Drain() error {
	grace := time.Duration(l.grace.Load())
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	defer func() { _ = l.Close() }() // the server does not know of a listener it never served
	if err := l.server.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("calls were cut after %s: %w", grace, err), l.server.Close())
	}
	return nil
}

// Readiness is whether this process wants new calls.
type Readiness struct{ draining atomic.Bool }

// Withdraw makes /readyz say no.
func (r *Readiness) Withdraw() { r.draining.Store(true) }
