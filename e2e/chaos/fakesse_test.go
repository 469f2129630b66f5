//go:build linux

package chaos

import (
	"context"
	"net/http"
)

// The transport of 2024-11-05: one stream for everything the server says, and a POST for each
// thing the client says.

// streamLink writes every message to the one stream.
type streamLink struct{ *postLink }

func (s streamLink) send(message []byte) {
	s.open()
	s.postLink.send(message)
}

func (h *httpFake) sse(w http.ResponseWriter, r *http.Request) {
	id, s := h.newSession()
	out := streamLink{newPostLink(w)}
	out.open()
	s.mail.attach(out)
	defer s.mail.attach(nil)
	defer h.drop(id)
	defer out.end()
	_, cut := h.session(id)
	out.event("endpoint", "/messages?session="+id)
	select {
	case <-r.Context().Done():
	case <-cut:
		out.abort()
	}
}

// drop ends a session with its stream.
func (h *httpFake) drop(id string) {
	h.mu.Lock()
	s := h.sessions[id]
	delete(h.sessions, id)
	h.mu.Unlock()
	if s != nil {
		s.close()
	}
}

func (h *httpFake) messages(w http.ResponseWriter, r *http.Request) {
	s, _ := h.session(r.URL.Query().Get("session"))
	if s == nil {
		http.Error(w, "no such session", http.StatusNotFound)
		return
	}
	f, ok := h.body(w, r)
	if !ok {
		return
	}
	w.WriteHeader(http.StatusAccepted)
	if f.isRequest() {
		go s.serve(context.WithoutCancel(r.Context()), s.mail, f)
		return
	}
	s.take(f)
}
