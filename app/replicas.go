package app

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/replica"
	"github.com/ctxgate/ctxgate/upstream"
)

// isShared says whether other processes share the store.
func (a *App) isShared() bool { return a.storage.Shared != nil && a.cfg.State.Driver != "memory" }

// shareLimits makes rates hold for all processes that share the store.
func (a *App) shareLimits(ctx context.Context) {
	if !a.isShared() {
		return
	}
	members := replica.Join(ctx, a.storage.Shared)
	a.onRelease(func() error { members.Close(); return nil })
	a.limiter.Share(limit.Shared{Counters: a.storage.Shared, Replicas: members.Count, Timeout: a.opts.storeTimeout, OnChange: func(err error) {
		if err != nil {
			slog.Warn("the store does not count calls: each replica has an equal share of every rate until it does", "replicas", members.Count(), "error", err)
			return
		}
		slog.Info("the store counts calls again")
	}})
}

// useOnce marks a signature as used. It reports false if any replica has marked it before.
func (a *App) useOnce(ctx context.Context, name string, lifetime time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	return a.storage.Shared.Hold(ctx, "used "+name, []byte(rand.Text()), lifetime)
}

// markTimeout is how long a signed request waits for the store.
const markTimeout = time.Second

// newReplica makes this process one of several, if the configuration says so.
func (a *App) newReplica() error {
	if a.cfg.Replicas.Listen == "" {
		if a.isShared() {
			if slices.ContainsFunc(a.cfg.Upstream.Servers, upstream.ServerConfig.RunsOnOne) {
				return errors.New("replicas.listen: is needed for servers with replicas = \"one\"")
			}
			slog.Info("replicas.listen is not set: other replicas that share the store cannot reach this one")
		}
		return nil
	}
	if a.storage.Shared == nil {
		return errors.New("replicas.listen: needs a store that replicas share: set state.driver = \"redis\"")
	}
	var err error
	if a.replica, err = replica.New(a.storage.Shared, a.storage.Root, a.storage.OldRoots...); err != nil {
		return err
	}
	a.onRelease(func() error { a.replica.Close(); return nil })
	return nil
}

// openReplicas opens the listener of the replicas, before the main listener: what a client begins here, other replicas
// can continue. It is drained after the main listener.
func (a *App) openReplicas(ctx context.Context) error {
	if a.replica == nil {
		return nil
	}
	a.onRelease(a.endExported)
	a.replicaHandler.Set(a.newReplicaHandler(a.cfg))
	if err := a.listen(ctx, "replicas", a.cfg.Replicas.Listen, a.replica.Accept(&a.replicaHandler)); err != nil {
		return err
	}
	l := a.listeners[len(a.listeners)-1]
	l.SetTLS(a.replica.ServerTLS)
	a.replica.Announce(ctx, a.cfg.Replicas.AddressFor(l.Addr()))
	if err := a.applyExported(a.cfg); err != nil {
		return err
	}
	slog.InfoContext(ctx, "other replicas find this one", "replica", a.replica.ID(), "address", a.cfg.Replicas.AddressFor(l.Addr()))
	return nil
}

// newReplicaHandler mounts what other replicas forward requests to.
func (a *App) newReplicaHandler(cfg config.Config) http.Handler {
	mux := http.NewServeMux()
	a.hub.Routes(mux)
	forwarded := front.Wrap(mux, front.ForwardedChain(a.gate, cfg.Front.HTTP, a.budget, hub.WriteError)...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, replica.LeaderPath) {
			a.serveExported(w, r)
			return
		}
		forwarded.ServeHTTP(w, r)
	})
}
