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
// next.
func (r *Readiness) Closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, req)
	})
}
