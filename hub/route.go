package hub

import (
	"context"
	"strings"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/upstream"
)

// Target is where a request goes, and how its params differ there.
type Target struct {
	remote   *upstream.Server // nil for a builtin
	builtin  *builtin
	name     string // the server's own name of the tool, prompt or resource
	changes  []jsonscan.Change
	rename   func(uri string) string // the name that clients see for a resource of the reply; nil to leave it
	isPrompt bool                    // a completion for a prompt
	pass     *gate.Pass              // nil before the target is authorized
	goal     string                  // what the call looks for in the result; "" when it does not say
	hold     *pins.Hold              // why it is not served; nil for what is
}

// targetOf returns the target for a server's own name; it is not found if there is no such server.
func (p *Plan) targetOf(server, name string) Target {
	return Target{remote: p.ByID[server], builtin: p.builtins[server], name: name}
}

func (t Target) server() string {
	if t.builtin != nil {
		return t.builtin.ID
	}
	return t.remote.ID()
}

// route finds the server that a request is for.
func (h *Hub) route(ctx context.Context, req *Request) (Target, error) {
	switch req.Method {
	case mcp.ToolsCall:
		return h.routeName(ctx, req, catalog.Tools, req.Name)
	case mcp.PromptsGet:
		return h.routeName(ctx, req, catalog.Prompts, req.Name)
	case mcp.ResourcesRead, mcp.ResourcesSubscribe, mcp.ResourcesUnsubscribe:
		return h.routeURI(ctx, req, req.URI)
	case mcp.CompletionComplete:
		return h.routeCompletion(ctx, req)
	}
	return routeToServer(req)
}

// isItemName reports whether a text can name a tool, prompt or resource. The name is stored with what the item gave.
func isItemName(name string) bool { return len(name) <= maxItemName && !strings.Contains(name, "\x00") }

const maxItemName = 4 << 10

// routeToServer routes any method to the one server of the endpoint.
func routeToServer(req *Request) (Target, error) {
	t := req.Plan.targetOf(req.Server, "")
	if t.remote == nil { // the endpoint of all servers; or a builtin, which has only tools
		return Target{}, errUnknownMethod
	}
	return t, nil
}

// routeName routes by the name of a tool or prompt.
func (h *Hub) routeName(ctx context.Context, req *Request, k catalog.Kind, shown string) (Target, error) {
	if shown == "" {
		return Target{}, InvalidParams("params.name is missing")
	}
	if !isItemName(shown) {
		return Target{}, h.unknownItem(req, k.Noun(), shown)
	}
	caller := req.UpstreamCaller()
	var t Target
	if req.Server != "" {
		t = req.Plan.targetOf(req.Server, shown)
		if k == catalog.Tools && catalog.LooksShortened(shown) {
			if e, ok := h.findListed(ctx, req, k, shown); ok && e.Server == req.Server && e.Name != shown {
				t.name, t.changes = e.Name, []jsonscan.Change{{Key: "name", Value: mcp.Quote(e.Name)}}
			}
		}
	} else if e, ok := h.findListed(ctx, req, k, shown); ok {
		t = req.Plan.targetOf(e.Server, e.Name)
	} else if server, name, ok := catalog.SplitName(shown, req.Plan.Naming.Separator, req.Plan.Serves); ok {
		t = req.Plan.targetOf(server, name)
	} else if e, ok := h.catalog.Wait(ctx, caller, &req.Plan.Layout).Find(k, shown); ok { // it may be of a server that is still starting
		t = req.Plan.targetOf(e.Server, e.Name)
	}
	if t.remote == nil && t.builtin == nil && req.Server == "" {
		if hold, ok := h.catalog.Now(caller).Unserved(k, shown); ok {
			t = req.Plan.targetOf(hold.Server, hold.Tool)
		}
	}
	isHidden := k == catalog.Tools && t.remote != nil && !t.remote.Config().OffersTool(t.name) && (t.name != catalog.AuthorizeTool || !t.remote.IsPerCaller())
	if isHidden || t.remote == nil && (t.builtin == nil || k != catalog.Tools) {
		return Target{}, h.unknownItem(req, k.Noun(), shown)
	}
	if t.builtin == nil {
		t.hold = h.catalog.Refusal(ctx, caller, &req.Plan.Layout, catalog.Call{Kind: k, At: req.Server, Server: t.server(), Name: t.name})
	}
	if req.Server != "" || t.builtin != nil { // under its own name
		return t, nil
	}
	t.rename = h.resourceRenamer(req, t.remote)
	t.changes = []jsonscan.Change{{Key: "name", Value: mcp.Quote(t.name)}}
	return t, nil
}

// resourceRenamer returns how clients see the resources of a server; with naming "auto", only those change whose own
// URI would lead elsewhere.
func (h *Hub) resourceRenamer(req *Request, r *upstream.Server) func(string) string {
	switch req.Plan.Prefix[r.ID()] {
	case "always":
		return func(uri string) string { return catalog.PrefixedURI(r.ID(), uri) }
	case "auto":
		c := h.catalog.Now(req.UpstreamCaller())
		return func(uri string) string {
			if t, ok := h.findResource(req, c, uri); ok && t.remote == r {
				return uri
			}
			return catalog.PrefixedURI(r.ID(), uri)
		}
	}
	return nil
}

// routeURI routes by the URI of a resource.
func (h *Hub) routeURI(ctx context.Context, req *Request, shown string) (Target, error) {
	if shown == "" {
		return Target{}, InvalidParams("params.uri is missing")
	}
	if !isItemName(shown) {
		return Target{}, resourceNotFound(req, shown)
	}
	if req.Server != "" && req.Plan.isUpstream(req.Server) {
		return req.Plan.targetOf(req.Server, shown), nil
	}
	if req.Server != "" { // a builtin has no resources
		return Target{}, resourceNotFound(req, shown)
	}
	caller := req.UpstreamCaller()
	t, ok := h.findResource(req, h.catalog.Now(caller), shown)
	if !ok {
		t, ok = h.findResource(req, h.catalog.Plain(), shown)
		ok = ok && !t.remote.HasOwnCredential(caller) // what the server has for others says nothing
	}
	if !ok {
		t, ok = h.findResource(req, h.catalog.Wait(ctx, caller, &req.Plan.Layout), shown)
	}
	if !ok {
		return Target{}, resourceNotFound(req, shown)
	}
	if t.name != shown {
		t.changes = []jsonscan.Change{{Key: "uri", Value: mcp.Quote(t.name)}}
	}
	return t, nil
}

// resourceNotFound returns the failure for a resource that no server has, with the code of the client's revision.
func resourceNotFound(req *Request, shown string) error {
	data := append(append([]byte(`{"uri":`), mcp.Quote(fault.Clip(shown))...), '}')
	code := mcp.CodeResourceNotFound
	if req.Protocol == mcp.Modern {
		code = mcp.CodeInvalidParams
	}
	return &protocolError{code: code, text: "Resource not found", data: data, status: 200}
}

// findResource finds the server of a resource: by its prefixed URI, in the list, or by a template. A URI that
// matches none of these is for the only server that could have it.
func (h *Hub) findResource(req *Request, c *catalog.Catalog, shown string) (Target, bool) {
	if server, uri, ok := catalog.SplitURI(shown); ok && req.Plan.isUpstream(server) {
		rename := func(u string) string {
			if u == uri {
				return shown
			}
			return catalog.PrefixedURI(server, u)
		}
		return Target{remote: req.Plan.ByID[server], name: uri, rename: rename}, true
	}
	if e, ok := c.Find(catalog.Resources, shown); ok {
		return Target{remote: req.Plan.ByID[e.Server], name: e.Name}, req.Plan.isUpstream(e.Server)
	}
	if e, ok := c.FindTemplate(shown, req.Plan.isUpstream); ok {
		return Target{remote: req.Plan.ByID[e.Server], name: shown}, true
	}
	var found []*upstream.Server
	for _, r := range req.Plan.Servers {
		if l := r.SharedConnOf(req.UpstreamCaller()); l != nil && req.Plan.Prefix[r.ID()] != "always" {
			if hello, up := l.Handshake(); up && hello.HasCapability("resources") {
				found = append(found, r)
			}
		}
	}
	if len(found) == 1 {
		return Target{remote: found[0], name: shown}, true
	}
	return Target{}, false
}

// routeCompletion routes a completion to the server of the prompt or template that it is for.
func (h *Hub) routeCompletion(ctx context.Context, req *Request) (Target, error) {
	raw, _ := req.Params.Get("ref")
	ref, err := jsonscan.FieldsOf(raw)
	if err != nil || len(raw) == 0 {
		return Target{}, InvalidParams("params.ref is missing")
	}
	if req.Server != "" {
		t, err := routeToServer(req)
		t.setCompletion(req)
		return t, err
	}
	var t Target
	key := "name"
	if ref.Text("type") == "ref/prompt" {
		t, err = h.routeName(ctx, req, catalog.Prompts, ref.Text(key))
		t.isPrompt = true
	} else {
		key = "uri"
		shown := ref.Text(key)
		if e, ok := h.catalog.Find(req.UpstreamCaller(), catalog.Templates, shown); ok {
			t = Target{remote: req.Plan.ByID[e.Server], name: e.Name}
		} else {
			t, err = h.routeURI(ctx, req, shown)
		}
	}
	if err != nil {
		return Target{}, err
	}
	t.changes = []jsonscan.Change{{Key: "ref", Value: ref.With(jsonscan.Change{Key: key, Value: mcp.Quote(t.name)})}}
	return t, nil
}
