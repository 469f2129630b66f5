package front_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/internal/secret"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// refuse writes an error as the name of its kind.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	front.AddLogAttrs(r.Context(), slog.String("fault", fault.KindOf(err).String()))
	w.WriteHeader(front.HTTPStatus(fault.KindOf(err)))
	_, _ = io.WriteString(w, fault.KindOf(err).String())
}

// chained wraps a handler in the whole chain, with the token "hush" and a loopback listener.
func chained(h http.HandlerFunc) http.Handler {
	cfg := front.Default().HTTP
	cfg.MaxRequestBytes = 10
	g := gate.New(gate.Deps{Authenticator: auth.New(auth.Config{Token: secret.Parse("hush")})})
	return front.Wrap(h, front.Chain(g, front.NewGuard("127.0.0.1:8000", front.HTTP{}), cfg, nil, refuse, nil)...)
}

// logged captures the log of a test.
func logged(t *testing.T, handler func(io.Writer, *slog.HandlerOptions) slog.Handler) *bytes.Buffer {
	t.Helper()
	var buf bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(handler(&buf, &slog.HandlerOptions{Level: slog.LevelDebug})))
	t.Cleanup(func() { slog.SetDefault(old) })
	return &buf
}

func asJSON(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) }
func asText(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) }

// A request that two middlewares would reject gets the error of the outer one.
func TestChainOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		host, token, body string
		boom              bool
		status            int
		want              string
	}{
		"let in":                  {"localhost", "hush", "short", false, 200, "served as default"},
		"host before token":       {"evil.example", "wrong", "too long a body", true, 403, "forbidden"},
		"token before body":       {"localhost", "wrong", "too long a body", true, 401, "unauthorized"},
		"body before endpoint":    {"localhost", "hush", "too long a body", false, 413, "too_large"},
		"a panic of the endpoint": {"localhost", "hush", "short", true, 502, "internal"},
		"an unreachable panic":    {"localhost", "", "short", true, 401, "unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			log := logged(t, asJSON)
			h := chained(func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(r.Body); err != nil {
					refuse(w, r, fault.Wrap(fault.TooLarge, "too large", err))
					return
				}
				if tt.boom {
					panic("boom")
				}
				who, err := auth.CallerFrom(r.Context())
				if err != nil {
					t.Error(err)
				}
				_, _ = io.WriteString(w, "served as "+who.Tenant())
			})
			r := httptest.NewRequest(http.MethodPost, "/x", strings.NewReader(tt.body))
			r.Host = tt.host
			if tt.token != "" {
				r.Header.Set("Authorization", "Bearer "+tt.token)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.status || w.Body.String() != tt.want {
				t.Errorf("got %d %q, want %d %q", w.Code, w.Body, tt.status, tt.want)
			}
			if w.Header().Get("X-Request-Id") == "" {
				t.Error("no request id")
			}
			if n := strings.Count(log.String(), `"msg":"request"`); n != 1 {
				t.Errorf("%d log lines for one request: %s", n, log)
			}
		})
	}
}

func TestWrapPutsTheFirstOutside(t *testing.T) {
	var order []string
	mark := func(name string) front.Middleware {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				order = append(order, name)
				next.ServeHTTP(w, r)
			})
		}
	}
	h := front.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { order = append(order, "endpoint") }), mark("a"), mark("b"))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	if got := strings.Join(order, " "); got != "a b endpoint" {
		t.Errorf("got %s", got)
	}
}

func TestRequestIDIsNew(t *testing.T) {
	h := front.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), front.RequestID)
	seen := map[string]bool{"": true, "theirs": true}
	for range 100 {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("X-Request-Id", "theirs")
		h.ServeHTTP(w, r)
		id := w.Header().Get("X-Request-Id")
		if seen[id] {
			t.Fatalf("id %q twice, or not ours", id)
		}
		seen[id] = true
	}
}

// A panic is logged with its stack; the client sees only an internal error.
func TestPanicIsRecovered(t *testing.T) {
	for name, p := range map[string]any{"text": "canary", "error": errors.New("canary"), "fault": fault.New(fault.NotFound, "canary")} {
		t.Run(name, func(t *testing.T) {
			log := logged(t, asJSON)
			w := httptest.NewRecorder()
			h := front.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(p) }), front.Recover(refuse))
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if w.Code != http.StatusBadGateway || w.Body.String() != "internal" {
				t.Errorf("got %d %q", w.Code, w.Body)
			}
			if !strings.Contains(log.String(), "canary") || !strings.Contains(log.String(), "chain_test.go") {
				t.Errorf("the log lacks the panic or its stack: %s", log)
			}
		})
	}
}

func TestAbortIsNotRecovered(t *testing.T) {
	h := front.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), front.Recover(refuse))
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Errorf("got %v, want http.ErrAbortHandler", err)
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
}

// A reply that is cut by a panic must not look complete to the client.
func TestPanicInsideAReplyCutsIt(t *testing.T) {
	srv := httptest.NewServer(front.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half of a re")
		panic("boom")
	}), front.RequestID, front.AccessLog, front.Recover(refuse)))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		return // cut before anything came
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("got %d %q, want a cut connection", resp.StatusCode, body)
	}
}

func TestLogLine(t *testing.T) {
	for name, handler := range map[string]func(io.Writer, *slog.HandlerOptions) slog.Handler{"json": asJSON, "text": asText} {
		t.Run(name, func(t *testing.T) {
			log := logged(t, handler)
			h := chained(func(w http.ResponseWriter, r *http.Request) {
				front.AddLogAttrs(r.Context(), slog.String("server", "srv1"))
				w.WriteHeader(http.StatusTeapot)
				_, _ = io.WriteString(w, "12345")
			})
			r := httptest.NewRequest(http.MethodPost, "/some%0apath?token=canary-query", strings.NewReader("canary-bod"))
			r.Host = "localhost"
			r.Header.Set("Authorization", "Bearer hush")
			r.Header.Set("Cookie", "c=canary-cookie")
			h.ServeHTTP(httptest.NewRecorder(), r)
			line := log.String()
			for _, hidden := range []string{"canary", "hush", "Bearer", "token="} {
				if strings.Contains(line, hidden) {
					t.Errorf("%s shows %q", line, hidden)
				}
			}
			if strings.Count(line, "\n") != 1 {
				t.Errorf("not one line: %q", line)
			}
			if name == "text" {
				for _, want := range []string{"msg=request", "method=POST", `path="/some\npath"`, "status=418", "bytes=5", "server=srv1", "request=", "took="} {
					if !strings.Contains(line, want) {
						t.Errorf("%s lacks %s", line, want)
					}
				}
				return
			}
			var got map[string]any
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]any{"level": "INFO", "method": "POST", "path": "/some\npath", "status": 418.0, "bytes": 5.0, "server": "srv1"} {
				if got[key] != want {
					t.Errorf("%s is %v, want %v", key, got[key], want)
				}
			}
		})
	}
}

// Probes come every few seconds: only their failures are logged at INFO.
func TestProbesAreLoggedQuietly(t *testing.T) {
	for _, tt := range []struct {
		path   string
		status int
		want   string
	}{
		{"/healthz", 200, "DEBUG"}, {"/readyz", 200, "DEBUG"}, {"/metrics", 200, "DEBUG"},
		{"/readyz", 503, "INFO"}, {"/metrics", 401, "INFO"}, {"/x", 200, "INFO"},
	} {
		log := logged(t, asJSON)
		h := front.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tt.status) }), front.AccessLog)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, tt.path, nil))
		if !strings.Contains(log.String(), `"level":"`+tt.want+`"`) {
			t.Errorf("%s %d: got %s, want level %s", tt.path, tt.status, log, tt.want)
		}
	}
}

func TestAddLogAttrsOutsideAChain(*testing.T) {
	front.AddLogAttrs(context.Background(), slog.String("key", "value")) // must not panic
}

func TestHTTPStatusOfEveryKind(t *testing.T) {
	want := map[fault.Kind]int{
		fault.Internal: 502, fault.Syntax: 400, fault.InvalidRequest: 400, fault.BadParams: 400, fault.NoMethod: 404, fault.Unauthorized: 401, fault.Forbidden: 403,
		fault.NotFound: 404, fault.UnknownHandle: 404, fault.TooLarge: 413, fault.Stalled: 408, fault.RateLimited: 429, fault.OverBudget: 429, fault.Unavailable: 502,
		fault.Timeout: 502, fault.BadReply: 502, fault.Full: 503, fault.Canceled: 499,
	}
	for _, k := range fault.Kinds() {
		if w, ok := want[k]; !ok || front.HTTPStatus(k) != w {
			t.Errorf("%s: got %d, want %d", k, front.HTTPStatus(k), w)
		}
	}
	if got := front.HTTPStatus(fault.Kind(200)); got != 502 {
		t.Errorf("an unknown kind: got %d, want 502", got)
	}
}
