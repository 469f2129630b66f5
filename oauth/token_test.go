package oauth

import (
	"context"
	"errors"
	"fmt"
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

// storeKey is where a transport without Grants keeps a token: the same place as in earlier versions.
func storeKey(a *serverAuth) string {
	return "oauth\x00" + a.server.principal.Tenant + "\x00" + a.grantName()
}

// A token outlives the process that got it; it is stored sealed.
func TestTokenSurvivesRestart(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	store := newStore(t)
	first := newTestTransport(t, store)
	mustPost(t, first, w.target(Config{}), "x")
	first.Close()
	kept, err := store.Get(t.Context(), storeKey(first.authOf(w.target(Config{}))))
	if err != nil || strings.Contains(string(kept), "SECRET") {
		t.Errorf("the store holds %q, %v", kept, err)
	}
	second := newTestTransport(t, store)
	mustPost(t, second, w.target(Config{}), "y")
	if authRequests, _, _, _ := w.counts(); authRequests != 1 {
		t.Errorf("%d authorization requests", authRequests)
	}
	third := newTestTransport(t, store)
	other, _ := seal.New([]byte("another root secret of many bytes"), "oauth")
	third.grants = sealedGrants(store, other)
	mustPost(t, third, w.target(Config{}), "z")
	if authRequests, _, _, _ := w.counts(); authRequests != 2 {
		t.Errorf("with another secret: %d authorization requests", authRequests)
	}
}

// A token record copied to another server's key is ignored.
func TestCopiedRecordIsIgnored(t *testing.T) {
	w, other := newFakeServers(t), newFakeServers(t)
	w.counter = 100 // no token of the one is one of the other
	captureLog(t, approve)
	store := newStore(t)
	d := newTestTransport(t, store)
	mustPost(t, d, w.target(Config{}), "x")
	kept, err := store.Get(t.Context(), storeKey(d.authOf(w.target(Config{}))))
	if err != nil {
		t.Fatal(err)
	}
	to := NewServer("x", other.server.URL+"/mcp", Config{})
	group := storeKey(d.authOf(to))
	if err := store.Put(t.Context(), state.Item{Key: group, Group: group, Value: kept}); err != nil {
		t.Fatal(err)
	}
	mustPost(t, d, to, "y")
	if slices.ContainsFunc(other.sent, func(token string) bool { return slices.Contains(w.tokens, token) }) {
		t.Errorf("the other server got %v", other.sent)
	}
}

// A token that expires is refreshed once for all requests, at the endpoint that issued it.
func TestRefresh(t *testing.T) {
	w := newFakeServers(t)
	w.lifetime = 5 // less than refreshEarly: stale from the beginning
	captureLog(t, approve)
	store := newStore(t)
	d := newTestTransport(t, store)
	mustPost(t, d, w.target(Config{}), "x")
	w.mu.Lock()
	w.lifetime, w.tokenRequests = 3600, nil
	w.mu.Unlock()
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if got, err := post(t.Context(), d, w.target(Config{}), "y"); err != nil || got != "200 echo y" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
	wg.Wait()
	authRequests, tokenRequests, _, _ := w.counts()
	if authRequests != 1 || tokenRequests != 1 {
		t.Fatalf("%d authorization requests, %d token requests", authRequests, tokenRequests)
	}
	given := w.tokenRequests[0]
	if given.Get("grant_type") != "refresh_token" || given.Get("resource") != w.server.URL+"/mcp" || given.Get("code") != "" {
		t.Errorf("refreshed with %v", given)
	}
	again := newTestTransport(t, store) // the renewed one was kept
	mustPost(t, again, w.target(Config{}), "z")
	if authRequests, tokenRequests, _, _ := w.counts(); authRequests != 1 || tokenRequests != 1 {
		t.Errorf("after a restart: %d authorization requests, %d token requests", authRequests, tokenRequests)
	}
}

// A token that the server rejects is refreshed first; the user is asked only when that fails.
func TestRevoked(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	mustPost(t, d, w.target(Config{}), "x")
	w.revoke()
	mustPost(t, d, w.target(Config{}), "y")
	if authRequests, tokenRequests, _, _ := w.counts(); authRequests != 1 || tokenRequests != 2 {
		t.Errorf("%d authorization requests, %d token requests", authRequests, tokenRequests)
	}
	w.revoke()
	w.mu.Lock()
	clear(w.refreshTokens)
	w.mu.Unlock()
	mustPost(t, d, w.target(Config{}), "z")
	if authRequests, _, _, _ := w.counts(); authRequests != 2 {
		t.Errorf("%d authorization requests", authRequests)
	}
}

// Two processes that share a store refresh the same token: the second takes what the first one got.
func TestRefreshedByAnotherProcess(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	store := newStore(t)
	one, two := newTestTransport(t, store), newTestTransport(t, store)
	mustPost(t, one, w.target(Config{}), "x")
	mustPost(t, two, w.target(Config{}), "x")
	w.revoke()
	mustPost(t, one, w.target(Config{}), "y")
	mustPost(t, two, w.target(Config{}), "y")
	if authRequests, _, _, _ := w.counts(); authRequests != 1 {
		t.Errorf("%d authorization requests", authRequests)
	}
}

// An authorization server that cannot be reached for a while does not end the authorization.
func TestRefreshFailsTemporarily(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	d := newTestTransport(t, newStore(t))
	mustPost(t, d, w.target(Config{}), "x")
	w.revoke()
	down := true
	w.onToken = func(rw http.ResponseWriter, _ *http.Request) bool {
		if down {
			http.Error(rw, "SECRET-trouble", http.StatusServiceUnavailable)
		}
		return down
	}
	_, err := post(t.Context(), d, w.target(Config{}), "y")
	if fault.PublicOf(err) != `the token of server "x" cannot be refreshed now` || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("got %v", err)
	}
	down = false
	mustPost(t, d, w.target(Config{}), "z")
	if authRequests, _, _, _ := w.counts(); authRequests != 1 {
		t.Errorf("%d authorization requests", authRequests)
	}
}

// broken is a store driver that fails.
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

func (b *broken) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	if b.get {
		return nil, errors.New("the disk is gone")
	}
	return b.Driver.Get(ctx, group, key, now)
}

// When the store does not write, the token is lost only at the next start. When it does not read, calls
// fail, because the token may still be there.
func TestStoreFails(t *testing.T) {
	w := newFakeServers(t)
	l := captureLog(t, approve)
	driver := &broken{Driver: memory.New(), put: true}
	store := state.New(driver, state.Default(), time.Now)
	defer store.Close()
	d := newTestTransport(t, store)
	mustPost(t, d, w.target(Config{}), "x")
	mustPost(t, d, w.target(Config{}), "y")
	if !strings.Contains(l.String(), "a token was not stored") {
		t.Errorf("the log is:\n%s", l)
	}
	driver.get = true
	again := newTestTransport(t, store)
	if _, err := post(t.Context(), again, w.target(Config{}), "z"); fault.PublicOf(err) != "the server's token cannot be read from the store" {
		t.Errorf("got %v", err)
	}
	if authRequests, _, _, _ := w.counts(); authRequests != 1 {
		t.Errorf("%d authorization requests", authRequests)
	}
}

// A token that is in use does not expire in the store, and is stored again if it did.
func TestTokenInUseDoesNotExpire(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	store := newStore(t)
	d := newTestTransport(t, store)
	mustPost(t, d, w.target(Config{}), "x")
	p := d.authOf(w.target(Config{}))
	if err := store.Drop(t.Context(), storeKey(p)); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.token.touchedAt = time.Now().Add(-2 * touchInterval)
	p.mu.Unlock()
	mustPost(t, d, w.target(Config{}), "y")
	d.Close() // waits for what is under way
	if _, err := store.Get(t.Context(), storeKey(p)); err != nil {
		t.Errorf("the token is not kept: %v", err)
	}
}

// A token is not evicted for tool results, however many there are and however old the token is.
func TestTokensAreNotEvicted(t *testing.T) {
	w := newFakeServers(t)
	captureLog(t, approve)
	config := state.Default()
	config.MaxBytes, config.Spare = 64<<10, 0
	moment := time.Now()
	store := state.New(memory.New(), config, func() time.Time { return moment })
	t.Cleanup(func() { _ = store.Close() })
	first := newTestTransport(t, store)
	mustPost(t, first, w.target(Config{}), "x")
	first.Close()
	for i := range 200 {
		moment = moment.Add(time.Minute)
		key := fmt.Sprint("text ", i)
		if err := store.Put(t.Context(), state.Item{Key: key, Group: key, Value: []byte(strings.Repeat("x", 4<<10))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Get(t.Context(), "text 0"); fault.KindOf(err) != fault.UnknownHandle {
		t.Fatalf("the store is not at its cap: %v", err)
	}
	second := newTestTransport(t, store)
	mustPost(t, second, w.target(Config{}), "y")
	if authRequests, _, _, _ := w.counts(); authRequests != 1 {
		t.Errorf("%d authorization requests for the token", authRequests)
	}
}
