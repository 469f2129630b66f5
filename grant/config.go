package grant

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

// Config says how the gateway gets a server's permission.
type Config struct {
	// Never ask for permission: a server that wants a token refuses the gateway's calls. Default
	// false: when a server with a url and without an Authorization header among its headers
	// answers 401 with a Bearer challenge, the log says which address to open. Over plain http a
	// token is sent to this machine only.
	Off bool `key:"off"`

	// The client that the authorization server knows the gateway as. Default empty: the gateway
	// registers itself where that is possible. The redirect URI of such a client is
	// <public_url>/oauth/callback.
	ClientID string `key:"client_id"`

	// The client's secret, as "env:NAME" or "file:PATH". Default empty: it has none.
	ClientSecret secret.Text `key:"client_secret"`

	// The issuer that client_id and client_secret belong to. With it they are never shown to
	// another authorization server, whatever the server names. Default empty: any.
	Issuer string `key:"issuer"`

	// The https URL of a client metadata document that describes the gateway. It is used
	// instead of client_id where the authorization server takes it. Default empty: none.
	MetadataURL string `key:"client_metadata_url"`

	// The scopes to ask for. Default empty: those the server names. What it wants for a single
	// call is asked for besides.
	Scopes []string `key:"scopes"`
}

// IsSet says that something was written.
func (c Config) IsSet() bool {
	return c.Off || c.ClientID != "" || c.ClientSecret.IsSet() || c.Issuer != "" || c.MetadataURL != "" || len(c.Scopes) > 0
}

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	if c.ClientSecret.IsSet() && c.ClientID == "" {
		problems = append(problems, errors.New("client_secret: wants a client_id"))
	}
	if c.Issuer != "" && !isWeb(c.Issuer) {
		problems = append(problems, errors.New("issuer: is not an http or https URL"))
	}
	if u, err := url.Parse(c.MetadataURL); c.MetadataURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") == "") {
		problems = append(problems, errors.New("client_metadata_url: is not an https URL with a path"))
	}
	for _, scope := range c.Scopes {
		if scope == "" || strings.ContainsAny(scope, " \t\r\n\"\\") {
			problems = append(problems, fmt.Errorf("scopes: %q is not one scope", scope))
		}
	}
	return problems
}

func isWeb(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
}

// isPrivate says that what is sent to a URL is not read on the way (RFC 6750, 5.3).
func isPrivate(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Hostname() == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Server is a server whose permission may be needed.
type Server struct {
	id, url string
	private bool // nobody on the way can read a token
	cfg     Config
	key     string // what a permission is kept under: another client or URL is another permission
}

// For makes a server of a valid configuration with resolved secrets.
func For(id, url string, cfg Config) *Server {
	sum := sha256.New()
	for _, part := range []string{url, cfg.ClientID, cfg.ClientSecret.Reveal(), cfg.Issuer, cfg.MetadataURL, strings.Join(cfg.Scopes, " ")} {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return &Server{id: id, url: url, private: isPrivate(url), cfg: cfg, key: id + "/" + hex.EncodeToString(sum.Sum(nil)[:16])}
}
