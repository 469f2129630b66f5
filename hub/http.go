package hub

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// serveMCP is the endpoint of Streamable HTTP.
func (h *Hub) serveMCP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost:
		h.servePost(w, r)
	case http.MethodGet, http.MethodDelete:
		h.legacy.ServeSession(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		h.WriteHTTPError(w, r, mcp.Legacy, http.StatusMethodNotAllowed, rpc.ID{}, fault.New(fault.InvalidRequest, "only GET, POST and DELETE are served here"))
	}
}

// servePost serves one message, or an array of messages, which only a legacy client may send.
func (h *Hub) servePost(w http.ResponseWriter, r *http.Request) {
	now := h.plan.Load()
	body, err := front.ReadBodyWithToken(w, r, int64(now.HTTP.MaxRequestBytes), now.Gate)
	if err != nil {
		h.WriteHTTPError(w, r, mcp.Legacy, front.HTTPStatus(fault.KindOf(err)), rpc.ID{}, err)
		return
	}
	p, release := h.acquirePlan()
	defer release()
	if bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		h.legacy.ServeBatch(w, r, p, body)
		return
	}
	message, err := rpc.ParseRequest(body, p.Hub.MaxDepth)
	front.SetErrorContext(r.Context(), message.ID)
	isReply := errors.Is(err, rpc.ErrUnexpectedReply)
	if err != nil && !isReply {
		h.WriteHTTPError(w, r, mcp.Legacy, 0, message.ID, err)
		return
	}
	params, err := mcp.ParseParams(message.Params)
	if err != nil {
		h.WriteHTTPError(w, r, mcp.Legacy, 0, message.ID, fault.Wrap(fault.InvalidRequest, "invalid request: params must be an object", err))
		return
	}
	caller, err := h.Authenticate(w, r, p, params)
	if err != nil {
		h.WriteHTTPError(w, r, mcp.Legacy, 0, message.ID, err)
		return
	}
	req := NewHTTPRequest(r, p, caller)
	req.Request, req.Params, req.releasePlan = message, params, release
	if req.Server != "" && (!p.Serves(req.Server) || !req.mayUse(req.Server)) {
		h.WriteHTTPError(w, r, mcp.Legacy, http.StatusNotFound, req.ID, errUnknownServer)
		return
	}
	front.AddLogAttrs(r.Context(), slog.String("rpc", fault.Clip(req.Method)))
	// A modern request names its revision, in its metadata or in a header.
	_, hasVersion := params.Meta(mcp.MetaProtocolVersion)
	header := r.Header.Get(mcp.HeaderVersion)
	if !isReply && (hasVersion || header != "" && mcp.ProtocolOf(header) != mcp.Legacy) {
		h.serveModern(w, r, req, body)
		return
	}
	h.legacy.ServePost(w, r, req, body, isReply)
}

// serveModern serves one request or notification of a modern client. When the client leaves, it is cancelled.
func (h *Hub) serveModern(w http.ResponseWriter, r *http.Request, req *Request, body []byte) {
	req.Protocol = mcp.Modern
	err := h.checkHeaders(r, req)
	if err == nil && req.IsNotification() { // which need not describe its client
		if err := h.Admit(req); err != nil {
			h.WriteHTTPError(w, r, mcp.Modern, 0, rpc.ID{}, err)
			return
		}
		h.Forward(req)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if err == nil {
		err = h.readClient(req)
	}
	if err == nil && req.Method == mcp.ToolsCall {
		err = h.checkParamHeaders(r, req)
	}
	if err != nil {
		h.WriteHTTPError(w, r, mcp.Modern, http.StatusBadRequest, req.ID, err)
		return
	}
	if h.forwardModern(w, r, req, body) {
		return
	}
	s := NewStream(w, r, req.Plan.HTTP)
	req.Peer = h.NewCallPeer(req, s, nil)
	if req.Method == mcp.SubscriptionsListen {
		h.listenHTTP(r.Context(), s, req)
		return
	}
	h.ServeHTTPRequest(r.Context(), s, req)
}

// ServeHTTPRequest serves a request and writes its reply.
func (h *Hub) ServeHTTPRequest(ctx context.Context, s *Stream, req *Request) {
	out, err := h.Serve(ctx, req)
	if err != nil {
		s.finishError(ctx, req, err)
		return
	}
	front.AddLogAttrs(ctx, slog.Int("code", out.code))
	s.Finish(max(out.status, http.StatusOK), out)
}

// Authenticate returns who sent a message: whom the middleware authenticated or, where no header had a token, the
// caller that the token in the message itself identifies (A8).
func (h *Hub) Authenticate(w http.ResponseWriter, r *http.Request, p *Plan, params mcp.Params) (auth.Caller, error) {
	caller, err := auth.CallerFrom(r.Context())
	if raw, ok := params.Get("proxy"); ok {
		token, hasToken := proxyToken(raw)
		if hasToken || err != nil {
			if caller, err = p.Gate.AuthenticateToken(r.Context(), token); err == nil {
				err = front.SetMemoryOwner(r.Context(), caller)
			}
		}
	}
	if err != nil {
		p.Gate.Refuse(w, r, err)
	}
	return caller, err
}

// proxyToken returns the token in a message's params.proxy (A8). A proxy that cannot be read counts as a wrong token.
func proxyToken(raw []byte) (token string, hasToken bool) {
	fields, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return "", true
	}
	value, ok := fields.Get("authToken")
	return jsonscan.DecodeString(value), ok
}

// ReadsTokenFromBody reports whether the endpoint of a request looks for a token in the message itself, so that
// the middleware may let a request pass that has none in its headers.
func ReadsTokenFromBody(r *http.Request) bool {
	return r.Method == http.MethodPost && (r.URL.Path == "/mcp" || strings.HasPrefix(r.URL.Path, "/mcp/") ||
		strings.HasPrefix(r.URL.Path, "/api/mcp-gateway/") && strings.HasSuffix(r.URL.Path, "/rpc"))
}

// readClient reads what a modern request says of its client.
func (h *Hub) readClient(req *Request) error {
	raw, ok := req.Params.Meta(mcp.MetaProtocolVersion)
	if !ok {
		return InvalidParams("_meta." + mcp.MetaProtocolVersion + " is missing")
	}
	version := jsonscan.DecodeString(raw)
	if mcp.ProtocolOf(version) != mcp.Modern {
		return h.unsupportedVersion(version)
	}
	caps, ok := req.Params.Meta(mcp.MetaClientCapabilities)
	if !ok || caps[0] != '{' {
		return InvalidParams("_meta." + mcp.MetaClientCapabilities + " is missing")
	}
	info, _ := req.Params.Meta(mcp.MetaClientInfo)
	client, err := LimitClient(mcp.Client{Version: version, Capabilities: caps, Info: info})
	if err != nil {
		return err
	}
	// Copies, because a connection that is made for the client outlives the request.
	client.Capabilities, client.Info = bytes.Clone(client.Capabilities), bytes.Clone(client.Info)
	req.Client = client
	if req.LogLevel = req.Params.MetaText(mcp.MetaLogLevel); req.LogLevel != "" && mcp.LogSeverity(req.LogLevel) < 0 {
		return InvalidParams("_meta." + mcp.MetaLogLevel + " is no level")
	}
	return nil
}

func (h *Hub) unsupportedVersion(requested string) error {
	data := append([]byte(`{"supported":`), mcp.QuoteAll(h.versions())...)
	data = append(append(append(data, `,"requested":`...), mcp.Quote(fault.Clip(requested))...), '}')
	return &protocolError{code: mcp.CodeUnsupportedVersion, text: "Unsupported protocol version", data: data, status: http.StatusBadRequest}
}

func headerMismatch(text string) error {
	return &protocolError{code: mcp.CodeHeaderMismatch, text: "Header mismatch: " + text, status: http.StatusBadRequest}
}

// checkHeaders refuses a request whose headers contradict it: a proxy in front of us may have acted on the headers.
func (h *Hub) checkHeaders(r *http.Request, req *Request) error {
	version, hasVersion := req.Params.Meta(mcp.MetaProtocolVersion)
	header, err := singleHeader(r, mcp.HeaderVersion)
	switch {
	case err != nil:
		return err
	case hasVersion && header != jsonscan.DecodeString(version):
		return headerMismatch(mcp.HeaderVersion + " is not the request's revision")
	case mcp.ProtocolOf(header) == 0:
		return h.unsupportedVersion(header)
	}
	if req.IsNotification() {
		return nil
	}
	method, err := singleHeader(r, mcp.HeaderMethod)
	if err != nil {
		return err
	}
	if method != req.Method {
		return headerMismatch(mcp.HeaderMethod + " is not the request's method")
	}
	var want string
	switch mcp.NameParam(req.Method) {
	case "":
		return nil
	case "uri":
		want = req.URI
	default:
		want = req.Name
	}
	raw, err := singleHeader(r, mcp.HeaderName)
	if err != nil {
		return err
	}
	name, err := mcp.DecodeHeader(raw)
	if err != nil || name != want {
		return headerMismatch(mcp.HeaderName + " is not what the request names")
	}
	return nil
}

// singleHeader returns a header that must be there once.
func singleHeader(r *http.Request, name string) (string, error) {
	values := r.Header.Values(name)
	if len(values) != 1 || values[0] == "" {
		return "", headerMismatch(name + " is missing")
	}
	return values[0], nil
}

// checkParamHeaders compares the Mcp-Param headers of a call with its arguments, as the tool's schema requires.
func (h *Hub) checkParamHeaders(r *http.Request, req *Request) error {
	e, ok := h.findListed(r.Context(), req, catalog.Tools, req.Name)
	tool, err := jsonscan.FieldsOf(e.Raw)
	if !ok || err != nil || !req.Plan.Gate.MayList(req.Caller, listTarget(catalog.Tools, e.Server, e.Name, e.Raw)) {
		return nil //nolint:nilerr // an unknown tool is for the route to refuse
	}
	schema, _ := tool.Get("inputSchema")
	params, _ := mcp.HeaderParams(schema) // a schema that breaks the rules has none
	arguments, _ := req.Params.Get("arguments")
	for _, p := range params {
		values := r.Header.Values(p.Header)
		_, there, err := p.Value(arguments)
		switch {
		case err != nil: // an argument of the wrong type is for the server to refuse
		case !there && len(values) == 0:
		case len(values) != 1 || !there || !p.Matches(values[0], arguments):
			return headerMismatch(p.Header + " is not the argument's value")
		}
	}
	return nil
}
