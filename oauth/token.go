package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/oauth2"

	"github.com/ctxgate/ctxgate/fault"
)

const (
	refreshTimeout = 10 * time.Second
	refreshEarly   = 10 * time.Second // a token is refreshed so long before it expires
	touchInterval  = time.Hour
)

// tokenRecord is a token and all that is needed to refresh it, as it is stored.
type tokenRecord struct {
	Server   string           `json:"server"`          // checked on reading, as is Owner: a record copied to another's key is ignored
	Owner    *Principal       `json:"owner,omitempty"` // nil for the default tenant
	URL      string           `json:"url"`
	Resource string           `json:"resource"`
	Client   string           `json:"client"`
	Secret   string           `json:"secret,omitempty"`
	Endpoint string           `json:"endpoint"` // the token endpoint that issued it, and the only one that refreshes it
	Style    oauth2.AuthStyle `json:"style"`
	Scopes   []string         `json:"scopes,omitempty"`
	Access   string           `json:"access"`
	Refresh  string           `json:"refresh,omitempty"`
	Expires  time.Time        `json:"expires,omitzero"`
}

// token is a token in use. The lock of its serverAuth guards accepted and touchedAt.
type token struct {
	tokenRecord
	fromUser  bool // a user authorized it, in this process
	refreshed bool // it came from a refresh
	accepted  bool // the server has accepted it
	touchedAt time.Time
}

func newToken(s *Server, cfg *oauth2.Config, resource string, got *oauth2.Token) *token {
	return &token{fromUser: true, touchedAt: time.Now(), tokenRecord: tokenRecord{
		Server: s.id, Owner: ownerOf(s.principal), URL: s.url, Resource: resource, Scopes: cfg.Scopes,
		Client: cfg.ClientID, Secret: cfg.ClientSecret, Endpoint: cfg.Endpoint.TokenURL, Style: cfg.Endpoint.AuthStyle,
		Access: got.AccessToken, Refresh: got.RefreshToken, Expires: got.Expiry,
	}}
}

// expiresSoon reports whether the token should, and can, be refreshed before it is used.
func (t *token) expiresSoon() bool {
	return t.Refresh != "" && !t.Expires.IsZero() && time.Until(t.Expires) < refreshEarly
}

// refreshMayHelp reports whether refreshing a refused token may help. It does not if the token is new
// and the server never accepted it.
func (t *token) refreshMayHelp() bool {
	return t != nil && t.Refresh != "" && (t.accepted || !t.refreshed && !t.fromUser)
}

// refreshToken replaces an old token by a new one.
func (a *serverAuth) refreshToken(ctx context.Context, old *token) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	defer cancel()
	egress := newEgressGuard(a.server.url)
	cfg := &oauth2.Config{
		ClientID: old.Client, ClientSecret: old.Secret, Scopes: old.Scopes,
		Endpoint: oauth2.Endpoint{TokenURL: old.Endpoint, AuthStyle: old.Style},
	}
	// oauth2's own TokenSource cannot add the resource, which MCP requires in every token request.
	got, err := cfg.Exchange(context.WithValue(ctx, oauth2.HTTPClient, egress.client()), "",
		oauth2.SetAuthURLParam("grant_type", "refresh_token"),
		oauth2.SetAuthURLParam("refresh_token", old.Refresh),
		oauth2.SetAuthURLParam("resource", old.Resource))
	if isFinalRefusal(err) {
		return a.handleRefusedRefresh(ctx, old)
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, fmt.Sprintf("the token of server %q cannot be refreshed now", a.server.id), egress.safeError(err))
	}
	fresh := newToken(a.server, cfg, old.Resource, got)
	a.mu.Lock()
	fresh.fromUser, fresh.refreshed = old.fromUser && !old.accepted, true
	a.token = fresh
	a.mu.Unlock()
	a.storeToken(ctx, fresh)
	return nil
}

// isFinalRefusal reports whether the authorization server will never refresh this token.
func isFinalRefusal(err error) bool {
	var e *oauth2.RetrieveError
	if !errors.As(err, &e) {
		return false
	}
	switch e.ErrorCode {
	case "invalid_grant", "invalid_client", "unauthorized_client":
		return true
	}
	return false
}

// handleRefusedRefresh takes the token of another process that shares the store, if that process
// has refreshed it. Otherwise the authorization has ended, and the token is removed.
func (a *serverAuth) handleRefusedRefresh(ctx context.Context, old *token) error {
	stored, err := a.loadToken(ctx)
	if err == nil && stored != nil && stored.Refresh != old.Refresh {
		a.setToken(stored)
		return nil
	}
	slog.Warn("the authorization of a server has ended; its next call asks for a new one", "server", a.server.id)
	a.setToken(nil)
	a.dropToken(ctx)
	return nil
}

func (a *serverAuth) setToken(t *token) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token = t
}

// grantName names the server's token among those of its tenant.
func (a *serverAuth) grantName() string {
	if p := a.server.principal; p.isCaller() {
		return a.server.key + "\x00" + p.Key()
	}
	return a.server.key
}

// storeToken stores a token. One that cannot be stored is used all the same.
func (a *serverAuth) storeToken(ctx context.Context, t *token) {
	text, err := json.Marshal(t.tokenRecord)
	if err == nil {
		err = a.transport.grants.Put(context.WithoutCancel(ctx), a.server.principal.Tenant, a.grantName(), text)
	}
	if err != nil {
		slog.Warn("a token was not stored: it is lost when the gateway stops", "server", a.server.id, "error", err)
	}
}

// dropToken removes the stored token.
func (a *serverAuth) dropToken(ctx context.Context) {
	if err := a.transport.grants.Drop(ctx, a.server.principal.Tenant, a.grantName()); err != nil {
		slog.Warn("a token was not removed from the store", "server", a.server.id, "error", err)
	}
}

// touchToken keeps a token that is in use from expiring in the store.
func (a *serverAuth) touchToken(ctx context.Context, t *token) {
	found, err := a.transport.grants.Touch(context.WithoutCancel(ctx), a.server.principal.Tenant, a.grantName())
	if err == nil && !found {
		a.storeToken(ctx, t)
	}
}

// loadToken reads the stored token; nil when there is none. A record that cannot be opened counts as
// none: the secret it was sealed with is gone.
func (a *serverAuth) loadToken(ctx context.Context) (*token, error) {
	text, err := a.transport.grants.Get(ctx, a.server.principal.Tenant, a.grantName())
	if old := a.transport.oldGrants; fault.KindOf(err) == fault.UnknownHandle && old.Get != nil && a.server.principal == (Principal{Tenant: defaultTenant}) {
		// An earlier version kept the token of the default tenant elsewhere.
		if text, err = old.Get(ctx, defaultTenant, a.grantName()); err == nil {
			if err := a.transport.grants.Put(ctx, defaultTenant, a.grantName(), text); err == nil {
				_ = old.Drop(ctx, defaultTenant, a.grantName())
			}
		}
	}
	switch {
	case fault.KindOf(err) == fault.UnknownHandle:
		return nil, nil
	case err != nil && !errors.Is(err, ErrUnreadable): // the store failed
		return nil, err
	}
	var r tokenRecord
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil && r.Server == a.server.id && r.URL == a.server.url && r.Access != "" && r.isOf(a.server.principal) {
		return &token{tokenRecord: r}, nil
	}
	slog.Warn("a stored token cannot be read; the server has to be authorized again", "server", a.server.id)
	return nil, nil
}

// isOf reports whether the record is one of a principal.
func (r tokenRecord) isOf(p Principal) bool {
	if r.Owner == nil {
		return p == Principal{Tenant: defaultTenant}
	}
	return *r.Owner == p
}

// ownerOf is the owner of a principal's records.
func ownerOf(p Principal) *Principal {
	if p == (Principal{Tenant: defaultTenant}) {
		return nil // as earlier versions wrote it
	}
	return &p
}
