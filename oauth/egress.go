package oauth

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/ctxgate/ctxgate/internal/egress"
)

// egressGuard connects to the authorization servers that one MCP server names. The MCP server could
// name any address (SSRF), so they may be no closer to the gateway than the MCP server itself.
type egressGuard struct {
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
	return &egressGuard{transport: egress.NewTransport(u.Hostname())}
}

func (g *egressGuard) client() *http.Client { return egress.NewClient(g) }

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
