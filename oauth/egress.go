package oauth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
)

// egressGuard connects to the authorization servers that one MCP server names. The MCP server could
// name any address (SSRF), so they may be no closer to the gateway than the MCP server itself.
type egressGuard struct {
	server    *url.URL
	transport *http.Transport

	mu       sync.Mutex
	last     string // the last request and its status
	lastPost bool   // it was a POST that was answered: the answer may contain secrets
}

func newEgressGuard(server string) *egressGuard {
	u, err := url.Parse(server)
	if err != nil {
		u = &url.URL{} // it was validated before; an empty host allows public addresses only
	}
	g := &egressGuard{server: u}
	g.transport = &http.Transport{
		DialContext:            g.dialChecked,
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableKeepAlives:      true, // a few requests a day
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
	}
	return g
}

const maxRedirects = 3

// client follows redirects of GET requests only, and only to the same scheme and host: codes and
// secrets are posted to the endpoint they belong to or not at all.
func (g *egressGuard) client() *http.Client {
	return &http.Client{
		Transport: g,
		Timeout:   15 * time.Second,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			first := via[0]
			if first.Method != http.MethodGet || len(via) > maxRedirects || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

// RoundTrip remembers the request for error messages.
func (g *egressGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := g.transport.RoundTrip(req)
	g.mu.Lock()
	defer g.mu.Unlock()
	at := *req.URL
	at.RawQuery = ""
	g.last, g.lastPost = req.Method+" "+at.String(), err == nil && req.Method == http.MethodPost
	if err == nil {
		g.last += ": " + resp.Status
	}
	return resp, err
}

// resetLast forgets the last request.
func (g *egressGuard) resetLast() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last, g.lastPost = "", false
}

const maxErrorText = 300

// safeError is an error without secrets, for the log. Libraries may quote a response in their errors,
// so of the answer to a POST, which contains tokens and secrets, only the error code is repeated.
func (g *egressGuard) safeError(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var token *oauth2.RetrieveError
	var registration *oauthex.ClientRegistrationError
	switch {
	case errors.As(err, &token):
		return fmt.Errorf("the token endpoint refused: error %.60q (%s)", token.ErrorCode, g.last)
	case errors.As(err, &registration):
		return fmt.Errorf("the client registration was refused: error %.60q (%s)", registration.ErrorCode, g.last)
	case g.lastPost:
		return fmt.Errorf("the authorization server's answer cannot be used (%s)", g.last)
	case g.last != "":
		return fmt.Errorf("%.*s (%s)", maxErrorText, err.Error(), g.last)
	}
	return fmt.Errorf("%.*s", maxErrorText, err.Error())
}

// allowedScope is the closest scope that authorization servers may be in. A server with a host name
// may lead to a private network, but never to this machine: the owner of a name can point it anywhere.
func (g *egressGuard) allowedScope(ctx context.Context) ipScope {
	host := g.server.Hostname()
	if host == "localhost" {
		return scopeLoopback
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return min(scopeOf(ip), scopeLoopback)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(ips) == 0 {
		return scopePublic
	}
	allowed := scopePrivate
	for _, ip := range ips {
		allowed = min(allowed, scopeOf(ip))
	}
	return allowed
}

// dialChecked checks the resolved address while it connects, so that the name cannot resolve to
// another one in between (DNS rebinding).
func (g *egressGuard) dialChecked(ctx context.Context, network, address string) (net.Conn, error) {
	allowed := g.allowedScope(ctx)
	d := net.Dialer{Timeout: 5 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("dialing %q: %w", address, err)
		}
		if scopeOf(to.Addr()) > allowed {
			return fmt.Errorf("%s is in a network closer to the gateway than the server that names it", to.Addr())
		}
		return nil
	}}
	return d.DialContext(ctx, network, address)
}
