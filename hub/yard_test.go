package hub_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/upstream"
)

// rootSecret is what every token here is made with: all gateways of a test are replicas of one.
var rootSecret = bytes.Repeat([]byte("k"), recall.MinSecret)

// yard is a gateway whose servers are started.
type yard struct {
	*gateway
	door    *hub.Hub
	set     setup
	limiter *limit.Limiter
	budget  *membudget.Budget
	handler atomic.Pointer[http.Handler]
}

// build makes a hub over these servers.
func build(t testing.TB, mend func(*setup), sole bool, fars ...*far) *yard {
	t.Helper()
	transport := upstream.NewTransport()
	y := &yard{gateway: &gateway{}, set: setup{
		budget: 1 << 30,
		hub:    hub.Default(), http: front.Default().HTTP, upstream: upstream.Default(), recall: recall.Default(),
		driver: memory.New(), transport: transport,
	}}
	y.set.hub.ListWait = unit.Duration(patience)
	y.set.upstream.HealthcheckInterval = 0
	for _, f := range fars {
		y.set.upstream.Servers = append(y.set.upstream.Servers, f.entry())
	}
	if mend != nil {
		mend(&y.set)
	}
	y.budget = membudget.New(y.set.budget)
	store := state.New(y.set.driver, state.Default(), time.Now)
	var err error
	if y.recall, err = recall.New(store, rootSecret, y.set.recall); err != nil {
		t.Fatal(err)
	}
	y.meter = meter.New("test", func() (meter.Store, bool) { return meter.Store{}, true })
	y.limiter = limit.New(y.set.limit, time.Now)
	y.door, err = hub.New(y.settings(), hub.Deps{
		Transport: transport, Recall: y.recall, Meter: y.meter, Limiter: y.limiter, Budget: y.budget, Secret: rootSecret, Env: os.Environ(), Sole: sole, Token: y.set.token, Own: y.set.own, Version: "test",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		y.door.Close()
		transport.CloseIdleConnections()
		_ = store.Close()
		holdsNothing(t, y.budget)
	})
	return y
}

func (y *yard) settings() hub.Settings {
	return hub.Settings{Hub: y.set.hub, HTTP: y.set.http, Auth: y.set.auth, Upstream: y.set.upstream}
}

// start opens a gateway over these servers on a real listener.
func start(t testing.TB, mend func(*setup), fars ...*far) *yard {
	t.Helper()
	y := build(t, mend, false, fars...)
	y.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*y.handler.Load()).ServeHTTP(w, r)
	}))
	y.mount()
	y.Start()
	y.door.Start()
	t.Cleanup(func() {
		y.door.End()
		y.CloseClientConnections()
		y.Close()
	})
	return y
}

// holdsNothing says that everything that was taken from a budget was given back, in a while.
func holdsNothing(t testing.TB, budget *membudget.Budget) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		now := budget.Stats()
		if now.Held == 0 && now.Callers == 0 {
			return
		}
		if time.Now().After(until) {
			t.Errorf("memory is still held when the hub is closed: %+v", now)
			return
		}
	}
}

// mount builds the chain as the configuration has it.
func (y *yard) mount() {
	mux := http.NewServeMux()
	y.door.Routes(mux)
	guard := front.NewGuard(y.Listener.Addr().String(), front.HTTP{})
	h := front.Wrap(mux, front.Chain(auth.New(y.set.auth), guard, y.set.http, y.budget, hub.Refuse, hub.ReadsToken)...)
	y.handler.Store(&h)
}

// apply puts a changed configuration into force, as a reload does.
func (y *yard) apply(mend func(*setup)) {
	y.set.upstream.Servers = append([]upstream.Server(nil), y.set.upstream.Servers...)
	mend(&y.set)
	y.limiter.Apply(y.set.limit)
	if err := y.door.Apply(y.settings()); err != nil {
		panic(err)
	}
	if y.Server != nil {
		y.mount()
	}
}

// both are the eras.
var both = []mcp.Era{mcp.EraLegacy, mcp.EraModern}

// remove takes a server out of the table.
func (s *setup) remove(id string) {
	var left []upstream.Server
	for _, e := range s.upstream.Servers {
		if e.ID != id {
			left = append(left, e)
		}
	}
	s.upstream.Servers = left
}
