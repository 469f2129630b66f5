package hub

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

const (
	maxPages = 1000   // of one list of one server
	maxItems = 20_000 // of one list of one server
)

// readOffer walks every page of every list of a server, and says on which connection. What it reads
// is held by the offer's memory scope, which its keeper releases.
func (h *Hub) readOffer(r *upstream.Remote, who upstream.Who) (o offer, _ *upstream.Conn, err error) {
	memory := h.deps.Budget.Scope("lists of " + r.ID())
	defer func() {
		if err != nil {
			memory.Release()
		}
	}()
	ctx, cancel := context.WithTimeout(membudget.With(context.Background(), memory), 10*time.Minute)
	defer cancel()
	lane, release, err := r.Pick(ctx, who)
	if err != nil {
		return offer{}, nil, err
	}
	defer release()
	conn, err := lane.Conn(ctx)
	if err != nil {
		return offer{}, nil, err
	}
	limits := h.plan.Load().Upstream
	o = offer{ttl: limits.ListTTL.D(), known: true, memory: memory}
	left := int64(limits.MaxListBytes)
	for k := range kinds {
		if !conn.Hello().Offers(listing[k].capability) {
			continue
		}
		if o.items[k], err = h.readList(ctx, lane, k, who.Client, &o.ttl, &left); err != nil {
			if k == templates && fault.KindOf(err) == fault.BadReply {
				continue // many servers that have resources know no templates
			}
			return offer{}, nil, err
		}
	}
	if r.Entry().URL != "" {
		o.items[tools] = h.sound(r.ID(), o.items[tools])
	}
	// The catalog holds the items once more, under their names there.
	if err := memory.Take(int64(limits.MaxListBytes) - left); err != nil {
		return offer{}, nil, err
	}
	return o, conn, nil
}

// sound leaves out the tools that an HTTP server must not be called with.
func (h *Hub) sound(server string, items []item) []item {
	var out []item
	for _, it := range items {
		if err := upstream.InvalidTool(it.raw); err != nil {
			slog.Warn("a tool is not offered: its headers are not valid", "server", server, "tool", clip(it.key), "error", err)
			continue
		}
		out = append(out, it)
	}
	return out
}

func (h *Hub) readList(ctx context.Context, lane *upstream.Lane, k kind, client mcp.Client, ttl *time.Duration, left *int64) ([]item, error) {
	var out []item
	var next []byte
	seen := map[string]bool{}
	params, _ := mcp.ReadParams(nil)
	for range maxPages {
		call := &upstream.Call{Method: listing[k].method, Params: params, Client: client}
		if next != nil {
			call.Changes = []jsonscan.Change{{Key: "cursor", Value: next}}
		}
		page, err := ask(ctx, lane, call)
		if err != nil {
			return nil, err
		}
		if *left -= int64(page.Size()); *left < 0 {
			return nil, fault.New(fault.TooLarge, "the server's lists are too large; see max_list_bytes")
		}
		if out, err = appendItems(out, page, k); err != nil {
			return nil, err
		}
		if raw, ok := page.Get("ttlMs"); ok {
			if ms, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
				*ttl = min(*ttl, max(time.Duration(ms)*time.Millisecond, 0))
			}
		}
		raw, ok := page.Get("nextCursor")
		switch {
		case !ok || string(raw) == "null":
			return out, nil
		case seen[string(raw)]:
			return nil, fault.Wrap(fault.BadReply, "the server's list has no end", fmt.Errorf("cursor %s twice", clip(string(raw))))
		}
		seen[string(raw)] = true
		next = raw
	}
	return nil, fault.New(fault.BadReply, "the server's list has too many pages")
}

// appendItems takes the items of a page. One without a name cannot be asked for.
func appendItems(out []item, page mcp.Result, k kind) ([]item, error) {
	raw, ok := page.Get(listing[k].member)
	if !ok {
		return out, fault.New(fault.BadReply, "the server's list cannot be read")
	}
	err := jsonscan.Elements(raw, jsonscan.Span{End: len(raw)}, func(s jsonscan.Span) error {
		fields, err := jsonscan.ReadFields(raw, s)
		if err != nil {
			return fault.Wrap(fault.BadReply, "the server's list cannot be read", err)
		}
		if len(out) == maxItems {
			return fault.New(fault.TooLarge, "the server's list is too long")
		}
		if key := fields.Text(listing[k].key); key != "" {
			out = append(out, item{key, s.Of(raw)})
		}
		return nil
	})
	return out, err
}
