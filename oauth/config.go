package oauth

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// Config says how the gateway authorizes itself at one server.
type Config struct {
	// Never start an OAuth authorization: a server that requires a token then rejects the gateway's
	// calls. Default false: when a server that has a url, and no Authorization entry in its headers,
	// answers 401 with a Bearer challenge, the log shows the address to open in a browser. Over plain
	// http a token is only sent to this machine.
	Disabled bool `key:"off"`

	// The OAuth client id of the gateway at the authorization server. Default empty: the gateway
	// registers itself where the authorization server allows it. Register such a client with the
	// redirect URI <public_url>/oauth/callback.
	ClientID string `key:"client_id"`

	// The client's secret, as "env:NAME" or "file:PATH". Default empty: the client has no secret.
	ClientSecret secret.Text `key:"client_secret"`

	// The issuer that client_id and client_secret belong to. When it is set, they are never sent to
	// another authorization server, whichever one the server names. Default empty: any issuer.
	Issuer string `key:"issuer"`

	// The https URL of a client metadata document that describes the gateway. It is used instead of
	// client_id where the authorization server supports it. Default empty: none.
	ClientMetadataURL string `key:"client_metadata_url"`

	// The scopes to request. Default empty: the scopes that the server names. Scopes that the server
	// demands for a single call are requested in addition.
	Scopes []string `key:"scopes"`
}

// IsSet reports whether any key was configured.
func (c Config) IsSet() bool {
	return c.Disabled || c.ClientID != "" || c.ClientSecret.IsSet() || c.Issuer != "" || c.ClientMetadataURL != "" || len(c.Scopes) > 0
}

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	if c.ClientSecret.IsSet() && c.ClientID == "" {
		problems = append(problems, errors.New("client_secret: needs client_id beside it"))
	}
	if c.Issuer != "" && !isHTTP(c.Issuer) {
		problems = append(problems, errors.New("issuer: is not an http or https URL"))
	}
	if u, err := url.Parse(c.ClientMetadataURL); c.ClientMetadataURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") == "") {
		problems = append(problems, errors.New("client_metadata_url: is not an https URL with a path"))
	}
	for _, scope := range c.Scopes {
		if scope == "" || strings.ContainsAny(scope, " \t\r\n\"\\") {
			problems = append(problems, fmt.Errorf("scopes: %q is not one scope", scope))
		}
	}
	return problems
}

func isHTTP(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
}

// isConfidential reports whether what is sent to a URL cannot be read on the way (RFC 6750, 5.3).
func isConfidential(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Server is a server that may require authorization.
type Server struct {
	id, url      string
	confidential bool // a token cannot be read on the way
	cfg          Config
	key          string    // names the stored token: another client or URL has another token
	principal    Principal // whose token is sent
	exchange     *Exchange // how that is obtained from the caller's own; nil to ask a user
}

// NewServer takes a valid configuration with resolved secrets.
func NewServer(id, url string, cfg Config) *Server {
	sum := sha256.New()
	for _, part := range []string{url, cfg.ClientID, cfg.ClientSecret.Reveal(), cfg.Issuer, cfg.ClientMetadataURL, strings.Join(cfg.Scopes, " ")} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return &Server{
		id: id, url: url, confidential: isConfidential(url), cfg: cfg, key: id + "/" + hex.EncodeToString(sum.Sum(nil)[:16]),
		principal: Principal{Tenant: defaultTenant},
	}
}

// For is the server for the requests of one principal, which are sent with its own token.
func (s *Server) For(p Principal) *Server {
	own := *s
	own.principal = p
	return &own
}

// WithExchange is the server with tokens that are exchanged for those of its callers.
func (s *Server) WithExchange(e Exchange) *Server {
	own := *s
	own.exchange = &e
	return &own
}

// authKey identifies the server and the principal among all.
func (s *Server) authKey() string { return s.key + "\x00" + s.principal.Key() }

// nameForPeople names the server, and whose token it gets, in messages.
func (s *Server) nameForPeople() string {
	switch {
	case s.principal.isCaller():
		return fmt.Sprintf("server %q for %q of tenant %q", s.id, s.principal.Subject, s.principal.Tenant)
	case s.principal.Tenant != defaultTenant:
		return fmt.Sprintf("server %q for tenant %q", s.id, s.principal.Tenant)
	}
	return fmt.Sprintf("server %q", s.id)
}
