package grant

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

// reach is how the authorization servers of one server are reached. A server says who they are, and
// so could send the gateway anywhere: they may be no nearer to the gateway than the server itself.
type reach struct {
	server    *url.URL
	transport *http.Transport

	mu     sync.Mutex
	last   string // the request that was made last, and its status
	posted bool   // it was a POST that was answered: with secrets, perhaps
}

func newReach(server string) *reach {
	u, err := url.Parse(server)
	if err != nil {
		u = &url.URL{} // it was checked; this one is at no place, so nothing near is reached
	}
	r := &reach{server: u}
	r.transport = &http.Transport{
		DialContext:            r.dial,
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableKeepAlives:      true, // a few requests a day
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
	}
	return r
}

const mostRedirects = 3

// client follows redirects only of what is read, and only at the same place: codes and secrets are
// posted where they belong or nowhere.
func (r *reach) client() *http.Client {
	return &http.Client{
		Transport: r,
		Timeout:   15 * time.Second,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			first := via[0]
			if first.Method != http.MethodGet || len(via) > mostRedirects || req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
}

// RoundTrip notes what was asked.
func (r *reach) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.transport.RoundTrip(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	at := *req.URL
	at.RawQuery = ""
	r.last, r.posted = req.Method+" "+at.String(), err == nil && req.Method == http.MethodPost
	if err == nil {
		r.last += ": " + resp.Status
	}
	return resp, err
}

func (r *reach) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.posted = "", false
}

const mostText = 300

// tell is an error as it may be logged. What libraries say of an answer may repeat it, so of the
// answer to a POST, where tokens and secrets are, nothing is repeated but its error code.
func (r *reach) tell(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var token *oauth2.RetrieveError
	var registration *oauthex.ClientRegistrationError
	switch {
	case errors.As(err, &token):
		return fmt.Errorf("the token endpoint refused: error %.60q (%s)", token.ErrorCode, r.last)
	case errors.As(err, &registration):
		return fmt.Errorf("the registration was refused: error %.60q (%s)", registration.ErrorCode, r.last)
	case r.posted:
		return fmt.Errorf("an answer cannot be used (%s)", r.last)
	case r.last != "":
		return fmt.Errorf("%.*s (%s)", mostText, err.Error(), r.last)
	}
	return fmt.Errorf("%.*s", mostText, err.Error())
}

// allowed is the nearest that the server may send the gateway to. A name is believed to be on a
// private network, but never on this machine: whoever owns it can point it anywhere.
func (r *reach) allowed(ctx context.Context) nearness {
	host := r.server.Hostname()
	if host == "localhost" {
		return here
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return min(nearnessOf(ip), here)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(ips) == 0 {
		return far
	}
	nearest := inside
	for _, ip := range ips {
		nearest = min(nearest, nearnessOf(ip))
	}
	return nearest
}

// dial looks at the address that a name led to, so that it cannot change in between.
func (r *reach) dial(ctx context.Context, network, address string) (net.Conn, error) {
	allowed := r.allowed(ctx)
	d := net.Dialer{Timeout: 5 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("dialing %q: %w", address, err)
		}
		if nearnessOf(to.Addr()) > allowed {
			return fmt.Errorf("%s is nearer to the gateway than the server that leads there", to.Addr())
		}
		return nil
	}}
	return d.DialContext(ctx, network, address)
}
