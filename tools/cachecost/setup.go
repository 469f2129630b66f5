package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/upstream"
)

// testSetup is a provider and the gateway in front of it. Both use the provider's clock.
type testSetup struct {
	provider *fakeprovider.Provider
	url      string // of the gateway
	closers  []func()
}

// storeTimeout is long: on a busy machine an original that is not stored in time would stay unmasked and
// change the bill.
const storeTimeout = unit.Duration(time.Minute)

// openSetup starts both. The gateway's configuration has the prices of the run.
func openSetup(r replayRun) (*testSetup, error) {
	w := &testSetup{provider: fakeprovider.New(nil, fakeprovider.Options{
		DiscardBodies: true, MarksLast: r.rules.marksLast, CacheUnit: r.rules.unit, MinCacheTokens: r.rules.minTokens, CacheTTL: r.rules.ttl,
	})}
	w.closers = append(w.closers, w.provider.Close)
	limits, keeping := state.Default(), recall.Default()
	limits.Timeout, keeping.KeepTimeout = storeTimeout, storeTimeout
	store := state.New(memory.New(), limits, w.provider.Now)
	w.closers = append(w.closers, func() { _ = store.Close() })
	recaller, err := recall.New(store, bytes.Repeat([]byte("s"), recall.MinSecretBytes), keeping)
	if err != nil {
		return nil, w.closeWith(err)
	}
	transport := upstream.NewTransport()
	w.closers = append(w.closers, transport.CloseIdleConnections)
	masker := masking.New(recaller, w.provider.Now)
	proxy := chat.New(chatSettings(r, w.provider.URL), chat.Deps{
		Transport: transport, Meter: meter.New("cachecost", func() (meter.StoreStats, bool) { return meter.StoreStats{}, true }), Shrink: masker.Shrink, CountInput: masker.CountInput, Recall: recaller,
	})
	if err := w.serveGateway(proxy); err != nil {
		return nil, w.closeWith(err)
	}
	return w, nil
}

func chatSettings(r replayRun, url string) chat.Settings {
	var provider chat.Provider
	provider.SetDefaults()
	provider.Name, provider.Kind, provider.BaseURL = "provider", chat.APIKind(r.wire.kind), secret.URL(url)
	if r.price != (history.CachePrices{}) {
		provider.Cache.Write, provider.Cache.Read = r.price.Write, r.price.Read
	}
	s := chat.Settings{Chat: chat.Default(), HTTP: front.Default().HTTP}
	s.Chat.Providers = []chat.Provider{provider}
	s.Chat.ObservationMasking.Schema1 = r.policy
	if r.model != "" {
		agents := config.DefaultFor("agents").Chat
		s.Chat.ObservationMasking, s.Chat.LLM = agents.ObservationMasking, agents.LLM
		s.Chat.ObservationMasking.Recovery.Offer = false // the tables show what the policy does
	}
	return s
}

func (w *testSetup) serveGateway(proxy *chat.Proxy) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: proxy.Handler(front.NewGuard(ln.Addr().String(), front.HTTP{})), ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(ln)
	}()
	w.closers = append(w.closers, func() { _ = server.Close(); <-done })
	w.url = "http://" + ln.Addr().String()
	return nil
}

// Close stops everything in reverse order.
func (w *testSetup) Close() {
	for len(w.closers) > 0 {
		last := len(w.closers) - 1
		w.closers[last]()
		w.closers = w.closers[:last]
	}
}

func (w *testSetup) closeWith(err error) error {
	w.Close()
	return fmt.Errorf("open the gateway: %w", err)
}
