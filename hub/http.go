package hub

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// serveMCP is the door of Streamable HTTP, in both eras.
func (h *Hub) serveMCP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost:
		h.servePost(w, r)
	case http.MethodGet:
		h.serveGet(w, r)
	case http.MethodDelete:
		h.serveDelete(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		h.refuseHTTP(w, r, mcp.EraLegacy, http.StatusMethodNotAllowed, rpc.ID{}, fault.New(fault.Invalid, "only GET, POST and DELETE are served here"))
	}
}

// servePost takes one message.
func (h *Hub) servePost(w http.ResponseWriter, r *http.Request) {
	now := h.plan.Load()
	body, err := front.ReadMessage(w, r, int64(now.HTTP.MaxRequestBytes), now.gate)
	if err != nil {
		h.refuseHTTP(w, r, mcp.EraLegacy, front.Status(fault.KindOf(err)), rpc.ID{}, err)
		return
	}
	p, leave := h.enter()
	defer leave()
	if isBatch(body) {
		h.postBatch(w, r, p, body)
		return
	}
	req, err := rpc.ParseRequest(body, p.Hub.MaxDepth)
	front.Remember(r.Context(), req.ID)
	isReply := errors.Is(err, rpc.ErrReply)
	if err != nil && !isReply {
		h.refuseHTTP(w, r, mcp.EraLegacy, 0, req.ID, err)
		return
	}
	params, err := mcp.ReadParams(req.Params)
	if err != nil {
		h.refuseHTTP(w, r, mcp.EraLegacy, 0, req.ID, fault.Wrap(fault.Invalid, "invalid request: params must be an object", err))
		return
	}
	who, err := h.identify(w, r, p, params)
	if err != nil {
		h.refuseHTTP(w, r, mcp.EraLegacy, 0, req.ID, err)
		return
	}
	x := &request{Request: req, params: params, plan: p, leave: leave, who: who, via: visitOf(r, who), only: r.PathValue("server")}
	if x.only != "" && !p.serves(x.only) {
		h.refuseHTTP(w, r, mcp.EraLegacy, http.StatusNotFound, req.ID, fault.New(fault.NotFound, "there is no such server"))
		return
	}
	front.Note(r.Context(), slog.String("rpc", clip(req.Method)))
	if !isReply && isModern(r, params) {
		h.postModern(w, r, x)
		return
	}
	h.postLegacy(w, r, x, body, isReply)
}

// identify says who sent a message: who the chain let in or, where no header said, who knows the
// token that may stand in the message itself (A8).
func (h *Hub) identify(w http.ResponseWriter, r *http.Request, p *plan, params mcp.Params) (auth.Caller, error) {
	who, err := auth.From(r.Context())
	if raw, ok := params.Get("proxy"); ok {
		token, there := proxyToken(raw)
		if there || err != nil {
			if who, err = p.gate.Check(token); err == nil {
				err = front.SetCaller(r.Context(), who)
			}
		}
	}
	if err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	return who, err
}

// ReadsToken says whether a request's door looks for a token in the message itself, so that the
// chain may let a request pass that has none in its headers.
func ReadsToken(r *http.Request) bool {
	return r.Method == http.MethodPost && (r.URL.Path == "/mcp" || strings.HasPrefix(r.URL.Path, "/mcp/") ||
		strings.HasPrefix(r.URL.Path, "/api/mcp-gateway/") && strings.HasSuffix(r.URL.Path, "/rpc"))
}

// refuseHTTP answers a failure. A status of 0 is the failure's own.
func (h *Hub) refuseHTTP(w http.ResponseWriter, r *http.Request, era mcp.Era, status int, id rpc.ID, err error) {
	if status == 0 {
		status = mcpStatus(era, err)
	}
	noteFault(r.Context(), err)
	retryAfter(w, err)
	newStream(w, r, h.plan.Load().HTTP).finish(status, reply{body: appendFailure(nil, id, err)})
}

// noteFault says in the request's log line what went wrong.
func noteFault(ctx context.Context, err error) {
	front.Note(ctx, slog.Int("code", failureCode(err)), slog.String("fault", fault.KindOf(err).String()), slog.String("error", clip(err.Error())))
}
