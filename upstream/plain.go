package upstream

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/mcp"
)

// plain is the wire to a server that takes one message a POST and answers it there.
type plain struct {
	rpc  *RPC
	conn *Conn
	life context.Context
	stop context.CancelFunc
	met  atomic.Bool // it has answered initialize, in whatever way
}

// dialPlain greets a server like one of the older era. One that knows no greeting but answers is
// there all the same, and is taken to have tools.
func (r *Remote) dialPlain(ctx context.Context, c *Conn) (*Conn, error) {
	w := &plain{rpc: NewRPC(r.entry, r.cfg, r.deps.Transport), conn: c}
	w.life, w.stop = context.WithCancel(context.Background())
	c.wire = w
	err := c.initialize(ctx, mcp.Client{})
	if fault.KindOf(err) == fault.BadReply && w.met.Load() {
		slog.Debug("server knows no greeting", "server", r.entry.ID, "error", err)
		c.hello = Hello{Era: mcp.EraLegacy, Version: mcp.V20251125, plain: true}
		err = nil
	}
	if err != nil {
		c.end(err)
		return nil, err
	}
	return c, nil
}

func (w *plain) send(f *flight, msg []byte) error {
	if f == nil {
		return w.rpc.Notify(w.life, msg)
	}
	ctx, cancel := context.WithCancel(membudget.With(w.life, f.memory))
	f.stop = cancel
	go func() {
		defer w.conn.guard(f)
		defer cancel()
		body, err := w.rpc.Call(ctx, msg)
		if err == nil {
			if f.call.Method == mcp.Initialize {
				_, ours, _ := w.conn.replyIn(body, f)
				w.met.Store(ours)
			}
			w.conn.take(body, f)
			err = fault.New(fault.BadReply, "the server's answer is not a JSON-RPC reply")
		}
		if f.over.Load() {
			return
		}
		f.fail(err)
	}()
	return nil
}

func (w *plain) cancel(f *flight, _ string) { f.stop() }

func (w *plain) close() { w.stop() }
