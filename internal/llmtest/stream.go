package llmtest

import (
	"net/http"
	"strconv"

	"github.com/ctxgate/ctxgate/internal/sse"
)

// reply sends an answer in one piece.
func (p *Provider) reply(w http.ResponseWriter, d door, a answer) int {
	body := d.whole(a)
	if a.Garbage != "" {
		body = []byte(a.Garbage)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusOK)
	if a.Cut {
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
	return http.StatusOK
}

// stream sends an answer event by event, each as soon as it is due.
func (p *Provider) stream(w http.ResponseWriter, r *http.Request, d door, rec *Request, a answer) int {
	w.Header().Set("Content-Type", streamType(d.shape))
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	for i, e := range d.events(a) {
		raw := sse.AppendEvent(nil, e)
		if i == a.At {
			switch {
			case a.Cut:
				p.note(rec, func(r *Request) { r.Status = http.StatusOK })
				panic(http.ErrAbortHandler)
			case a.Fail != nil:
				raw = sse.AppendEvent(nil, a.Fail.refusal(d.shape, a.model).event(d.shape, i))
			case a.Garbage != "":
				raw = append([]byte(a.Garbage), raw...)
			}
		}
		if !wait(r.Context(), a.Pace) {
			p.left(rec)
			return http.StatusOK
		}
		if _, err := w.Write(raw); err != nil || out.Flush() != nil {
			p.left(rec)
			return http.StatusOK
		}
		if i == a.At && a.Fail != nil {
			return http.StatusOK
		}
	}
	return http.StatusOK
}

// streamType is the media type as each provider writes it.
func streamType(s Shape) string {
	if s == Chat {
		return "text/event-stream"
	}
	return "text/event-stream; charset=utf-8"
}
