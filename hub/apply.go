package hub

import (
	"errors"
	"slices"
	"time"

	"github.com/ctxgate/ctxgate/upstream"
)

// Apply puts a new configuration into force: what it says holds for every request from now on,
// what is new is started, what is gone is closed when its calls are done, and what is the same goes
// on untouched. A server that changed is served by the old one until the new one is there. A hub that
// is ending takes no configuration: nobody would end the servers that it starts.
func (h *Hub) Apply(s Settings) error {
	h.applying.Lock()
	defer h.applying.Unlock()
	if h.ended() {
		return errEnded
	}
	inForce, last := h.plan.Load(), h.wanted
	if last == nil {
		last = inForce
	}
	next := h.newPlan(s, last)
	h.start(next)
	h.wanted = next
	h.settle(next)
	for id, r := range last.remotes { // what never came into force
		if next.remotes[id] != r && inForce.remotes[id] != r {
			h.retiring.Go(r.Close)
		}
	}
	return nil
}

var errEnded = errors.New("the gateway is stopping")

// start starts the servers of a plan that are not started yet.
func (h *Hub) start(p *plan) {
	client, peer, met := h.sessions.sole()
	for _, r := range p.order {
		switch {
		case !h.deps.Sole:
			r.Start()
		case met:
			r.StartFor(client, peer)
		}
	}
}

// settle installs a plan, with the servers of the one in force in the place of those that have not
// come up yet, and again when they have; the lock is held.
func (h *Hub) settle(next *plan) {
	now := h.plan.Load()
	stand := map[*upstream.Remote]*upstream.Remote{} // new → old
	for id, r := range next.remotes {
		if old := now.remotes[id]; old != nil && old != r && !r.Settled() {
			stand[r] = old
		}
	}
	h.install(next.with(stand))
	if len(stand) == 0 {
		return
	}
	go func() {
		for r := range stand {
			r.AwaitSettled(h.closing)
		}
		h.applying.Lock()
		defer h.applying.Unlock()
		if h.wanted == next && !h.ended() {
			h.settle(next)
		}
	}()
}

// with is the plan with some of its servers replaced.
func (p *plan) with(stand map[*upstream.Remote]*upstream.Remote) *plan {
	if len(stand) == 0 {
		return p
	}
	q := &plan{
		Settings: p.Settings, gate: p.gate, rules: p.rules, routes: p.routes,
		prefix: p.prefix, raw: p.raw, own: p.own, owns: p.owns,
		order: slices.Clone(p.order), remotes: map[string]*upstream.Remote{},
	}
	for i, r := range q.order {
		if old := stand[r]; old != nil {
			q.order[i] = old
		}
		q.remotes[r.ID()] = q.order[i]
	}
	return q
}

// install puts a plan into force and closes what the old one had and the new one has not.
func (h *Hub) install(next *plan) {
	old := h.plan.Load()
	h.plan.Store(next)
	h.streams.recheck(next.gate)
	h.shelves.replan(next)
	h.rehome(next)
	grace := next.HTTP.DrainGrace.D()
	h.retiring.Go(func() { h.retire(old, next, grace) })
}

// retire closes the servers of a plan that the next one does not have, once their calls are done.
func (h *Hub) retire(old, next *plan, grace time.Duration) {
	for until := time.Now().Add(grace); old.users.Load() > 0 && time.Now().Before(until) && !h.ended(); {
		time.Sleep(10 * time.Millisecond)
	}
	for id, r := range old.remotes {
		if next.remotes[id] != r {
			h.retiring.Go(func() { r.Retire(grace) })
		}
	}
}

func (h *Hub) ended() bool {
	select {
	case <-h.closing:
		return true
	default:
		return false
	}
}
