package front

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"sync"

	"github.com/ctxgate/ctxgate/internal/membudget"
)

// connectionOverhead is what an open connection costs: its buffers, its goroutine, and a usual head.
const connectionOverhead = 24 << 10

// connections are the open connections of a listener.
type connections struct {
	budget *membudget.Budget
	open   sync.Map // net.Conn → func() that says it is closed
}

type connectionKey struct{}

// connection is one of them, as the requests on it know it.
type connection struct {
	id   string
	life context.Context //nolint:containedctx // it is the connection's, and outlives each request
}

// begin gives the requests of a new connection what [ConnectionOf] finds. A connection that finds no
// memory left is closed: there is no request yet that could be answered.
func (c *connections) begin(ctx context.Context, conn net.Conn) context.Context {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	memory := c.budget.Scope("connections@" + remoteHost(conn.RemoteAddr().String()))
	c.open.Store(conn, func() {
		end()
		memory.Release()
	})
	if memory.Take(connectionOverhead) != nil {
		_ = conn.Close()
	}
	return context.WithValue(ctx, connectionKey{}, &connection{id: rand.Text(), life: life})
}

// changed notices the end of a connection.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed && state != http.StateHijacked {
		return
	}
	if end, ok := c.open.LoadAndDelete(conn); ok {
		end.(func())() //nolint:forcetypeassert // nothing else is stored there
	}
}

// ConnectionOf names the connection that a request came on, and gives a context that ends with it.
// Where the client says nothing else of itself, that is how two clients are told apart: no two
// connections have the same name. A server that is not a [Listener] has only the client's address,
// and the context is nil.
func ConnectionOf(r *http.Request) (name string, life context.Context) {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		return c.id, c.life
	}
	return r.RemoteAddr, nil
}
