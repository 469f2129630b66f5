package app

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/changes"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub"
)

// The topics of what changes at other replicas.
const (
	configTopic = "config"
	listsTopic  = "lists " // and the server
)

const reloadTimeout = time.Minute // of one request to the operator's API

// newFeed connects this process to what changes at other replicas, if there can be any. It runs once the hub is built.
func (a *App) newFeed() {
	if a.storage.Shared == nil || a.cfg.State.Driver == "memory" {
		return
	}
	a.reloadHints = make(chan struct{}, 1)
	a.feed = changes.New(a.storage.Shared, a.topics, a.applyChange)
}

// runFeed runs it until the gateway is released.
func (a *App) runFeed(ctx context.Context) {
	if a.feed == nil {
		return
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { a.feed.Run(ctx) })
	a.onRelease(func() error { stop(); wg.Wait(); return nil })
}

func (a *App) topics() []string {
	topics := []string{configTopic}
	for _, id := range a.hub.ServerIDs() {
		topics = append(topics, listsTopic+id)
	}
	return topics
}

// applyChange reacts to what changed at another replica.
func (a *App) applyChange(topic, detail string) {
	if server, ok := strings.CutPrefix(topic, listsTopic); ok {
		a.hub.ReadListsAgain(server, detail)
		return
	}
	select {
	case a.reloadHints <- struct{}{}:
	default: // it is about to reload
	}
}

// announceLists tells the other replicas that a server's lists changed.
func (a *App) announceLists(server, hash string) {
	if a.feed != nil {
		a.feed.Announce(listsTopic+server, hash)
	}
}

// serveReload reads the configuration again, here and at the other replicas, and answers with what became of it here.
func (a *App) serveReload(w http.ResponseWriter, r *http.Request) {
	if a.reloadCalls == nil {
		hub.WriteError(w, r, fault.New(fault.NotFound, "this gateway has no config file to read again"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), reloadTimeout)
	defer cancel()
	reply := make(chan ReloadReport, 1)
	select {
	case a.reloadCalls <- reply:
	case <-ctx.Done():
		hub.WriteError(w, r, fault.Wrap(fault.Timeout, "the gateway is busy with another reload, or stopping", ctx.Err()))
		return
	}
	select {
	case report := <-reply:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(report) // fails only if the client is gone
	case <-ctx.Done():
		hub.WriteError(w, r, fault.Wrap(fault.Timeout, "the reload takes long; its outcome is in the log", ctx.Err()))
	}
}
