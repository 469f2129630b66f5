package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/llmtest"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/upstream"
)

// world is a provider and the gateway in front of it, with one clock for both: the provider's.
type world struct {
	provider *llmtest.Provider
	url      string // of the gateway
	closers  []func()
}

// patience is for busy machines: what cannot be kept in time goes unmasked, and that is another bill.
const patience = unit.Duration(time.Minute)

// open starts both. What the gateway believes of prices is what its config would say.
func open(r run) (*world, error) {
	w := &world{provider: llmtest.New(nil, llmtest.Options{Forgetful: true})}
	w.closers = append(w.closers, w.provider.Close)
	limits, keeping := state.Default(), recall.Default()
	limits.Timeout, keeping.KeepTimeout = patience, patience
	store := state.New(memory.New(), limits, w.provider.Now)
	w.closers = append(w.closers, func() { _ = store.Close() })
	keeper, err := recall.New(store, bytes.Repeat([]byte("s"), recall.MinSecret), keeping)
	if err != nil {
		return nil, w.failed(err)
	}
	transport := upstream.NewTransport()
	w.closers = append(w.closers, transport.CloseIdleConnections)
	door := chat.New(settings(r, w.provider.URL), chat.Deps{
		Transport: transport, Meter: meter.New("cachecost", func() (meter.Store, bool) { return meter.Store{}, true }), Shrink: chat.Mask(keeper, w.provider.Now),
	})
	if err := w.listen(door); err != nil {
		return nil, w.failed(err)
	}
	return w, nil
}

func settings(r run, url string) chat.Settings {
	var far chat.Provider
	far.SetDefaults()
	far.Name, far.Kind, far.BaseURL = "far", r.wire.kind, secret.URL(url)
	if r.price != (history.Cache{}) {
		far.Cache.Write, far.Cache.Read = r.price.Write, r.price.Read
	}
	s := chat.Settings{Chat: chat.Default(), HTTP: front.Default().HTTP}
	s.Chat.Providers = []chat.Provider{far}
	s.Chat.Observation.Schema1 = r.policy
	return s
}

func (w *world) listen(door *chat.Door) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: door.Handler(front.NewGuard(ln.Addr().String(), front.HTTP{})), ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(ln)
	}()
	w.closers = append(w.closers, func() { _ = server.Close(); <-done })
	w.url = "http://" + ln.Addr().String()
	return nil
}

// Close ends what was started, the last first.
func (w *world) Close() {
	for len(w.closers) > 0 {
		last := len(w.closers) - 1
		w.closers[last]()
		w.closers = w.closers[:last]
	}
}

func (w *world) failed(err error) error {
	w.Close()
	return fmt.Errorf("open the gateway: %w", err)
}
