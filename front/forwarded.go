package front

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

// headerForwarded has what one replica knows of a client whose request it forwards to another. Only the listener of
// the replicas reads it, which nobody else can reach.
const headerForwarded = "Ctxgate-Forwarded"

// forwarded is the value of that header.
type forwarded struct {
	From       string          `json:"from"`        // the replica that forwards
	RemoteHost string          `json:"remote_host"` // of the client
	Conn       string          `json:"conn"`        // the client's connection
	Caller     json.RawMessage `json:"caller"`
}

type forwardedKey struct{}

// IsForwarded reports whether another replica has forwarded a request to this one. It is not forwarded again.
func IsForwarded(ctx context.Context) bool { return ctx.Value(forwardedKey{}) != nil }

// SetForwarded adds to a request for another replica who sent the original.
func SetForwarded(out, original *http.Request, caller auth.Caller, from string) error {
	who, err := auth.EncodeCaller(caller)
	if err != nil {
		return err
	}
	conn, _ := ConnectionOf(original)
	raw, err := json.Marshal(forwarded{From: from, RemoteHost: remoteHostOf(original.Context()), Conn: conn, Caller: who})
	if err != nil {
		return fmt.Errorf("describing a forwarded request: %w", err)
	}
	out.Header.Set(headerForwarded, base64.StdEncoding.EncodeToString(raw))
	return nil
}

// ForwardedChain lists the middleware of requests that other replicas forward, outermost first. The client is the one
// that the other replica authenticated, as long as this one would accept it, too.
func ForwardedChain(g *gate.Gate, cfg HTTP, budget *membudget.Budget, onError ErrorHandler) []Middleware {
	return []Middleware{
		readForwarded(onError),
		RequestID,
		AccessLog,
		Recover(onError),
		RequireCleanPath(onError),
		authenticateForwarded(g, onError),
		ChargeMemory(budget, onError),
		LimitBody(cfg),
	}
}

// readForwarded makes a request look as it did to the replica that it came to first.
func readForwarded(onError ErrorHandler) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var f forwarded
			raw, err := base64.StdEncoding.DecodeString(r.Header.Get(headerForwarded))
			if err == nil {
				err = json.Unmarshal(raw, &f)
			}
			if err != nil {
				onError(w, r, fault.Wrap(fault.InvalidRequest, "the request was not forwarded by a replica", err))
				return
			}
			ctx := context.WithValue(r.Context(), forwardedKey{}, f)
			ctx = context.WithValue(ctx, connectionKey{}, &connection{id: f.From + " " + f.Conn})
			r = r.WithContext(ctx)
			r.RemoteAddr = f.RemoteHost
			next.ServeHTTP(w, r)
		})
	}
}

// authenticateForwarded adds the caller to the context, or rejects the request.
func authenticateForwarded(g *gate.Gate, onError ErrorHandler) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			f, _ := r.Context().Value(forwardedKey{}).(forwarded)
			caller, err := auth.DecodeCaller(f.Caller)
			if err != nil {
				err = fault.Wrap(fault.Unauthorized, "the request was not forwarded by a replica", err)
			} else {
				err = g.Revalidate(caller)
			}
			if err != nil {
				g.Refuse(w, r, err)
				onError(w, r, err)
				return
			}
			AddLogAttrs(r.Context(), slog.String("forwarded_by", f.From))
			next.ServeHTTP(w, r.WithContext(auth.WithCaller(r.Context(), caller)))
		})
	}
}
