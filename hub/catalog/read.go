package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

const (
	maxPages    = 1000   // of one list of one server
	maxItems    = 20_000 // of one list of one server
	readTimeout = 10 * time.Minute
)

// readOffer reads every page of every list of a server, and says from which connection. The offer's memory scope
// holds what was read, until the caller that stores the offer releases it.
func (c *Cache) readOffer(r *upstream.Server, caller upstream.Caller) (o serverOffer, _ *upstream.Conn, err error) {
	memory := c.deps.Budget.Scope("lists of " + r.ID())
	defer func() {
		if p := recover(); p != nil {
			slog.Error("reading a server's lists panicked", "server", r.ID(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "internal error")
		}
		if err != nil {
			memory.Release()
		}
	}()
	ctx, cancel := context.WithTimeout(membudget.NewContext(context.Background(), memory), readTimeout)
	defer cancel()
	caller.ForLists = true
	conn, release, err := r.Acquire(ctx, caller)
	if err != nil {
		return serverOffer{}, nil, err
	}
	defer release()
	current, err := conn.AwaitConn(ctx)
	if err != nil {
		return serverOffer{}, nil, err
	}
	layout := c.deps.Layout()
	o = serverOffer{ttl: layout.ListTTL, known: true, memory: memory}
	left := layout.MaxListBytes
	for k := range kindCount {
		if !current.Handshake().HasCapability(kinds[k].capability) {
			continue
		}
		if o.items[k], err = readList(ctx, conn, k, caller.Client, &o.ttl, &left); err != nil {
			if k == Templates && fault.KindOf(err) == fault.BadReply {
				continue // many servers that have resources know no templates
			}
			return serverOffer{}, nil, err
		}
	}
	o.items[Tools] = slices.DeleteFunc(o.items[Tools], func(it Item) bool { return !r.Config().OffersTool(it.Name) })
	if r.Config().URL != "" {
		o.items[Tools] = callableTools(r.ID(), o.items[Tools])
	}
	if c.deps.Pins != nil {
		o.items[Tools] = c.checkTools(ctx, r.ID(), o.items[Tools])
		if conn.IsShared() { // what is seen of it first is approved with its tools
			c.deps.Pins.CheckInstructions(ctx, r.ID(), current.Handshake().Instructions)
		}
	}
	// The catalog holds the items once more, under the names that clients see.
	if err := memory.Reserve(layout.MaxListBytes - left); err != nil {
		return serverOffer{}, nil, err
	}
	return o, current, nil
}

// callableTools leaves out the tools whose header parameters are invalid: an HTTP server must not be called with
// them.
func callableTools(server string, items []Item) []Item {
	var out []Item
	for _, it := range items {
		if err := wire.CheckToolHeaders(it.Raw); err != nil {
			slog.Warn("a tool is not offered: its headers are not valid", "server", server, "tool", fault.Clip(it.Name), "error", err)
			continue
		}
		out = append(out, it)
	}
	return out
}

// readList reads one list page by page. It lowers ttl to what the pages say, and left by their size.
func readList(ctx context.Context, conn *upstream.ManagedConn, k Kind, client mcp.Client, ttl *time.Duration, left *int64) ([]Item, error) {
	var items []Item
	var cursor []byte
	seen := map[string]bool{}
	params, _ := mcp.ParseParams(nil)
	for range maxPages {
		call := &upstream.Call{Method: kinds[k].method, Params: params, Client: client}
		if cursor != nil {
			call.Changes = []jsonscan.Change{{Key: "cursor", Value: cursor}}
		}
		m, err := conn.Call(ctx, call)
		if err != nil {
			return nil, err
		}
		if m.IsError {
			return nil, fault.New(fault.BadReply, "the server refused "+call.Method)
		}
		page, err := mcp.ParseResult(m)
		if err != nil {
			return nil, err
		}
		if *left -= int64(page.Size()); *left < 0 {
			return nil, fault.New(fault.TooLarge, "the server's lists are too large; see max_list_bytes")
		}
		if items, err = appendItems(items, page, k); err != nil {
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
			return items, nil
		case seen[string(raw)]:
			return nil, fault.Wrap(fault.BadReply, "the server's list has no end", fmt.Errorf("cursor %s twice", fault.Clip(string(raw))))
		}
		seen[string(raw)] = true
		cursor = raw
	}
	return nil, fault.New(fault.BadReply, "the server's list has too many pages")
}

// appendItems appends the items of a page. An item without a name could not be called, and is left out.
func appendItems(items []Item, page mcp.Result, k Kind) ([]Item, error) {
	raw, ok := page.Get(kinds[k].member)
	if !ok {
		return items, fault.New(fault.BadReply, "the server's list cannot be read")
	}
	err := jsonscan.EachElement(raw, jsonscan.Span{End: len(raw)}, func(s jsonscan.Span) error {
		fields, err := jsonscan.ReadFields(raw, s)
		if err != nil {
			return fault.Wrap(fault.BadReply, "the server's list cannot be read", err)
		}
		if len(items) == maxItems {
			return fault.New(fault.TooLarge, "the server's list is too long")
		}
		if name := fields.Text(kinds[k].key); name != "" {
			items = append(items, Item{Name: name, Raw: s.Of(raw)})
		}
		return nil
	})
	return items, err
}

// AwaitRead returns how many items of each kind a server that is up offers to clients without capabilities, or why its
// lists cannot be read.
func (c *Cache) AwaitRead(ctx context.Context, r *upstream.Server) (counts [kindCount]int, err error) {
	class := c.ClassOf(upstream.Caller{})
	for reads := 0; ; reads++ {
		c.mu.Lock()
		o := class.offers[r.ID()]
		if o == nil || o.remote != r {
			c.mu.Unlock()
			return counts, fault.New(fault.Unavailable, "the server is being stopped")
		}
		// A read that was under way may have begun before the server was up: its failure says nothing.
		isKnown := !o.readAt.IsZero() || reads >= 2 && o.readErr != nil
		err = o.readErr
		if !isKnown {
			c.startReading(class, o)
		}
		ended := o.readEnd
		c.mu.Unlock()
		if isKnown {
			return c.Counts(r.ID()), err
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return counts, ctx.Err()
		case <-c.deps.Closing:
			return counts, fault.New(fault.Unavailable, "the gateway is being stopped")
		}
	}
}
