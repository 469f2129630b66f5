package grant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/oauth2"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

const (
	renewTime  = 10 * time.Second
	renewEarly = 10 * time.Second // a token is renewed so long before its end
	touchEvery = time.Hour
)

// record is a token and all that is needed to renew it, as it is kept.
type record struct {
	Server   string           `json:"server"` // what it is for: a record that was moved is none
	URL      string           `json:"url"`
	Resource string           `json:"resource"`
	Client   string           `json:"client"`
	Secret   string           `json:"secret,omitempty"`
	Endpoint string           `json:"endpoint"` // where it came from, and the only place it is renewed
	Style    oauth2.AuthStyle `json:"style"`
	Scopes   []string         `json:"scopes,omitempty"`
	Access   string           `json:"access"`
	Refresh  string           `json:"refresh,omitempty"`
	Expires  time.Time        `json:"expires,omitzero"`
}

// pass is a token in use.
type pass struct {
	record
	asked   bool      // a user gave it, in this process
	renewed bool      // it is what a renewal gave
	taken   bool      // the server has taken it; the permit's lock
	touched time.Time // when the store was told that it is in use; the permit's lock
}

func newPass(s *Server, cfg *oauth2.Config, resource string, token *oauth2.Token) *pass {
	return &pass{asked: true, touched: time.Now(), record: record{
		Server: s.id, URL: s.url, Resource: resource, Scopes: cfg.Scopes,
		Client: cfg.ClientID, Secret: cfg.ClientSecret, Endpoint: cfg.Endpoint.TokenURL, Style: cfg.Endpoint.AuthStyle,
		Access: token.AccessToken, Refresh: token.RefreshToken, Expires: token.Expiry,
	}}
}

// renewer is what oauth2 wants to know to renew the token.
func (r record) renewer() *oauth2.Config {
	return &oauth2.Config{
		ClientID: r.Client, ClientSecret: r.Secret, Scopes: r.Scopes,
		Endpoint: oauth2.Endpoint{TokenURL: r.Endpoint, AuthStyle: r.Style},
	}
}

// stale says that the token should be renewed before it is used, and can be.
func (p *pass) stale() bool {
	return p.Refresh != "" && !p.Expires.IsZero() && time.Until(p.Expires) < renewEarly
}

// renewable says that renewing a token that was refused may help. It does not when the refused one
// is fresh itself.
func (p *pass) renewable() bool {
	return p != nil && p.Refresh != "" && (p.taken || !p.renewed && !p.asked)
}

// renew puts a new token in the place of an old one.
func (p *permit) renew(ctx context.Context, old *pass) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTime)
	defer cancel()
	reach := newReach(p.server.url)
	fresh, err := p.exchange(ctx, reach.client(), old)
	if refused(err) {
		return p.superseded(ctx, old)
	}
	if err != nil {
		return fault.Wrap(fault.Unavailable, fmt.Sprintf("the token of server %q cannot be renewed now", p.server.id), reach.tell(err))
	}
	p.replace(fresh)
	p.keep(ctx, fresh)
	return nil
}

// exchange is oauth2's own, with the resource that MCP wants in every token request.
func (p *permit) exchange(ctx context.Context, client *http.Client, old *pass) (*pass, error) {
	cfg := old.renewer()
	token, err := cfg.Exchange(context.WithValue(ctx, oauth2.HTTPClient, client), "",
		oauth2.SetAuthURLParam("grant_type", "refresh_token"),
		oauth2.SetAuthURLParam("refresh_token", old.Refresh),
		oauth2.SetAuthURLParam("resource", old.Resource))
	if err != nil {
		return nil, err
	}
	fresh := newPass(p.server, cfg, old.Resource, token)
	p.mu.Lock()
	defer p.mu.Unlock()
	fresh.asked, fresh.renewed = old.asked && !old.taken, true
	return fresh, nil
}

// refused says that the authorization server will never renew this token.
func refused(err error) bool {
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

// superseded looks whether another process that shares the store has renewed the token. If not,
// there is none any more.
func (p *permit) superseded(ctx context.Context, old *pass) error {
	kept, err := p.load(ctx)
	if err == nil && kept != nil && kept.Refresh != old.Refresh {
		p.replace(kept)
		return nil
	}
	slog.Warn("the authorization of a server has ended", "server", p.server.id)
	p.replace(nil)
	if err := p.desk.store.Drop(ctx, p.group()); err != nil {
		slog.Warn("a token was not removed from the store", "server", p.server.id, "error", err)
	}
	return nil
}

func (p *permit) replace(next *pass) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = next
}

// group is what the server's token is kept under. There is one tenant.
func (p *permit) group() string { return "oauth\x00default\x00" + p.server.key }

// keep puts a token into the store, where no text of tools takes its place. One that cannot be kept
// is used all the same.
func (p *permit) keep(ctx context.Context, held *pass) {
	text, err := json.Marshal(held.record)
	if err == nil {
		err = p.desk.store.Put(context.WithoutCancel(ctx), state.Item{Key: p.group(), Group: p.group(), Value: []byte(p.desk.seal.Seal(text)), Pinned: true})
	}
	if err != nil {
		slog.Warn("a token was not kept: it is lost when the gateway stops", "server", p.server.id, "error", err)
	}
}

// touch keeps a token that is in use from expiring in the store.
func (p *permit) touch(ctx context.Context, held *pass) {
	found, err := p.desk.store.Touch(context.WithoutCancel(ctx), p.group())
	if err == nil && !found {
		p.keep(ctx, held)
	}
}

// load reads the token back; nil when there is none. One that does not open is none: the secret
// it was sealed with is gone.
func (p *permit) load(ctx context.Context) (*pass, error) {
	sealed, err := p.desk.store.Get(ctx, p.group())
	if fault.KindOf(err) == fault.Unknown {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if r, ok := p.unseal(string(sealed)); ok {
		return &pass{record: r}, nil
	}
	slog.Warn("a kept token cannot be read; the server has to be authorized again", "server", p.server.id)
	return nil, nil
}

func (p *permit) unseal(sealed string) (r record, ok bool) {
	text, err := p.desk.seal.Open(sealed)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err == nil && r.Server == p.server.id && r.URL == p.server.url && r.Access != ""
}
