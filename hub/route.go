package hub

import (
	"context"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// target is where a request goes, and what of its params is different there.
type target struct {
	remote  *upstream.Remote // nil where own is not
	own     *own             // a server that is part of the gateway
	name    string           // the server's own name of the tool, prompt or resource
	changes []jsonscan.Change
	rename  func(uri string) string // a resource's name here, for what the reply says; nil to leave it
	goal    string                  // what the call looks for in the result; "" when it does not say
}

// target is a thing of a server, by the server's own name for it.
func (p *plan) target(server, name string) target {
	return target{remote: p.remotes[server], own: p.own[server], name: name}
}

func (t target) found() bool { return t.remote != nil || t.own != nil }

func (t target) server() string {
	if t.own != nil {
		return t.own.ID
	}
	return t.remote.ID()
}

// route finds the server that a request is for.
func (h *Hub) route(ctx context.Context, req *request) (target, error) {
	switch req.Method {
	case mcp.ToolsCall, mcp.PromptsGet:
		k := tools
		if req.Method == mcp.PromptsGet {
			k = prompts
		}
		return h.byName(ctx, req, k, "name", req.Name)
	case mcp.ResourcesRead, mcp.Subscribe, mcp.Unsubscribe:
		return h.byURI(ctx, req, "uri", req.URI)
	case mcp.Complete:
		return h.byRef(ctx, req)
	}
	if req.only != "" {
		return h.whole(req)
	}
	return target{}, fault.New(fault.NoMethod, "Method not found")
}

// whole sends everything to the one server of the door.
func (h *Hub) whole(req *request) (target, error) {
	t := req.plan.target(req.only, "")
	if t.remote == nil { // a server of our own has tools, and nothing else
		return target{}, fault.New(fault.NoMethod, "Method not found")
	}
	return t, nil
}

func (h *Hub) byName(ctx context.Context, req *request, k kind, key, shown string) (target, error) {
	if shown == "" {
		return target{}, invalidParams("params." + key + " is missing")
	}
	var t target
	if req.only != "" {
		t = req.plan.target(req.only, shown)
	} else if e, ok := h.shelves.seen(req, k, shown); ok {
		t = req.plan.target(e.server, e.key)
	} else if server, name, ok := splitName(shown, req.plan.Hub.Naming.Separator, req.plan.serves); ok {
		t = req.plan.target(server, name)
	} else if e, ok := h.shelves.wait(ctx, req).find(k, shown); ok { // it may be of a server that is still starting
		t = req.plan.target(e.server, e.key)
	}
	if !t.found() || t.own != nil && k != tools {
		return target{}, fault.New(fault.NotFound, "unknown "+listing[k].member[:len(listing[k].member)-1]+" "+strconv.Quote(clip(shown)))
	}
	if req.only != "" || t.own != nil { // under its own name
		return t, nil
	}
	t.rename = h.renamer(req, t.remote)
	t.changes = []jsonscan.Change{{Key: key, Value: mcp.Quote(t.name)}}
	return t, nil
}

// knows says whether a server is behind the gateway; serves, whether it can be asked here.
func (p *plan) knows(server string) bool  { return p.remotes[server] != nil }
func (p *plan) serves(server string) bool { return p.knows(server) || p.own[server] != nil }

// renamer gives the common names of a server's resources; under auto, of those that would lead
// elsewhere without one.
func (h *Hub) renamer(req *request, r *upstream.Remote) func(string) string {
	switch req.plan.prefix[r.ID()] {
	case "always":
		return func(uri string) string { return showResource(r.ID(), uri) }
	case "auto":
		c := h.shelves.now(req)
		return func(uri string) string {
			if t, ok := h.resource(req, c, uri); ok && t.remote == r {
				return uri
			}
			return showResource(r.ID(), uri)
		}
	}
	return nil
}

func (h *Hub) byURI(ctx context.Context, req *request, key, shown string) (target, error) {
	if shown == "" {
		return target{}, invalidParams("params." + key + " is missing")
	}
	if req.only != "" && req.plan.knows(req.only) {
		return req.plan.target(req.only, shown), nil
	}
	if req.only != "" {
		return target{}, h.noResource(req, shown)
	}
	t, ok := h.resource(req, h.shelves.now(req), shown)
	if !ok {
		t, ok = h.resource(req, h.shelves.plain(), shown)
	}
	if !ok {
		t, ok = h.resource(req, h.shelves.wait(ctx, req), shown)
	}
	if !ok {
		return target{}, h.noResource(req, shown)
	}
	t.changes = []jsonscan.Change{{Key: key, Value: mcp.Quote(t.name)}}
	if t.name == shown {
		t.changes = nil
	}
	return t, nil
}

// noResource is the failure for a resource that no server has, with the era's code.
func (h *Hub) noResource(req *request, shown string) error {
	data := append(append([]byte(`{"uri":`), mcp.Quote(clip(shown))...), '}')
	code := mcp.CodeResourceNotFound
	if req.era == mcp.EraModern {
		code = mcp.CodeInvalidParams
	}
	return &protocolError{code: code, text: "Resource not found", data: data, status: 200}
}

// resource finds the server of a resource: by the name it has here, by the list, or by a template
// that it fits. One that fits nowhere goes to the only server that could have it.
func (h *Hub) resource(req *request, c *catalog, shown string) (target, bool) {
	if server, uri, ok := splitURI(shown); ok && req.plan.knows(server) {
		r := req.plan.remotes[server]
		rename := func(u string) string {
			if u == uri {
				return shown
			}
			return showResource(server, u)
		}
		return target{remote: r, name: uri, rename: rename}, true
	}
	if e, ok := c.find(resources, shown); ok {
		return target{remote: req.plan.remotes[e.server], name: e.key}, req.plan.knows(e.server)
	}
	for _, e := range c.lists[templates] {
		if req.plan.knows(e.server) && e.fits.match(shown) {
			return target{remote: req.plan.remotes[e.server], name: shown}, true
		}
	}
	var found []*upstream.Remote
	for _, r := range req.plan.order {
		if l := r.Shared(); l != nil && req.plan.prefix[r.ID()] != "always" {
			if hello, up := l.Up(); up && hello.Offers("resources") {
				found = append(found, r)
			}
		}
	}
	if len(found) == 1 {
		return target{remote: found[0], name: shown}, true
	}
	return target{}, false
}

// byRef finds the server of a completion: that of the prompt or template it is for.
func (h *Hub) byRef(ctx context.Context, req *request) (target, error) {
	raw, _ := req.params.Get("ref")
	ref, err := jsonscan.FieldsOf(raw)
	if err != nil || len(raw) == 0 {
		return target{}, invalidParams("params.ref is missing")
	}
	if req.only != "" {
		return h.whole(req)
	}
	var t target
	key := "name"
	if ref.Text("type") == "ref/prompt" {
		t, err = h.byName(ctx, req, prompts, key, ref.Text(key))
	} else {
		key = "uri"
		shown := ref.Text(key)
		if e, ok := h.shelves.seen(req, templates, shown); ok {
			t = target{remote: req.plan.remotes[e.server], name: e.key}
		} else {
			t, err = h.byURI(ctx, req, key, shown)
		}
	}
	if err != nil {
		return target{}, err
	}
	t.changes = []jsonscan.Change{{Key: "ref", Value: ref.With(jsonscan.Change{Key: key, Value: mcp.Quote(t.name)})}}
	return t, nil
}
