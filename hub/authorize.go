package hub

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// authorize decides whether the caller of a request may use its target. If it may not, the target is unknown: the
// error is that of a name that does not exist. The pass in the target must be ended.
func (h *Hub) authorize(ctx context.Context, req *Request, to *Target) error {
	err := h.enter(ctx, req, to)
	if errors.Is(err, gate.ErrDenied) {
		return h.deniedAs(req, *to)
	}
	return err
}

func (h *Hub) enter(ctx context.Context, req *Request, to *Target) (err error) {
	to.pass, err = req.Plan.Gate.Enter(ctx, req.Caller, h.accessTarget(ctx, req, *to))
	if err != nil {
		return err
	}
	req.redaction = to.pass.Decision.Redact
	if err := req.redactArguments(ctx); err != nil {
		to.pass.Done()
		return err
	}
	return nil
}

// endPass ends the pass of a call and records how the call ended.
func (t *Target) endPass(out Reply, err error) {
	switch {
	case err != nil:
		t.pass.Fail(err)
	case out.Body != nil: // there is none after a panic
		t.pass.Reply(len(out.Body), jsonscan.SplicedLen(out.Body, out.Edits), out.code != 0)
	}
	t.pass.Done()
}

// accessTarget is the target of a routed request, as the access rules name it.
func (h *Hub) accessTarget(ctx context.Context, req *Request, to Target) access.Target {
	t := access.Target{Method: req.Method, Server: to.server()}
	switch req.Method {
	case mcp.ToolsCall:
		t.Tool = to.name
		t.Arguments, _ = req.Params.Get("arguments")
		if req.Plan.Gate.NeedsAnnotations() {
			t.Annotations = h.annotationsOf(ctx, req, to)
		}
	case mcp.PromptsGet:
		t.Prompt = to.name
		t.Arguments, _ = req.Params.Get("arguments")
	case mcp.ResourcesRead, mcp.ResourcesSubscribe, mcp.ResourcesUnsubscribe:
		t.Resource = to.name
	case mcp.CompletionComplete:
		if to.isPrompt {
			t.Prompt = to.name
		} else {
			t.Resource = to.name
		}
	}
	return t
}

// annotationsOf returns the annotations of a tool, as its server lists them; nil where it does not.
func (h *Hub) annotationsOf(ctx context.Context, req *Request, to Target) []byte {
	if to.builtin != nil {
		return to.builtin.annotationsOf(to.name)
	}
	var raw []byte
	if e, ok := h.catalog.WaitServer(ctx, req.UpstreamCaller(), &req.Plan.Layout, to.remote.ID()).Find(catalog.Tools, to.name); ok {
		raw = e.Raw
	}
	return toolAnnotations(raw)
}

// toolAnnotations returns the annotations of a tool as it is listed; nil if it is not.
func toolAnnotations(tool []byte) []byte {
	if len(tool) == 0 {
		return nil
	}
	if a := memberOf(tool, "annotations"); len(a) > 0 && a[0] == '{' {
		return a
	}
	return []byte("{}")
}

// memberOf returns a member of a JSON object; nil if there is none.
func memberOf(object []byte, key string) []byte {
	if len(object) == 0 {
		return nil
	}
	fields, err := jsonscan.FieldsOf(object)
	if err != nil {
		return nil
	}
	value, _ := fields.Get(key)
	return value
}

// listTarget is an item of a list, as the access rules name it.
func listTarget(k catalog.Kind, server, name string, raw []byte) access.Target {
	t := access.Target{Server: server}
	switch k {
	case catalog.Tools:
		t.Method, t.Tool, t.Annotations = mcp.ToolsCall, name, toolAnnotations(raw)
	case catalog.Prompts:
		t.Method, t.Prompt = mcp.PromptsGet, name
	default:
		t.Method, t.Resource = mcp.ResourcesRead, name
	}
	return t
}

// visibleTo returns a catalog as a caller may see it. The gateway's own tool is always shown: what it reads back is
// decided by where that came from.
func (p *Plan) visibleTo(caller auth.Caller, c *catalog.Catalog) *catalog.Catalog {
	if !p.Gate.FiltersLists() {
		return c
	}
	return c.Visible(func(k catalog.Kind, e catalog.Entry) bool {
		return e.Server == "" || p.Gate.MayList(caller, listTarget(k, e.Server, e.Name, e.Raw))
	})
}

// VisibleTo returns a catalog as a caller may see it under the plan in force.
func (h *Hub) VisibleTo(caller auth.Caller, c *catalog.Catalog) *catalog.Catalog {
	return h.plan.Load().visibleTo(caller, c)
}

// mayUse reports whether a server exists for the caller of a request: whether it may use anything there.
func (r *Request) mayUse(server string) bool {
	return !r.Plan.Gate.FiltersLists() || r.Plan.Gate.MayUseServer(r.Caller, server)
}

// deniedAs returns the failure of a request that may not use its target: as if there were no such thing.
func (h *Hub) deniedAs(req *Request, to Target) error {
	switch req.Method {
	case mcp.ToolsCall:
		return h.unknownItem(req, catalog.Tools.Noun(), req.Name)
	case mcp.PromptsGet:
		return h.unknownItem(req, catalog.Prompts.Noun(), req.Name)
	case mcp.ResourcesRead, mcp.ResourcesSubscribe, mcp.ResourcesUnsubscribe:
		return resourceNotFound(req, req.URI)
	case mcp.CompletionComplete:
		if to.isPrompt {
			return h.unknownItem(req, catalog.Prompts.Noun(), refOf(req, "name"))
		}
		return resourceNotFound(req, refOf(req, "uri"))
	}
	return errUnknownMethod
}

// refOf returns a member of what a completion is for.
func refOf(req *Request, key string) string {
	raw, _ := req.Params.Get("ref")
	return jsonscan.DecodeString(memberOf(raw, key))
}

// setCompletion sets what a completion is for, by the server's own name.
func (t *Target) setCompletion(req *Request) {
	key := "uri"
	if t.isPrompt = refOf(req, "type") == "ref/prompt"; t.isPrompt {
		key = "name"
	}
	t.name = refOf(req, key)
}

// canRead reports whether a caller may read back what came from an origin: whether it could get it by a call today.
func (h *Hub) canRead(p *Plan, caller auth.Caller, o recall.Origin) bool {
	server := o.Server
	for id := range p.builtins {
		if o.Server == recall.BuiltinOrigin(id) {
			server = id
		}
	}
	if !p.canCall(o) {
		return false
	}
	t := access.Target{Server: server}
	switch {
	case o.Tool != "":
		t.Method, t.Tool = mcp.ToolsCall, o.Tool
		if p.Gate.NeedsAnnotations() {
			t.Annotations = h.knownAnnotations(p, server, o.Tool)
		}
	case o.Prompt != "":
		t.Method, t.Prompt = mcp.PromptsGet, o.Prompt
	case o.Resource != "":
		t.Method, t.Resource = mcp.ResourcesRead, o.Resource
	case o.Scope == "": // of the server itself, such as its instructions
		return p.Gate.MayUseServer(caller, server)
	}
	return p.Gate.MayRead(caller, t, o.Scope)
}

// knownAnnotations returns the annotations of a tool, if they are known without waiting for its server.
func (h *Hub) knownAnnotations(p *Plan, server, tool string) []byte {
	if b := p.builtins[server]; b != nil {
		return b.annotationsOf(tool)
	}
	e, _ := h.catalog.Current(h.catalog.ClassOf(upstream.Caller{}), server).Find(catalog.Tools, tool)
	return toolAnnotations(e.Raw)
}

// annotationsOf returns the annotations of a tool; nil if there is no such tool.
func (b *builtin) annotationsOf(tool string) []byte {
	for _, it := range b.tools {
		if it.Name == tool {
			return toolAnnotations(it.Raw)
		}
	}
	return nil
}

// originFor is the origin of the texts of a call's reply: what a caller must be allowed to use to read them back.
func originFor(method string, to Target) recall.Origin {
	o := recall.Origin{Server: to.server(), Scope: to.pass.Decision.Scope}
	switch method {
	case mcp.ToolsCall:
		o.Tool = to.name
	case mcp.PromptsGet:
		o.Prompt = to.name
	case mcp.ResourcesRead:
		o.Resource = to.name
	}
	return o
}

// authorizeRelayed is authorize for a message that is relayed to one server as it came. Lists are not authorized but
// filtered, and what is about the connection alone concerns no item.
func (h *Hub) authorizeRelayed(ctx context.Context, req *Request, to Target) (Target, error) {
	if _, isList := catalog.KindOf(req.Method); isList || req.Method == mcp.Initialize || req.Method == mcp.Ping {
		to.pass = &gate.Pass{Decision: access.Decision{Effect: access.Allow}}
		return to, nil
	}
	noun := "method"
	switch req.Method {
	case mcp.ToolsCall, mcp.PromptsGet:
		to.name, noun = req.Name, strings.TrimSuffix(strings.TrimSuffix(req.Method, "s/call"), "s/get")
	case mcp.ResourcesRead, mcp.ResourcesSubscribe, mcp.ResourcesUnsubscribe:
		to.name, noun = req.URI, "resource"
	case mcp.CompletionComplete:
		to.setCompletion(req)
		noun = "reference"
	default:
		to.name = ""
	}
	err := gate.ErrDenied
	if isItemName(to.name) {
		err = h.enter(ctx, req, &to)
	}
	if errors.Is(err, gate.ErrDenied) {
		return to, unknownRelayed(noun, cmp.Or(to.name, req.Method))
	}
	return to, err
}

// unknownRelayed is the failure for a name that a server does not have, at the endpoint that relays single messages.
func unknownRelayed(noun, name string) error {
	return fault.New(fault.NotFound, "unknown "+noun+" "+strconv.Quote(fault.Clip(name)))
}

// hideItems takes what a caller may not see out of a server's list that is relayed as it came.
func hideItems(req *Request, server string, got rpc.Reply, policy recall.Policy) (rpc.Reply, error) {
	k, isList := catalog.KindOf(req.Method)
	if !isList || !req.Plan.Gate.FiltersLists() || got.IsError {
		return got, nil
	}
	fields, err := jsonscan.ReadFields(got.Body, got.Result)
	if err != nil {
		return got, fault.Wrap(fault.BadReply, "the server's answer cannot be read", err)
	}
	list, ok := fields.Field(k.Member())
	if !ok {
		return got, nil
	}
	kept := []byte{'['}
	err = jsonscan.EachElement(got.Body, list.Value, func(at jsonscan.Span) error {
		raw := at.Of(got.Body)
		item, err := jsonscan.FieldsOf(raw)
		if err != nil || !req.Plan.Gate.MayList(req.Caller, listTarget(k, server, item.Text(k.Key()), raw)) {
			return err
		}
		if len(kept) > 1 {
			kept = append(kept, ',')
		}
		kept = append(kept, raw...)
		return nil
	})
	if err != nil {
		return got, fault.Wrap(fault.BadReply, "the server's answer cannot be read", err)
	}
	body := jsonscan.AppendSpliced(nil, got.Body, []jsonscan.Edit{{Span: list.Value, Text: append(kept, ']')}})
	return rpc.ParseReply(body, req.Plan.Hub.MaxDepth, policy.MaxChars)
}
