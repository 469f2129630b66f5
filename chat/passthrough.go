package chat

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/glob"
	"github.com/ctxgate/ctxgate/llm"
)

// serves says whether a request is for the LLM endpoint.
func (p *activeConfig) serves(r *http.Request) bool {
	return p.wires.serves(r.URL.Path) || isRoot(r) || p.providerOfPath(r.URL.Path) != nil
}

// isRoot says whether a client asks whether there is anything at all. Claude Code does so when it starts.
func isRoot(r *http.Request) bool {
	return r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

func serveRoot(w http.ResponseWriter) {
	const body = `{"message":"ctxgate"}`
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = io.WriteString(w, body)
}

// handleOther serves the requests that no endpoint of a wire shape takes. They are forwarded unread, unless a
// path that a provider's configuration names has the wire shape of an endpoint.
func (px *Proxy) handleOther(p *activeConfig) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		to := p.providerOfPath(r.URL.Path)
		version, rest, below := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
		switch {
		case isWebsocket(r):
			px.refuseWebsocket(w, r)
		case isRoot(r):
			serveRoot(w)
		case to == nil && (!below || !slices.Contains(px.wires.versions, version)):
			px.wires.refuse(w, r, fault.New(fault.NotFound, "there is nothing at this path"))
		case to == nil:
			px.serveCall(w, r, &call{endpoint: endpoint{Endpoint: llm.Endpoint{UpstreamPath: "/" + rest, Version: version}}, plan: p}, px.passThrough)
		default:
			c, serve := &call{plan: p, routed: to, hostPath: r.URL.EscapedPath()}, px.passThrough
			if e, ok := px.wires.endpointEnding(to.vendor.Kind(), r.URL.Path); ok && r.Method == http.MethodPost {
				c.endpoint, serve = e, px.serveRequest
			}
			px.serveCall(w, r, c, serve)
		}
	}
}

// passThrough forwards a request and its reply unread. A JSON body is read if the provider depends on its
// model; any other body is forwarded as it arrives.
func (px *Proxy) passThrough(w http.ResponseWriter, r *http.Request, c *call) (_ string, err error) {
	ctx := r.Context()
	leave, err := px.admitCall(ctx, c)
	if err != nil {
		return "", err
	}
	defer leave()
	if r.ContentLength > int64(c.plan.HTTP.MaxRequestBytes) {
		return "", fault.New(fault.TooLarge, "the request is too large")
	}
	vendor := px.wires.vendorOf(r)
	if c.routed != nil {
		vendor = c.routed.vendor
	}
	c.header, c.clientKeys, c.query = c.plan.splitCredentials(r, vendor)
	if values := r.Header["Accept-Encoding"]; values != nil {
		c.header["Accept-Encoding"] = values // the reply is not read
	}
	if c.routed == nil {
		if err := px.routeUnread(w, r, c); err != nil {
			return "", err
		}
	}
	pass, err := c.authorize(ctx, access.Target{Method: access.MethodModelPath, Model: c.model, Resource: r.URL.Path})
	if err != nil {
		return "", err
	}
	defer func() { endPass(pass, err) }()
	c.candidates = []*provider{c.routed} // no fallbacks: another provider has other files and other embeddings
	if c.body == nil && r.ContentLength != 0 {
		if values := r.Header["Content-Encoding"]; values != nil {
			c.header["Content-Encoding"] = values
		}
		c.upload = newUpload(w, r, c.plan.HTTP)
		defer c.upload.end()
	}
	if r.Method == http.MethodPost {
		if err := px.reserveBudget(ctx, w, c, unreadInput(r)); err != nil {
			return "", err
		}
		defer c.settleBudget()
	}
	rep, err := px.askProviders(ctx, c)
	if err != nil {
		return "", err
	}
	defer rep.close()
	c.recordSize(pass, rep)
	c.releaseBody()
	px.deps.Meter.ObserveFirstByte(rep.provider.Name, time.Since(c.started))
	return px.relayAndCharge(ctx, w, c, rep)
}

// routeUnread finds the provider of a request that is forwarded unread: the first of the client's API that
// serves its model. The model is read only if it decides: not where the first provider serves every model.
func (px *Proxy) routeUnread(w http.ResponseWriter, r *http.Request, c *call) (err error) {
	kind := APIKind(px.wires.vendorOf(r).Kind())
	if first := c.plan.firstOfKind(kind); first == nil || !first.servesEveryModel() {
		if _, unknown := contentCoding(r.Header); unknown == nil && isJSON(r.Header) && r.ContentLength != 0 {
			if c.body, err = readBody(w, r, int64(c.plan.HTTP.MaxRequestBytes)); err != nil {
				return err
			}
			if c.model, err = readModel(px.wires.protocol, c.body); err != nil {
				return err
			}
		}
	}
	if c.routed, err = c.plan.findProvider(kind, c.model); err == nil {
		return nil
	}
	if c.model == "" && len(c.plan.providers) > 0 {
		return fault.New(fault.NotFound, "this path is forwarded only to a provider of kind "+string(kind)+" that serves every model or names the path; see paths of [[providers]]")
	}
	// A model that an entry names goes there, even if the client's API is not recognized.
	for _, one := range c.plan.providers {
		if !one.servesEveryModel() && one.servesModel(c.model) {
			c.routed = one
			return nil
		}
	}
	return err
}

// firstOfKind is the first provider of a kind that serves models; nil if there is none.
func (p *activeConfig) firstOfKind(kind APIKind) *provider {
	for _, one := range p.providers {
		if one.Kind == kind && !one.servesOnlyPaths() {
			return one
		}
	}
	return nil
}

// providerOfPath is the first provider whose configuration names a path; nil if none does.
func (p *activeConfig) providerOfPath(path string) *provider {
	for _, one := range p.providers {
		for _, pattern := range one.Paths {
			if glob.New(pattern).Match(path) {
				return one
			}
		}
	}
	return nil
}

// endpointEnding is the endpoint of a kind that a path at a provider's host ends with, such as Azure's
// /openai/deployments/NAME/chat/completions.
func (t *wireTable) endpointEnding(kind, path string) (endpoint, bool) {
	for _, codec := range t.codecs {
		if codec.Wire().Vendor.Kind() != kind {
			continue
		}
		for _, e := range codec.Wire().Endpoints {
			if model, ok := modelOfEnding(path, e.UpstreamPath); ok {
				e.UpstreamPath = strings.Replace(e.UpstreamPath, llm.ModelInPath, url.PathEscape(model), 1)
				return endpoint{Endpoint: e, codec: codec, pathModel: model}, true
			}
		}
	}
	return endpoint{}, false
}

// modelOfEnding says whether a path ends with another, and returns the model that it names; "" if it names none.
func modelOfEnding(path, end string) (model string, ok bool) {
	before, after, inPath := strings.Cut(end, llm.ModelInPath)
	if !inPath {
		return "", strings.HasSuffix(path, end)
	}
	path, ok = strings.CutSuffix(path, after)
	at := strings.LastIndex(path, before)
	if !ok || at < 0 {
		return "", false
	}
	model = path[at+len(before):]
	return model, model != "" && !strings.Contains(model, "/")
}

func isJSON(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

func isWebsocket(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// refuseWebsocket answers a websocket's handshake. Codex tries one first. At 426 it uses POST at once; at 404
// and 405 it tries six more times.
func (px *Proxy) refuseWebsocket(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Upgrade", "HTTP/1.1")
	px.wires.refuseWith(w, r, http.StatusUpgradeRequired, fault.New(fault.InvalidRequest, "websockets are not served here; send POST requests"))
}

// upload is a request's body that is forwarded as it arrives. It can be sent only once. The client may pause
// for body_timeout; the provider's timeout_first_byte limits the whole upload.
type upload struct {
	body io.Reader
	size int64 // -1: unknown
	cfg  front.HTTP

	mu    sync.Mutex
	conn  *http.ResponseController // nil when the request has ended
	begun bool                     // a part was read
	whole bool                     // all was read
	err   error                    // of reading it
}

func newUpload(w http.ResponseWriter, r *http.Request, cfg front.HTTP) *upload {
	u := &upload{body: r.Body, size: r.ContentLength, cfg: cfg, conn: http.NewResponseController(w)}
	_ = u.conn.EnableFullDuplex() // a provider may answer before it has the whole body
	return u
}

// Read may be called by the transport until end, and after it: then it reads nothing.
func (u *upload) Read(p []byte) (int, error) {
	if !u.setDeadline(time.Now().Add(u.cfg.BodyTimeout.D())) {
		return 0, io.ErrClosedPipe
	}
	n, err := u.body.Read(p)
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case errors.Is(err, io.EOF):
		u.whole = true
		if u.conn != nil {
			_ = u.conn.SetReadDeadline(time.Time{}) // the provider may think for longer
		}
	case err != nil && u.conn != nil:
		u.err = err
	}
	return n, err
}

// setDeadline limits how long the next part may take. It returns false if the request has ended.
func (u *upload) setDeadline(at time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.begun = true
	if u.conn != nil && !u.whole {
		_ = u.conn.SetReadDeadline(at) // connections in tests may not support deadlines
	}
	return u.conn != nil
}

// end ends reading before the handler returns: the transport may still be reading a body that its provider did
// not want.
func (u *upload) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.whole {
		_ = u.conn.SetReadDeadline(time.Now().Add(time.Second))
	}
	u.conn = nil
}

// hasBegun says whether a part was read, so that it cannot be sent again.
func (u *upload) hasBegun() bool {
	if u == nil {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.begun
}

// fault is the failure of the client's side; nil if it did not fail.
func (u *upload) fault() error {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		return nil
	}
	return front.BodyFault(u.err)
}
