package oauth

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

// attempt is one authorization by a user.
type attempt struct {
	want     challenge
	request  *authRequest
	resource string // what the token is for, as the address says (RFC 8707)
	token    *token
}

// authorize leads a user through the authorization of a server, and stores the token.
func (a *serverAuth) authorize(ctx context.Context, want challenge) error {
	ctx, cancel := context.WithTimeout(ctx, a.transport.timing.linkLifetime)
	defer cancel()
	a.attempt = &attempt{want: want}
	a.egress.resetLast()
	err := a.runSDKFlow(ctx, want)
	tok := a.attempt.token
	if err == nil && tok == nil {
		err = errors.New("the authorization gave no token")
	}
	// Tell the browser, if one came, how it went.
	if r := a.attempt.request; r != nil {
		defer a.transport.forgetAuthRequest(r)
		defer func() { r.recordOutcome(err) }()
	}
	if err != nil {
		if a.transport.life.Err() != nil {
			return errStopping
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.recordFailure(a.egress.safeError(err))
	}
	a.mu.Lock()
	a.token = tok
	for _, scope := range slices.Concat(tok.Scopes, want.scopes) {
		a.requestedScopes[scope] = true
	}
	a.mu.Unlock()
	slog.Info("a server was authorized", append(a.server.logAttrs(), "scopes", tok.Scopes)...)
	a.storeToken(ctx, tok)
	return nil
}

// runSDKFlow hands the challenge to the SDK. It passes copies: the SDK reads the body to its end, and
// takes the request's URL as the server's, which the URL of a message may not be. The query is removed
// because it may hold a key: it is not part of the resource's name (RFC 8707), which authorization
// servers and browsers see.
func (a *serverAuth) runSDKFlow(ctx context.Context, want challenge) error {
	if a.handler == nil {
		handler, err := a.newHandler()
		if err != nil {
			return err
		}
		a.handler = handler
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.server.url, nil)
	if err != nil {
		return errors.New("the server's URL cannot be used")
	}
	req.URL.RawQuery = ""
	return a.handler.Authorize(ctx, req, &http.Response{StatusCode: want.status, Header: want.header, Body: http.NoBody})
}

func (a *serverAuth) newHandler() (*auth.AuthorizationCodeHandler, error) {
	redirectURL, err := a.transport.ensureRedirectURL()
	if err != nil {
		return nil, err
	}
	cfg := &auth.AuthorizationCodeHandlerConfig{
		RedirectURL:              redirectURL,
		AuthorizationCodeFetcher: a.awaitCode,
		ScopeFilter:              a.chooseScopes,
		RequestRefreshToken:      true,
		NewTokenSource: func(_ context.Context, cfg *oauth2.Config, got *oauth2.Token) (oauth2.TokenSource, error) {
			a.attempt.token = newToken(a.server, cfg, a.attempt.resource, got)
			return oauth2.StaticTokenSource(got), nil
		},
		Client: a.egress.client(),
		DynamicClientRegistrationConfig: &auth.DynamicClientRegistrationConfig{Metadata: &oauthex.ClientRegistrationMetadata{
			ClientName:    "ctxgate",
			RedirectURIs:  []string{redirectURL},
			GrantTypes:    []string{"authorization_code", "refresh_token"},
			ResponseTypes: []string{"code"},
		}},
	}
	if u := a.server.cfg.ClientMetadataURL; u != "" {
		cfg.ClientIDMetadataDocumentConfig = &auth.ClientIDMetadataDocumentConfig{URL: u}
	}
	if id := a.server.cfg.ClientID; id != "" {
		cfg.PreregisteredClient = &oauthex.ClientCredentials{ClientID: id, Issuer: a.server.cfg.Issuer}
		if secret := a.server.cfg.ClientSecret; secret.IsSet() {
			cfg.PreregisteredClient.ClientSecretAuth = &oauthex.ClientSecretAuth{ClientSecret: secret.Reveal()}
		}
	}
	return auth.NewAuthorizationCodeHandler(cfg)
}

// chooseScopes requests the configured scopes or else those the server names and, when a call needs
// more, also all scopes of the current token.
func (a *serverAuth) chooseScopes(discovered []string) []string {
	out := slices.Clone(discovered)
	if len(a.server.cfg.Scopes) > 0 {
		out = slices.Clone(a.server.cfg.Scopes)
	}
	if a.attempt.want.status != http.StatusForbidden {
		return out
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.token != nil {
		out = append(out, a.token.Scopes...)
	}
	out = append(out, discovered...)
	slices.Sort(out)
	return slices.Compact(out)
}

// awaitCode shows the address and waits for the browser to come back: to the operator, in the log, or to the caller whose
// authorization it is, in the reply.
func (a *serverAuth) awaitCode(ctx context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
	a.egress.resetLast() // errors from here on do not come from a response
	u, err := url.Parse(args.URL)
	if err != nil || u.User != nil || !isHTTP(args.URL) {
		return nil, errors.New("the authorization endpoint is not an http or https URL")
	}
	query := u.Query()
	if query.Get("state") == "" {
		return nil, errors.New("the authorization address has no state")
	}
	a.attempt.resource = query.Get("resource")
	request := a.transport.expectCallback(a.server, query.Get("state"), u)
	a.attempt.request = request
	if a.server.principal.isCaller() {
		a.announce(a.transport.startAddress(request))
	} else {
		slog.Warn("open this address to let ctxgate use a server", append(a.server.logAttrs(), "address", u.String())...)
	}
	select {
	case result := <-request.result:
		if result.refusal != "" {
			return nil, fmt.Errorf("the authorization server says %.60q", result.refusal)
		}
		return &result.AuthorizationResult, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the address was not opened: %w", ctx.Err())
	}
}
