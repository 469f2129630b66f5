package replica_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/replica"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// table is leases in memory, which may be away.
type table struct {
	state.Leases
	away atomic.Bool
}

func newTable() *table { return &table{Leases: memory.New()} }

// Held fails while the table is away.
func (l *table) Held(ctx context.Context, key string) ([]byte, error) {
	if l.away.Load() {
		return nil, errors.New("away")
	}
	return l.Leases.Held(ctx, key)
}

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

func root(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// start starts a replica whose listener is served by h, behind the middleware of forwarded requests.
func start(t *testing.T, leases *table, h http.HandlerFunc, roots ...[]byte) (*replica.Replica, *httptest.Server) {
	t.Helper()
	r, err := replica.New(leases, roots[0], roots[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(r.Accept(front.Wrap(h, front.ForwardedChain(gate.New(gate.Deps{}), front.Default().HTTP, nil, hub.WriteError)...)))
	s.TLS = r.ServerTLS()
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	r.Announce(t.Context(), s.Listener.Addr().String())
	t.Cleanup(func() { r.Close(); s.CloseClientConnections(); s.Close() })
	return r, s
}

// forward forwards a request of a client, and returns the reply.
func forward(t *testing.T, r *replica.Replica, owner string, change func(*http.Request), body string) (*httptest.ResponseRecorder, error) {
	t.Helper()
	in := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp/a?client=x", strings.NewReader(body))
	if change != nil {
		change(in)
	}
	w := httptest.NewRecorder()
	return w, r.Forward(w, in, replica.Message{Owner: owner, Caller: auth.LocalCaller(), Body: []byte(body), HTTP: front.Default().HTTP})
}

// A request arrives as the client sent it, with the client's identity, and without what is the first replica's affair.
func TestForward(t *testing.T) {
	leases := newTable()
	a, _ := start(t, leases, nil, root(1))
	b, _ := start(t, leases, func(w http.ResponseWriter, r *http.Request) {
		caller, err := auth.CallerFrom(r.Context())
		if err != nil || caller.Key() != auth.LocalCaller().Key() || !front.IsForwarded(r.Context()) {
			t.Errorf("the caller is %v, %v", caller, err)
		}
		conn, _ := front.ConnectionOf(r)
		body, _ := io.ReadAll(r.Body)
		if r.URL.RequestURI() != "/mcp/a?client=x" || string(body) != "body" || r.Header.Get("Mcp-Session-Id") != "s" || r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" || !strings.HasSuffix(conn, "192.0.2.1:1234") {
			t.Errorf("got %s %q %v on %q", r.URL, body, r.Header, conn)
		}
		w.Header().Set("Mcp-Session-Id", "t")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "reply")
	}, root(1))
	w, err := forward(t, a, b.ID(), func(r *http.Request) {
		r.Header.Set("Mcp-Session-Id", "s")
		r.Header.Set("Authorization", "Bearer x")
		r.Header.Set("Cookie", "x=y")
	}, "body")
	if err != nil || w.Code != http.StatusTeapot || w.Body.String() != "reply" || w.Header().Get("Mcp-Session-Id") != "t" {
		t.Errorf("got %d %q, %v", w.Code, w.Body, err)
	}
}

// Nobody without the secret reaches the listener, with TLS or without, with a certificate or without; and nobody
// without it is taken for a replica.
func TestSecretIsRequired(t *testing.T) {
	leases := newTable()
	served := func(http.ResponseWriter, *http.Request) { t.Error("the request was served") }
	b, s := start(t, leases, served, root(1))
	stranger, other := start(t, leases, served, root(2))
	if _, err := forward(t, stranger, b.ID(), nil, ""); !errors.Is(err, replica.ErrGone) {
		t.Errorf("another secret: %v", err)
	}
	a, _ := start(t, leases, nil, root(1))
	if _, err := forward(t, a, stranger.ID(), nil, ""); !errors.Is(err, replica.ErrGone) {
		t.Errorf("to another secret: %v", err)
	}
	for name, client := range map[string]*http.Client{
		"no certificate": {Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}, //nolint:gosec // a test
		"another":        {Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: other.TLS.Certificates}}},
	} {
		if res, err := client.Get(s.URL + "/mcp"); err == nil {
			_ = res.Body.Close()
			t.Errorf("%s: status %d", name, res.StatusCode)
		}
	}
	res, err := http.Get("http://" + s.Listener.Addr().String() + "/mcp")
	if err == nil {
		_ = res.Body.Close()
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS: status %d", res.StatusCode)
		}
	}
}

// While the secret is rotated, replicas with the old and the new one reach each other.
func TestRotation(t *testing.T) {
	leases := newTable()
	h := func(http.ResponseWriter, *http.Request) {}
	before, _ := start(t, leases, h, root(1), root(2))
	after, _ := start(t, leases, h, root(2), root(1))
	for from, to := range map[*replica.Replica]*replica.Replica{before: after, after: before} {
		if _, err := forward(t, from, to.ID(), nil, ""); err != nil {
			t.Error(err)
		}
	}
}

// A replica is gone if it has no lease, does not listen, or another process has its address.
func TestGone(t *testing.T) {
	leases := newTable()
	h := func(http.ResponseWriter, *http.Request) {}
	a, _ := start(t, leases, h, root(1))
	closed, s := start(t, leases, h, root(1))
	s.Close()
	moved, _ := start(t, leases, h, root(1))
	third, s := start(t, leases, h, root(1))
	moved.Close()
	moved.Announce(t.Context(), s.Listener.Addr().String())
	for name, owner := range map[string]string{"no lease": "nobody", "closed": closed.ID(), "moved": moved.ID()} {
		for range 2 {
			if _, err := forward(t, a, owner, nil, ""); !errors.Is(err, replica.ErrGone) {
				t.Errorf("%s: %v", name, err)
			}
			if gone, err := a.IsGone(t.Context(), owner); !gone || err != nil {
				t.Errorf("%s: gone is %v, %v", name, gone, err)
			}
		}
	}
	// Without the store, what is known is still reached, and what is not known is not taken for gone.
	if _, err := forward(t, a, third.ID(), nil, ""); err != nil {
		t.Error(err)
	}
	leases.away.Store(true)
	if _, err := forward(t, a, third.ID(), nil, ""); err != nil {
		t.Error(err)
	}
	if _, err := forward(t, a, "unknown", nil, ""); err == nil || errors.Is(err, replica.ErrGone) {
		t.Errorf("without the store: %v", err)
	}
}

// What was started and then cut is not taken for gone: it may have been done. Whole events that were written stay
// whole.
func TestCut(t *testing.T) {
	leases := newTable()
	a, _ := start(t, leases, nil, root(1))
	for name, tt := range map[string]struct {
		write      string
		isCut, end bool
	}{
		"before the reply": {"", false, false},
		"after an event":   {"data: 1\n\n", true, true},
		"within an event":  {"data: 1\n\nda", true, false},
	} {
		b, _ := start(t, leases, func(w http.ResponseWriter, _ *http.Request) {
			if tt.write != "" {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, tt.write)
				_ = http.NewResponseController(w).Flush()
			}
			panic(http.ErrAbortHandler)
		}, root(1))
		w, err := forward(t, a, b.ID(), nil, "")
		var cut *replica.CutError
		if errors.As(err, &cut) != tt.isCut || tt.isCut && cut.AtEventEnd != tt.end || errors.Is(err, replica.ErrGone) || fault.KindOf(err) != fault.Unavailable || w.Body.String() != tt.write {
			t.Errorf("%s: %v, %q", name, err, w.Body)
		}
	}
}

// A stream is passed on as it comes, and ends when the client leaves.
func TestStream(t *testing.T) {
	leases := newTable()
	a, _ := start(t, leases, nil, root(1))
	left := make(chan struct{})
	b, _ := start(t, leases, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}, root(1))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = a.Forward(w, r, replica.Message{Owner: b.ID(), Caller: auth.LocalCaller(), HTTP: front.Default().HTTP})
	}))
	defer s.Close()
	res, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("data: 1\n\n"))
	if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != "data: 1\n\n" {
		t.Errorf("got %q, %v", got, err)
	}
	_ = res.Body.Close()
	select {
	case <-left:
	case <-time.After(20 * time.Second):
		t.Error("the other replica does not learn that the client left")
	}
}

// The lease is held while the replica lives, and ends with it.
func TestLease(t *testing.T) {
	leases := newTable()
	r, err := replica.New(leases, root(1))
	if err != nil {
		t.Fatal(err)
	}
	r.Announce(t.Context(), "127.0.0.1:1")
	if got, _ := leases.Held(t.Context(), "replica "+r.ID()); string(got) != "127.0.0.1:1" {
		t.Errorf("the lease is %q", got)
	}
	r.Close()
	if got, _ := leases.Held(t.Context(), "replica "+r.ID()); got != nil {
		t.Errorf("the lease is still %q", got)
	}
}

// The address that others connect to.
func TestAdvertise(t *testing.T) {
	open := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 70}
	if got := (replica.Config{}).AddressFor(open); got != "10.0.0.1:70" {
		t.Error(got)
	}
	if got := (replica.Config{Advertise: "a:1"}).AddressFor(open); got != "a:1" {
		t.Error(got)
	}
	host, port, err := net.SplitHostPort((replica.Config{}).AddressFor(&net.TCPAddr{IP: net.IPv6zero, Port: 70}))
	if err != nil || port != "70" || net.ParseIP(host).IsUnspecified() {
		t.Error(host, port, err)
	}
	for _, bad := range []replica.Config{{Listen: "x"}, {Listen: ":1", Advertise: "x"}, {Advertise: "a:1"}} {
		if len(bad.Validate()) != 1 {
			t.Errorf("%+v: %v", bad, bad.Validate())
		}
	}
}
