package front_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/unit"
)

func millis(n int) unit.Duration { return unit.Duration(time.Duration(n) * time.Millisecond) }

// serve opens a listener and serves on it until the test ends.
func serve(t *testing.T, h http.Handler, mend func(*front.HTTP)) *front.Listener {
	t.Helper()
	cfg := front.Default().HTTP
	cfg.DrainGrace = millis(5000)
	if mend != nil {
		mend(&cfg)
	}
	l, err := front.Listen(context.Background(), "127.0.0.1:0", cfg, nil, h)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- l.Serve() }()
	t.Cleanup(func() {
		_ = l.Drain()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return l
}

type result struct {
	body string
	err  error
}

func get(client *http.Client, url string) result {
	resp, err := client.Get(url)
	if err != nil {
		return result{err: err}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return result{string(b), err}
}

// client is a client with its own connections.
func client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

func TestDrainLetsCallsFinish(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	l := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = io.WriteString(w, "finished")
	}), nil)
	called := make(chan result, 1)
	go func() { called <- get(client(t), "http://"+l.Addr().String()) }()
	<-entered
	drained := make(chan error, 1)
	go func() { drained <- l.Drain() }()

	deadline := time.Now().Add(5 * time.Second)
	for {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			break // refused, as it should be
		}
		conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("connections are still taken")
		}
		time.Sleep(5 * time.Millisecond)
	}
	select {
	case err := <-drained:
		t.Fatalf("drained with a call under way: %v", err)
	default:
	}
	close(release)
	if got := <-called; got.err != nil || got.body != "finished" {
		t.Errorf("the call under way: got %q, %v", got.body, got.err)
	}
	if err := <-drained; err != nil {
		t.Errorf("Drain: %v", err)
	}
}

func TestDrainCutsAfterTheGrace(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	l := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	}), func(cfg *front.HTTP) { cfg.DrainGrace = millis(100) })
	called := make(chan result, 1)
	go func() { called <- get(client(t), "http://"+l.Addr().String()) }()
	<-entered
	start := time.Now()
	if err := l.Drain(); err == nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Drain: got %v, want that calls were cut", err)
	}
	if took := time.Since(start); took < 100*time.Millisecond || took > 3*time.Second {
		t.Errorf("Drain took %v", took)
	}
	if got := <-called; got.err == nil {
		t.Errorf("the call that was cut got %q", got.body)
	}
	select {
	case <-left:
	case <-time.After(5 * time.Second):
		t.Error("the handler was not cancelled")
	}
}

// If building the gateway fails, its address is free again.
func TestDrainWithoutServeFreesTheAddress(t *testing.T) {
	cfg := front.Default().HTTP
	l, err := front.Listen(context.Background(), "127.0.0.1:0", cfg, nil, http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Drain(); err != nil {
		t.Error(err)
	}
	again, err := net.Listen("tcp", l.Addr().String())
	if err != nil {
		t.Fatalf("after Drain: %v", err)
	}
	again.Close()
}

func TestListenOnABusyAddress(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if _, err := front.Listen(context.Background(), busy.Addr().String(), front.Default().HTTP, nil, nil); err == nil {
		t.Error("want an error")
	}
}

// raw sends bytes and returns what it receives until the peer closes.
func raw(t *testing.T, l *front.Listener, request string) (got string, took time.Duration) {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	start := time.Now()
	_ = conn.SetDeadline(start.Add(10 * time.Second))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(bufio.NewReader(conn))
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("the connection is still open; got %q", b)
	}
	return string(b), time.Since(start)
}

func TestSlowBodyIsCut(t *testing.T) {
	failed := make(chan error, 1)
	cfg := front.Default().HTTP
	cfg.BodyTimeout = millis(300)
	endpoint := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		failed <- err
		w.WriteHeader(http.StatusBadRequest)
	})
	l := serve(t, front.Wrap(endpoint, front.LimitBody(cfg)), nil)
	_, took := raw(t, l, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nslow")
	var timeout net.Error
	if err := <-failed; !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("the body ended with %v, want a timeout", err)
	}
	if took < 250*time.Millisecond || took > 5*time.Second {
		t.Errorf("cut after %v, want about 300ms", took)
	}
}

func TestSlowHeadIsCut(t *testing.T) {
	l := serve(t, http.NotFoundHandler(), func(cfg *front.HTTP) { cfg.HeaderTimeout = millis(200) })
	if _, took := raw(t, l, "POST / HTTP/1.1\r\nHost: loc"); took < 150*time.Millisecond || took > 5*time.Second {
		t.Errorf("cut after %v, want about 200ms", took)
	}
}

func TestHeadOverTheLimit(t *testing.T) {
	l := serve(t, http.NotFoundHandler(), func(cfg *front.HTTP) { cfg.MaxHeaderBytes = 1 << 10 })
	got, _ := raw(t, l, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: "+strings.Repeat("x", 16<<10)+"\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 431 ") {
		t.Errorf("got %.100q, want 431", got)
	}
}

func TestClientThatDoesNotReadIsCut(t *testing.T) {
	failed := make(chan error, 1)
	cfg := front.Default().HTTP
	cfg.BodyTimeout = millis(300)
	l := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		front.SetReplyDeadline(w, cfg, 1)
		var err error
		for err == nil {
			_, err = w.Write(make([]byte, 1<<20))
		}
		failed <- err
	}), nil)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	select {
	case err := <-failed:
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("the reply ended with %v, want a timeout", err)
		}
	case <-time.After(8 * time.Second):
		t.Error("a client that does not read holds its reply for ever")
	}
}

// The deadline of a reply does not affect a later one on the same connection. net/http ensures that; we
// rely on it.
func TestDeadlineEndsWithItsReply(t *testing.T) {
	cfg := front.Default().HTTP
	cfg.BodyTimeout = millis(100)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			front.SetReplyDeadline(w, cfg, 1)
		}
		fmt.Fprint(w, r.URL.Path)
	})
	l := serve(t, front.Wrap(h, front.LimitBody(cfg)), nil)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, path := range []string{"/first", "/second"} {
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != path {
			t.Fatalf("%s: got %q, %v", path, body, err)
		}
		resp.Body.Close()
		time.Sleep(200 * time.Millisecond) // longer than the first reply had
	}
}

// A load balancer may speak HTTP/2 without TLS.
func TestHTTP2WithoutTLS(t *testing.T) {
	l := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }), nil)
	for proto, set := range map[string]func(*http.Protocols){
		"HTTP/1.1": func(p *http.Protocols) { p.SetHTTP1(true) },
		"HTTP/2.0": func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) },
	} {
		var protocols http.Protocols
		set(&protocols)
		transport := &http.Transport{Protocols: &protocols}
		if got := get(&http.Client{Transport: transport}, "http://"+l.Addr().String()); got.body != proto {
			t.Errorf("got %q, %v; want %s", got.body, got.err, proto)
		}
		transport.CloseIdleConnections()
	}
}

func TestHealth(t *testing.T) {
	var ready front.Readiness
	up := func(context.Context) error { return nil }
	downStore := func(context.Context) error { return errors.New("canary") }
	hung := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	check := func(name string, h http.HandlerFunc, status int, want string) {
		t.Helper()
		w := httptest.NewRecorder()
		h(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if w.Code != status || w.Body.String() != want+"\n" || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: got %d %q %v, want %d %s", name, w.Code, w.Body, w.Header(), status, want)
		}
	}
	check("live", front.Healthz, 200, `{"status":"ok"}`)
	check("ready", ready.Readyz(up), 200, `{"status":"ready","store":"ok"}`)
	check("store down", ready.Readyz(downStore), 200, `{"status":"ready","store":"unavailable"}`)
	check("store hung", ready.Readyz(hung), 200, `{"status":"ready","store":"unavailable"}`)
	ready.StartDraining()
	check("draining", ready.Readyz(up), 503, `{"status":"draining"}`)
	check("draining, store down", ready.Readyz(downStore), 503, `{"status":"draining"}`)
	check("still live", front.Healthz, 200, `{"status":"ok"}`)
}

func TestValidate(t *testing.T) {
	if got := front.Default().Validate(); got != nil {
		t.Errorf("the defaults: %v", got)
	}
	for address, want := range map[string]string{
		"":               "",
		":8000":          "",
		"[::1]:8000":     "",
		"localhost:8000": "",
		"8000":           `listen: "8000" is not an address such as 127.0.0.1:8000`,
		"127.0.0.1":      `listen: "127.0.0.1" is not an address such as 127.0.0.1:8000`,
		"::1:8000":       `listen: "::1:8000" is not an address such as 127.0.0.1:8000`,
	} {
		cfg := front.Default()
		cfg.Listen = address
		if got := fmt.Sprint(errors.Join(cfg.Validate()...)); got != want && (want != "" || got != "<nil>") {
			t.Errorf("%q: got %s, want %s", address, got, want)
		}
	}
	want := []string{
		"http.body_timeout: must be positive", "http.header_timeout: must be positive",
		"http.max_header_bytes: must be positive", "http.max_request_bytes: must be positive",
	}
	got := strings.Split(errors.Join(front.Config{}.Validate()...).Error(), "\n")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestValidateKeepsItsOrder(t *testing.T) {
	first := fmt.Sprint(front.Config{}.Validate())
	for range 50 {
		if got := fmt.Sprint(front.Config{}.Validate()); got != first {
			t.Fatalf("first %s, then %s", first, got)
		}
	}
}
