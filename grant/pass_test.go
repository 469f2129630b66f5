package grant

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/seal"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// A token outlives the process that got it; what is kept of it is sealed.
func TestKeptAcrossRestarts(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	store := newStore(t)
	first := open(t, store)
	mustPost(t, first, w.to(Config{}), "x")
	first.Close()
	kept, err := store.Get(t.Context(), first.permit(w.to(Config{})).group())
	if err != nil || strings.Contains(string(kept), "SECRET") {
		t.Errorf("the store holds %q, %v", kept, err)
	}
	second := open(t, store)
	mustPost(t, second, w.to(Config{}), "y")
	if asks, _, _, _ := w.counts(); asks != 1 {
		t.Errorf("asked %d times", asks)
	}
	third := open(t, store)
	third.seal, _ = seal.New([]byte("another root secret of many bytes"), "oauth")
	mustPost(t, third, w.to(Config{}), "z")
	if asks, _, _, _ := w.counts(); asks != 2 {
		t.Errorf("with another secret: asked %d times", asks)
	}
}

// What was kept for one server is none of another's, even if somebody moves it.
func TestMovedRecordIsNone(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	w.n = 100 // no token of the one is one of the other
	listenTo(t, willing)
	store := newStore(t)
	d := open(t, store)
	mustPost(t, d, w.to(Config{}), "x")
	kept, err := store.Get(t.Context(), d.permit(w.to(Config{})).group())
	if err != nil {
		t.Fatal(err)
	}
	to := For("x", other.server.URL+"/mcp", Config{})
	group := d.permit(to).group()
	if err := store.Put(t.Context(), state.Item{Key: group, Group: group, Value: kept}); err != nil {
		t.Fatal(err)
	}
	mustPost(t, d, to, "y")
	if slices.ContainsFunc(other.sent, func(token string) bool { return slices.Contains(w.tokens, token) }) {
		t.Errorf("the other server got %v", other.sent)
	}
}

// A token that ends is renewed, once for all who need it, at the place it came from.
func TestRenewed(t *testing.T) {
	w := newWorld(t)
	w.lasts = 5 // less than renewEarly: stale from the beginning
	listenTo(t, willing)
	store := newStore(t)
	d := open(t, store)
	mustPost(t, d, w.to(Config{}), "x")
	w.mu.Lock()
	w.lasts, w.grants = 3600, nil
	w.mu.Unlock()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if got, err := post(t.Context(), d, w.to(Config{}), "y"); err != nil || got != "200 echo y" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	wg.Wait()
	asks, grants, _, _ := w.counts()
	if asks != 1 || grants != 1 {
		t.Fatalf("asked %d times, renewed %d times", asks, grants)
	}
	given := w.grants[0]
	if given.Get("grant_type") != "refresh_token" || given.Get("resource") != w.server.URL+"/mcp" || given.Get("code") != "" {
		t.Errorf("renewed with %v", given)
	}
	again := open(t, store) // the renewed one was kept
	mustPost(t, again, w.to(Config{}), "z")
	if asks, grants, _, _ := w.counts(); asks != 1 || grants != 1 {
		t.Errorf("after a restart: asked %d times, renewed %d times", asks, grants)
	}
}

// A token that the server takes no more is renewed first; the user is asked only when that fails.
func TestRevoked(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	d := open(t, newStore(t))
	mustPost(t, d, w.to(Config{}), "x")
	w.revoke()
	mustPost(t, d, w.to(Config{}), "y")
	if asks, grants, _, _ := w.counts(); asks != 1 || grants != 2 {
		t.Errorf("asked %d times, granted %d times", asks, grants)
	}
	w.revoke()
	w.mu.Lock()
	clear(w.refreshs)
	w.mu.Unlock()
	mustPost(t, d, w.to(Config{}), "z")
	if asks, _, _, _ := w.counts(); asks != 2 {
		t.Errorf("asked %d times", asks)
	}
}

// Two processes that share a store renew the same token: the one that comes second takes what the
// first one got.
func TestRenewedByAnother(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	store := newStore(t)
	one, two := open(t, store), open(t, store)
	mustPost(t, one, w.to(Config{}), "x")
	mustPost(t, two, w.to(Config{}), "x")
	w.revoke()
	mustPost(t, one, w.to(Config{}), "y")
	mustPost(t, two, w.to(Config{}), "y")
	if asks, _, _, _ := w.counts(); asks != 1 {
		t.Errorf("asked %d times", asks)
	}
}

// An authorization server that cannot be reached now does not cost the authorization.
func TestRenewalFailsForNow(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	d := open(t, newStore(t))
	mustPost(t, d, w.to(Config{}), "x")
	w.revoke()
	down := true
	w.tokenAt = func(rw http.ResponseWriter, _ *http.Request) bool {
		if down {
			http.Error(rw, "SECRET-trouble", http.StatusServiceUnavailable)
		}
		return down
	}
	_, err := post(t.Context(), d, w.to(Config{}), "y")
	if fault.PublicOf(err) != `the token of server "x" cannot be renewed now` || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("got %v", err)
	}
	down = false
	mustPost(t, d, w.to(Config{}), "z")
	if asks, _, _, _ := w.counts(); asks != 1 {
		t.Errorf("asked %d times", asks)
	}
}

// broken is a store's driver that does not work.
type broken struct {
	state.Driver
	put, get bool
}

func (b *broken) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	if b.put {
		return errors.New("the disk is full")
	}
	return b.Driver.Put(ctx, items, lease)
}

func (b *broken) Get(ctx context.Context, key string, now time.Time) ([]byte, error) {
	if b.get {
		return nil, errors.New("the disk is gone")
	}
	return b.Driver.Get(ctx, key, now)
}

// A store that takes nothing costs the token at the next start, and nothing before; one that gives
// nothing back costs the calls, because the token may still be there.
func TestStoreFails(t *testing.T) {
	w := newWorld(t)
	l := listenTo(t, willing)
	driver := &broken{Driver: memory.New(), put: true}
	store := state.New(driver, state.Default(), time.Now)
	defer store.Close()
	d := open(t, store)
	mustPost(t, d, w.to(Config{}), "x")
	mustPost(t, d, w.to(Config{}), "y")
	if !strings.Contains(l.String(), "a token was not kept") {
		t.Errorf("the log says only:\n%s", l)
	}
	driver.get = true
	again := open(t, store)
	if _, err := post(t.Context(), again, w.to(Config{}), "z"); fault.PublicOf(err) != "the server's token cannot be read from the store" {
		t.Errorf("got %v", err)
	}
	if asks, _, _, _ := w.counts(); asks != 1 {
		t.Errorf("asked %d times", asks)
	}
}

// A token that is in use does not expire in the store, and comes back if it did.
func TestTouched(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	store := newStore(t)
	d := open(t, store)
	mustPost(t, d, w.to(Config{}), "x")
	p := d.permit(w.to(Config{}))
	if err := store.Drop(t.Context(), p.group()); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.held.touched = time.Now().Add(-2 * touchEvery)
	p.mu.Unlock()
	mustPost(t, d, w.to(Config{}), "y")
	d.Close() // waits for what is under way
	if _, err := store.Get(t.Context(), p.group()); err != nil {
		t.Errorf("the token is not kept: %v", err)
	}
}
