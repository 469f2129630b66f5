package rerank

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/secret"
)

const (
	okay    = `{"scores":[0.25,0.75]}`
	secret1 = "first secret document"
	secret2 = "second secret document"
)

// failing is one row of the specification's troubleshooting table.
type failing struct {
	name    string
	handler http.HandlerFunc
	timeout time.Duration // 0: plenty
	kind    ErrorKind     // 0: it works out
	status  int
	is      error
	calls   int64 // 0: any number
}

func (f failing) run(t *testing.T) {
	g := newRig(t, DeepInfra, f.handler, func(cfg *Config) {
		if f.timeout > 0 {
			cfg.Timeout = f.timeout
		}
	})
	start := time.Now()
	got, err := g.Score(t.Context(), "q", []string{secret1, secret2})
	if took := time.Since(start); f.timeout > 0 && took > f.timeout+2*time.Second {
		t.Errorf("it took %v", took)
	}
	if calls := g.calls.Load(); f.calls > 0 && calls != f.calls {
		t.Errorf("%d requests, want %d", calls, f.calls)
	}
	if f.kind == 0 {
		if err != nil || len(got.Scores) != 2 || got.Scores[1] != 0.75 || got.Status != http.StatusOK {
			t.Errorf("got %+v, %v", got, err)
		}
		return
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %+v, %v", got, err)
	}
	if e.Kind != f.kind || e.Status != f.status || f.is != nil && !errors.Is(err, f.is) {
		t.Errorf("got kind %v, status %d: %v", e.Kind, e.Status, err)
	}
	silent(t, err, secret1, secret2)
}

// then answers the first request with one handler, and the rest with another.
func then(first, rest http.HandlerFunc) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			first(w, r)
			return
		}
		rest(w, r)
	}
}

func withHeader(name, value string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(name, value)
		next(w, r)
	}
}

// hangUp closes the connection without an answer.
func hangUp(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	panic(http.ErrAbortHandler)
}

// short claims more than it sends.
func short(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("Content-Length", "1000")
	_, _ = io.WriteString(w, okay)
}

// hang answers when the client is gone.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// trickle sends a byte now and then, and never ends.
func trickle(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// huge sends without end.
func huge(w http.ResponseWriter, r *http.Request) {
	blanks := []byte(strings.Repeat(" ", 64<<10))
	for r.Context().Err() == nil {
		if _, err := w.Write(blanks); err != nil {
			return
		}
	}
}

// echo repeats the request, as 422 answers do.
func echo(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, r.Header.Get("Authorization"))
		_, _ = io.Copy(w, r.Body)
	}
}

// P11, specification §15: every failure has its kind and status, comes in time, and contains no secret.
func TestFailures(t *testing.T) {
	busy := withHeader("Retry-After", "0", say(429, `{"error":{"message":"Model busy, retry later"}}`))
	rows := []failing{
		{name: "401", handler: echo(401), kind: KindHTTP, status: 401, calls: 1},
		{name: "429 for good", handler: busy, timeout: 600 * time.Millisecond, kind: KindHTTP, status: 429},
		{name: "429 and a wait too long", handler: withHeader("Retry-After", "60", say(429, "rate limited")), timeout: 5 * time.Second, kind: KindHTTP, status: 429, calls: 1},
		{name: "429 once", handler: then(busy, say(200, okay)), calls: 2},
		{name: "429, then slow", handler: then(busy, hang), timeout: 700 * time.Millisecond, kind: KindHTTP, status: 429, is: context.DeadlineExceeded, calls: 2},
		{name: "503 once", handler: then(say(503, "unavailable"), say(200, okay)), calls: 2},
		{name: "slow", handler: hang, timeout: 250 * time.Millisecond, kind: KindHTTP, is: context.DeadlineExceeded, calls: 1},
		{name: "trickle", handler: trickle(200), timeout: 250 * time.Millisecond, kind: KindHTTP, is: context.DeadlineExceeded, calls: 1},
		{name: "trickling refusal", handler: trickle(403), kind: KindHTTP, status: 403, calls: 1},
		{name: "lost", handler: hangUp, kind: KindHTTP, calls: 2},
		{name: "lost once", handler: then(hangUp, say(200, okay)), calls: 2},
		{name: "cut short", handler: short, kind: KindHTTP, is: io.ErrUnexpectedEOF, calls: 2},
		{name: "cut short once", handler: then(short, say(200, okay)), calls: 2},
		{name: "not JSON", handler: say(200, "<html>It works!</html>"), kind: KindParse, status: 200, calls: 1},
		{name: "empty", handler: say(200, ""), kind: KindParse, status: 200, calls: 1},
		{name: "no content", handler: say(204, ""), kind: KindParse, status: 204, calls: 1},
		{name: "an echo", handler: echo(200), kind: KindParse, status: 200, calls: 1},
		{name: "unexpected JSON", handler: say(200, `{"object":"list","data":[{"embedding":[0.1],"index":0}]}`), kind: KindParse, status: 200, calls: 1},
		{name: "an error in 200", handler: say(200, `{"error":{"message":"Model busy"}}`), kind: KindParse, status: 200, calls: 1},
		{name: "too few scores", handler: say(200, `{"scores":[0.25]}`), kind: KindParse, status: 200, calls: 1},
		{name: "too many scores", handler: say(200, `{"scores":[0.25,0.75,1]}`), kind: KindParse, status: 200, calls: 1},
		{name: "huge", handler: huge, kind: KindParse, status: 200, calls: 1},
		{name: "huge by its own account", handler: withHeader("Content-Length", strconv.Itoa(maxReply+1), huge), kind: KindParse, status: 200, calls: 1},
		{name: "packed", handler: withHeader("Content-Encoding", "gzip", say(200, okay)), kind: KindParse, status: 200, calls: 1},
	}
	for _, status := range []int{400, 403, 404, 413, 422, 424, 500} {
		rows = append(rows, failing{name: strconv.Itoa(status), handler: echo(status), kind: KindHTTP, status: status, calls: 1})
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			row.run(t)
		})
	}
}

// The key is sent only to the configured URL, not even to another path of the same server.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var reached atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, to := range []string{other.URL, "/elsewhere"} {
			failing{
				handler: func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/elsewhere" {
						reached.Add(1)
					}
					http.Redirect(w, r, to, status)
				},
				kind: KindHTTP, status: status, calls: 1,
			}.run(t)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

func TestConnectionRefused(t *testing.T) {
	g := newRig(t, DeepInfra, deepInfra, nil)
	g.server.Close()
	_, err := g.Score(t.Context(), "q", []string{secret1})
	var e *Error
	if !errors.As(err, &e) || e.Kind != KindHTTP || e.Status != 0 || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	silent(t, err, secret1, "/v1/rerank")
}

// An unknown host and an invalid certificate are permanent errors.
func TestPermanentErrorsAreNotRetried(t *testing.T) {
	for _, tt := range []struct {
		err   error
		calls int
	}{
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "nowhere.example", IsNotFound: true}}, 1},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "server misbehaving", Name: "api.example", IsTemporary: true}}, 2},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, 1},
		{io.ErrUnexpectedEOF, 2},
	} {
		calls := 0
		client := New(Config{Shape: TEI, URL: "https://api.example/rerank"}, roundTrip(func(*http.Request) (*http.Response, error) {
			calls++
			return nil, tt.err
		}))
		_, err := client.Score(t.Context(), "q", []string{"a"})
		var e *Error
		if !errors.As(err, &e) || e.Kind != KindHTTP || e.Status != 0 || !errors.Is(err, tt.err) || calls != tt.calls {
			t.Errorf("got %v after %d calls, want %d", err, calls, tt.calls)
		}
	}
}

// An error of a transport that dumps the request is replaced, since it contains the key.
func TestTransportErrorsDoNotContainTheKey(t *testing.T) {
	client := New(Config{Shape: DeepInfra, URL: "https://api.example/x?token=hush", Key: secret.Literal(testKey)}, roundTrip(func(r *http.Request) (*http.Response, error) {
		return nil, errors.New("cannot send " + r.Header.Get("Authorization"))
	}))
	_, err := client.Score(t.Context(), "q", []string{"a"})
	if !errors.Is(err, errRedacted) {
		t.Errorf("got %v", err)
	}
	silent(t, err, "hush")
}

// P10, P12: an invalid configuration makes no connection; nor does New.
func TestConfigErrorsConnectToNothing(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"no key":          func(cfg *Config) { cfg.Key = secret.Text{} },
		"a blank key":     func(cfg *Config) { cfg.Key = secret.Literal(" \n") },
		"an unset key":    func(cfg *Config) { cfg.Key = secret.Parse("env:DEEPINFRA_API_KEY") },
		"a key of lines":  func(cfg *Config) { cfg.Key = secret.Literal(testKey + "\r\nHost: x") },
		"no shape":        func(cfg *Config) { cfg.Shape = "" },
		"another shape":   func(cfg *Config) { cfg.Shape = "voyage" },
		"no URL":          func(cfg *Config) { cfg.URL = "" },
		"a relative URL":  func(cfg *Config) { cfg.URL = "/v1/rerank" },
		"another scheme":  func(cfg *Config) { cfg.URL = "file:///etc/passwd" },
		"a malformed URL": func(cfg *Config) { cfg.URL = "http://[::1" },
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, DeepInfra, deepInfra, edit)
			_, err := g.Score(t.Context(), "q", []string{"a"})
			var e *Error
			if !errors.As(err, &e) || e.Kind != KindConfig || e.Status != 0 {
				t.Errorf("got %v", err)
			}
			silent(t, err, "[::1", "passwd")
			if n := g.calls.Load(); n != 0 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestCallerCancels(t *testing.T) {
	g := newRig(t, DeepInfra, hang, nil)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	_, err := g.Score(ctx, "q", []string{"a"})
	var e *Error
	if !errors.As(err, &e) || e.Kind != KindHTTP || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err = g.Score(ctx, "q", []string{"a"}); !errors.Is(err, context.Canceled) || g.calls.Load() != 1 {
		t.Errorf("a call that was over at its start: %v, after %d requests", err, g.calls.Load())
	}
}

func TestKindNames(t *testing.T) {
	for kind, want := range map[ErrorKind]string{KindConfig: "config", KindHTTP: "http", KindParse: "parse", 0: "kind(0)", 9: "kind(9)"} {
		if got := kind.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
