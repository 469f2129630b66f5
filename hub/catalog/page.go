package catalog

import (
	"context"
	"encoding/base64"
	"strconv"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

// Page returns the result of a list request: the page that its params ask for, of at most maxItems (A6).
func (c *Catalog) Page(ctx context.Context, k Kind, params mcp.Params, protocol mcp.Protocol, maxItems int) ([]byte, error) {
	from, limit, err := c.pageBounds(k, params, maxItems)
	if err != nil {
		return nil, err
	}
	entries := c.lists[k]
	end := min(from+limit, len(entries))
	size := 128
	for _, e := range entries[from:end] {
		size += len(e.Raw) + 1
	}
	if err := membudget.FromContext(ctx).Reserve(2 * int64(size)); err != nil { // the result, and the reply around it
		return nil, err
	}
	dst := append(make([]byte, 0, size), `{"`+kinds[k].member+`":[`...)
	for i, e := range entries[from:end] {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, e.Raw...)
	}
	dst = append(dst, ']')
	if end < len(entries) {
		dst = append(append(dst, `,"nextCursor":"`...), c.cursor(end, entries[end-1].Shown)...)
		dst = append(dst, '"')
	}
	if protocol == mcp.Modern {
		dst = append(dst, `,"resultType":"complete","cacheScope":"private","ttlMs":`...)
		dst = strconv.AppendInt(dst, c.ttl.Milliseconds(), 10)
	}
	return append(dst, '}'), nil
}

// cursor encodes a place in a list: the offset, the generation that it counts in, and the name before it, by which
// the place is found again in a later generation.
func (c *Catalog) cursor(offset int, after string) string {
	b := append([]byte(`{"offset":`), strconv.Itoa(offset)...)
	b = append(b, `,"generation":"`+c.generation+`","after":`...)
	b = append(jsonscan.AppendQuoted(b, after), '}')
	return base64.RawURLEncoding.EncodeToString(b)
}

var errCursor = fault.New(fault.BadParams, "the cursor is none of this list: begin again without one")

// pageBounds reads limit and cursor from the params of a list request.
func (c *Catalog) pageBounds(k Kind, params mcp.Params, maxItems int) (from, limit int, err error) {
	limit = maxItems
	if raw, ok := params.Get("limit"); ok {
		n, err := strconv.Atoi(string(raw))
		if err != nil || n < 1 {
			return 0, 0, fault.New(fault.BadParams, "limit must be a positive number")
		}
		limit = min(n, limit)
	}
	raw, ok := params.Get("cursor")
	if !ok || string(raw) == "null" {
		return 0, limit, nil
	}
	fields, err := decodeObject(jsonscan.DecodeString(raw))
	if err != nil {
		return 0, 0, errCursor
	}
	offset, _ := fields.Get("offset")
	n, err := strconv.Atoi(string(offset))
	if err != nil || n < 0 {
		return 0, 0, errCursor
	}
	if g := fields.Text("generation"); g != "" && g != c.generation {
		at, ok := c.byShown[k][fields.Text("after")]
		if !ok {
			return 0, 0, fault.New(fault.BadParams, "the list has changed since this cursor: begin again without one")
		}
		n = at + 1
	}
	if n > len(c.lists[k])+1 {
		return 0, 0, errCursor
	}
	return min(n, len(c.lists[k])), limit, nil
}
