//go:build unix

package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

const patience = 20 * time.Second

// testGateway is a gateway whose clients are scripted.
type testGateway struct {
	*Server
	endpoint Endpoint
	conns    chan *servedConn
	ended    chan error
}

// servedConn is the gateway's side of one client's connection.
type servedConn struct {
	*Conn
	hello   Hello
	lines   *bufio.Reader
	drain   func() ([]byte, time.Duration)
	stopped <-chan struct{} // the gateway ends
	done    chan struct{}
}

// startTestGateway serves the socket of an endpoint.
func startTestGateway(t *testing.T, e Endpoint, listeners map[string]net.Listener) *testGateway {
	t.Helper()
	g := &testGateway{endpoint: e, conns: make(chan *servedConn, 10), ended: make(chan error, 1)}
	var err error
	g.Server, err = NewServer(ServerOptions{
		Endpoint: e,
		Info: func() Gateway {
			return Gateway{Version: "v1.0.0", PID: os.Getpid(), Background: true, MaxMessage: 1 << 20}
		},
		CheckToken: func(token string) error {
			if token != "right" {
				return errors.New("the token is wrong")
			}
			return nil
		},
		ServeMCP: func(ctx context.Context, c *Conn, h Hello, drain func() ([]byte, time.Duration)) error {
			s := &servedConn{Conn: c, hello: h, lines: bufio.NewReader(c), drain: drain, stopped: ctx.Done(), done: make(chan struct{})}
			g.conns <- s
			<-s.done
			return nil
		},
		HTTP:       http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }),
		Listeners:  func() map[string]net.Listener { return listeners },
		End:        func(cause error) { g.ended <- cause },
		DrainGrace: func() time.Duration { return time.Second },
	})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = g.Serve() }()
	return g
}

func (g *testGateway) next(t *testing.T) *servedConn {
	t.Helper()
	select {
	case c := <-g.conns:
		return c
	case <-time.After(patience):
		t.Fatal("no client connected")
		return nil
	}
}

// finish ends a connection in good order.
func (c *servedConn) finish() {
	_ = c.Close()
	close(c.done)
}

// read returns the next message of the client.
func (c *servedConn) read(t *testing.T) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	line, err := c.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

func (c *servedConn) write(t *testing.T, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if _, err := io.WriteString(c, m+"\n"); err != nil {
			t.Fatal(err)
		}
	}
}

// A connection begins with one line in each direction; what is wrong with it is said, and an end is no hang.
func TestHello(t *testing.T) {
	e := locate(t, "", Places{RuntimeDir: shortTempDir(t)})
	if _, _, err := Dial(t.Context(), e, Hello{Purpose: purposeMCP}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("got %v", err)
	}
	g := startTestGateway(t, e, nil)
	defer g.Close(ErrStopped)
	c, info, err := Dial(t.Context(), e, Hello{Purpose: purposeMCP, Client: "codex", Token: "right", Version: "v1"})
	if err != nil || info.Version != "v1.0.0" {
		t.Fatalf("%+v %v", info, err)
	}
	at := g.next(t)
	if at.hello.Client != "codex" || len(g.Clients()) != 1 || g.Clients()[0].ID != "codex" {
		t.Errorf("%+v, %+v", at.hello, g.Clients())
	}
	_ = c.Close()
	at.finish()
	var refused *RefusedError
	for _, h := range []Hello{{Purpose: purposeMCP, Token: "wrong"}, {Purpose: "nonsense"}} {
		if _, _, err := Dial(t.Context(), e, h); !errors.As(err, &refused) {
			t.Errorf("%+v: got %v", h, err)
		}
	}
	for _, line := range []string{"nonsense\n", strings.Repeat("x", maxHello+1), `{"ctxgate":99,"purpose":"mcp"}` + "\n"} {
		raw, err := net.Dial("unix", e.Socket())
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(raw, line)
		got, _ := io.ReadAll(raw)
		if strings.Contains(line, "99") != strings.Contains(string(got), "different protocols") {
			t.Errorf("%.40q: got %q", line, got)
		}
		_ = raw.Close()
	}
	client := HTTPClient(e, "v1")
	defer client.CloseIdleConnections()
	res, err := client.Get("http://gateway/some/path")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); string(body) != "/some/path" {
		t.Errorf("got %q", body)
	}
}

// The socket serves a bounded number of connections, and one too many is told so.
func TestConnectionsOfTheSocketAreBounded(t *testing.T) {
	e := locate(t, "", Places{RuntimeDir: shortTempDir(t)})
	g := startTestGateway(t, e, nil)
	var open []*Conn
	for range maxConns {
		c, _, err := Dial(t.Context(), e, Hello{Purpose: purposeHTTP})
		if err != nil {
			t.Fatalf("%v with %d connections", err, len(open))
		}
		open = append(open, c)
	}
	var refused *RefusedError
	if _, _, err := Dial(t.Context(), e, Hello{Purpose: purposeHTTP}); !errors.As(err, &refused) {
		t.Errorf("got %v", err)
	}
	for _, c := range open {
		_ = c.Close()
	}
	for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c, _, err := Dial(t.Context(), e, Hello{Purpose: purposeHTTP})
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}
	g.Close(ErrStopped)
	if _, err := os.Lstat(e.Socket()); err == nil {
		t.Error("the socket is left behind")
	}
}

// A socket that was removed is opened again; one of another gateway is left alone.
func TestSocketIsOpenedAgain(t *testing.T) {
	e := locate(t, "", Places{RuntimeDir: shortTempDir(t)})
	g := startTestGateway(t, e, nil)
	defer g.Close(ErrStopped)
	if err := os.RemoveAll(e.Dir); err != nil {
		t.Fatal(err)
	}
	if !g.CheckSocket() {
		t.Fatal("a socket that is gone is not another's")
	}
	if _, err := Running(t.Context(), e, "v1"); err != nil {
		t.Fatalf("after it was opened again: %v", err)
	}
	other := startTestGateway(t, e, nil)
	if g.CheckSocket() {
		t.Error("the socket of another gateway counts as its own")
	}
	g.Close(ErrReplaced)
	if _, err := Running(t.Context(), e, "v1"); err != nil {
		t.Errorf("the end of one gateway removed the other's socket: %v", err)
	}
	other.Close(ErrStopped)
}

// A gateway that takes over gets the open listeners: connections are accepted throughout, and a hand-over that fails leaves
// everything to the old gateway.
func TestHandover(t *testing.T) {
	e := locate(t, "", Places{RuntimeDir: shortTempDir(t)})
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := startTestGateway(t, e, map[string]net.Listener{"main": tcp})
	h, err := BeginHandover(t.Context(), e, "v2")
	if err != nil {
		t.Fatal(err)
	}
	h.Abort()
	h, err = BeginHandover(t.Context(), e, "v2")
	if err != nil || h.Old.PID != os.Getpid() || h.Listeners["main"] == nil {
		t.Fatalf("%+v %v", h, err)
	}
	next := startTestGateway(t, e, nil)
	if err := h.Finish(); err != nil {
		t.Fatal(err)
	}
	select {
	case cause := <-g.ended:
		if !errors.Is(cause, ErrReplaced) {
			t.Errorf("it ends for %v", cause)
		}
	case <-time.After(patience):
		t.Fatal("the old gateway was not told")
	}
	_ = tcp.Close()
	g.Close(ErrReplaced)
	go func() {
		c, err := net.Dial("tcp", tcp.Addr().String())
		if err == nil {
			_ = c.Close()
		}
	}()
	inherited := h.Listeners["main"]
	_ = inherited.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	c, err := inherited.Accept()
	if err != nil {
		t.Fatalf("after the old gateway closed it: %v", err)
	}
	_ = c.Close()
	_ = inherited.Close()
	next.Close(ErrStopped)
}
