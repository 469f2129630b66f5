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

// only is the one call under way that has a client, if there is just one.
func (c *Conn) only() *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found *flight
	for _, f := range c.flights {
		if f.call.Peer == nil || f.over.Load() {
			continue
		}
		if found != nil {
			return nil
		}
		found = f
	}
	return found
}

// newest is the call begun last that has a client: on a connection of one client, it is the one
// that made the server ask.
func (c *Conn) newest(method string) *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found *flight
	for _, f := range c.flights {
		if f.call.Peer != nil && !f.over.Load() && f.call.Client.Can(method) && (found == nil || f.id > found.id) {
			found = f
		}
	}
	return found
}

// answer replies to a request of the server.
func (c *Conn) answer(m rpc.Message, from *flight) {
	id, began := m.MessageID(), time.Now()
	reply, err := c.ask(m, from)
	code := AnswerCode(reply, err)
	LogRequest(c.server, m.Method, time.Since(began), code, err)
	var msg []byte
	switch {
	case err != nil && code == mcp.CodeMethodNotFound:
		msg = rpc.AppendError(nil, id, code, "Method not found", "")
	case err != nil:
		msg = rpc.AppendError(nil, id, code, fault.PublicOf(err), fault.KindOf(err).String())
	case reply.IsError:
		msg = replyWith(id, "error", reply.Error.Of(reply.Body))
	default:
		msg = replyWith(id, "result", reply.Result.Of(reply.Body))
	}
	if err := c.wire.send(nil, msg); err != nil {
		slog.Debug("an answer did not reach its server", "server", c.server, "error", err)
	}
}

// AnswerCode is the JSON-RPC code of the answer that a server gets to its request; 0 for a result.
func AnswerCode(reply rpc.Reply, err error) int {
	switch {
	case err != nil && (errors.Is(err, errNoMethod) || fault.KindOf(err) == fault.NoMethod):
		return mcp.CodeMethodNotFound
	case err != nil:
		return codeInternal
	}
	return ErrorCode(reply)
}

const codeInternal = -32603

// LogRequest writes the log line of a request that a server made: sampling, elicitation, roots. A ping
// is answered by the gateway, as often as the server likes.
func LogRequest(server, method string, took time.Duration, code int, err error) {
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

func replyWith(id rpc.ID, member string, raw []byte) []byte {
	dst := append([]byte(`{"jsonrpc":"2.0","id":`), id.Raw()...)
	dst = append(append(append(dst, `,"`...), member...), `":`...)
	return append(append(dst, raw...), '}')
}

var errNoMethod = fault.New(fault.Invalid, "the client does not offer this")

// ask finds the client that caused the question, and only it.
func (c *Conn) ask(m rpc.Message, from *flight) (rpc.Reply, error) {
	if m.Method == mcp.Ping {
		return rpc.Reply{Body: []byte("{}"), Result: jsonscan.Span{End: 2}}, nil
	}
	if !mcp.Asks(m.Method) {
		return rpc.Reply{}, errNoMethod
	}
	if from == nil && c.alone {
		from = c.newest(m.Method)
	}
	peer := c.owner
	if from != nil && from.call.Peer != nil && from.call.Client.Can(m.Method) {
		peer = from.call.Peer
		from.asking.Add(1)
		defer func() {
			from.asking.Add(-1)
			select {
			case from.stir <- struct{}{}: // the server has its full time again
			default:
			}
		}()
	}
	if peer == nil {
		return rpc.Reply{}, errNoMethod
	}
	memory := c.budget.Scope("questions of server " + c.server)
	defer memory.Release()
	if err := memory.Take(int64(len(m.Body))); err != nil { // a client may take minutes to answer
		return rpc.Reply{}, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	key := string(m.MessageID().Raw())
	c.mu.Lock()
	if c.why != nil {
		c.mu.Unlock()
		return rpc.Reply{}, c.why
	}
	c.asks[key] = cancel
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.asks, key)
		c.mu.Unlock()
	}()
	return peer.Ask(ctx, c.server, m)
}
