package grant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"
)

// asking is one time that a user is asked.
type asking struct {
	want     demand
	visit    *visit
	resource string // what the token will be for, as the address says
	got      *pass
}

// ask leads a user through the authorization of a server, and keeps the token that comes of it.
func (p *permit) ask(ctx context.Context, want demand) error {
	ctx, cancel := context.WithTimeout(ctx, p.desk.pace.wait)
	defer cancel()
	p.now = &asking{want: want}
	p.reach.forget()
	err := p.authorize(ctx, want)
	if err == nil && p.now.got == nil {
		err = errors.New("there came no token of it")
	}
	defer p.leave(p.now.visit, err)
	if err != nil {
		return p.refuse(err)
	}
	p.settle(p.now.got, want)
	p.keep(ctx, p.now.got)
	return nil
}

// refuse is the end of an asking that failed, for whatever reason.
func (p *permit) refuse(err error) error {
	if p.desk.life.Err() != nil {
		return errStopping
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fail(p.reach.tell(err))
}

// settle puts a new token into force.
func (p *permit) settle(got *pass, want demand) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = got
	for _, scope := range slices.Concat(got.Scopes, want.scopes) {
		p.asked[scope] = true
	}
	slog.Info("a server was authorized", "server", p.server.id, "scopes", got.Scopes)
}

// leave tells the browser, if one came, how it went.
func (p *permit) leave(v *visit, err error) {
	if v != nil {
		v.done(err)
		p.desk.forget(v)
	}
}

// authorize is the SDK's part. It gets copies: it reads the body to its end, and takes the
// request's URL for the server's, which that of a message may not be. A query of that URL may hold a
// key: it is no part of the resource's name (RFC 8707), which authorization servers and browsers see.
func (p *permit) authorize(ctx context.Context, want demand) error {
	if p.handler == nil {
		handler, err := p.newHandler()
		if err != nil {
			return err
		}
		p.handler = handler
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.server.url, nil)
	if err != nil {
		return errors.New("the server's URL cannot be used")
	}
	req.URL.RawQuery = ""
	return p.handler.Authorize(ctx, req, &http.Response{StatusCode: want.status, Header: want.header, Body: http.NoBody})
}

func (p *permit) newHandler() (*auth.AuthorizationCodeHandler, error) {
	back, err := p.desk.redirect()
	if err != nil {
		return nil, err
	}
	cfg := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL:              back,
		AuthorizationCodeFetcher: p.fetch,
		ScopeFilter:              p.scopes,
		RequestRefreshToken:      true,
		NewTokenSource:           p.take,
		Client:                   p.reach.client(),
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName:    "ctxgate",
			RedirectURIs:  []string{back},
			GrantTypes:    []string{"authorization_code", "refresh_token"},
			ResponseTypes: []string{"code"},
		}},
	}
	if u := p.server.cfg.MetadataURL; u != "" {
		cfg.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: u}
	}
	if id := p.server.cfg.ClientID; id != "" {
		cfg.PreregisteredClient = &oauthex.ClientCredentials{ClientID: id, Issuer: p.server.cfg.Issuer}
		if secret := p.server.cfg.ClientSecret; secret.IsSet() {
			cfg.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: secret.Reveal()}
		}
	}
	return auth.NewAuthorizationCodeHandler(cfg)
}

// scopes chooses what to ask for: what the operator wants or else what the server names, and, when
// a call needs more, all that the token in hand has.
func (p *permit) scopes(discovered []string) []string {
	out := slices.Clone(discovered)
	if len(p.server.cfg.Scopes) > 0 {
		out = slices.Clone(p.server.cfg.Scopes)
	}
	if p.now.want.status != http.StatusForbidden {
		return out
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		out = append(out, p.held.Scopes...)
	}
	out = append(out, discovered...)
	slices.Sort(out)
	return slices.Compact(out)
}

// fetch shows the address to the operator and waits for the browser to come back.
func (p *permit) fetch(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
	p.reach.forget() // nothing that is said from here on was in an answer
	u, err := url.Parse(args.URL)
	if err != nil || u.User != nil || !isWeb(args.URL) {
		return nil, errors.New("the authorization endpoint is not an http or https URL")
	}
	query := u.Query()
	if query.Get("state") == "" {
		return nil, errors.New("the address has no state")
	}
	p.now.resource = query.Get("resource")
	v := p.desk.expect(p.server.id, query.Get("state"))
	p.now.visit = v
	slog.Warn("open this address to let ctxgate use a server", "server", p.server.id, "address", u.String())
	select {
	case came := <-v.came:
		if came.refusal != "" {
			return nil, fmt.Errorf("the authorization server says %.60q", came.refusal)
		}
		return &came.AuthorizationResult, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("nobody opened the address: %w", ctx.Err())
	}
}

// take makes a pass of the token that the SDK got.
func (p *permit) take(_ context.Context, cfg *oauth2.Config, token *oauth2.Token) (oauth2.TokenSource, error) {
	p.now.got = newPass(p.server, cfg, p.now.resource, token)
	return oauth2.StaticTokenSource(token), nil
}
