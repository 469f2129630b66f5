package prunerd

import (
	"net/http"
	"strconv"
	"time"
)

// health is what every way of asking for it gets (P13).
func (s *Server) health(now time.Time) []byte {
	var w writer
	w.open()
	w.text("status", "healthy")
	w.text("server", serverName)
	w.text("version", s.deps.Version)
	w.raw("capabilities", []byte(`["prune_text","recover_text","annotations","markers"]`))
	// With the offset in digits, as the document has it, also where it is zero.
	w.text("timestamp", now.Format("2006-01-02T15:04:05-07:00"))
	w.close()
	return w.b
}

// Health answers GET /health.
func (s *Server) Health(w http.ResponseWriter, _ *http.Request) {
	body := s.health(time.Now())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}
