package legacy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/replica"
)

// The replica that opens a session serves it: the session's stream, the requests that servers send to its client and the
// processes of its own are there. Its name is in the session's id, so no other replica has to ask the store. When it is
// gone, the replica that notices first takes its place, and leaves its name in the store. A session that had state
// in a process that is gone (a child process of its own, subscriptions) ends instead: the client gets 404, and
// initializes again.

const (
	ownerPrefix = "session owner "
	markPrefix  = "session mark "

	markEnded = "ended"  // by its client
	markBound = "bound " // and the replica where it has state

	maxOwners   = 1 << 14 // sessions whose owner is remembered, in each generation
	ownerAge    = 2 * time.Second
	maxForwards = 3 // while replicas go away
)

// sessionOwner is the replica that took a session over, as it was found in the store.
type sessionOwner struct {
	id string
	at time.Time
}

// elsewhereError says that another replica has the session of a request.
type elsewhereError struct {
	req   *hub.Request
	name  string
	owner string
}

func (e *elsewhereError) Error() string { return "another replica has the session" }

// sessionHere returns the session of a request, which must be released, or forwards the request to the replica that
// has it.
func (e *endpoint) sessionHere(w http.ResponseWriter, r *http.Request, req *hub.Request, body []byte) (_ *session, forwarded bool, err error) {
	for range maxForwards {
		s, err := e.sessionOf(r, req)
		elsewhere, ok := errors.AsType[*elsewhereError](err)
		if !ok {
			return s, false, err
		}
		err = e.hub.ForwardToReplica(w, r, req, elsewhere.owner, body)
		if !errors.Is(err, replica.ErrGone) {
			return nil, err == nil, err
		}
		e.owners.Put(elsewhere.name, sessionOwner{}, 1)
	}
	return nil, false, replica.ErrGone
}

// ownerOf returns the replica that serves a session; "" where there is only this one. A session whose replica is gone
// is taken over.
func (e *endpoint) ownerOf(ctx context.Context, t sessionToken) (string, error) {
	replicas := e.hub.Deps().Replicas
	if replicas == nil || t.home == replicas.ID() || e.sessions.isHeld(t.name) {
		return e.hub.ReplicaID(), nil
	}
	if t.home != "" && !front.IsForwarded(ctx) { // a replica that forwards has found it gone
		if gone, err := replicas.IsGone(ctx, t.home); err != nil || !gone {
			return t.home, err
		}
	}
	if last, ok := e.owners.Get(t.name); ok && time.Since(last.at) < ownerAge {
		return last.id, nil
	}
	owner, err := replicas.Held(ctx, ownerPrefix+t.name)
	if err != nil {
		return "", err
	}
	if owner == "" {
		owner = t.home
	}
	if owner != replicas.ID() {
		gone := owner == "" || owner == t.home
		if !gone {
			if gone, err = replicas.IsGone(ctx, owner); err != nil {
				return "", err
			}
		}
		if gone {
			if owner, err = e.takeOver(ctx, t, owner); err != nil {
				return "", err
			}
		}
	}
	e.owners.Put(t.name, sessionOwner{owner, time.Now()}, 1)
	return owner, nil
}

// takeOver makes this replica the owner of a session whose owner is gone, unless another is faster. It returns the
// owner.
func (e *endpoint) takeOver(ctx context.Context, t sessionToken, gone string) (string, error) {
	replicas := e.hub.Deps().Replicas
	mark, err := replicas.Held(ctx, markPrefix+t.name)
	if err != nil {
		return "", err
	}
	if mark != "" {
		return "", errNoSession
	}
	if err := replicas.Drop(ctx, ownerPrefix+t.name, gone); err != nil {
		return "", err
	}
	return replicas.Hold(ctx, ownerPrefix+t.name, replicas.ID(), time.Until(t.expires)+time.Second)
}

// checkMark refuses a session that has ended, or that had state in a process that is gone, before it is made again.
// Without the store, a session of this replica is served.
func (e *endpoint) checkMark(ctx context.Context, t sessionToken) error {
	replicas := e.hub.Deps().Replicas
	if replicas == nil {
		return nil
	}
	mark, err := replicas.Held(ctx, markPrefix+t.name)
	switch {
	case err != nil && t.home == replicas.ID():
		return nil
	case err != nil:
		return err
	case mark != "" && mark != markBound+replicas.ID():
		return errNoSession
	}
	return nil
}

// NoteState tells the other replicas, once, that no other can take the session over.
func (s *session) NoteState(ctx context.Context) {
	replicas := s.endpoint.hub.Deps().Replicas
	if replicas == nil || s.isStdio || s.isBound.Swap(true) {
		return
	}
	if _, err := replicas.Hold(ctx, markPrefix+s.name, markBound+replicas.ID(), time.Until(s.expires)+time.Second); err != nil {
		s.isBound.Store(false)
		slog.WarnContext(ctx, "other replicas do not know that a session has state here: if this one stops, they go on without it", "error", err)
	}
}

// markEnded tells the other replicas that a session has ended.
func (e *endpoint) markEnded(ctx context.Context, s *session) {
	replicas := e.hub.Deps().Replicas
	if replicas == nil || s.isStdio {
		return
	}
	err := replicas.Drop(ctx, markPrefix+s.name, markBound+replicas.ID())
	if err == nil {
		_, err = replicas.Hold(ctx, markPrefix+s.name, markEnded, time.Until(s.expires)+time.Second)
	}
	if err != nil {
		slog.WarnContext(ctx, "other replicas do not know that a session has ended: its id is accepted once this one stops", "error", err)
	}
}
