package hub

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/clients"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/reduce"
)

// What clients cut of tools and instructions before a model sees them is cut here, so that a marker can say how to read
// it. The same tools give the same bytes to all clients with the same limits.

// fitTools returns a catalog as the client of a request can use it: names within its limit, the ends of long
// descriptions stored and replaced by a marker, and large results allowed where the policy of a tool allows them.
func (h *Hub) fitTools(ctx context.Context, req *Request, c *catalog.Catalog) *catalog.Catalog {
	l := req.clientLimits()
	if l == (clients.Limits{}) {
		return c
	}
	f := catalog.Fit{MaxName: l.ToolName, PlainNames: l.ToolName > 0 && catalog.IsPlain(req.Plan.Naming.Separator)}
	if h.storeDescriptions(ctx, req, c, l.Description) {
		f.EditKey = "description " + strconv.Itoa(l.Description) + " " + req.Caller.Tenant()
	}
	cutsDescriptions := f.EditKey != ""
	if l.RaisesResult && req.Plan.Hub.FitClients {
		f.EditKey += " raised"
	}
	f.Edit = func(e catalog.Entry) ([]byte, bool) {
		if e.Server == "" {
			return e.Raw, false // the gateway's own tool
		}
		raw, changed := e.Raw, false
		if text, ok := catalog.Description(raw); ok && cutsDescriptions && catalog.UTF16Len(jsonscan.DecodeString(text)) > l.Description {
			if short := h.cutEnd(ctx, req, text[1:len(text)-1], l.Description); short != nil {
				raw, changed = withMember(raw, jsonscan.Change{Key: "description", Value: quoteRaw(short)}), true
			}
		}
		if n := req.Plan.raisedResult(e.Server, e.Name); l.RaisesResult && n > 0 && declaredMaxResult(raw) == 0 {
			raw, changed = withMaxResult(raw, n), true
		}
		return raw, changed
	}
	return c.For(f)
}

// quoteRaw returns the inside of a JSON string as a string.
func quoteRaw(inside []byte) []byte { return append(append([]byte{'"'}, inside...), '"') }

func withMember(object []byte, change jsonscan.Change) []byte {
	fields, err := jsonscan.FieldsOf(object)
	if err != nil {
		return object
	}
	return fields.With(change)
}

// withMaxResult returns a tool whose _meta allows results of n characters.
func withMaxResult(tool []byte, n int) []byte {
	fields, err := jsonscan.FieldsOf(tool)
	if err != nil {
		return tool
	}
	meta := []byte("{}")
	if raw, ok := fields.Get("_meta"); ok && len(raw) > 0 && raw[0] == '{' {
		meta = raw
	}
	meta = withMember(meta, jsonscan.Change{Key: metaMaxResult, Value: strconv.AppendInt(nil, int64(n), 10)})
	return fields.With(jsonscan.Change{Key: "_meta", Value: meta})
}

// storeDescriptions stores the descriptions that the client would cut. It reports false when there are none, or when
// they cannot be stored: then they are listed whole. What was stored lately costs nothing.
func (h *Hub) storeDescriptions(ctx context.Context, req *Request, c *catalog.Catalog, limit int) bool {
	if limit == 0 || !h.recall.Enabled() {
		return false
	}
	var texts []recall.StoreRequest
	for _, e := range c.LongDescriptions(limit) {
		if raw, ok := catalog.Description(e.Raw); ok && e.Server != "" {
			origin := recall.Origin{Server: originOf(req.Plan, e.Server), Tool: e.Name}
			texts = append(texts, recall.StoreRequest{Raw: [][]byte{raw[1 : len(raw)-1]}, Origin: origin})
		}
	}
	return h.storeTexts(ctx, req, texts)
}

// storeTexts reports whether there are texts and all of them are stored.
func (h *Hub) storeTexts(ctx context.Context, req *Request, texts []recall.StoreRequest) bool {
	if len(texts) == 0 {
		return false
	}
	if _, err := h.recall.StoreAll(ctx, req.Caller.Tenant(), texts); err != nil {
		slog.WarnContext(ctx, "long descriptions or instructions are sent whole: they could not be stored", "error", err)
		return false
	}
	return true
}

// originOf is a server as the origin of a stored text.
func originOf(p *Plan, server string) string {
	if p.builtins[server] != nil {
		return recall.BuiltinOrigin(server)
	}
	return server
}

// cutEnd cuts a stored text so that it has, with its marker, at most limit UTF-16 code units; nil if it stays whole.
func (h *Hub) cutEnd(ctx context.Context, req *Request, raw []byte, limit int) []byte {
	const marker = 130
	for head := max(limit-marker, 0); ; head = head * 3 / 4 {
		p := recall.Policy{Mask: reduce.Mask{MaxChars: head + 1, HeadChars: head, Markers: reduce.PlainMarkers}, RecoverLine: true}
		edits, err := h.recall.PlanShrink(ctx, recall.PlanRequest{Tenant: req.Caller.Tenant(), Raw: raw, Policy: p})
		if err != nil || len(edits) == 0 {
			return nil
		}
		short := bytes.TrimSuffix(jsonscan.AppendSpliced(nil, raw, edits), []byte(`\n`))
		if head == 0 || catalog.UTF16Len(jsonscan.DecodeString(quoteRaw(short))) <= limit {
			return short
		}
	}
}

// maxInstructions is the most characters of instructions for the client of a request; 0 for any number.
func (r *Request) maxInstructions() int {
	limit, most := r.clientLimits().Instructions, r.Plan.Hub.MaxInstructionsChars
	if limit == 0 || most > 0 && most < limit {
		return most
	}
	return limit
}

// fitInstructions joins the instructions of servers so that they are within the client's limit: each server has an
// equal share, and what it does not need is for the others.
func (h *Hub) fitInstructions(ctx context.Context, req *Request, servers []serverInstructions) string {
	limit := req.maxInstructions()
	whole := joinInstructions(servers)
	if limit == 0 || catalog.UTF16Len(whole) <= limit || !h.recall.Enabled() {
		return whole
	}
	// Where there are so many servers that not even their markers fit, the last ones share one.
	const least = 200
	for len(servers)*least > limit && len(servers) > 1 {
		last := len(servers) - 1
		servers = append(servers[:last-1:last-1], serverInstructions{servers[last-1].server, joinInstructions(servers[last-1:])})
	}
	share := instructionShare(servers, limit)
	var texts []recall.StoreRequest
	var long []*serverInstructions
	for i := range servers {
		if s := &servers[i]; catalog.UTF16Len(s.heading()+s.text) > share {
			long = append(long, s)
			texts = append(texts, recall.StoreRequest{Raw: [][]byte{jsonscan.AppendEscaped(nil, s.text)}, Origin: recall.Origin{Server: s.server}})
		}
	}
	if !h.storeTexts(ctx, req, texts) {
		return whole
	}
	for i, s := range long {
		if short := h.cutEnd(ctx, req, texts[i].Raw[0], share-catalog.UTF16Len(s.heading())); short != nil {
			s.text = jsonscan.DecodeString(quoteRaw(short))
		}
	}
	return joinInstructions(servers)
}

// fitServerInstructions returns the instructions of the one server of an endpoint, within the client's limit.
func (h *Hub) fitServerInstructions(ctx context.Context, req *Request, server, text string) string {
	limit := req.maxInstructions()
	if limit == 0 || catalog.UTF16Len(text) <= limit || !h.recall.Enabled() {
		return text
	}
	raw := jsonscan.AppendEscaped(nil, text)
	if !h.storeTexts(ctx, req, []recall.StoreRequest{{Raw: [][]byte{raw}, Origin: recall.Origin{Server: server}}}) {
		return text
	}
	if short := h.cutEnd(ctx, req, raw, limit); short != nil {
		return jsonscan.DecodeString(quoteRaw(short))
	}
	return text
}

// serverInstructions are the instructions of one server.
type serverInstructions struct{ server, text string }

func (s serverInstructions) heading() string { return "# " + s.server + "\n" }

func joinInstructions(servers []serverInstructions) string {
	var b strings.Builder
	for i, s := range servers {
		if i > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(s.heading() + s.text)
	}
	return b.String()
}

// instructionShare is the most that each server may use of a limit.
func instructionShare(servers []serverInstructions, limit int) int {
	share, left := 0, limit-2*len(servers)
	for settled := map[int]bool{}; len(settled) < len(servers); {
		share = left / (len(servers) - len(settled))
		found := false
		for i, s := range servers {
			if n := catalog.UTF16Len(s.heading() + s.text); !settled[i] && n <= share {
				settled[i], found = true, true
				left -= n
			}
		}
		if !found {
			break
		}
	}
	return share
}

// findListed returns what a client calls by a name: as it is listed, or shortened for some client.
func (h *Hub) findListed(ctx context.Context, req *Request, k catalog.Kind, shown string) (catalog.Entry, bool) {
	caller := req.UpstreamCaller()
	if req.Server != "" {
		c := h.catalog.WaitServer(ctx, caller, &req.Plan.Layout, req.Server)
		if e, ok := c.Find(k, shown); ok || k != catalog.Tools {
			return e, ok
		}
		return c.FindShortened(shown)
	}
	if e, ok := h.catalog.Find(caller, k, shown); ok || k != catalog.Tools || !catalog.LooksShortened(shown) {
		return e, ok
	}
	if e, ok := h.catalog.Now(caller).FindShortened(shown); ok {
		return e, true
	}
	if e, ok := h.catalog.Plain().FindShortened(shown); ok && !h.catalog.IsOfOthers(caller, e) {
		return e, true
	}
	return h.catalog.Wait(ctx, caller, &req.Plan.Layout).FindShortened(shown) // it may be of a server that is still starting
}
