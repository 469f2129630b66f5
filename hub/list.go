package hub

import (
	"context"
	"encoding/base64"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

// page is a part of a list: where it begins, and how much of it is wanted.
type page struct{ from, limit int }

// list answers a list from the catalog, a page at a time (A6).
func (h *Hub) list(ctx context.Context, c *catalog, k kind, req *request) (reply, error) {
	p, err := pageOf(c, k, req)
	if err != nil {
		return reply{}, err
	}
	entries := c.lists[k]
	if c.extra(k) > 0 {
		entries = append(entries[:len(entries):len(entries)], entry{shown: recoverTool, raw: recoverItem})
	}
	end := min(p.from+p.limit, len(entries))
	size := 128
	for _, e := range entries[p.from:end] {
		size += len(e.raw) + 1
	}
	if err := membudget.From(ctx).Take(2 * int64(size)); err != nil { // the list, and the reply around it
		return reply{}, err
	}
	dst := append(make([]byte, 0, size), `{"`...)
	dst = append(append(dst, listing[k].member...), `":[`...)
	for i, e := range entries[p.from:end] {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, e.raw...)
	}
	dst = append(dst, ']')
	if end < len(entries) {
		dst = append(append(dst, `,"nextCursor":"`...), cursor(c, end, entries[end-1].shown)...)
		dst = append(dst, '"')
	}
	if req.era == mcp.EraModern {
		dst = append(dst, `,"resultType":"complete","cacheScope":"private","ttlMs":`...)
		dst = strconv.AppendInt(dst, c.ttl.Milliseconds(), 10)
	}
	return result(req, append(dst, '}')), nil
}

// cursor names a place in a list: the offset, the generation it is of, and the name before it, by
// which the place is found again in a later generation.
func cursor(c *catalog, offset int, after string) string {
	b := append([]byte(`{"offset":`), strconv.Itoa(offset)...)
	b = append(b, `,"generation":"`+c.generation+`","after":`...)
	b = append(jsonscan.AppendString(b, after), '}')
	return base64.RawURLEncoding.EncodeToString(b)
}

var errCursor = invalidParams("the cursor is none of this list: begin again without one")

// pageOf reads what part of a list is wanted.
func pageOf(c *catalog, k kind, req *request) (page, error) {
	params := req.params
	p := page{limit: req.plan.Hub.PageSize}
	if raw, ok := params.Get("limit"); ok {
		n, err := strconv.Atoi(string(raw))
		if err != nil || n < 1 {
			return page{}, invalidParams("limit must be a positive number")
		}
		p.limit = min(n, p.limit)
	}
	raw, ok := params.Get("cursor")
	if !ok || string(raw) == "null" {
		return p, nil
	}
	fields, err := decodeObject(jsonscan.TextOf(raw))
	if err != nil {
		return page{}, errCursor
	}
	offset, _ := fields.Get("offset")
	n, err := strconv.Atoi(string(offset))
	if err != nil || n < 0 {
		return page{}, errCursor
	}
	if g := fields.Text("generation"); g != "" && g != c.generation {
		at, ok := c.byShown[k][fields.Text("after")]
		if !ok {
			return page{}, invalidParams("the list has changed since this cursor: begin again without one")
		}
		n = at + 1
	}
	if most := len(c.lists[k]) + 1; n > most {
		return page{}, errCursor
	}
	p.from = min(n, len(c.lists[k])+c.extra(k))
	return p, nil
}

// extra is how many things of a kind are listed besides those of the servers: the gateway's own
// tool, but where one of the servers that are part of it has it under that name.
func (c *catalog) extra(k kind) int {
	if _, taken := c.find(tools, recoverTool); k == tools && !taken {
		return 1
	}
	return 0
}

func invalidParams(text string) error { return fault.New(fault.BadParams, text) }
