package chat_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// failures maps each row of the failure table in docs/llm-proxy.md, by the start of its first column, to its
// test.
var failures = map[string]func(*testing.T){
	"the provider cannot be reached":      testProviderFails,
	"the connection ends after the":       testProviderDoesNotAnswer,
	"a reply breaks off":                  testReplyBreaksOff,
	"the client disconnects":              testClientLeaves,
	"the client or the provider":          testDisconnectAfterTheLastEvent,
	"the client is slow":                  testClientIsSlow,
	"no first byte within":                testProviderIsSilent,
	"masking panics, or a request cannot": testMaskingPanics,
	"originals cannot be stored":          testOriginalsCannotBeStored,
}

// Each row of the failure table in docs/llm-proxy.md holds and leaks no goroutine.
func TestFailureTable(t *testing.T) {
	text, err := os.ReadFile("../docs/llm-proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## When something fails\n")
	table, _, _ = strings.Cut(table, "\n## ")
	tested := 0
	for line := range strings.Lines(table) {
		row, ok := strings.CutPrefix(line, "| ")
		if !ok || strings.HasPrefix(row, "| ") {
			continue
		}
		found := false
		for start, test := range failures {
			if strings.HasPrefix(row, start) {
				found, tested = true, tested+1
				t.Run(start, func(t *testing.T) { runWithoutLeaks(t, test) })
			}
		}
		if !found {
			t.Errorf("no test for the row %q", row)
		}
	}
	if tested != len(failures) {
		t.Errorf("%d rows of %d were found in the table", tested, len(failures))
	}
}

// runWithoutLeaks runs a test and then checks that no goroutine is left.
func runWithoutLeaks(t *testing.T, run func(*testing.T)) {
	t.Helper()
	old := goleak.IgnoreCurrent()
	t.Run("case", run)
	if err := goleak.Find(old); err != nil {
		t.Error(err)
	}
}

// forEachWire runs a test for each wire format, in parallel: they mostly wait.
func forEachWire(t *testing.T, run func(t *testing.T, w wire)) {
	t.Helper()
	for name, w := range wires {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, w)
		})
	}
}

// newMaskingGateway returns a gateway that masks the results of all turns but the last two.
func newMaskingGateway(t *testing.T, providers ...chat.Provider) *gateway {
	t.Helper()
	return newGateway(t, providers, withMasking(newRecall(t, nil), twoTurnWindow))
}

// isMasked reports whether a body is a conversation of five turns with its three old results masked.
func isMasked(body []byte) bool { return len(placeholder.FindAll(body, -1)) == 3 }

// A provider that hung up after the whole request is not called again; its fallback is.
func testProviderDoesNotAnswer(t *testing.T) {
	forEachWire(t, func(t *testing.T, w wire) {
		one, two := newStubProvider(t, hangUp), newStubProvider(t, respond(http.StatusOK, w.reply))
		resp, body := newMaskingGateway(t, providerConfig("one", w.kind, one.URL)).post(t, w.path, requestBodies[w.path](5), nil)
		if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "may have been executed") || len(one.requests()) != 1 {
			t.Errorf("got %d %s after %d calls", resp.StatusCode, body, len(one.requests()))
		}
		g := newMaskingGateway(t, providerConfig("one", w.kind, one.URL, func(p *chat.Provider) { p.Fallback = []string{"two"} }), providerConfig("two", w.kind, two.URL))
		if resp, body := g.post(t, w.path, requestBodies[w.path](5), nil); resp.StatusCode != http.StatusOK || body != w.reply {
			t.Errorf("got %d %s", resp.StatusCode, body)
		}
		if a, b := one.requests(), two.requests(); len(a) != 2 || len(b) != 1 || !isMasked(b[0].body) {
			t.Errorf("%d and %d calls", len(a), len(b))
		}
	})
}

// After 429 and 5xx, retries and fallbacks get the same masked bytes; the client gets the last answer.
func testProviderFails(t *testing.T) {
	t.Run("error status", func(t *testing.T) {
		forEachWire(t, func(t *testing.T, w wire) {
			for _, status := range []int{429, 500, 502, 503, 504, 529} {
				t.Run(fmt.Sprint(status), func(t *testing.T) {
					t.Parallel()
					testStatus(t, w, status)
				})
			}
		})
	})
	t.Run("unreachable", func(t *testing.T) {
		forEachWire(t, func(t *testing.T, w wire) {
			unreachable := providerConfig("one", w.kind, unreachableURL(t), func(p *chat.Provider) { p.Retries = 0 })
			resp, body := newMaskingGateway(t, unreachable).post(t, w.path, requestBodies[w.path](5), nil)
			if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, `"message":"the provider is not available"`) {
				t.Errorf("got %d %s", resp.StatusCode, body)
			}
		})
	})
}

func testStatus(t *testing.T, w wire, status int) {
	failure := fmt.Sprintf(`{"error":%d}`, status)
	one, two := newStubProvider(t, respond(status, failure)), newStubProvider(t, respond(http.StatusOK, w.reply))
	first := providerConfig("one", w.kind, one.URL, func(p *chat.Provider) { p.Retries = 1 })
	second := providerConfig("two", w.kind, two.URL, func(p *chat.Provider) { p.Models = []string{"other"} })
	g := newMaskingGateway(t, first, second)
	if resp, body := g.post(t, w.path, requestBodies[w.path](5), nil); resp.StatusCode != status || body != failure || len(two.requests()) > 0 {
		t.Errorf("without a fallback: %d %s", resp.StatusCode, body)
	}
	first.Retries, first.Fallback = 0, []string{"two"}
	g.reload(first, second)
	if resp, body := g.post(t, w.path, requestBodies[w.path](5), nil); resp.StatusCode != http.StatusOK || body != w.reply {
		t.Errorf("with a fallback: %d %s", resp.StatusCode, body)
	}
	if len(one.requests()) != 3 || len(two.requests()) != 1 {
		t.Errorf("called %d and %d times", len(one.requests()), len(two.requests()))
	}
	for _, call := range append(one.requests(), two.requests()...) {
		if !isMasked(call.body) || string(call.body) != string(one.requests()[0].body) {
			t.Errorf("called with %s", call.body)
		}
	}
}

// streamRequest returns a valid request for a stream.
func streamRequest(w wire) string {
	switch w.path {
	case "/v1/responses":
		return `{"model":"m","input":"hi","stream":true}`
	case geminiPath:
		return `{"contents":[{"parts":[{"text":"hi"}]}]}`
	}
	return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"stream":true}`
}

// If the provider is killed in mid-stream, the client gets what came and an end that no reader takes for a
// clean one. Nothing is retried, and no fallback is called.
func testReplyBreaksOff(t *testing.T) {
	forEachWire(t, func(t *testing.T, w wire) {
		reply := strings.Repeat("and so on, ", 400)
		p, fallback := fakeprovider.New(t, fakeprovider.Options{}), newStubProvider(t, respond(http.StatusOK, "{}"))
		p.Script(fakeprovider.Step{Text: reply, EventDelay: 2 * time.Millisecond})
		g := newGateway(t, []chat.Provider{
			providerConfig("p", w.kind, p.URL, func(p *chat.Provider) { p.Fallback = []string{"fallback"} }),
			providerConfig("fallback", w.kind, fallback.URL),
		})
		resp := g.do(t, http.MethodPost, w.path, streamRequest(w), http.Header{"Authorization": {"Bearer k"}, "Anthropic-Version": {"2023-06-01"}})
		defer resp.Body.Close()
		begun := make([]byte, 1500)
		if _, err := io.ReadFull(resp.Body, begun); err != nil {
			t.Fatalf("%v: %s", err, begun)
		}
		go p.Close()
		rest, err := io.ReadAll(resp.Body)
		if err == nil {
			t.Errorf("the reply ended cleanly after %s", rest)
		}
		if got := string(begun) + string(rest); resp.StatusCode != http.StatusOK || !strings.Contains(got, "and so on") || strings.Contains(got, "[DONE]") {
			t.Errorf("got %d %s", resp.StatusCode, got)
		}
		if len(p.Requests()) != 1 || len(fallback.requests()) != 0 {
			t.Errorf("called %d times, and the fallback %d times", len(p.Requests()), len(fallback.requests()))
		}
		g.wantMetrics(t, `ctxgate_llm_requests_total{provider="p",result="cut"} 1`, "ctxgate_llm_requests_in_flight 0")
	})
}

// If the client disconnects during its request, before the reply, in a retry pause or during the reply, the
// provider call is canceled or never made.
func testClientLeaves(t *testing.T) {
	t.Run("before the reply and during it", TestDisconnectCancelsTheProviderCall)
	t.Run("during a retry pause", TestDisconnectDuringRetryPause)
	t.Run("during its request", func(t *testing.T) {
		f := newStubProvider(t, respond(http.StatusOK, "{}"))
		g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)})
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{\"model\":")
		g.wantMetrics(t, "ctxgate_llm_requests_in_flight 1")
		_ = conn.Close()
		g.wantMetrics(t, "ctxgate_llm_requests_in_flight 0")
		if len(f.requests()) != 0 {
			t.Errorf("the provider was called with %s", f.requests()[0].body)
		}
	})
}

// A client that stops reading stops its provider once the connections' buffers are full. When it reads on,
// nothing is missing; when it does not, it is disconnected.
func testClientIsSlow(t *testing.T) {
	t.Run("forever", TestSlowClientIsBounded)
	t.Run("for a while", func(t *testing.T) {
		const size, count = 64 << 10, 400 // 25 MB, more than the connections buffer
		event := "data: " + strings.Repeat("x", size-8) + "\n\n"
		var sent atomic.Int64
		f := newStubProvider(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			for range count {
				if _, err := io.WriteString(rw, event); err != nil {
					return
				}
				sent.Add(size)
			}
		})
		g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)})
		shrinkClientBuffer(g)
		resp := g.startStream(t, wires["completions"])
		waitUntilStalled(t, &sent)
		if n := sent.Load(); n >= size*count {
			t.Errorf("the provider sent all %d bytes for a client that reads none", n)
		}
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != size*count {
			t.Errorf("got %d of %d bytes, %v", n, size*count, err)
		}
	})
}

// shrinkClientBuffer gives the client's connections a small read buffer.
func shrinkClientBuffer(g *gateway) {
	transport, _ := g.Client().Transport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(64 << 10)
		}
		return conn, err
	}
}

// waitUntilStalled waits until the counter stops growing.
func waitUntilStalled(t *testing.T, n *atomic.Int64) {
	t.Helper()
	last := int64(-1)
	for range 100 {
		if now := n.Load(); now > 0 && now == last {
			return
		}
		last = n.Load()
		time.Sleep(150 * time.Millisecond)
	}
	t.Fatal("the counter keeps growing")
}

// A silent provider: before the first byte the fallback is called, or the client gets a timeout error; after it
// the reply is cut.
func testProviderIsSilent(t *testing.T) {
	shortTimeouts := func(p *chat.Provider) {
		p.FirstByteTimeout, p.IdleTimeout = unitDuration(80*time.Millisecond), unitDuration(80*time.Millisecond)
	}
	forEachWire(t, func(t *testing.T, w wire) {
		silent, fallback := newStubProvider(t, neverRespond), newStubProvider(t, respond(http.StatusOK, w.reply))
		first := providerConfig("p", w.kind, silent.URL, shortTimeouts)
		second := providerConfig("fallback", w.kind, fallback.URL)
		g := newGateway(t, []chat.Provider{first, second})
		resp, body := g.post(t, w.path, w.request(true), nil)
		if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(body, "did not answer in time") || len(silent.requests()) != 1 {
			t.Errorf("got %d %s after %d calls", resp.StatusCode, body, len(silent.requests()))
		}
		first.Fallback = []string{"fallback"}
		g.reload(first, second)
		if resp, body := g.post(t, w.path, w.request(true), nil); resp.StatusCode != http.StatusOK || body != w.reply {
			t.Errorf("with a fallback: %d %s", resp.StatusCode, body)
		}
		stalls := newStubProvider(t, streamEvents(w.events, make(chan struct{})))
		first.BaseURL = secret.URL(stalls.URL)
		g.reload(first, second)
		if body, err := readAll(g.startStream(t, w).Body); err == nil || body != w.events[0] {
			t.Errorf("in mid-stream: %q, %v", body, err)
		}
		if len(stalls.requests()) != 1 || len(fallback.requests()) != 1 {
			t.Errorf("called %d times, and the fallback %d times", len(stalls.requests()), len(fallback.requests()))
		}
		g.wantMetrics(t, `ctxgate_llm_requests_total{provider="p",result="timeout"} 2`)
	})
}

// R23: if the masker panics or cannot read a request, the request is sent unchanged, and the next one is masked
// again.
func testMaskingPanics(t *testing.T) {
	forEachWire(t, func(t *testing.T, w wire) {
		f := newStubProvider(t, respond(http.StatusOK, w.reply))
		var panics atomic.Bool
		g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL)}, withMasking(newRecall(t, nil), twoTurnWindow), func(_ *chat.Settings, d *chat.Deps) {
			mask := d.Shrink
			d.Shrink = func(ctx context.Context, o masking.Request) masking.Result {
				out := mask(ctx, o)
				if panics.Load() {
					panic("the masker panics")
				}
				return out
			}
		})
		sent := requestBodies[w.path](5)
		for n, panicking := range []bool{false, true, false} {
			panics.Store(panicking)
			resp, body := g.post(t, w.path, sent, nil)
			got := f.requests()[n].body
			if resp.StatusCode != http.StatusOK || body != w.reply || panicking && string(got) != sent || !panicking && !isMasked(got) {
				t.Errorf("panics=%v: %d %s for %s", panicking, resp.StatusCode, body, got)
			}
		}
		deep := strings.TrimSuffix(sent, "}") + `,"metadata":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "}"
		if g.post(t, w.path, deep, nil); string(f.requests()[3].body) != deep {
			t.Errorf("a deeply nested request was sent as %s", f.requests()[3].body)
		}
	})
}
