package rerank

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ctxgate/ctxgate/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testKey = "sk_deepinfra_f00dfeed"

// rig is a client and its test server.
type rig struct {
	*Client
	server *httptest.Server
	calls  *atomic.Int64
}

// newRig starts a server, and makes a client of it with the changes that edit makes.
func newRig(t *testing.T, shape string, handler http.HandlerFunc, edit func(*Config)) rig {
	t.Helper()
	calls := new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		handler(w, r)
	}))
	cfg := Config{Shape: shape, URL: server.URL + "/v1/rerank", Key: secret.Literal(testKey), Timeout: 20 * time.Second}
	if edit != nil {
		edit(&cfg)
	}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(func() { transport.CloseIdleConnections(); server.Close() })
	return rig{New(cfg, transport), server, calls}
}

// say answers every request with one body.
func say(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// roundTrip is a transport without a network, for tests whose clock is not real.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func reply(status int, body string, header ...string) *http.Response {
	w := httptest.NewRecorder()
	for i := 0; i+1 < len(header); i += 2 {
		w.Header().Set(header[i], header[i+1])
	}
	w.WriteHeader(status)
	_, _ = w.WriteString(body)
	return w.Result()
}

// silent fails if an error contains the key or a document.
func silent(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range append(texts, testKey) {
		if strings.Contains(err.Error(), text) {
			t.Errorf("the error repeats %q: %v", text, err)
		}
	}
}
