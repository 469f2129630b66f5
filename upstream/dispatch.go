package upstream

import (
	"bytes"
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

const (
	maxServerRequests = 256 // requests of a server that are answered at once; more get no reply
	idSearchBytes     = 512 // how much of either end of a malformed message is searched for its id
)

// How long calls of a forgotten session may hear of it from the server itself.
const (
	expiryQuiet = 100 * time.Millisecond // after the last that did
	expiryMax   = 10 * expiryQuiet       // in all
)

// receiver is what a wire sees of its connection (wire.Receiver).
type receiver struct{ *Conn }

func (r receiver) End(err error)                  { r.end(err) }
func (r receiver) Malformed(what string, e error) { r.reportOdd(nil, what, e) }

// Receive handles a message from a stream that all calls share. The connection's scope holds charged bytes
// for it: those of a reply move to its call, the others are given back.
func (r receiver) Receive(body []byte, charged int64) bool {
	r.charged = charged
	ok := r.handleMessage(body, nil)
	r.memory.Free(r.charged)
	r.charged = 0
	return ok
}

// Oversized fails the call that the ends of a message name, or the only call in flight.
func (r receiver) Oversized(head, tail []byte, err error) {
	r.reportOdd(r.oversizedCall(head, tail), "a server's message is too large", err)
}

// ExpireSession ends the connection of a session that its server has forgotten. Calls that are on their way
// will hear from the server themselves that they were not started; it waits while they do, one after the
// other. It counts pauses and not time, since both stretch on a slow machine.
func (r receiver) ExpireSession(why error) {
	const pauses = 20
	calls := r.callCount.Load()
	for quiet, end := 0, time.Now().Add(expiryMax); calls > 0 && quiet < pauses && time.Now().Before(end); quiet++ {
		select {
		case <-r.ended:
			return
		case <-time.After(expiryQuiet / pauses):
		}
		if n := r.callCount.Load(); n != calls {
			calls, quiet = n, 0
		}
	}
	r.end(fault.Wrap(fault.Unavailable, "the server forgot the session", why))
}

func (r receiver) Ping(ctx context.Context) error {
	_, err := r.callEmpty(ctx, mcp.Ping, mcp.Client{})
	return err
}

// handleMessage handles one message of the server and reports whether it was one. from is the call on whose
// own stream it came; nil on a stream that all calls share.
func (c *Conn) handleMessage(body []byte, from *inflight) bool {
	depth, chars := c.limits.parse()
	m, err := rpc.ParseMessage(body, depth, chars)
	if err != nil {
		if from == nil {
			from = c.malformedReplyCall(body)
		}
		c.reportOdd(from, "a server sent something that is not a message", err)
		return false
	}
	switch {
	case m.IsReply():
		c.handleReply(m, from)
	case m.IsNotification():
		c.handleNotification(m, from)
	case c.Err() != nil:
	case c.serverRequestCount.Add(1) > maxServerRequests:
		c.serverRequestCount.Add(-1)
		c.reportOdd(nil, "a server sends too many requests at once", nil)
	default:
		var causes possibleCauses
		if from == nil && c.asksByCause {
			causes = c.possibleCauses() // before any other message is read
		}
		go func() {
			defer c.recoverPanic(from)
			defer c.serverRequestCount.Add(-1)
			c.answerServerRequest(m, from, causes)
		}()
	}
	return true
}

// reportOdd counts input that should not have come, and fails the call that it was for, if that is known.
func (c *Conn) reportOdd(from *inflight, what string, err error) {
	if n := c.unexpectedCount.Add(1); n&(n-1) == 0 { // the 1st, 2nd, 4th, 8th…: a noisy server does not fill the log
		slog.Warn(what, "server", c.serverID, "error", err, "so_far", n)
	}
	if from != nil {
		from.Fail(err)
	}
}

// handleReply gives a reply to the call that waits for it.
func (c *Conn) handleReply(m rpc.Message, from *inflight) {
	id, err := strconv.ParseInt(string(m.ID.Of(m.Body)), 10, 64)
	f := c.pendingCall(id)
	if f == nil && err == nil {
		c.forgetAbandoned(id)
	}
	if err != nil || f == nil || from != nil && from != f {
		c.reportOdd(nil, "a server replied to a request that is not in flight", err)
		return
	}
	if from == nil {
		if err := c.chargeReply(f, m); err != nil {
			f.Fail(err)
			return
		}
	}
	if !f.markFinished() {
		c.reportOdd(nil, "a server replied twice", nil)
		return
	}
	if !mcp.IsHousekeeping(f.call.Method) {
		c.hasServed.Store(true)
	}
	f.hasReply.Store(true)
	c.noteEnd(f)
	f.reply <- m
}

// forgetAbandoned notes that the server has replied after all to a call that was given up.
func (c *Conn) forgetAbandoned(id int64) {
	c.mu.Lock()
	delete(c.abandoned, id)
	c.mu.Unlock()
}

func (c *Conn) pendingCall(id int64) *inflight {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[id]
}

// chargeReply charges a reply that came on a shared stream to its call.
func (c *Conn) chargeReply(f *inflight, m rpc.Message) error {
	if c.charged == 0 {
		return f.memory.Reserve(int64(len(m.Body)))
	}
	err := c.memory.MoveTo(f.memory, c.charged)
	if err == nil {
		c.charged = 0
	}
	return err
}

// handleNotification passes a notification to the call, client or listener that it concerns.
func (c *Conn) handleNotification(m rpc.Message, from *inflight) {
	params, err := jsonscan.ReadFields(m.Body, m.Params)
	if err != nil {
		return
	}
	switch m.Method {
	case mcp.NotifyProgress: // to the call that the token names, and never after its reply
		token, _ := params.Get("progressToken")
		id, err := strconv.ParseInt(string(token), 10, 64)
		f := c.pendingCall(id)
		if err != nil || f == nil || f.IsFinished() {
			return
		}
		f.noteActivity()
		if f.call.Peer != nil && f.call.WantsProgress {
			f.notifyClient(m)
		}
	case mcp.NotifyCancelled:
		id, _ := params.Get("requestId")
		c.mu.Lock()
		if cancel := c.serverRequests[string(id)]; cancel != nil {
			cancel()
		}
		c.mu.Unlock()
	case mcp.NotifyToolsChanged, mcp.NotifyPromptsChanged, mcp.NotifyResourcesChanged, mcp.NotifyResourceUpdated:
		c.onEvent(m)
	case mcp.NotifySubscriptionsAcknowledged:
		if meta, ok := params.Get("_meta"); ok && from == nil {
			fields, _ := jsonscan.FieldsOf(meta)
			raw, _ := fields.Get(mcp.MetaSubscriptionID)
			if id, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
				from = c.pendingCall(id)
			}
		}
		if from != nil && from.call.OnReady != nil {
			from.call.OnReady()
		}
	default:
		c.forwardNotification(m, from)
	}
}

// forwardNotification passes any other notification to the call it belongs to, if that can only be one; else
// to the client that owns the connection; else to the event handler.
func (c *Conn) forwardNotification(m rpc.Message, from *inflight) {
	if from == nil {
		from = c.onlyClientCall()
	}
	switch {
	case from != nil && from.call.Peer != nil:
		from.notifyClient(m)
	case c.owner != nil:
		c.owner.Notify(c.serverID, m)
	default:
		c.onEvent(m)
	}
}

// onlyClientCall is the call in flight that has a client, if there is just one.
func (c *Conn) onlyClientCall() *inflight {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found *inflight
	for _, f := range c.pending {
		if f.call.Peer == nil || f.IsFinished() {
			continue
		}
		if found != nil {
			return nil
		}
		found = f
	}
	return found
}

// malformedReplyCall is the call that a malformed message was to answer. A message that only mentions an id
// is not an answer.
func (c *Conn) malformedReplyCall(body []byte) *inflight {
	head, tail := body[:min(len(body), idSearchBytes)], body[max(len(body)-idSearchBytes, 0):]
	if bytes.Contains(head, []byte(`"method"`)) || !bytes.Contains(head, []byte(`"jsonrpc"`)) && !bytes.Contains(tail, []byte(`"jsonrpc"`)) {
		return nil
	}
	return c.callNamedIn(head, tail)
}

// oversizedCall is the call that the ends of a message name, or the only one in flight.
func (c *Conn) oversizedCall(head, tail []byte) *inflight {
	if f := c.callNamedIn(head, tail); f != nil {
		return f
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 1 {
		for _, f := range c.pending {
			return f
		}
	}
	return nil
}

// callNamedIn is the call whose id stands at either end of a message.
func (c *Conn) callNamedIn(head, tail []byte) *inflight {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range []int64{idInHead(head), idInTail(tail)} {
		if f := c.pending[id]; f != nil {
			return f
		}
	}
	return nil
}

// idInHead is the id of a message that starts so; 0 when it is not there. The id of a nested object is not
// the message's.
func idInHead(head []byte) int64 {
	before, after, _ := bytes.Cut(head, []byte(`"id"`))
	if bytes.Count(before, []byte("{")) != 1 || bytes.IndexByte(before, '[') >= 0 {
		return 0
	}
	return numberAfterColon(after)
}

// idInTail is the id of a message that ends so: only the message itself ends after it.
func idInTail(tail []byte) int64 {
	key := []byte(`"id"`)
	at := bytes.LastIndex(tail, key)
	if at < 0 {
		return 0
	}
	after := tail[at+len(key):]
	if bytes.ContainsAny(after, "{[]") || bytes.Count(after, []byte("}")) != 1 {
		return 0
	}
	return numberAfterColon(after)
}

// numberAfterColon is 0 for text that is not a colon and a complete number.
func numberAfterColon(text []byte) int64 {
	digits, ok := bytes.CutPrefix(bytes.TrimLeft(text, " \t"), []byte(":"))
	digits = bytes.TrimLeft(digits, " \t")
	end := bytes.IndexFunc(digits, func(c rune) bool { return c < '0' || c > '9' })
	if !ok || end < 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(digits[:end]), 10, 64)
	return n
}
