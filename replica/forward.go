package replica

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
)

const (
	dialTimeout = 800 * time.Millisecond
	ackTimeout  = 5 * time.Second // for the first sign of the other replica

	headerTo = "Ctxgate-Replica" // which replica a request is for

	copyBuffer = 32 << 10
)

// Message is a client's request, as it is forwarded.
type Message struct {
	Owner  string      // the replica to forward it to
	Caller auth.Caller // whose request it is
	Body   []byte
	HTTP   front.HTTP // the limits of replies to clients
}

// CutError says that the other replica went away while it replied: part of the reply was written.
type CutError struct {
	Cause      error
	AtEventEnd bool // it was an event stream, and whole events were written
}

func (e *CutError) Error() string { return "the reply of another replica was cut: " + e.Cause.Error() }

// Unwrap returns the cause.
func (e *CutError) Unwrap() error { return e.Cause }

const stoppedText = "the replica that served this stopped"

var errNoAnswer = errors.New("no answer in time")

// Forward forwards a client's request to the replica that it is for, and writes its reply as it comes. Nothing was
// written when it fails, except with a [CutError]. After [ErrGone] the request may be served by another replica.
func (r *Replica) Forward(w http.ResponseWriter, in *http.Request, m Message) error {
	address, err := r.addressOf(in.Context(), m.Owner)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(in.Context())
	defer cancel(nil)
	var acked atomic.Bool
	tooLate := time.AfterFunc(ackTimeout, func() {
		if !acked.Load() {
			cancel(errNoAnswer)
		}
	})
	defer tooLate.Stop()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
		acked.Store(true)
		return nil
	}})
	out, err := r.newRequest(ctx, in, address, m)
	if err != nil {
		return err
	}
	res, err := r.client.RoundTrip(out)
	switch {
	case err == nil:
	case in.Context().Err() != nil:
		return fault.Wrap(fault.Canceled, "the client left", err)
	case acked.Load():
		return fault.Wrap(fault.Unavailable, stoppedText, err)
	case errors.Is(context.Cause(ctx), errNoAnswer): // it may still serve the request when it goes on
		return fault.Wrap(fault.Unavailable, "the replica that held this does not answer", err)
	default:
		r.markGone(m.Owner)
		return ErrGone
	}
	acked.Store(true)
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusMisdirectedRequest { // another process has its address now
		r.markGone(m.Owner)
		return ErrGone
	}
	return copyReply(w, res, m.HTTP)
}

// newRequest returns the request for the other replica: of the client's headers only those that an endpoint reads.
func (r *Replica) newRequest(ctx context.Context, in *http.Request, address string, m Message) (*http.Request, error) {
	out, err := http.NewRequestWithContext(ctx, in.Method, "https://"+address+in.URL.RequestURI(), bytes.NewReader(m.Body))
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "the request cannot be forwarded", err)
	}
	for name, values := range in.Header {
		if strings.HasPrefix(name, "Mcp-") || name == "Accept" || name == "Content-Type" || name == "Last-Event-Id" || name == "User-Agent" {
			out.Header[name] = values
		}
	}
	out.Header.Set(headerTo, m.Owner)
	if err := front.SetForwarded(out, in, m.Caller, r.id); err != nil {
		return nil, fault.Wrap(fault.Internal, "the request cannot be forwarded", err)
	}
	return out, nil
}

// copyReply writes a reply as it comes.
func copyReply(w http.ResponseWriter, res *http.Response, cfg front.HTTP) error {
	front.ClearBodyDeadline(w)
	for name, values := range res.Header {
		if name != "X-Request-Id" && name != "Date" && name != "Connection" {
			w.Header()[name] = values
		}
	}
	isStream := strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream")
	front.SetReplyDeadline(w, cfg, 0)
	w.WriteHeader(res.StatusCode)
	rc := http.NewResponseController(w)
	if isStream {
		_ = rc.Flush()
	}
	buf := make([]byte, copyBuffer)
	end := []byte("\n\n")
	for {
		n, err := res.Body.Read(buf)
		if n > 0 {
			front.SetReplyDeadline(w, cfg, int64(n))
			if _, err := w.Write(buf[:n]); err != nil {
				return &CutError{Cause: err}
			}
			end = append(end[max(0, len(end)-2):], buf[max(0, n-2):n]...)
			if isStream && rc.Flush() != nil {
				return &CutError{Cause: http.ErrAbortHandler}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &CutError{Cause: fault.Wrap(fault.Unavailable, stoppedText, err), AtEventEnd: isStream && bytes.HasSuffix(end, []byte("\n\n"))}
		}
	}
}

// Accept wraps the handler of the listener. The first thing a replica gets is a sign that its request is being served:
// when the connection breaks before, it was not.
func (r *Replica) Accept(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		if in.Header.Get(headerTo) != r.id {
			w.WriteHeader(http.StatusMisdirectedRequest)
			return
		}
		w.WriteHeader(http.StatusProcessing)
		next.ServeHTTP(w, in)
	})
}
