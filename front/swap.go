package front

import (
	"net/http"
	"sync/atomic"
)

// Swap is a handler that can be replaced while it serves. A request is served by the one that was
// there when it came.
type Swap struct{ now atomic.Pointer[http.Handler] }

// Set puts a handler in place.
func (s *Swap) Set(h http.Handler) { s.now.Store(&h) }

func (s *Swap) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*s.now.Load()).ServeHTTP(w, r) }

// Closing asks clients, once this process wants no new calls, to use another connection for the
// next. It is said with the answer, for a call may have begun long before.
func (r *Readiness) Closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(&parting{ResponseWriter: w, ready: r}, req)
	})
}

// parting is an answer that says when it is the connection's last.
type parting struct {
	http.ResponseWriter
	ready *Readiness
	begun bool
}

func (p *parting) begin() {
	if !p.begun && p.ready.draining.Load() {
		p.Header().Set("Connection", "close")
	}
	p.begun = true
}

func (p *parting) WriteHeader(status int) {
	p.begin()
	p.ResponseWriter.WriteHeader(status)
}

func (p *parting) Write(b []byte) (int, error) {
	p.begin()
	return p.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (p *parting) Unwrap() http.ResponseWriter { return p.ResponseWriter }
