package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

const codeInternal = -32603

var errNotSupported = fault.New(fault.InvalidRequest, "the client does not offer this")

// answerServerRequest answers a request of the server: sampling, elicitation, roots or ping.
func (c *Conn) answerServerRequest(m rpc.Message, from *inflight, causes possibleCauses) {
	id, start := m.MessageID(), time.Now()
	reply, err := c.forwardServerRequest(m, from, causes)
	code := ServerRequestCode(reply, err)
	LogServerRequest(c.serverID, m.Method, time.Since(start), code, err)
	var msg []byte
	switch {
	case err != nil && code == mcp.CodeMethodNotFound:
		msg = rpc.AppendError(nil, id, code, "Method not found", "")
	case err != nil:
		msg = rpc.AppendError(nil, id, code, fault.PublicOf(err), fault.KindOf(err).String())
	case reply.IsError:
		msg = encodeReply(id, "error", reply.Error.Of(reply.Body))
	default:
		msg = encodeReply(id, "result", reply.Result.Of(reply.Body))
	}
	if err := c.wire.Send(nil, msg); err != nil {
		slog.Debug("reply to a server's request not delivered", "server", c.serverID, "error", err)
	}
}

// ServerRequestCode is the JSON-RPC code of the reply to a server's request; 0 for a result.
func ServerRequestCode(reply rpc.Reply, err error) int {
	switch {
	case err != nil && (errors.Is(err, errNotSupported) || fault.KindOf(err) == fault.NoMethod):
		return mcp.CodeMethodNotFound
	case err != nil:
		return codeInternal
	}
	return reply.ErrorCode()
}

// LogServerRequest logs a request that a server made. Pings, which the gateway answers itself, are logged at
// debug level.
func LogServerRequest(server, method string, took time.Duration, code int, err error) {
	level := slog.LevelInfo
	if method == mcp.Ping {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("rpc", fmt.Sprintf("%.128s", method)), slog.String("server", server), slog.Duration("took", took.Round(time.Microsecond)), slog.Int("code", code),
	}
	if err != nil {
		attrs = append(attrs, slog.String("fault", fault.KindOf(err).String()), slog.String("error", fmt.Sprintf("%.256s", err)))
	}
	slog.LogAttrs(context.Background(), level, "server request", attrs...)
}

func encodeReply(id rpc.ID, member string, raw []byte) []byte {
	dst := append([]byte(`{"jsonrpc":"2.0","id":`), id.Raw()...)
	dst = append(append(append(dst, `,"`...), member...), `":`...)
	return append(append(dst, raw...), '}')
}

// forwardServerRequest sends the request to the client that caused it, and to no other.
func (c *Conn) forwardServerRequest(m rpc.Message, from *inflight, causes possibleCauses) (rpc.Reply, error) {
	if m.Method == mcp.Ping {
		return rpc.Reply{Body: []byte("{}"), Result: jsonscan.Span{End: 2}}, nil
	}
	if !mcp.IsServerToClient(m.Method) {
		return rpc.Reply{}, errNotSupported
	}
	memory := c.budget.Scope("questions of server " + c.serverID)
	defer memory.Release()
	if err := memory.Reserve(int64(len(m.Body))); err != nil { // a client may take minutes to answer
		return rpc.Reply{}, err
	}
	ctx, stop, err := c.beginServerRequest(string(m.MessageID().Raw()))
	if err != nil {
		return rpc.Reply{}, err
	}
	defer stop()
	c.onRequest(m.Method)
	switch {
	case from != nil:
	case c.singleClient:
		from = c.newestClientCall(m.Method)
	case c.asksByCause:
		from, err = c.awaitCause(ctx, causes, m)
		c.onCause(m.Method, from != nil, errors.Is(err, errUnclearCause) || len(causes.calls) == 0)
	}
	if err != nil {
		return rpc.Reply{}, err
	}
	peer := c.owner
	if from != nil && from.call.Peer != nil && from.call.Client.Supports(m.Method) {
		peer = from.call.Peer
		from.clientRequests.Add(1)
		defer func() {
			from.clientRequests.Add(-1)
			from.noteActivity()
		}()
	}
	if peer == nil {
		return rpc.Reply{}, errNotSupported
	}
	return peer.Request(ctx, c.serverID, m)
}

// beginServerRequest returns a context for answering a server's request, which ends when the server cancels it.
func (c *Conn) beginServerRequest(key string) (ctx context.Context, stop func(), err error) {
	ctx, cancel := context.WithCancel(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr != nil {
		cancel()
		return nil, nil, c.endErr
	}
	c.serverRequests[key] = cancel
	return ctx, func() {
		cancel()
		c.mu.Lock()
		delete(c.serverRequests, key)
		c.mu.Unlock()
	}, nil
}

// newestClientCall is the newest call whose client can answer the method: on a connection of one client, it
// is the one that caused the server's request.
func (c *Conn) newestClientCall(method string) *inflight {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found *inflight
	for _, f := range c.pending {
		if f.call.Peer != nil && !f.IsFinished() && f.call.Client.Supports(method) && (found == nil || f.id > found.id) {
			found = f
		}
	}
	return found
}
