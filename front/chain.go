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

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

// Stage wraps a handler with one concern.
type Stage func(http.Handler) http.Handler

// Refuse answers a request that does not reach its door, in the protocol of whoever asked.
type Refuse func(w http.ResponseWriter, r *http.Request, err error)

// Chain is what every request passes, outermost first.
func Chain(gate *auth.Gate, guard *Guard, cfg HTTP, budget *membudget.Budget, refuse Refuse, reads Reads) []Stage {
	return []Stage{
		Identified,                         // an id for the log and for the client
		Logged,                             // one line a request, whatever becomes of it
		Recovered(refuse),                  // a panic ends this request only
		Direct(refuse),                     // a path is what it says
		guard.Stage(refuse),                // no page of a browser that was not invited
		Authenticated(gate, refuse, reads), // who is calling
		Budgeted(budget, refuse),           // what it may hold in memory
		Limited(cfg),                       // no endless body, no endless wait for one
	}
}

// Wrap puts the stages around a handler.
func Wrap(h http.Handler, stages ...Stage) http.Handler {
	for i := len(stages) - 1; i >= 0; i-- {
		h = stages[i](h)
	}
	return h
}

type requestKey struct{}

// request is what the chain knows of a request beyond its headers.
type request struct {
	id   string
	from string // the address it came from
	door any    // what the door wants to have at hand when it must refuse

	mu    sync.Mutex  // messages of a batch are served beside each other
	attrs []slog.Attr // what the door has to say in the request's log line
}

// Remember keeps what a door knows of a request, for the refusal it may come to.
func Remember(ctx context.Context, v any) {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		r.door = v
	}
}

// Remembered is what Remember kept; nil when it kept nothing.
func Remembered(ctx context.Context) any {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.door
	}
	return nil
}

// Note adds to the request's log line.
func Note(ctx context.Context, attrs ...slog.Attr) {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.attrs = append(r.attrs, attrs...)
	}
}

// Call begins the log line of a call that does not come over HTTP. Note adds to it, and the function
// it gives writes it.
func Call(ctx context.Context, attrs ...slog.Attr) (context.Context, func(more ...slog.Attr)) {
	start, req := time.Now(), &request{id: rand.Text()[:16]}
	ctx = context.WithValue(ctx, requestKey{}, req)
	return ctx, func(more ...slog.Attr) {
		if !slog.Default().Enabled(ctx, slog.LevelInfo) {
			return
		}
		attrs = append(attrs, slog.Duration("took", time.Since(start).Round(time.Microsecond)))
		slog.LogAttrs(ctx, slog.LevelInfo, "request", slices.Concat(attrs, more, req.noted())...)
	}
}

// noted is what goes into the log line besides what every request has.
func (r *request) noted() []slog.Attr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]slog.Attr{slog.String("request", r.id)}, r.attrs...)
}

// Identified gives each request an id of our own: one from outside could be anything.
func Identified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req := &request{id: rand.Text()[:16], from: remoteHost(r.RemoteAddr)}
		w.Header().Set("X-Request-Id", req.id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), requestKey{}, req)))
	})
}

// Logged writes one line a request. Bodies, credentials and query strings are never in it.
func Logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		defer func() { logLine(r, rec, time.Since(start)) }() // a reply that is cut short is logged too
		next.ServeHTTP(rec, r)
	})
}

func logLine(r *http.Request, rec *recorder, took time.Duration) {
	level := slog.LevelInfo
	if probes[r.URL.Path] && rec.status == http.StatusOK {
		level = slog.LevelDebug
	}
	if !slog.Default().Enabled(r.Context(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", rec.status),
		slog.Duration("took", took.Round(time.Microsecond)), slog.Int64("bytes", rec.bytes),
	}
	if req, ok := r.Context().Value(requestKey{}).(*request); ok {
		attrs = append(attrs, req.noted()...)
	}
	slog.LogAttrs(r.Context(), level, "request", attrs...)
}

// probes come every few seconds for as long as the process lives; only their failures are news.
var probes = map[string]bool{"/healthz": true, "/readyz": true, "/metrics": true}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
	begun  bool
}

func (r *recorder) WriteHeader(status int) {
	r.status, r.begun = status, true
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	r.begun = true
	n, err := r.ResponseWriter.Write(p)
	r.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Recovered turns a panic into an internal error and a log entry with its stack.
func Recovered(refuse Refuse) Stage {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				p := recover()
				if p == nil {
					return
				}
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p) // net/http's own way to cut a reply short
				}
				slog.ErrorContext(r.Context(), "a request panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				if rec, ok := w.(*recorder); ok && rec.begun {
					panic(http.ErrAbortHandler) // half a reply is out: cut it, do not add to it
				}
				refuse(w, r, fault.New(fault.Internal, "internal error"))
			}()
			next.ServeHTTP(w, r)
		})
	}
}

// Direct refuses a path with empty or dotted segments. http.ServeMux would answer it with a
// redirect, which is no answer in any protocol spoken here.
func Direct(refuse Refuse) Stage {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked, clean := r.URL.Path, path.Clean(r.URL.Path)
			if asked != clean && (clean == "/" || asked != clean+"/") {
				refuse(w, r, fault.New(fault.NotFound, "there is nothing at this path"))
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// Reads says of which requests the door itself looks for credentials, in the message. A request
// that has none in its headers gets there without a caller, and no further than the door allows.
type Reads func(r *http.Request) bool

// Authenticated lets in who the gate knows.
func Authenticated(gate *auth.Gate, refuse Refuse, reads Reads) Stage {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who, err := gate.Identify(r)
			if err != nil && auth.Silent(r) && reads != nil && reads(r) {
				next.ServeHTTP(w, r)
				return
			}
			if err != nil {
				w.Header().Set("WWW-Authenticate", "Bearer")
				refuse(w, r, err)
				return
			}
			next.ServeHTTP(w, r.WithContext(auth.With(r.Context(), who)))
		})
	}
}

// Limited bounds a request's body in size and in time.
func Limited(cfg HTTP) Stage {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, int64(cfg.MaxRequestBytes))
			// A connection that knows no deadlines, as in a test, has no slow peer either.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(allowance(cfg, r.ContentLength)))
			next.ServeHTTP(w, r)
		})
	}
}

// BeginReply sets the time a client has to take a reply of this size.
func BeginReply(w http.ResponseWriter, cfg HTTP, size int64) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(allowance(cfg, size)))
}

// BodyRead ends the time limit on a request's body: a call may take as long as its server needs.
func BodyRead(w http.ResponseWriter) { _ = http.NewResponseController(w).SetReadDeadline(time.Time{}) }

// allowance is the configured time and a second for each MiB.
func allowance(cfg HTTP, size int64) time.Duration {
	return cfg.BodyTimeout.D() + time.Duration(max(size, 0)>>20)*time.Second
}
