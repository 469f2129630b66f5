package front

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/audit"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

// Middleware wraps a handler.
type Middleware func(http.Handler) http.Handler

// ErrorHandler writes the error of a request that a middleware rejects, in the client's protocol.
type ErrorHandler func(w http.ResponseWriter, r *http.Request, err error)

// Chain lists the middleware that every request passes, outermost first.
func Chain(g *gate.Gate, guard *Guard, cfg HTTP, budget *membudget.Budget, onError ErrorHandler, inBody TokenInBody) []Middleware {
	return []Middleware{
		RequestID,                        // an id for the log and for the client
		AccessLog,                        // one line per request, also for rejected ones
		Recover(onError),                 // a panic ends this request only
		RequireCleanPath(onError),        // no empty or dotted path segments
		guard.Protect(onError),           // no web pages of unknown origins
		Authenticate(g, onError, inBody), // who is calling
		ChargeMemory(budget, onError),    // a share of the memory budget
		LimitBody(cfg),                   // bounds the body's size and its time to arrive
	}
}

// Wrap applies middleware to a handler, the first outermost.
func Wrap(h http.Handler, chain ...Middleware) http.Handler {
	for i := len(chain) - 1; i >= 0; i-- {
		h = chain[i](h)
	}
	return h
}

type requestKey struct{}

// requestInfo is what the chain knows of a request beyond its headers.
type requestInfo struct {
	id           string
	remoteHost   string
	errorContext any

	mu    sync.Mutex  // messages of a batch are served concurrently
	attrs []slog.Attr // of the endpoint, for the request's log line
}

// SetErrorContext stores what an endpoint needs to write an error for this request.
func SetErrorContext(ctx context.Context, v any) {
	if r, ok := ctx.Value(requestKey{}).(*requestInfo); ok {
		r.errorContext = v
	}
}

// ErrorContext is what SetErrorContext stored; nil when it stored nothing.
func ErrorContext(ctx context.Context) any {
	if r, ok := ctx.Value(requestKey{}).(*requestInfo); ok {
		return r.errorContext
	}
	return nil
}

// AddLogAttrs adds attributes to the request's log line.
func AddLogAttrs(ctx context.Context, attrs ...slog.Attr) {
	if r, ok := ctx.Value(requestKey{}).(*requestInfo); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.attrs = append(r.attrs, attrs...)
	}
}

// StartCallLog starts the log line of a call that does not come over HTTP. AddLogAttrs adds to it, and the
// returned function writes it.
func StartCallLog(ctx context.Context, attrs ...slog.Attr) (context.Context, func(more ...slog.Attr)) {
	start, info := time.Now(), &requestInfo{id: rand.Text()[:16]}
	ctx = audit.WithRequestID(context.WithValue(ctx, requestKey{}, info), info.id)
	return ctx, func(more ...slog.Attr) {
		if !slog.Default().Enabled(ctx, slog.LevelInfo) {
			return
		}
		attrs = append(attrs, slog.Duration("took", time.Since(start).Round(time.Microsecond)))
		slog.LogAttrs(ctx, slog.LevelInfo, "request", slices.Concat(attrs, more, info.logAttrs())...)
	}
}

// logAttrs are the attributes of this request in its log line.
func (r *requestInfo) logAttrs() []slog.Attr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]slog.Attr{slog.String("request", r.id)}, r.attrs...)
}

// RequestID gives each request a new id; ids from outside are not trusted.
func RequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := &requestInfo{id: rand.Text()[:16], remoteHost: remoteHost(r.RemoteAddr)}
		w.Header().Set("X-Request-Id", info.id)
		next.ServeHTTP(w, r.WithContext(audit.WithRequestID(context.WithValue(r.Context(), requestKey{}, info), info.id)))
	})
}

// AccessLog writes one line per request. Bodies, credentials and query strings are never in it.
func AccessLog(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &responseRecorder{ResponseWriter: w, status: http.StatusOK}
		defer func() { logRequest(r, rec, time.Since(start)) }() // also after a panic
		next.ServeHTTP(rec, r)
	})
}

func logRequest(r *http.Request, rec *responseRecorder, took time.Duration) {
	level := slog.LevelInfo
	if probePaths[r.URL.Path] && rec.status == http.StatusOK {
		level = slog.LevelDebug
	}
	if !slog.Default().Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", rec.status),
		slog.Duration("took", took.Round(time.Microsecond)), slog.Int64("bytes", rec.bytes),
	}
	if info, ok := r.Context().Value(requestKey{}).(*requestInfo); ok {
		attrs = append(attrs, info.logAttrs()...)
	}
	slog.LogAttrs(r.Context(), level, "request", attrs...)
}

// probePaths are requested every few seconds; only their failures are worth a line.
var probePaths = map[string]bool{"/healthz": true, "/readyz": true, "/metrics": true}

// responseRecorder records the status and size of a reply.
type responseRecorder struct {
	http.ResponseWriter
	status  int
	bytes   int64
	started bool
}

func (r *responseRecorder) WriteHeader(status int) {
	r.status, r.started = status, true
	r.ResponseWriter.WriteHeader(status)
}

func (r *responseRecorder) Write(p []byte) (int, error) {
	r.started = true
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *responseRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Recover turns a panic into an internal error, and logs its stack.
func Recover(onError ErrorHandler) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				p := recover()
				if p == nil {
					return
				}
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p) // net/http's way to abort a reply
				}
				slog.ErrorContext(r.Context(), "a request panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				if rec, ok := w.(*responseRecorder); ok && rec.started {
					panic(http.ErrAbortHandler) // part of the reply was sent: abort it
				}
				onError(w, r, fault.New(fault.Internal, "internal error"))
			}()
			next.ServeHTTP(w, r)
		})
	}
}

// RequireCleanPath rejects a path with empty or dotted segments. http.ServeMux would answer with a
// redirect, which MCP and LLM clients do not expect.
func RequireCleanPath(onError ErrorHandler) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			clean := path.Clean(r.URL.Path)
			if r.URL.Path != clean && (clean == "/" || r.URL.Path != clean+"/") {
				onError(w, r, fault.New(fault.NotFound, "there is nothing at this path"))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// TokenInBody reports whether the endpoint of a request looks for credentials in the body. Such a request
// without credentials in its headers reaches its endpoint unauthenticated; the endpoint must
// authenticate it.
type TokenInBody func(r *http.Request) bool

// Authenticate adds the caller to the context, or rejects the request.
func Authenticate(g *gate.Gate, onError ErrorHandler, inBody TokenInBody) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			caller, err := g.Authenticate(r)
			if err != nil && auth.HasNoCredential(r) && inBody != nil && inBody(r) {
				next.ServeHTTP(w, r)
				return
			}
			if err != nil {
				g.Refuse(w, r, err)
				onError(w, r, err)
				return
			}
			next.ServeHTTP(w, r.WithContext(auth.WithCaller(r.Context(), caller)))
		})
	}
}

// LimitBody bounds the size of a request's body and its time to arrive.
func LimitBody(cfg HTTP) Middleware {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, int64(cfg.MaxRequestBytes))
			// The error says that the connection has no deadlines, as in tests.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(transferTimeout(cfg, r.ContentLength)))
			next.ServeHTTP(w, r)
		})
	}
}

// SetReplyDeadline limits the time that a client may take to read a reply of this size.
func SetReplyDeadline(w http.ResponseWriter, cfg HTTP, size int64) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(transferTimeout(cfg, size)))
}

// ClearBodyDeadline removes the time limit of the body: a call may take as long as its server needs.
func ClearBodyDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
}

// transferTimeout is the configured time plus a second for each MiB.
func transferTimeout(cfg HTTP, size int64) time.Duration {
	return cfg.BodyTimeout.D() + time.Duration(max(size, 0)>>20)*time.Second
}

// HTTPStatus is the HTTP status of a failure. The contract requires 502 where the failure is the gateway's
// or the server's (G5).
func HTTPStatus(k fault.Kind) int {
	switch k {
	case fault.Syntax, fault.InvalidRequest, fault.BadParams:
		return http.StatusBadRequest
	case fault.Unauthorized:
		return http.StatusUnauthorized
	case fault.Forbidden:
		return http.StatusForbidden
	case fault.NotFound, fault.UnknownHandle, fault.NoMethod:
		return http.StatusNotFound
	case fault.TooLarge:
		return http.StatusRequestEntityTooLarge
	case fault.Stalled:
		return http.StatusRequestTimeout
	case fault.RateLimited, fault.OverBudget:
		return http.StatusTooManyRequests
	case fault.Full:
		return http.StatusServiceUnavailable
	case fault.Canceled:
		return 499 // only for the log: the client is gone
	case fault.Internal, fault.Unavailable, fault.Timeout, fault.BadReply:
		return http.StatusBadGateway
	}
	return http.StatusBadGateway
}
