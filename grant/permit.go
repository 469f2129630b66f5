package grant

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/ctxgate/ctxgate/fault"
)

// permit is what is known of one server.
type permit struct {
	desk   *Desk
	server *Server

	// Used by the one asking that is under way.
	reach   *reach
	handler *auth.AuthorizationCodeHandler
	now     *asking

	mu       sync.Mutex
	held     *pass // nil for none
	asking   *errand
	renewing *errand
	warned   bool            // that no token is sent at all
	looked   bool            // the store was asked
	asked    map[string]bool // scopes asked for since the process began
	pause    time.Duration
	rest     time.Time // no user is asked before
	why      error     // the last asking failed
}

func newPermit(d *Desk, s *Server) *permit {
	return &permit{desk: d, server: s, reach: newReach(s.url), asked: map[string]bool{}}
}

// errand is something that the requests of a server wait for: a user, or a renewed token.
type errand struct {
	done     chan struct{}
	err      error
	patience time.Time // nobody waits longer
}

const notAuthorized = "could not be authorized: see the gateway's log"

var errStopping = fault.New(fault.Unavailable, "the gateway is being stopped")

// demand is what a refusal asks for.
type demand struct {
	status int
	header http.Header
	scopes []string
}

// demandOf reads a response; the zero demand asks for nothing that could be had here.
func demandOf(resp *http.Response) demand {
	if resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		return demand{}
	}
	challenges, err := oauthex.ParseWWWAuthenticate(resp.Header.Values("WWW-Authenticate"))
	i := slices.IndexFunc(challenges, func(c oauthex.Challenge) bool { return c.Scheme == "bearer" })
	if err != nil || i < 0 {
		return demand{}
	}
	want := demand{status: resp.StatusCode, header: resp.Header, scopes: strings.Fields(challenges[i].Params["scope"])}
	if resp.StatusCode == http.StatusForbidden && challenges[i].Params["error"] != "insufficient_scope" {
		return demand{}
	}
	return want
}

// canHelp says whether a permission may help against a refusal. It also notes that a token was
// taken. Scopes that were asked for already would come out no better a second time.
func (p *permit) canHelp(held *pass, status int, want demand) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if held != nil && status != http.StatusUnauthorized {
		p.taken(held)
	}
	switch want.status {
	case http.StatusUnauthorized:
		if !p.server.private && !p.warned {
			p.warned = true
			slog.Warn("a server wants a token, which is not sent over plain http", "server", p.server.id)
		}
		return p.server.private
	case http.StatusForbidden:
		return p.server.private && slices.ContainsFunc(want.scopes, func(s string) bool { return !p.asked[s] })
	}
	return false
}

// taken notes that the server took a token, and keeps it from being forgotten; the lock is held.
func (p *permit) taken(held *pass) {
	if !held.taken {
		held.taken, p.pause = true, 0
	}
	if time.Since(held.touched) > touchEvery {
		held.touched = time.Now()
		p.desk.background(func(ctx context.Context) { p.touch(ctx, held) })
	}
}

// current is the token to send; nil for none. One that is about to end is renewed first.
func (p *permit) current(ctx context.Context) (*pass, error) {
	p.mu.Lock()
	held := p.held
	if held == nil || !held.stale() {
		p.mu.Unlock()
		return held, nil
	}
	e := p.renewal(held)
	p.mu.Unlock()
	if err := p.await(ctx, e); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held, nil
}

// improve gets a better permission than the one that was refused, or waits until somebody else
// did. It returns nil when sending the request again is worth it.
func (p *permit) improve(ctx context.Context, refused *pass, want demand) error {
	p.mu.Lock()
	e, err := p.improvement(ctx, refused, want)
	p.mu.Unlock()
	if e == nil || err != nil {
		return err
	}
	return p.await(ctx, e)
}

// improvement chooses what to do, the cheapest first; the lock is held. With neither an errand nor
// an error there is something better already.
func (p *permit) improvement(ctx context.Context, refused *pass, want demand) (*errand, error) {
	if err := p.look(ctx); err != nil {
		return nil, err
	}
	switch {
	case p.held != refused:
		return nil, nil
	case want.status == http.StatusUnauthorized && refused.renewable():
		return p.renewal(refused), nil
	case p.asking != nil:
		return p.asking, nil
	case time.Now().Before(p.rest):
		return nil, missing(p.server.id, notAuthorized, &Missing{Why: p.why})
	case refused != nil && refused.asked && !refused.taken && want.status == http.StatusUnauthorized:
		return nil, p.fail(errors.New("the server does not take the token it was authorized with"))
	}
	return p.begin(&p.asking, p.desk.pace.patience, func(ctx context.Context) error { return p.ask(ctx, want) }), nil
}

// renewal is the errand that renews a token; the lock is held.
func (p *permit) renewal(old *pass) *errand {
	if p.renewing != nil {
		return p.renewing
	}
	return p.begin(&p.renewing, 2*renewTime, func(ctx context.Context) error { return p.renew(ctx, old) })
}

// look reads the token that an earlier process kept; the lock is held.
func (p *permit) look(ctx context.Context) error {
	if p.looked {
		return nil
	}
	kept, err := p.load(ctx)
	if err != nil {
		return fault.Wrap(fault.Unavailable, "the server's token cannot be read from the store", err)
	}
	p.looked = true
	if kept != nil {
		p.held = kept
	}
	return nil
}

// fail notes that there is no permission to be had for now; the lock is held.
func (p *permit) fail(why error) error {
	pace := p.desk.pace
	p.pause = min(max(2*p.pause, pace.firstPause), pace.longPause)
	p.rest, p.why = time.Now().Add(p.pause), why
	slog.Warn("a server could not be authorized", "server", p.server.id, "error", why, "pause", p.pause.String())
	return missing(p.server.id, notAuthorized, &Missing{Why: why})
}

// begin starts an errand in its place, which is empty again when it ends; the lock is held.
func (p *permit) begin(place **errand, patience time.Duration, run func(context.Context) error) *errand {
	e := &errand{done: make(chan struct{}), patience: time.Now().Add(patience)}
	finish := func(err error) {
		*place, e.err = nil, err
		close(e.done)
	}
	*place = e
	started := p.desk.background(func(ctx context.Context) {
		err := run(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		finish(err)
	})
	if !started {
		finish(errStopping)
	}
	return e
}

// await waits for an errand, but not for a user who takes their time.
func (p *permit) await(ctx context.Context, e *errand) error {
	limit := time.NewTimer(time.Until(e.patience))
	defer limit.Stop()
	select {
	case <-e.done:
		return e.err
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
		return missing(p.server.id, "waits to be authorized: the gateway's log says how", &Missing{Until: e.done, Why: errors.New("nobody has opened the address yet")})
	}
}

// background runs something that outlives a request, and ends with the desk.
func (d *Desk) background(run func(context.Context)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.work.Go(func() { run(d.life) })
	return true
}
