package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/egress"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// The largest documents that are read of an identity provider, and how long each may take.
const (
	maxMetadata     = 256 << 10
	maxKeySet       = 1 << 20
	providerTimeout = 10 * time.Second
)

// provider is the identity provider, over HTTP.
type provider struct {
	cfg    OIDC
	issuer *url.URL
	client *http.Client
}

func newProvider(cfg OIDC) *provider {
	u, _ := url.Parse(cfg.Issuer) // it was validated
	client := egress.NewClient(egress.NewTransport(u.Hostname()))
	client.Timeout = providerTimeout
	return &provider{cfg: cfg, issuer: u, client: client}
}

// metadata is the part of a provider's metadata that is used.
type metadata struct{ keySetURL, introspectionURL string }

var errNotThere = errors.New("there is no such document")

// discover reads the provider's metadata: of OpenID Connect or, if there is none, of OAuth (RFC 8414).
func (p *provider) discover(ctx context.Context) (metadata, error) {
	host, path := p.issuer.Scheme+"://"+p.issuer.Host, strings.TrimSuffix(p.issuer.EscapedPath(), "/")
	body, err := p.get(ctx, host+path+"/.well-known/openid-configuration", maxMetadata)
	if errors.Is(err, errNotThere) {
		body, err = p.get(ctx, host+"/.well-known/oauth-authorization-server"+path, maxMetadata)
	}
	if err != nil {
		return metadata{}, err
	}
	fields, err := strictObject(body)
	if err != nil {
		return metadata{}, fmt.Errorf("the provider's metadata: %w", err)
	}
	// Compared as text, not as URLs: any other document could be that of another provider at the same host.
	if got := fields.Text("issuer"); got != p.cfg.Issuer {
		return metadata{}, fmt.Errorf("the provider's metadata is of the issuer %.200q, not %q: set oidc.issuer to what the provider says, if it is the right one", got, p.cfg.Issuer)
	}
	return metadata{fields.Text("jwks_uri"), fields.Text("introspection_endpoint")}, nil
}

// fetchKeys reads the provider's keys.
func (p *provider) fetchKeys(ctx context.Context) (*keySet, error) {
	at := p.cfg.JWKSURL
	if at == "" {
		meta, err := p.discover(ctx)
		if err != nil {
			return nil, err
		}
		at = meta.keySetURL
	}
	if err := p.cfg.checkURL(at); err != nil {
		return nil, fmt.Errorf("jwks_uri: %w", err)
	}
	body, err := p.get(ctx, at, maxKeySet)
	if err != nil {
		return nil, err
	}
	return parseKeySet(body)
}

// findIntrospection is where opaque tokens are asked about.
func (p *provider) findIntrospection(ctx context.Context) (string, error) {
	meta, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	if err := p.cfg.checkURL(meta.introspectionURL); err != nil {
		return "", fmt.Errorf("introspection_endpoint: %w", err)
	}
	return meta.introspectionURL, nil
}

func (p *provider) get(ctx context.Context, at string, most int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, fmt.Errorf("asking the identity provider: %w", err)
	}
	return p.send(req, most)
}

// send returns the body of a successful reply.
func (p *provider) send(req *http.Request, most int64) ([]byte, error) {
	req.Header.Set("Accept", "application/json")
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the identity provider: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, fmt.Errorf("%s %s: %w", req.Method, req.URL, errNotThere)
	default:
		return nil, fmt.Errorf("%s %s: unexpected status %d", req.Method, req.URL, resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", req.URL, err)
	}
	if int64(len(body)) > most {
		return nil, fmt.Errorf("%s has more than %d bytes", req.URL, most)
	}
	return body, nil
}

// maxJSONDepth bounds documents of the provider, headers and claims.
const maxJSONDepth = 32

// strictObject reads a JSON object. Two members with one name, at any depth, are refused: two readers could disagree on
// which one is meant.
func strictObject(data []byte) (jsonscan.Fields, error) {
	s := jsonscan.New(data, maxJSONDepth)
	if s.Kind() != '{' {
		return jsonscan.Fields{}, errors.New("is no JSON object")
	}
	if _, err := s.SkipStrict(); err != nil {
		return jsonscan.Fields{}, fmt.Errorf("invalid JSON: %w", err)
	}
	if err := s.End(); err != nil {
		return jsonscan.Fields{}, fmt.Errorf("invalid JSON: %w", err)
	}
	return jsonscan.FieldsOf(data)
}
