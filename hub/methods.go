package hub

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

// Method is how the gateway itself answers a request. A method that is not in the table is for a server.
type Method struct {
	Protocol mcp.Protocol // that alone has it; 0 for both
	Serve    func(ctx context.Context, req *Request) (Reply, error)
}

// methodTable returns the methods that the gateway answers.
func (h *Hub) methodTable() map[string]Method {
	table := map[string]Method{
		mcp.ServerDiscover:        {mcp.Modern, h.discover},
		mcp.SubscriptionsListen:   {mcp.Modern, refuseUnknownMethod}, // the transports serve it, with a stream
		mcp.ToolsList:             {0, h.listItems},
		mcp.PromptsList:           {0, h.listItems},
		mcp.ResourcesList:         {0, h.listItems},
		mcp.ResourceTemplatesList: {0, h.listItems},
		mcp.ToolsCall:             {0, h.call},
		mcp.PromptsGet:            {0, h.call},
		mcp.ResourcesRead:         {0, h.call},
		mcp.CompletionComplete:    {0, h.call},
	}
	maps.Copy(table, h.legacy.Methods())
	return table
}

var errUnknownMethod = fault.New(fault.NoMethod, "Method not found")

func refuseUnknownMethod(context.Context, *Request) (Reply, error) {
	return Reply{}, errUnknownMethod
}

// Serve answers one request, of any revision and transport.
func (h *Hub) Serve(ctx context.Context, req *Request) (Reply, error) {
	if err := h.Admit(req); err != nil {
		return Reply{}, err
	}
	if req.Server != "" && (!req.Plan.Serves(req.Server) || !req.mayUse(req.Server)) {
		return Reply{}, errUnknownServer
	}
	m, ok := h.methods[req.Method]
	switch {
	case ok && m.Protocol != 0 && m.Protocol != req.Protocol:
		return Reply{}, errUnknownMethod
	case ok:
		return m.Serve(ctx, req)
	case req.Server != "":
		return h.call(ctx, req)
	}
	return Reply{}, errUnknownMethod
}

var errUnknownServer = fault.New(fault.NotFound, "there is no such server")

// listItems answers a list of the servers' items.
func (h *Hub) listItems(ctx context.Context, req *Request) (Reply, error) {
	k, _ := catalog.KindOf(req.Method)
	caller := req.UpstreamCaller()
	var c *catalog.Catalog
	if req.Server != "" {
		c = h.catalog.WaitServer(ctx, caller, &req.Plan.Layout, req.Server)
	} else {
		c = h.catalog.Wait(ctx, caller, &req.Plan.Layout)
	}
	c = req.Plan.visibleTo(req.Caller, c)
	logNotListed(ctx, h.catalog, req.Plan)
	if req.Session != nil {
		seen := req.Session.SeenLists()
		seen.Set(k, c)
		// A list that changes now is answered as it is now: the notification of the change may have been
		// decided by what the session knew before.
		if now := req.Plan.visibleTo(req.Caller, h.catalog.Current(h.catalog.ClassOf(caller), req.Server)); !now.SameList(k, c) {
			seen.Set(k, now)
			c = now
		}
	}
	if k == catalog.Tools {
		c = h.fitTools(ctx, req, c)
	}
	result, err := c.Page(ctx, k, req.Params, req.Protocol, req.Plan.Hub.PageSize)
	if err != nil {
		return Reply{}, err
	}
	return ResultReply(req, result), nil
}

// Capabilities is the capabilities of the gateway. They do not depend on which servers are up: a client that asks for
// a list that no server has gets an empty one.
const Capabilities = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},` +
	`"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{}}`

// ServerInfo returns the gateway's name and version, as raw JSON.
func (h *Hub) ServerInfo() []byte {
	return append(append([]byte(`{"name":"ctxgate","title":"ctxgate","version":`), mcp.Quote(h.deps.Version)...), '}')
}

// versions lists the protocol revisions that are served, newest first.
func (h *Hub) versions() []string {
	legacy := h.legacy.Versions()
	return slices.DeleteFunc(slices.Clone(mcp.Versions), func(v string) bool {
		return mcp.ProtocolOf(v) != mcp.Modern && !slices.Contains(legacy, v)
	})
}

func (h *Hub) discover(ctx context.Context, req *Request) (Reply, error) {
	dst := append([]byte(`{"resultType":"complete","supportedVersions":`), mcp.QuoteAll(h.versions())...)
	dst = append(dst, `,"capabilities":`+Capabilities+`,"_meta":{"`+mcp.MetaServerInfo+`":`...)
	dst = append(append(dst, h.ServerInfo()...), '}')
	if text := h.Instructions(ctx, req); text != "" {
		dst = jsonscan.AppendQuoted(append(dst, `,"instructions":`...), text)
	}
	return ResultReply(req, append(dst, `,"ttlMs":0,"cacheScope":"private"}`...)), nil
}

// instructionsWait is how long initialize and server/discover wait for the instructions of servers that are starting.
const instructionsWait = 2 * time.Second

// Instructions returns the instructions of the servers, under their ids, in the order of the configuration.
func (h *Hub) Instructions(ctx context.Context, req *Request) string {
	ctx, cancel := context.WithTimeout(ctx, instructionsWait)
	defer cancel()
	caller := req.UpstreamCaller()
	h.catalog.Wait(ctx, caller, &req.Plan.Layout)
	var found []serverInstructions
	for _, r := range req.Plan.Servers {
		conn := r.SharedConnOf(caller)
		if conn == nil || req.Server != "" && r.ID() != req.Server || !req.mayUse(r.ID()) {
			continue
		}
		text := h.instructionsOf(ctx, r, conn)
		if text == "" {
			continue
		}
		if req.Server != "" {
			return h.fitServerInstructions(ctx, req, r.ID(), text)
		}
		found = append(found, serverInstructions{r.ID(), strings.TrimSpace(text)})
	}
	return h.fitInstructions(ctx, req, found)
}

// Forward forwards a client's notification to the servers it is for (A7). Notifications about the client's connection
// to the gateway, and about requests that the gateway answers for, concern no server.
func (h *Hub) Forward(req *Request) {
	switch req.Method {
	case mcp.NotifyCancelled, mcp.NotifyInitialized, mcp.NotifyProgress:
		return
	}
	for _, r := range req.Plan.serversFor(req.Method) {
		if req.Server != "" && r.ID() != req.Server || !req.mayUse(r.ID()) {
			continue
		}
		conn, there := r.Lookup(req.UpstreamCaller())
		if !there {
			continue
		}
		if err := conn.Notify(req.Method, req.Params.With([]jsonscan.Change{{Key: "proxy"}}, nil)); err != nil {
			slog.Debug("a notification was not delivered", "server", r.ID(), "error", err)
		}
	}
}
