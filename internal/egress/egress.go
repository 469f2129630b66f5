// Package egress connects to addresses that others name. A document from the network could name any address (SSRF), so
// a [NewTransport] connects to none that is closer to the gateway than the host that is trusted to name them.
//
// egress.go is the transport and its redirects, scope.go says how close an address is. Addresses are checked after they
// are resolved, while the connection is made, so that a name cannot resolve to another one in between (DNS rebinding).
package egress

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// NewTransport makes a transport that connects to no address closer to the gateway than a host.
func NewTransport(host string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dial(ctx, host, network, address)
		},
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableKeepAlives:      true, // a few requests a day
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
	}
}

const maxRedirects = 3

// NewClient makes a client that follows redirects of GET requests only, and only to the same scheme and host: codes and
// secrets are posted to the endpoint they belong to or not at all.
func NewClient(transport http.RoundTripper) *http.Client {
	return &http.Client{
		Transport: transport,
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

// closestAllowed is the closest scope that may be connected to. A host name may lead to a private network, but never to
// this machine: the owner of a name can point it anywhere.
func closestAllowed(ctx context.Context, host string) Scope {
	if host == "localhost" {
		return Loopback
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return min(ScopeOf(ip), Loopback)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(ips) == 0 {
		return Public
	}
	allowed := Private
	for _, ip := range ips {
		allowed = min(allowed, ScopeOf(ip))
	}
	return allowed
}

func dial(ctx context.Context, host, network, address string) (net.Conn, error) {
	allowed := closestAllowed(ctx, host)
	d := net.Dialer{Timeout: 5 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("dialing %q: %w", address, err)
		}
		if ScopeOf(to.Addr()) > allowed {
			return fmt.Errorf("%s is in a network closer to the gateway than the server that names it", to.Addr())
		}
		return nil
	}}
	return d.DialContext(ctx, network, address)
}
