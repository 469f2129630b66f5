package front_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/gate"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
)

const mib = 1 << 20

// countedBody is a body that counts how much of it was read.
type countedBody struct {
	io.Reader
	read int
}

func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += n
	return n, err
}

// post sends a body through the whole chain to an endpoint that reads it, and returns how much was
// read.
func post(t *testing.T, budget *membudget.Budget, token string, body io.Reader, size int64) (*httptest.ResponseRecorder, int) {
	t.Helper()
	cfg := front.Default().HTTP
	g := gate.New(gate.Deps{Authenticator: auth.New(auth.Config{Token: secret.Parse(token)})})
	endpoint := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := front.ReadBodyWithToken(w, r, int64(cfg.MaxRequestBytes), g)
		if err != nil {
			refuse(w, r, err)
			return
		}
		_, _ = w.Write(bytes.ToUpper(body[:5]))
	})
	h := front.Wrap(endpoint, front.Chain(g, front.NewGuard("127.0.0.1:8000", front.HTTP{}), cfg, budget, refuse, func(*http.Request) bool { return true })...)
	from := &countedBody{Reader: body}
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8000/mcp", from)
	r.ContentLength = size
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w, from.read
}

// Where a token is required, a sender without one can make the gateway hold at most 256 KiB.
func TestUnauthenticatedBodyIsHeldTo256KiB(t *testing.T) {
	const head = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"proxy":{"authToken":"hush"},"text":"`
	long := strings.Repeat("a", 8*mib)
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"no token":                        {`{"params":{"text":"` + long + `"}}`, 401},
		"a wrong token":                   {strings.Replace(head, "hush", "rush", 1) + long + `"}}`, 401},
		"the token behind 256 KiB":        {`{"params":{"text":"` + long + `","proxy":{"authToken":"hush"}}}`, 401},
		"the token first":                 {head + long + `"}}`, 200},
		"the token first, with escapes":   {strings.Replace(head, "hush", `hu\u0073h`, 1) + long + `"}}`, 200},
		"a wrong one, then the right":     {`{"x":{"authToken":"no"},` + strings.TrimPrefix(head, "{") + long + `"}}`, 200},
		"the token at the end of 256 KiB": {strings.Repeat(" ", 255<<10) + head + long + `"}}`, 200},
		"little enough to be read whole":  {`{"params":{}}` + strings.Repeat(" ", 200<<10), 200}, // and to be refused when it is parsed
	} {
		for _, size := range []int64{int64(len(c.body)), -1} {
			budget := membudget.New(512 * mib)
			w, read := post(t, budget, "hush", strings.NewReader(c.body), size)
			if w.Code != c.status {
				t.Errorf("%s (size %d): status %d, want %d: %s", name, size, w.Code, c.status, w.Body)
			}
			if c.status == 401 && read > 256<<10 {
				t.Errorf("%s (size %d): %d bytes were read", name, size, read)
			}
			if held := budget.Stats().Held; held != 0 {
				t.Errorf("%s (size %d): %d bytes stay charged", name, size, held)
			}
		}
	}
}

// A body that does not fit the memory budget is refused before it is read, with Retry-After.
func TestBodyOverTheBudgetIsRefused(t *testing.T) {
	budget := membudget.New(64 * mib)
	other := budget.Scope("default/anonymous@192.0.2.1")
	if err := other.Reserve(30 * mib); err != nil {
		t.Fatal(err)
	}
	w, read := post(t, budget, "", io.LimitReader(endless{}, 40*mib), 40*mib)
	if w.Code != http.StatusServiceUnavailable || read > 20*mib {
		t.Errorf("status %d after %d bytes, want 503 before the body is whole", w.Code, read)
	}
	if w, _ := post(t, budget, "", strings.NewReader("small body"), 10); w.Code != 200 {
		t.Errorf("a small one beside it: status %d", w.Code)
	}
	other.Release()
	if w, _ := post(t, budget, "", io.LimitReader(endless{}, 15*mib), 15*mib); w.Code != 200 {
		t.Errorf("after the release: status %d %s", w.Code, w.Body)
	}
	if st := budget.Stats(); st.Held != 0 || st.Refused == 0 {
		t.Errorf("%+v", st)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// The key is the credential and the remote host; an IPv6 /64 network counts as one host.
func TestCallerKey(t *testing.T) {
	key := func(remote string) (key string) {
		g := gate.New(gate.Deps{Authenticator: auth.New(auth.Config{})})
		h := front.Wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { key = front.CallerKey(r.Context()) }),
			front.RequestID, front.Authenticate(g, refuse, nil))
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = remote
		h.ServeHTTP(httptest.NewRecorder(), r)
		return key
	}
	if a, b := key("192.0.2.1:1"), key("192.0.2.1:2"); a != b || a == key("192.0.2.2:1") {
		t.Errorf("%q and %q", a, b)
	}
	if a, b := key("[2001:db8::1]:1"), key("[2001:db8::ffff:2]:1"); a != b || a == key("[2001:db8:0:1::1]:1") {
		t.Errorf("%q and %q", a, b)
	}
}
