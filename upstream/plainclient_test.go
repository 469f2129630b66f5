package upstream_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

// newRPCClient starts a server with this handler and returns a client for it.
func newRPCClient(t *testing.T, handler http.HandlerFunc, options func(*upstream.Config, *upstream.ServerConfig)) (*wire.RPCClient, *atomic.Int64) {
	t.Helper()
	var accepted atomic.Int64
	srv := httptest.NewUnstartedServer(handler)
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			accepted.Add(1)
		}
	}
	srv.Start()
	transport := upstream.NewTransport()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.Close()
	})
	cfg, entry := upstream.Default(), upstream.ServerConfig{ID: "a", RPC: secret.URL(srv.URL)}
	if options != nil {
		options(&cfg, &entry)
	}
	return upstream.NewRPCClient(entry, cfg, transport), &accepted
}

// blockUntilCanceled does not answer until the client has left.
func blockUntilCanceled(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // only then the peer's leaving is noticed
	<-r.Context().Done()
}

func TestRPCCallReturnsBodyWithAnyStatus(t *testing.T) {
	for _, status := range []int{200, 202, 301, 307, 400, 404, 500, 503} {
		const body = " any bytes \x00\xff\n"
		u, _ := newRPCClient(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}, nil)
		if got, err := u.Call(context.Background(), []byte("{}")); err != nil || string(got) != body {
			t.Errorf("%d: got %q, %v; want %q", status, got, err, body)
		}
	}
}

func TestRPCCallSendsBytesUnchanged(t *testing.T) {
	type request struct{ method, path, body, contentType, token string }
	got := make(chan request, 1)
	u, _ := newRPCClient(t, func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- request{r.Method, r.URL.Path, string(b), r.Header.Get("Content-Type"), r.Header.Get("Authorization")}
	}, func(_ *upstream.Config, s *upstream.ServerConfig) {
		s.RPC += "/base/"
		s.Headers = map[string]secret.Text{"authorization": secret.Parse("Bearer t"), "content-type": secret.Parse("text/plain")}
	})
	const body = " {\"a\": 1.50}\n"
	want := request{"POST", "/base/rpc", body, "application/json", "Bearer t"}
	if _, err := u.Call(context.Background(), []byte(body)); err != nil {
		t.Error(err)
	}
	if got := <-got; got != want {
		t.Errorf("call: got %+v, want %+v", got, want)
	}
	if err := u.Notify(context.Background(), []byte(body)); err != nil {
		t.Error(err)
	}
	if got := <-got; got != want {
		t.Errorf("notify: got %+v, want %+v", got, want)
	}
}

func TestRPCFailures(t *testing.T) {
	quick := func(c *upstream.Config, _ *upstream.ServerConfig) {
		c.ResponseTimeout = unit.Duration(100 * time.Millisecond)
	}
	tiny := func(c *upstream.Config, _ *upstream.ServerConfig) { c.MaxReplyBytes = 10 }
	refused := func(_ *upstream.Config, s *upstream.ServerConfig) {
		srv := httptest.NewServer(nil)
		srv.Close()
		s.RPC = secret.URL(srv.URL)
	}
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		options func(*upstream.Config, *upstream.ServerConfig)
		want    fault.Kind
	}{
		"silent":  {blockUntilCanceled, quick, fault.Timeout},
		"refused": {blockUntilCanceled, refused, fault.Unavailable},
		"slow body": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "{")
			_ = http.NewResponseController(w).Flush()
			blockUntilCanceled(w, r)
		}, quick, fault.Timeout},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			_, _ = io.WriteString(w, "{")
		}, nil, fault.Unavailable},
		"too large":          {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "12345678901") }, tiny, fault.BadReply},
		"too large, unsized": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1<<16)) }, tiny, fault.BadReply},
		"packed":             {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "gzip") }, nil, fault.BadReply},
	} {
		t.Run(name, func(t *testing.T) {
			u, _ := newRPCClient(t, tt.handler, tt.options)
			got, err := u.Call(context.Background(), []byte("{}"))
			if kind := fault.KindOf(err); err == nil || got != nil || kind != tt.want {
				t.Errorf("got %q, %v (%s), want %s", got, err, kind, tt.want)
			}
			if strings.Contains(fault.PublicOf(err), "127.0.0.1") {
				t.Errorf("the public text %q names the server's address", fault.PublicOf(err))
			}
		})
	}
	t.Run("notification", func(t *testing.T) {
		for want, options := range map[fault.Kind]func(*upstream.Config, *upstream.ServerConfig){fault.Timeout: quick, fault.Unavailable: refused} {
			u, _ := newRPCClient(t, blockUntilCanceled, options)
			if err := u.Notify(context.Background(), []byte("{}")); fault.KindOf(err) != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	})
}

func TestRPCReplyAtTheLimit(t *testing.T) {
	u, _ := newRPCClient(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "1234567890") },
		func(c *upstream.Config, _ *upstream.ServerConfig) { c.MaxReplyBytes = 10 })
	if got, err := u.Call(context.Background(), nil); err != nil || len(got) != 10 {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestRPCCancellation(t *testing.T) {
	u, _ := newRPCClient(t, blockUntilCanceled, nil)
	for name, call := range map[string]func(context.Context) error{
		"call":   func(ctx context.Context) error { _, err := u.Call(ctx, []byte("{}")); return err },
		"notify": func(ctx context.Context) error { return u.Notify(ctx, []byte("{}")) },
	} {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(50*time.Millisecond, cancel)
		start := time.Now()
		if err := call(ctx); fault.KindOf(err) != fault.Canceled {
			t.Errorf("%s: got %v, want %s", name, err, fault.Canceled)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: noticed after %v", name, took)
		}
	}
}

func TestRPCRedirectIsNotFollowed(t *testing.T) {
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		u, _ := newRPCClient(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, status) }, nil)
		if _, err := u.Call(context.Background(), []byte("{}")); err != nil {
			t.Errorf("%d: %v", status, err)
		}
		if err := u.Notify(context.Background(), []byte("{}")); err != nil {
			t.Errorf("%d: %v", status, err)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

func TestRPCConnectionIsReused(t *testing.T) {
	for name, reply := range map[string]string{
		"sized": `{"jsonrpc":"2.0"}`, "empty": "", "chunked": strings.Repeat("x", 20_000),
	} {
		t.Run(name, func(t *testing.T) {
			u, accepted := newRPCClient(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, reply) }, nil)
			for i := range 50 {
				var err error
				if i%2 == 0 {
					_, err = u.Call(context.Background(), []byte("{}"))
				} else {
					err = u.Notify(context.Background(), []byte("{}"))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			// net/http drops a connection whose writer goroutine has not run 50 ms after the reply.
			if n := accepted.Load(); n > 3 {
				t.Errorf("50 calls made %d connections, want 1, or few more on a slow machine", n)
			}
		})
	}
}

// Secrets in a URL are in no error.
func TestErrorsDoNotRevealURLSecrets(t *testing.T) {
	const key = "hunter2-hunter2"
	transport := upstream.NewTransport()
	defer transport.CloseIdleConnections()
	for _, base := range []secret.URL{"http://127.0.0.1:1/" + key, "http://no.such.host.invalid/" + key, "http://127.0.0.1:1/" + key + "/%zz", "http://[::1/" + key} {
		u := upstream.NewRPCClient(upstream.ServerConfig{ID: "a", RPC: base}, upstream.Default(), transport)
		_, err := u.Call(t.Context(), []byte(`{}`))
		for ; err != nil; err = errors.Unwrap(err) {
			if strings.Contains(err.Error(), key) {
				t.Errorf("%s", err)
			}
		}
	}
	n := connect(t, upstream.ServerConfig{URL: "http://127.0.0.1:1/mcp?key=" + key}, nil)
	_, err := n.call(t, mcp.Ping, ``)
	if err == nil {
		t.Fatal("no server")
	}
	for ; err != nil; err = errors.Unwrap(err) {
		if strings.Contains(err.Error(), key) {
			t.Errorf("%s", err)
		}
	}
}
