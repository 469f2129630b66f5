package front

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
)

// Guard keeps web pages out. A page in the user's browser can reach a listener on this machine:
// directly, or under its own name once that resolves to 127.0.0.1. So a listener on a loopback
// address answers only to loopback names and those it was told of, and no listener answers a
// request that a page of another origin made.
type Guard struct {
	loopback bool
	hosts    []string
	origins  *http.CrossOriginProtection
}

// NewGuard makes the guard of a listener on address.
func NewGuard(address string, allowedHosts []string) *Guard {
	host, _, _ := net.SplitHostPort(address)
	return &Guard{loopback: isLoopback(host), hosts: allowedHosts, origins: http.NewCrossOriginProtection()}
}

// Local says that only this machine can reach the listener.
func (g *Guard) Local() bool { return g.loopback }

// Stage refuses what the guard does not let in.
func (g *Guard) Stage(refuse Refuse) Stage {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !g.knows(r.Host) {
				refuse(w, r, fault.New(fault.Forbidden, "this host name is not served here; see http.allowed_hosts"))
				return
			}
			if !g.sameOrigin(r) {
				refuse(w, r, fault.New(fault.Forbidden, "requests from web pages of other origins are refused"))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func (g *Guard) knows(hostPort string) bool {
	if !g.loopback {
		return true
	}
	host := hostname(hostPort)
	return isLoopback(host) || slices.ContainsFunc(g.hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// sameOrigin also looks at Origin on methods that a browser thinks are safe.
func (g *Guard) sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return g.origins.Check(r) == nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	return strings.EqualFold(u.Host, r.Host) || g.loopback && isLoopback(u.Hostname())
}

func hostname(hostPort string) string {
	if host, _, err := net.SplitHostPort(hostPort); err == nil {
		return host
	}
	return strings.Trim(hostPort, "[]")
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && ip.IsLoopback()
}
