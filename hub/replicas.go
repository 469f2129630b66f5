package hub

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/sse"
	"github.com/ctxgate/ctxgate/replica"
)

// Behind a load balancer any replica gets any request. What a request needs may live in another: then the whole HTTP
// request is forwarded before it is admitted, so that limits, access rules and the audit log see it once, where it is
// served.

// errNotHere is the answer for a request that was forwarded to a replica that does not have what it needs.
var errNotHere = fault.New(fault.Unavailable, "the request reached the wrong replica: try again")

// ReplicaID returns the id of this process among the replicas; "" where there is only one.
func (h *Hub) ReplicaID() string {
	if h.deps.Replicas == nil {
		return ""
	}
	return h.deps.Replicas.ID()
}

// IsElsewhere reports whether an owner is another replica.
func (h *Hub) IsElsewhere(owner string) bool {
	return h.deps.Replicas != nil && owner != "" && owner != h.deps.Replicas.ID()
}

// ForwardToReplica forwards a client's request to the replica that has what it needs, and writes its reply. Nothing was
// written when it fails.
func (h *Hub) ForwardToReplica(w http.ResponseWriter, r *http.Request, req *Request, owner string, body []byte) error {
	if front.IsForwarded(r.Context()) {
		return errNotHere
	}
	front.AddLogAttrs(r.Context(), slog.String("forwarded_to", owner))
	if req.releasePlan != nil {
		req.releasePlan() // the other replica has its own
	}
	if r.Method == http.MethodGet { // a stream without an end of its own
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go func() {
			select {
			case <-h.closing:
				cancel()
			case <-ctx.Done():
			}
		}()
		r = r.WithContext(ctx)
	}
	err := h.deps.Replicas.Forward(w, r, replica.Message{Owner: owner, Caller: req.Caller, Body: body, HTTP: req.Plan.HTTP})
	var cut *replica.CutError
	if !errors.As(err, &cut) {
		return err
	}
	switch {
	case r.Context().Err() != nil: // the client left, or this process stops
	case cut.AtEventEnd && r.Method == http.MethodGet:
	case cut.AtEventEnd:
		noteFault(r.Context(), cut)
		_ = sse.WriteData(w, "message", "", AppendFailure(nil, req.ID, cut.Cause))
	default:
		panic(http.ErrAbortHandler) // part of a reply cannot be completed
	}
	return nil
}

// forwardModern forwards a modern request that continues what another replica has; false means that it is served here.
func (h *Hub) forwardModern(w http.ResponseWriter, r *http.Request, req *Request, body []byte) (done bool) {
	owner, err := h.legacy.PendingOwner(req)
	if !h.IsElsewhere(owner) {
		return false
	}
	if failed := h.ForwardToReplica(w, r, req, owner, body); failed != nil {
		if errors.Is(failed, replica.ErrGone) {
			failed = err
		}
		h.WriteHTTPError(w, r, req.Protocol, 0, req.ID, failed)
	}
	return true
}
