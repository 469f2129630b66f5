package prunerd

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// Door is what stands around the pruner's own handler.
type Door struct {
	Gate     *auth.Gate
	Limiter  *limit.Limiter // of all doors; nil: nobody is limited
	HTTP     front.HTTP
	Refuse   front.Refuse // answers what does not get through the door
	MaxDepth int          // of a message
}

// Handler serves /rpc to whoever the chain around it let in.
func (s *Server) Handler(d Door) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /rpc", func(w http.ResponseWriter, r *http.Request) {
		if err := s.serveRPC(w, r, d); err != nil {
			d.Refuse(w, r, err)
		}
	})
	mux.HandleFunc("/rpc", notPOST)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		d.Refuse(w, r, fault.New(fault.NotFound, "there is nothing at this path"))
	})
	return mux
}

// ReadsToken says whether the door looks for a token in the message itself, so that the chain may
// let a request pass that has none in its headers (A8).
func ReadsToken(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Path == "/rpc" }

// serveRPC takes one message and gives one back. What it returns is a refusal: nothing was
// answered yet.
func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request, d Door) error {
	body, err := front.ReadMessage(w, r, int64(d.HTTP.MaxRequestBytes), d.Gate)
	if err != nil {
		return err
	}
	req, bad := rpc.ParseRequest(body, d.MaxDepth)
	params, err := mcp.ReadParams(req.Params)
	if err != nil && bad == nil {
		bad = fault.Wrap(fault.Invalid, "invalid request", err)
	}
	who, err := identify(w, r, d, params)
	if err != nil {
		return err // nothing is said to who is not let in
	}
	front.Remember(r.Context(), req.ID)
	if bad != nil {
		return bad
	}
	if err := d.Limiter.Admit(who.Subject()); err != nil {
		return err
	}
	front.Note(r.Context(), slog.String("rpc", clip(req.Method)))
	if req.IsNotification() {
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	result, err := s.serve(r.Context(), who.Tenant(), req, params)
	var told *Error
	switch {
	case errors.As(err, &told):
		front.Note(r.Context(), slog.Int("code", told.Code), slog.String("error", told.Message))
		send(w, d, http.StatusOK, rpc.AppendErrorData(nil, req.ID, told.Code, told.Message, told.Data))
	case err != nil:
		return err
	default:
		send(w, d, http.StatusOK, rpc.AppendResult(nil, req.ID, result))
	}
	return nil
}

// identify says who sent a message: who the chain let in or, where no header said, who knows the
// token that may stand in the message itself.
func identify(w http.ResponseWriter, r *http.Request, d Door, params mcp.Params) (auth.Caller, error) {
	who, err := auth.From(r.Context())
	if proxy, ok := params.Get("proxy"); ok {
		fields, _ := jsonscan.FieldsOf(proxy)
		if _, there := fields.Get("authToken"); there || err != nil {
			if who, err = d.Gate.Check(fields.Text("authToken")); err == nil {
				err = front.SetCaller(r.Context(), who)
			}
		}
	}
	if err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	return who, err
}

func send(w http.ResponseWriter, d Door, status int, body []byte) {
	front.BeginReply(w, d.HTTP, int64(len(body)))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func notPOST(w http.ResponseWriter, _ *http.Request) {
	body := rpc.AppendError(nil, rpc.ID{}, -32600, "only POST is served here", fault.Invalid.String())
	w.Header().Set("Allow", http.MethodPost)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusMethodNotAllowed)
	_, _ = w.Write(body)
}
