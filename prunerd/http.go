package prunerd

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// Endpoint is what the HTTP endpoint needs beside the server.
type Endpoint struct {
	Gate     *gate.Gate
	HTTP     front.HTTP
	Refuse   front.ErrorHandler // writes the reply to a rejected request
	MaxDepth int                // of a message
}

// Handler serves /rpc behind the middleware chain.
func (s *Server) Handler(d Endpoint) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /rpc", func(w http.ResponseWriter, r *http.Request) {
		if err := s.serveRPC(w, r, d); err != nil {
			d.Refuse(w, r, err)
		}
	})
	mux.HandleFunc("/rpc", rejectMethod)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		d.Refuse(w, r, fault.New(fault.NotFound, "there is nothing at this path"))
	})
	return mux
}

// AcceptsTokenInBody reports whether the token may be in the message itself, so that the chain lets a
// request pass that has none in its headers (A8).
func AcceptsTokenInBody(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == "/rpc"
}

// serveRPC answers one message. An error that it returns is still to be written to the client.
func (s *Server) serveRPC(w http.ResponseWriter, r *http.Request, d Endpoint) error {
	body, err := front.ReadBodyWithToken(w, r, int64(d.HTTP.MaxRequestBytes), d.Gate)
	if err != nil {
		return err
	}
	req, bad := rpc.ParseRequest(body, d.MaxDepth)
	params, err := mcp.ParseParams(req.Params)
	if err != nil && bad == nil {
		bad = fault.Wrap(fault.InvalidRequest, "invalid request", err)
	}
	who, err := authenticate(w, r, d, params)
	if err != nil {
		return err // before any other error: unauthenticated callers learn nothing
	}
	front.SetErrorContext(r.Context(), req.ID)
	if bad != nil {
		return bad
	}
	if err := d.Gate.Admit(who); err != nil {
		return err
	}
	front.AddLogAttrs(r.Context(), slog.String("rpc", fault.Clip(req.Method)))
	if req.IsNotification() {
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	result, err := s.serveAuthorized(r.Context(), d.Gate, who, req, params)
	var rpcErr *Error
	switch {
	case errors.As(err, &rpcErr):
		front.AddLogAttrs(r.Context(), slog.Int("code", rpcErr.Code), slog.String("error", rpcErr.Message))
		sendReply(w, d, http.StatusOK, rpc.AppendErrorData(nil, req.ID, rpcErr.Code, rpcErr.Message, rpcErr.Data))
	case err != nil:
		return err
	default:
		sendReply(w, d, http.StatusOK, rpc.AppendResult(nil, req.ID, result))
	}
	return nil
}

// authenticate returns the caller that the chain identified or, without a header, the one whose token is
// in the message itself.
func authenticate(w http.ResponseWriter, r *http.Request, d Endpoint, params mcp.Params) (auth.Caller, error) {
	who, err := auth.CallerFrom(r.Context())
	if proxy, ok := params.Get("proxy"); ok {
		fields, _ := jsonscan.FieldsOf(proxy)
		if _, there := fields.Get("authToken"); there || err != nil {
			if who, err = d.Gate.AuthenticateToken(r.Context(), fields.Text("authToken")); err == nil {
				err = front.SetMemoryOwner(r.Context(), who)
			}
		}
	}
	if err != nil {
		d.Gate.Refuse(w, r, err)
	}
	return who, err
}

func sendReply(w http.ResponseWriter, d Endpoint, status int, body []byte) {
	front.SetReplyDeadline(w, d.HTTP, int64(len(body)))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func rejectMethod(w http.ResponseWriter, _ *http.Request) {
	body := rpc.AppendError(nil, rpc.ID{}, -32600, "only POST is served here", fault.InvalidRequest.String())
	w.Header().Set("Allow", http.MethodPost)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(http.StatusMethodNotAllowed)
	_, _ = w.Write(body)
}
