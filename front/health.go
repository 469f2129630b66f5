package front

import (
	"context"
	"net/http"
	"time"
)

// Live answers /healthz: the process runs.
func Live(w http.ResponseWriter, _ *http.Request) {
	health(w, http.StatusOK, `{"status":"ok"}`)
}

// Ready answers /readyz: the process wants calls and its store answers. A store that does not
// is told but does not take the replica out: without it, text goes through whole.
func (r *Readiness) Ready(store func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if r.draining.Load() {
			health(w, http.StatusServiceUnavailable, `{"status":"draining"}`)
			return
		}
		ctx, cancel := context.WithTimeout(req.Context(), time.Second)
		defer cancel()
		if store(ctx) != nil {
			health(w, http.StatusOK, `{"status":"ready","store":"unavailable"}`)
			return
		}
		health(w, http.StatusOK, `{"status":"ready","store":"ok"}`)
	}
}

func health(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body + "\n"))
}
