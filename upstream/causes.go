package upstream

import (
	"context"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// Over stdio a server's request does not say which call caused it. On a child that clients share, it can only be one
// that was in flight when the request came. If these are calls of one client, that client is asked. If not, the request
// waits until the calls of all others have their replies: the call that caused it has none before its server got an answer.

const (
	causeWait    = 10 * time.Second // how long a request waits for the calls of other clients to end
	maxAbandoned = 256              // calls without a reply that are remembered
)

// errUnclearCause is the answer to a request that may be for one of several clients.
var errUnclearCause = fault.New(fault.Unavailable,
	"calls of several clients are in flight, and this request does not say for which of them it is; make the call again: from now on its client has a process of its own")

// possibleCauses are the calls that may have caused a request which has just come.
type possibleCauses struct {
	calls  []*inflight
	lastID int64 // no later call can be the cause
}

func (c *Conn) possibleCauses() possibleCauses {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := possibleCauses{lastID: c.lastID}
	for _, f := range c.pending {
		if f.isOfClient() && !f.IsFinished() {
			p.calls = append(p.calls, f)
		}
	}
	return p
}

// isOfClient reports whether the call is a client's, and not one of the gateway's own, such as a ping.
func (f *inflight) isOfClient() bool { return f.call.Peer != nil || !mcp.IsHousekeeping(f.call.Method) }

// awaitCause returns the call that caused a request, once it can only be one client's: the newest of that client's
// whose client can answer it. A call that ended without a reply may still be the cause: its server may go on
// working on it. So it counts as in flight for good, and is asked nothing.
func (c *Conn) awaitCause(ctx context.Context, p possibleCauses, m rpc.Message) (*inflight, error) {
	for _, f := range p.calls { // its server waits for us
		f.clientRequests.Add(1)
		defer func() {
			f.clientRequests.Add(-1)
			f.noteActivity()
		}()
	}
	timeout := time.NewTimer(causeWait)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		changed := c.callEnded
		var open []*inflight
		for _, f := range p.calls {
			if !f.IsFinished() {
				open = append(open, f)
			}
		}
		abandoned := c.abandonedByOthers(p.lastID, open)
		c.mu.Unlock()
		switch {
		case len(open) == 0:
			return nil, errNotSupported
		case abandoned:
			return nil, errUnclearCause
		case isOneClient(open):
			if f := newestThatAnswers(open, m); f != nil {
				return f, nil
			}
			return nil, errNotSupported
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil, errUnclearCause
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.ended:
			return nil, c.Err()
		}
	}
}

// isOneClient reports whether calls are of one client. A call of an unknown client is like no other.
func isOneClient(calls []*inflight) bool {
	for _, f := range calls[1:] {
		if f.call.ClientKey != calls[0].call.ClientKey || f.call.ClientKey == "" {
			return false
		}
	}
	return true
}

// newestThatAnswers is the newest of the calls whose client can answer a request; nil for none.
func newestThatAnswers(calls []*inflight, m rpc.Message) (newest *inflight) {
	for _, f := range calls {
		if f.call.Peer != nil && canAnswer(f.call.Client, m) && (newest == nil || f.id > newest.id) {
			newest = f
		}
	}
	return newest
}

// canAnswer reports whether a client declared what a request needs. The shared connection declares more than every
// client: elicitation by URL, and sampling with tools.
func canAnswer(client mcp.Client, m rpc.Message) bool {
	if !client.Supports(m.Method) {
		return false
	}
	params, err := jsonscan.ReadFields(m.Body, m.Params)
	if err != nil {
		return true
	}
	switch m.Method {
	case mcp.ElicitationCreate:
		return params.Text("mode") != "url" || client.SupportsPart(m.Method, "url")
	case mcp.SamplingCreateMessage:
		_, hasTools := params.Get("tools")
		return !hasTools || client.SupportsPart(m.Method, "tools")
	}
	return true
}

// abandonedByOthers reports whether a call up to lastID, of another client than the open ones, ended without a reply;
// the lock is held.
func (c *Conn) abandonedByOthers(lastID int64, open []*inflight) bool {
	if len(open) == 0 {
		return false
	}
	for id, client := range c.abandoned {
		if id <= lastID && (client != open[0].call.ClientKey || client == "") {
			return true
		}
	}
	return c.abandonedTooMany
}

// noteEnd notes that a call has ended, and whether its server has replied to it.
func (c *Conn) noteEnd(f *inflight) {
	if !c.asksByCause {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !f.hasReply.Load() && f.isOfClient() {
		if len(c.abandoned) < maxAbandoned {
			c.abandoned[f.id] = f.call.ClientKey
		} else {
			c.abandonedTooMany = true
		}
	}
	c.wakeCauses()
}

// wakeCauses wakes the requests that wait for calls to end; the lock is held.
func (c *Conn) wakeCauses() {
	close(c.callEnded)
	c.callEnded = make(chan struct{})
}
