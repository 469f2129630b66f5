package front_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

// Requests of one connection share its name, no two connections have the same, and the context ends with
// the connection; over HTTP/1.1 and HTTP/2.
func TestConnections(t *testing.T) {
	type seen struct {
		name string
		life context.Context
	}
	requests := make(chan seen, 1)
	l, err := front.Listen(t.Context(), "127.0.0.1:0", front.Default().HTTP, nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		name, life := front.ConnectionOf(r)
		requests <- seen{name, life}
	}))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = l.Serve() }()
	t.Cleanup(func() { _ = l.Drain() })
	for name, newer := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			visit := func(client *http.Transport) seen {
				t.Helper()
				res, err := (&http.Client{Transport: client}).Get("http://" + l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				return <-requests
			}
			client := func() *http.Transport {
				c := &http.Transport{Protocols: &http.Protocols{}}
				c.Protocols.SetHTTP1(!newer)
				c.Protocols.SetUnencryptedHTTP2(newer)
				return c
			}
			a, b := client(), client()
			defer b.CloseIdleConnections()
			first, again, other := visit(a), visit(a), visit(b)
			if first.name != again.name || first.name == other.name || first.name == "" {
				t.Errorf("the connections are %q, %q and %q", first.name, again.name, other.name)
			}
			if first.life.Err() != nil {
				t.Error("the connection ended before it was closed")
			}
			a.CloseIdleConnections()
			select {
			case <-first.life.Done():
			case <-time.After(20 * time.Second):
				t.Fatal("the end of the connection was not noticed")
			}
			if other.life.Err() != nil {
				t.Error("another connection ended")
			}
		})
	}
}

// I12: open connections are charged to the memory budget, and those beyond it are closed.
func TestConnectionsAreBounded(t *testing.T) {
	budget := membudget.New(1 << 20)
	l, err := front.Listen(t.Context(), "127.0.0.1:0", front.Default().HTTP, budget, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- l.Serve() }()
	var open []net.Conn
	works := func() bool {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		_, err = c.Read(make([]byte, 1))
		return err == nil
	}
	for works() && len(open) < 100 {
	}
	if n := len(open); n < 5 || n > 20 {
		t.Errorf("%d connections were open at once", n)
	}
	for _, c := range open {
		_ = c.Close()
	}
	for until := time.Now().Add(10 * time.Second); budget.Stats().Held > 0 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if held := budget.Stats().Held; held > 0 {
		t.Errorf("%d bytes are held for connections that are closed", held)
	}
	if !works() {
		t.Error("no connection is accepted although all are closed")
	}
	_ = open[len(open)-1].Close()
	if err := l.Drain(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
