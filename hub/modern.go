package hub

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// isModern says whether a message is of the newer era: it says its own revision, or its header
// names one that is none of the older ones.
func isModern(r *http.Request, params mcp.Params) bool {
	if _, ok := params.Meta(mcp.KeyVersion); ok {
		return true
	}
	v := r.Header.Get(mcp.HeaderVersion)
	return v != "" && mcp.EraOf(v) != mcp.EraLegacy
}

// postModern serves one request of the newer era. When the client leaves, it is cancelled.
func (h *Hub) postModern(w http.ResponseWriter, r *http.Request, req *request) {
	req.era = mcp.EraModern
	err := checkHeaders(r, req)
	if err == nil && req.IsNotification() { // which need not say anything of its client
		if err := h.admit(req.plan, req); err != nil {
			h.refuseHTTP(w, r, mcp.EraModern, 0, rpc.ID{}, err)
			return
		}
		h.heedModern(req)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if err == nil {
		err = req.readMeta()
	}
	if err == nil && req.Method == mcp.ToolsCall {
		err = h.checkParams(r, req)
	}
	if err != nil {
		h.refuseHTTP(w, r, mcp.EraModern, http.StatusBadRequest, req.ID, err)
		return
	}
	s := newStream(w, r, req.plan.HTTP)
	req.peer = &waiter{hub: h, req: req, out: s}
	if req.Method == mcp.Listen {
		h.listenHTTP(r.Context(), s, req)
		return
	}
	h.answerHTTP(r.Context(), w, s, req)
}

// heedModern passes a notification on. A cancellation names a request of a stream that this era
// cancels by closing it; what belongs to a conversation with us is nothing to any server.
func (h *Hub) heedModern(req *request) {
	switch req.Method {
	case mcp.Cancelled, mcp.Initialized, mcp.Progress:
	default:
		h.forward(req)
	}
}

// answerHTTP serves a request and sends its reply.
func (h *Hub) answerHTTP(ctx context.Context, w http.ResponseWriter, s *stream, req *request) {
	out, err := h.serve(ctx, req)
	if err != nil {
		noteFault(ctx, err)
		retryAfter(w, err)
		s.finish(mcpStatus(req.era, err), reply{body: appendFailure(nil, req.ID, err)})
		return
	}
	front.Note(ctx, slog.Int("code", out.code))
	s.finish(max(out.status, http.StatusOK), out)
}

// readMeta takes what a request says of its client.
func (r *request) readMeta() error {
	raw, ok := r.params.Meta(mcp.KeyVersion)
	if !ok {
		return invalidParams("_meta." + mcp.KeyVersion + " is missing")
	}
	version := jsonscan.TextOf(raw)
	if mcp.EraOf(version) != mcp.EraModern {
		return badVersion(version)
	}
	caps, ok := r.params.Meta(mcp.KeyCapabilities)
	if !ok || caps[0] != '{' {
		return invalidParams("_meta." + mcp.KeyCapabilities + " is missing")
	}
	info, _ := r.params.Meta(mcp.KeyClientInfo)
	if len(caps) > maxClient {
		return errLongCapabilities
	}
	if len(caps)+len(info) > maxClient {
		info = nil
	}
	// A connection that is made for the client outlives the request, whose bytes must not.
	r.client = mcp.Client{Version: version, Capabilities: bytes.Clone(caps), Info: bytes.Clone(info)}
	if r.level = r.params.MetaText(mcp.KeyLogLevel); r.level != "" && mcp.Severity(r.level) < 0 {
		return invalidParams("_meta." + mcp.KeyLogLevel + " is no level")
	}
	return nil
}

func badVersion(asked string) error {
	data := append([]byte(`{"supported":`), mcp.QuoteAll(mcp.Versions)...)
	data = append(append(append(data, `,"requested":`...), mcp.Quote(clip(asked))...), '}')
	return &protocolError{code: mcp.CodeBadVersion, text: "Unsupported protocol version", data: data, status: http.StatusBadRequest}
}

func mismatch(text string) error {
	return &protocolError{code: mcp.CodeHeaderMismatch, text: "Header mismatch: " + text, status: http.StatusBadRequest}
}

// checkHeaders refuses a request whose headers say something else than the request does: what
// stands before us may have acted on the headers.
func checkHeaders(r *http.Request, req *request) error {
	version, said := req.params.Meta(mcp.KeyVersion)
	header, err := oneHeader(r, mcp.HeaderVersion)
	switch {
	case err != nil:
		return err
	case said && header != jsonscan.TextOf(version):
		return mismatch(mcp.HeaderVersion + " is not the request's revision")
	case !said && mcp.EraOf(header) == 0:
		return badVersion(header)
	case said && mcp.EraOf(header) == 0:
		return badVersion(header)
	}
	if req.IsNotification() {
		return nil
	}
	method, err := oneHeader(r, mcp.HeaderMethod)
	if err != nil {
		return err
	}
	if method != req.Method {
		return mismatch(mcp.HeaderMethod + " is not the request's method")
	}
	if mcp.IdentityOf(req.Method) == "" {
		return nil
	}
	return checkName(r, req)
}

func checkName(r *http.Request, req *request) error {
	want := req.Name
	if mcp.IdentityOf(req.Method) == "uri" {
		want = req.URI
	}
	raw, err := oneHeader(r, mcp.HeaderName)
	if err != nil {
		return err
	}
	name, err := mcp.DecodeHeader(raw)
	if err != nil || name != want {
		return mismatch(mcp.HeaderName + " is not what the request names")
	}
	return nil
}

// oneHeader is a header that must be there, once.
func oneHeader(r *http.Request, name string) (string, error) {
	values := r.Header.Values(name)
	if len(values) != 1 || values[0] == "" {
		return "", mismatch(name + " is missing")
	}
	return values[0], nil
}

// checkParams holds the Mcp-Param headers of a call against its arguments, as the tool's schema
// asks.
func (h *Hub) checkParams(r *http.Request, req *request) error {
	e, ok := h.shelves.seen(req, tools, req.Name)
	if req.only != "" {
		e, ok = h.shelves.single(r.Context(), req, req.only).find(tools, req.Name)
	}
	if !ok {
		return nil
	}
	arguments, _ := req.params.Get("arguments")
	for _, p := range mirrored(e.raw) {
		if err := checkParam(r, p, arguments); err != nil {
			return err
		}
	}
	return nil
}

// mirrored are the parameters of a tool that go into headers. A schema that breaks the rules asks
// for none.
func mirrored(tool []byte) []mcp.HeaderParam {
	fields, err := jsonscan.FieldsOf(tool)
	if err != nil {
		return nil
	}
	schema, _ := fields.Get("inputSchema")
	wanted, _ := mcp.HeaderParams(schema)
	return wanted
}

func checkParam(r *http.Request, p mcp.HeaderParam, arguments []byte) error {
	values := r.Header.Values(p.Header)
	_, there, err := p.Value(arguments)
	switch {
	case err != nil:
		return nil //nolint:nilerr // an argument of the wrong type is for the server to refuse
	case !there && len(values) == 0:
		return nil
	case len(values) != 1 || !there || !p.Matches(values[0], arguments):
		return mismatch(p.Header + " is not the argument's value")
	}
	return nil
}

// listenHTTP opens a stream that tells of changes.
func (h *Hub) listenHTTP(ctx context.Context, s *stream, req *request) {
	var l *listening
	err := h.admit(req.plan, req)
	if err == nil {
		var done func()
		if done, err = h.streams.open(h, s, req.who); err == nil {
			defer done()
			s.manual = true
			l, err = h.listen(ctx, s, req)
		}
	}
	if err != nil {
		s.discard()
		noteFault(ctx, err)
		retryAfter(s.w, err)
		s.finish(mcpStatus(req.era, err), reply{body: appendFailure(nil, req.ID, err)})
		return
	}
	defer l.stop()
	req.leave() // a stream may outlive many plans
	s.run(ctx, h.closing, l.farewell)
}

// wants reads what a listener wants to be told of.
func (r *request) wants() (map[string]bool, []string, error) {
	raw, ok := r.params.Get("notifications")
	if !ok || raw[0] != '{' {
		return nil, nil, invalidParams("params.notifications is missing")
	}
	fields, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return nil, nil, invalidParams("params.notifications cannot be read")
	}
	flags := map[string]bool{}
	var uris []string
	for _, f := range fields.All() {
		value, _ := fields.Get(f.Key)
		if strings.HasSuffix(f.Key, "ListChanged") && string(value) == "true" {
			flags[f.Key] = true
		}
		if f.Key == "resourceSubscriptions" {
			err = jsonscan.Elements(value, jsonscan.Span{End: len(value)}, func(s jsonscan.Span) error {
				uris = append(uris, jsonscan.TextOf(s.Of(value)))
				return nil
			})
		}
	}
	if err != nil || slices.Contains(uris, "") || len(uris) > maxSubscriptions {
		return nil, nil, invalidParams("params.notifications.resourceSubscriptions must be a list of addresses")
	}
	return flags, uris, nil
}

var errLongCapabilities = invalidParams("the capabilities are too long")
