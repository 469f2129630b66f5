package hub

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

// method is what the gateway itself does with a request; what is not in the table goes to a
// server.
type method struct {
	era  mcp.Era // the only era that has it; 0 for both
	once func(h *Hub, ctx context.Context, req *request) (reply, error)
}

var methods = map[string]method{
	mcp.Discover:      {mcp.EraModern, (*Hub).discover},
	mcp.Ping:          {mcp.EraLegacy, (*Hub).ping},
	mcp.SetLevel:      {mcp.EraLegacy, (*Hub).setLevel},
	mcp.Subscribe:     {mcp.EraLegacy, (*Hub).subscribe},
	mcp.Unsubscribe:   {mcp.EraLegacy, (*Hub).unsubscribe},
	mcp.ToolsList:     {0, (*Hub).lists},
	mcp.PromptsList:   {0, (*Hub).lists},
	mcp.ResourcesList: {0, (*Hub).lists},
	mcp.TemplatesList: {0, (*Hub).lists},
	mcp.ToolsCall:     {0, (*Hub).call},
	mcp.PromptsGet:    {0, (*Hub).call},
	mcp.ResourcesRead: {0, (*Hub).call},
	mcp.Complete:      {0, (*Hub).call},
	mcp.Initialize:    {mcp.EraLegacy, (*Hub).initializedTwice},
	mcp.Listen:        {mcp.EraModern, (*Hub).listenedElsewhere},
}

// serve answers one request, of any era and through any door.
func (h *Hub) serve(ctx context.Context, req *request) (reply, error) {
	if err := h.admit(req.plan, req); err != nil {
		return reply{}, err
	}
	if req.only != "" && !req.plan.serves(req.only) {
		return reply{}, fault.New(fault.NotFound, "there is no such server")
	}
	m, ok := methods[req.Method]
	switch {
	case ok && m.era != 0 && m.era != req.era:
		return reply{}, fault.New(fault.NoMethod, "Method not found")
	case ok:
		return m.once(h, ctx, req)
	case req.only != "":
		return h.call(ctx, req)
	}
	return reply{}, fault.New(fault.NoMethod, "Method not found")
}

func (h *Hub) ping(_ context.Context, req *request) (reply, error) { return empty(req), nil }

func (h *Hub) initializedTwice(_ context.Context, _ *request) (reply, error) {
	return reply{}, fault.New(fault.Invalid, "the session is initialized already")
}

// listenedElsewhere is subscriptions/listen where it does not come: the doors have a stream for it.
func (h *Hub) listenedElsewhere(_ context.Context, _ *request) (reply, error) {
	return reply{}, fault.New(fault.NoMethod, "Method not found")
}

// lists answers a list of the servers' things.
func (h *Hub) lists(ctx context.Context, req *request) (reply, error) {
	k, _ := kindOf(req.Method)
	if req.only != "" {
		return h.list(ctx, h.listed(req, k, h.shelves.single(ctx, req, req.only)), k, req)
	}
	return h.list(ctx, h.listed(req, k, h.shelves.wait(ctx, req)), k, req)
}

// offered are the capabilities of the gateway. They do not depend on which servers are there at
// the moment: a client that asks for a list that no server has gets an empty one.
const offered = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},` +
	`"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{}}`

func (h *Hub) serverInfo() []byte {
	return append(append([]byte(`{"name":"ctxgate","title":"ctxgate","version":`), mcp.Quote(h.deps.Version)...), '}')
}

// discover says what the gateway is.
func (h *Hub) discover(ctx context.Context, req *request) (reply, error) {
	dst := append([]byte(`{"resultType":"complete","supportedVersions":`), mcp.QuoteAll(mcp.Versions)...)
	dst = append(dst, `,"capabilities":`+offered+`,"_meta":{"`+mcp.KeyServerInfo+`":`...)
	dst = append(append(dst, h.serverInfo()...), '}')
	if text := h.instructions(ctx, req); text != "" {
		dst = jsonscan.AppendString(append(dst, `,"instructions":`...), text)
	}
	return result(req, append(dst, `,"ttlMs":0,"cacheScope":"private"}`...)), nil
}

// greetingWait is how long a greeting waits for what servers that are still starting have to say.
const greetingWait = 2 * time.Second

// instructions are those of the servers, under their ids, in the order of the table.
func (h *Hub) instructions(ctx context.Context, req *request) string {
	ctx, cancel := context.WithTimeout(ctx, greetingWait)
	defer cancel()
	h.shelves.wait(ctx, req)
	var b strings.Builder
	for _, r := range req.plan.order {
		lane := r.Shared()
		if lane == nil || req.only != "" && r.ID() != req.only {
			continue
		}
		hello, up := lane.Up()
		if !up || hello.Instructions == "" {
			continue
		}
		if req.only != "" {
			return hello.Instructions
		}
		b.WriteString("# " + r.ID() + "\n" + strings.TrimSpace(hello.Instructions) + "\n\n")
	}
	return strings.TrimSpace(b.String())
}

// setLevel notes what a session wants to hear. Servers are told when it calls them.
func (h *Hub) setLevel(_ context.Context, req *request) (reply, error) {
	level := req.params.Text("level")
	if mcp.Severity(level) < 0 {
		return reply{}, invalidParams("level must be one of " + strings.Join(mcp.Levels, ", "))
	}
	req.held.setLevel(level)
	return empty(req), nil
}

// forward passes a client's notification on to the servers it is for (A7).
func (h *Hub) forward(req *request) {
	for _, r := range req.plan.notified(req.Method) {
		if req.only != "" && r.ID() != req.only {
			continue
		}
		lane, there := r.Find(req.from())
		if !there {
			continue
		}
		if err := lane.Notify(req.Method, req.params.With([]jsonscan.Change{{Key: "proxy"}}, nil)); err != nil {
			slog.Debug("a notification was not delivered", "server", r.ID(), "error", err)
		}
	}
}
