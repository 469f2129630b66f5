package front

import (
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
)

// Guard protects a listener against web pages. A page in a user's browser can reach any listener that the
// user's machine can reach: across origins with requests that need no preflight ("simple" requests), or
// as the same origin if the page's own name resolves to the listener's address (DNS rebinding).
//
// The rules, in their order:
//
//  1. The Host must be known: a loopback name, the address the connection came in on, or an entry of
//     allowed_hosts. A listener beyond loopback without allowed_hosts accepts any Host.
//  2. A request without Origin passes, unless Sec-Fetch-Site says that another site's page made it.
//     Navigations pass, because authorization servers redirect browsers here.
//  3. An Origin of allowed_origins passes, and may read the reply (CORS).
//  4. An Origin equal to the Host passes if that Host is known or is an IP address; an unknown name may
//     be DNS rebinding.
//  5. Any other Origin needs Content-Type: application/json. Browsers send that to other origins only
//     after a CORS preflight, which is rejected; so the sender is not a web page.
type Guard struct {
	loopback bool
	hosts    []string // host or host:port
	origins  []string
	fetch    *http.CrossOriginProtection
}

// NewGuard makes the guard of a listener on address.
func NewGuard(address string, cfg HTTP) *Guard {
	return &Guard{loopback: IsLoopbackAddress(address), hosts: cfg.AllowedHosts, origins: cfg.AllowedOrigins, fetch: http.NewCrossOriginProtection()}
}

// IsLoopbackAddress reports whether only this machine can reach a listener on address.
func IsLoopbackAddress(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	return isLoopback(host)
}

// Protect is the middleware that applies the rules.
func (g *Guard) Protect(onError ErrorHandler) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := g.checkRequest(r); err != nil {
				onError(w, r, fault.New(fault.Forbidden, err.Error()))
				return
			}
			if origin := r.Header.Get("Origin"); origin != "" && g.allowsOrigin(origin) {
				if allowCORS(w, r, origin) {
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}

var (
	errHost   = errors.New("this host name is not served here; see http.allowed_hosts")
	errPage   = errors.New("requests from web pages of other origins are refused; see http.allowed_origins")
	errRebind = errors.New("requests from web pages need their host name in http.allowed_hosts")
)

func (g *Guard) checkRequest(r *http.Request) error {
	known := g.knowsHost(r)
	if !known && (g.loopback || len(g.hosts) > 0) {
		return errHost
	}
	origins := r.Header.Values("Origin")
	switch {
	case len(origins) == 0 || len(origins) == 1 && origins[0] == "":
		return g.checkFetch(r)
	case len(origins) > 1:
		return errPage
	case g.allowsOrigin(origins[0]):
		return nil
	case isSameOrigin(origins[0], r.Host) && (known || isAddress(r.Host)):
		return nil
	case isSameOrigin(origins[0], r.Host):
		return errRebind
	case !isJSON(r):
		return errPage
	}
	return nil
}

// checkFetch checks the Sec-Fetch headers of a request without Origin. The standard library lets GET and
// HEAD pass; here only navigations may.
func (g *Guard) checkFetch(r *http.Request) error {
	if g.fetch.Check(r) != nil {
		return errPage
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		if mode := r.Header.Get("Sec-Fetch-Mode"); mode != "navigate" {
			return errPage
		}
	}
	return nil
}

// knowsHost reports whether a request's Host belongs to this listener.
func (g *Guard) knowsHost(r *http.Request) bool {
	host := hostname(r.Host)
	if isLoopback(host) {
		return true
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && !g.loopback {
		at, err := netip.ParseAddrPort(local.String())
		ip, bad := netip.ParseAddr(host)
		if err == nil && bad == nil && at.Addr().Unmap().WithZone("") == ip.Unmap().WithZone("") {
			return true
		}
	}
	return slices.ContainsFunc(g.hosts, func(entry string) bool {
		return strings.EqualFold(entry, r.Host) || strings.EqualFold(hostname(entry), host) && !hasPort(entry)
	})
}

func (g *Guard) allowsOrigin(origin string) bool {
	return slices.ContainsFunc(g.origins, func(entry string) bool { return strings.EqualFold(entry, origin) })
}

// allowCORS lets a page of an allowed origin read the reply, and answers its preflight.
func allowCORS(w http.ResponseWriter, r *http.Request, origin string) (answered bool) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, Retry-After, WWW-Authenticate, X-Request-Id")
	h.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	h.Set("Access-Control-Allow-Headers", "*, Authorization") // no Access-Control-Allow-Credentials: the page sends its own
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// isSameOrigin reports whether a page's origin is the requested host.
func isSameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// isJSON reports whether the Content-Type is one that browsers send across origins only after a preflight.
func isJSON(r *http.Request) bool {
	values := r.Header.Values("Content-Type")
	if len(values) != 1 {
		return false
	}
	kind, _, err := mime.ParseMediaType(values[0])
	return err == nil && kind == "application/json"
}

// validateOrigin rejects an entry of allowed_origins that no browser sends.
func validateOrigin(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != s {
		return fmt.Errorf("%q is not an origin such as https://app.example.com", s)
	}
	return nil
}

// validateHost rejects an entry of allowed_hosts that no Host can be.
func validateHost(s string) error {
	if s == "" || strings.ContainsAny(s, "/ *@?#") {
		return fmt.Errorf("%q is not a host name such as gateway.example.com", s)
	}
	return nil
}

func hostname(hostPort string) string {
	if host, _, err := net.SplitHostPort(hostPort); err == nil {
		return host
	}
	return strings.Trim(hostPort, "[]")
}

func hasPort(hostPort string) bool {
	_, port, err := net.SplitHostPort(hostPort)
	return err == nil && port != ""
}

func isAddress(hostPort string) bool {
	_, err := netip.ParseAddr(hostname(hostPort))
	return err == nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.Unmap().IsLoopback()
}
