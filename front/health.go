package front

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"
)

// Readiness is whether this process accepts new calls.
type Readiness struct{ draining atomic.Bool }

// StartDraining makes /readyz report draining.
func (r *Readiness) StartDraining() { r.draining.Store(true) }

// Healthz answers /healthz: the process is running.
func Healthz(w http.ResponseWriter, _ *http.Request) {
	writeHealth(w, http.StatusOK, `{"status":"ok"}`)
}

// Readyz answers /readyz: the process accepts calls, and whether its store works. A store that fails is
// reported but does not make the replica unready: without the store, texts pass uncut.
func (r *Readiness) Readyz(store func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if r.draining.Load() {
			writeHealth(w, http.StatusServiceUnavailable, `{"status":"draining"}`)
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), time.Second)
		defer cancel()
		if store(ctx) != nil {
			writeHealth(w, http.StatusOK, `{"status":"ready","store":"unavailable"}`)
			return
		}
		writeHealth(w, http.StatusOK, `{"status":"ready","store":"ok"}`)
	}
}

func writeHealth(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body + "\n"))
}

// SwappableHandler is a handler that can be replaced while it serves. A request is served by the handler
// that was set when it arrived.
type SwappableHandler struct{ current atomic.Pointer[http.Handler] }

// Set replaces the handler.
func (s *SwappableHandler) Set(h http.Handler) { s.current.Store(&h) }

func (s *SwappableHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*s.current.Load()).ServeHTTP(w, r)
}

// IsDraining reports whether the process is stopping.
func (r *Readiness) IsDraining() bool { return r.draining.Load() }

// CloseWhenDraining closes connections while the process drains. The header is set when the reply starts,
// because the call may have begun long before.
func (r *Readiness) CloseWhenDraining(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(&drainingWriter{ResponseWriter: w, ready: r}, req)
	})
}

// drainingWriter adds "Connection: close" to a reply that starts while the process drains.
type drainingWriter struct {
	http.ResponseWriter
	ready   *Readiness
	started bool
}

func (p *drainingWriter) markStarted() {
	if !p.started && p.ready.draining.Load() {
		p.Header().Set("Connection", "close")
	}
	p.started = true
}

func (p *drainingWriter) WriteHeader(status int) {
	p.markStarted()
	p.ResponseWriter.WriteHeader(status)
}

func (p *drainingWriter) Write(b []byte) (int, error) {
	p.markStarted()
	return p.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (p *drainingWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }
