package hub_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/hub/legacy"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/replica"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/upstream"
)

// rootSecret is the secret of all gateways of a test: they are replicas of one.
var rootSecret = bytes.Repeat([]byte("k"), recall.MinSecretBytes)

// mcpGateway is a gateway with MCP servers behind it.
type mcpGateway struct {
	*gateway
	hub     *hub.Hub
	setup   setup
	limiter *limit.Limiter
	gate    *gate.Gate
	budget  *membudget.Budget
	handler atomic.Pointer[http.Handler]
	replica *replica.Replica // nil where it is the only one
}

// buildGateway returns a hub with these servers.
func buildGateway(t testing.TB, configure func(*setup), sole bool, servers ...*fakeServer) *mcpGateway {
	t.Helper()
	transport := upstream.NewTransport()
	gw := &mcpGateway{gateway: &gateway{}, setup: setup{
		budget: 1 << 30,
		hub:    hub.Default(), http: front.Default().HTTP, upstream: upstream.Default(), recall: recall.Default(), state: state.Default(),
		driver: memory.New(), transport: transport, pins: pins.NewGuard(pins.Default(), nil, pins.Deps{}),
	}}
	gw.setup.hub.ListWait = unit.Duration(patience)
	gw.setup.upstream.HealthcheckInterval = 0
	for _, f := range servers {
		gw.setup.upstream.Servers = append(gw.setup.upstream.Servers, f.config())
	}
	if configure != nil {
		configure(&gw.setup)
	}
	gw.budget = membudget.New(gw.setup.budget)
	store := state.New(gw.setup.driver, gw.setup.state, time.Now)
	var err error
	if gw.recall, err = recall.New(store, rootSecret, gw.setup.recall); err != nil {
		t.Fatal(err)
	}
	gw.meter = meter.New("test", func() (meter.StoreStats, bool) { return meter.StoreStats{}, true })
	gw.limiter = limit.New(gw.setup.limit, time.Now)
	if gw.setup.leases != nil {
		if gw.replica, err = replica.New(gw.setup.leases, rootSecret); err != nil {
			t.Fatal(err)
		}
	}
	gw.hub, err = hub.New(gw.settings(), hub.Deps{
		Transport: transport, Recall: gw.recall, Meter: gw.meter, Budget: gw.budget, Pins: gw.setup.pins, Secret: rootSecret, Env: os.Environ(), SingleClient: sole, Builtins: gw.setup.builtins, Version: "test",
		Legacy: legacy.New, Replicas: gw.replica, AnnounceLists: gw.setup.announce,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		gw.hub.Close()
		transport.CloseIdleConnections()
		_ = store.Close()
		expectNothingHeld(t, gw.budget)
	})
	return gw
}

func (gw *mcpGateway) settings() hub.Settings {
	gw.gate = gw.setup.gate(gw.limiter)
	return hub.Settings{Hub: gw.setup.hub, HTTP: gw.setup.http, Gate: gw.gate, Upstream: gw.setup.upstream}
}

// startGateway starts a gateway with these servers on a real listener.
func startGateway(t testing.TB, configure func(*setup), servers ...*fakeServer) *mcpGateway {
	t.Helper()
	gw := buildGateway(t, configure, false, servers...)
	gw.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*gw.handler.Load()).ServeHTTP(w, r)
	}))
	gw.installHandler()
	gw.Start()
	gw.hub.Start()
	t.Cleanup(func() {
		gw.hub.EndStreams()
		gw.CloseClientConnections()
		gw.Close()
	})
	return gw
}

// expectNothingHeld checks that everything that was reserved from a budget is released in a while.
func expectNothingHeld(t testing.TB, budget *membudget.Budget) {
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

// installHandler builds the middleware chain of the current configuration.
func (gw *mcpGateway) installHandler() {
	mux := http.NewServeMux()
	gw.hub.Routes(mux)
	guard := front.NewGuard(gw.Listener.Addr().String(), front.HTTP{})
	h := front.Wrap(mux, front.Chain(gw.gate, guard, gw.setup.http, gw.budget, hub.WriteError, hub.ReadsTokenFromBody)...)
	gw.handler.Store(&h)
}

// reload puts a changed configuration into force.
func (gw *mcpGateway) reload(configure func(*setup)) {
	gw.setup.upstream.Servers = append([]upstream.ServerConfig(nil), gw.setup.upstream.Servers...)
	configure(&gw.setup)
	gw.limiter.Apply(gw.setup.limit)
	if err := gw.hub.Apply(gw.settings()); err != nil {
		panic(err)
	}
	if gw.Server != nil {
		gw.installHandler()
	}
}

// protocols is both protocols.
var protocols = []mcp.Protocol{mcp.Legacy, mcp.Modern}

// removeServer removes a server from the configuration.
func (s *setup) removeServer(id string) {
	var left []upstream.ServerConfig
	for _, e := range s.upstream.Servers {
		if e.ID != id {
			left = append(left, e)
		}
	}
	s.upstream.Servers = left
}
