package upstream

import (
	"bytes"
	"context"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// How long calls of a forgotten session may hear of it themselves.
const (
	retireTime = 100 * time.Millisecond // after the last that did
	retireMost = 10 * retireTime        // in all
)

// refused finds out what a status of 4xx or 5xx means for the call: a reply like any other, a
// session that is gone, or a failure.
func (x *exchange) refused(ctx context.Context, t tongue, a *answer) error {
	m, ours, err := x.conn.replyIn(a.body, x.f)
	switch {
	case x.forgot(t, a, ours):
		return forgotten()
	case ours && x.mends(ctx, t, m):
		return x.run(ctx)
	case ours:
		x.read()
		x.deliver(a.body, x.f)
		return nil
	}
	if x.f.call.Method == mcp.Initialize && err != nil {
		x.older.Store(a.status == http.StatusBadRequest || a.status == http.StatusNotFound || a.status == http.StatusMethodNotAllowed)
	}
	switch a.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return x.unmet(a.fault())
	}
	return a.fault()
}

// replyIn reads a message, and says whether it is the reply to a call. An error says that it is
// no message at all.
func (c *Conn) replyIn(body []byte, f *flight) (rpc.Message, bool, error) {
	depth, chars := c.limits.read()
	m, err := rpc.ParseMessage(body, depth, chars)
	return m, err == nil && m.IsReply() && string(m.ID.Of(m.Body)) == strconv.FormatInt(f.id, 10), err
}

// forgot says whether a refusal means that the server does not know the session any more. It is
// to say so by 404; some say 400, and some put a reply to the call into it. ours is such a reply.
func (s *stream) forgot(t tongue, a *answer, ours bool) bool {
	lost := false
	switch {
	case t.session == "":
	case a.status == http.StatusNotFound && !ours:
		lost = true
	case a.status == http.StatusNotFound || a.status == http.StatusBadRequest && !ours:
		lost = aboutSession(a.body)
	}
	if lost && !s.gone.Swap(true) {
		go s.conn.retire(a)
	}
	return lost
}

// retire ends the connection of a session that its server has forgotten. Calls that are on their
// way will hear from the server themselves that they were not begun, and are waited for while one
// after the other does. The pauses are counted, not the time: where the machine is slow, so are they.
func (c *Conn) retire(why error) {
	const pauses = 20
	under := c.busy.Load()
	for quiet, end := 0, time.Now().Add(retireMost); under > 0 && quiet < pauses && time.Now().Before(end); quiet++ {
		select {
		case <-c.ended:
			return
		case <-time.After(retireTime / pauses):
		}
		if n := c.busy.Load(); n != under {
			under, quiet = n, 0
		}
	}
	c.end(fault.Wrap(fault.Unavailable, "the server forgot the session", why))
}

// aboutSession says whether an error is about the session, and not about what was called: a tool
// may have sessions of its own.
func aboutSession(body []byte) bool {
	text := body
	if fields, err := jsonscan.FieldsOf(body); err == nil {
		if e, ok := fields.Field("error"); ok {
			inner, _ := jsonscan.ReadFields(body, e.Value)
			code, _ := inner.Get("code")
			switch string(code) {
			case "-32000", "-32001", "-32600":
			default:
				return false
			}
			text = []byte(inner.Text("message"))
		}
	}
	return bytes.Contains(bytes.ToLower(text[:min(len(text), 1<<10)]), []byte("session"))
}

// mends says whether a call that was refused for its headers has better ones now. The server may
// have changed the tool, so its list is read again, once (Custom Headers, Client Behavior).
func (x *exchange) mends(ctx context.Context, t tongue, m rpc.Message) bool {
	if x.again || !t.modern || x.f.call.Method != mcp.ToolsCall || codeOf(m) != mcp.CodeHeaderMismatch {
		return false
	}
	x.again = true
	before := x.head(t, x.f)
	x.relist(ctx)
	return !reflect.DeepEqual(before, x.head(t, x.f))
}

func codeOf(m rpc.Message) int { return ErrorCode(m.Reply) }

// ErrorCode is the code of an error reply; 0 for a result.
func ErrorCode(r rpc.Reply) int {
	if !r.IsError {
		return 0
	}
	fields, err := jsonscan.ReadFields(r.Body, r.Error)
	if err != nil {
		return 0
	}
	raw, _ := fields.Get("code")
	code, _ := strconv.Atoi(string(raw))
	return code
}

// speaksAfterAll says whether a server refused the newest revision and named it among those it
// speaks. That is no server of the older era: it is asked again (Protocol Version Negotiation).
func speaksAfterAll(m rpc.Message) bool {
	if !m.IsError || codeOf(m) != mcp.CodeBadVersion {
		return false
	}
	fields, _ := jsonscan.ReadFields(m.Body, m.Error)
	data, _ := fields.Get("data")
	inner, _ := jsonscan.FieldsOf(data)
	supported, _ := inner.Get("supported")
	return contains(supported, mcp.V20260728)
}

// relist reads the server's tools; what they want in headers is noted on the way.
func (x *exchange) relist(ctx context.Context) {
	const mostPages = 100
	empty, _ := mcp.ReadParams(nil)
	call := &Call{Method: mcp.ToolsList, Params: empty, Client: x.f.call.Client}
	for range mostPages {
		m, err := x.conn.Call(ctx, call)
		if err != nil || m.IsError {
			return
		}
		result, err := jsonscan.ReadFields(m.Body, m.Result)
		cursor := result.Text("nextCursor")
		if err != nil || cursor == "" {
			return
		}
		call = &Call{Method: mcp.ToolsList, Params: empty, Client: x.f.call.Client, Changes: []jsonscan.Change{{Key: "cursor", Value: mcp.Quote(cursor)}}}
	}
}
