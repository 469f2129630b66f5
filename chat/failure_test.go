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
	"github.com/ctxgate/ctxgate/internal/llmtest"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// failures are the rows of the table of failures in docs/chat.md, by words of their first column,
// and what proves each. A test for one of them says its words.
var failures = map[string]func(*testing.T){
	"the provider cannot be reached":      testProviderFails,
	"the connection ends after the":       testProviderDoesNotAnswer,
	"a reply breaks off":                  testReplyBreaksOff,
	"the client leaves":                   testClientLeaves,
	"the client is slow":                  testClientIsSlow,
	"no first byte within":                testProviderIsSilent,
	"masking panics, or a request cannot": testMaskingPanics,
	"originals cannot be kept":            testOriginalsCannotBeKept,
}

// Each row of the table in docs/chat.md ends as it says, and leaves nothing behind.
func TestFailureTable(t *testing.T) {
	text, err := os.ReadFile("../docs/chat.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## When something fails\n")
	table, _, _ = strings.Cut(table, "\n## ")
	proven := 0
	for line := range strings.Lines(table) {
		row, ok := strings.CutPrefix(line, "| ")
		if !ok || strings.HasPrefix(row, "| ") {
			continue
		}
		found := false
		for words, prove := range failures {
			if strings.HasPrefix(row, words) {
				found, proven = true, proven+1
				t.Run(words, func(t *testing.T) { cleanly(t, prove) })
			}
		}
		if !found {
			t.Errorf("no test for the row %q", row)
		}
	}
	if proven != len(failures) {
		t.Errorf("%d rows of %d were found in the table", proven, len(failures))
	}
}

// cleanly runs a test, and then looks whether anything goes on.
func cleanly(t *testing.T, run func(*testing.T)) {
	t.Helper()
	old := goleak.IgnoreCurrent()
	t.Run("ends", run)
	if err := goleak.Find(old); err != nil {
		t.Error(err)
	}
}

// inEachShape runs a test in each shape, beside the others: most of what they do is wait.
func inEachShape(t *testing.T, run func(t *testing.T, w wire)) {
	t.Helper()
	for name, w := range wires {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, w)
		})
	}
}

// maskingGate is a gateway that masks the results of all turns but the last two.
func maskingGate(t *testing.T, providers ...chat.Provider) *gate {
	t.Helper()
	return open(t, providers, masking(keeper(t, nil), rolling))
}

// isMasked says whether a body is a conversation of five turns with its old results masked.
func isMasked(body []byte) bool { return len(placeholder.FindAll(body, -1)) == 3 }

// A provider that had the request and hung up is not asked again; its fallback is.
func testProviderDoesNotAnswer(t *testing.T) {
	inEachShape(t, func(t *testing.T, w wire) {
		one, two := newFar(t, hangsUp), newFar(t, says(http.StatusOK, w.whole))
		resp, body := maskingGate(t, provider("one", w.kind, one.URL)).post(t, w.path, talks[w.path](5), nil)
		if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "may have been executed") || len(one.calls()) != 1 {
			t.Errorf("got %d %s after %d calls", resp.StatusCode, body, len(one.calls()))
		}
		g := maskingGate(t, provider("one", w.kind, one.URL, func(p *chat.Provider) { p.Fallback = []string{"two"} }), provider("two", w.kind, two.URL))
		if resp, body := g.post(t, w.path, talks[w.path](5), nil); resp.StatusCode != http.StatusOK || body != w.whole {
			t.Errorf("got %d %s", resp.StatusCode, body)
		}
		if a, b := one.calls(), two.calls(); len(a) != 2 || len(b) != 1 || !isMasked(b[0].body) {
			t.Errorf("%d and %d calls", len(a), len(b))
		}
	})
}

// 429 and 5xx, with and without a fallback: what is asked again, and elsewhere, is the request as it
// was masked; the last answer is the client's.
func testProviderFails(t *testing.T) {
	t.Run("answers", func(t *testing.T) {
		inEachShape(t, func(t *testing.T, w wire) {
			for _, status := range []int{429, 500, 502, 503, 504, 529} {
				t.Run(fmt.Sprint(status), func(t *testing.T) {
					t.Parallel()
					testStatus(t, w, status)
				})
			}
		})
	})
	t.Run("nobody there", func(t *testing.T) {
		inEachShape(t, func(t *testing.T, w wire) {
			gone := provider("one", w.kind, nowhere(t), func(p *chat.Provider) { p.Retries = 0 })
			resp, body := maskingGate(t, gone).post(t, w.path, talks[w.path](5), nil)
			if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, `"message":"the provider is not available"`) {
				t.Errorf("got %d %s", resp.StatusCode, body)
			}
		})
	})
}

func testStatus(t *testing.T, w wire, status int) {
	said := fmt.Sprintf(`{"error":%d}`, status)
	one, two := newFar(t, says(status, said)), newFar(t, says(http.StatusOK, w.whole))
	first := provider("one", w.kind, one.URL, func(p *chat.Provider) { p.Retries = 1 })
	second := provider("two", w.kind, two.URL, func(p *chat.Provider) { p.Models = []string{"other"} })
	g := maskingGate(t, first, second)
	if resp, body := g.post(t, w.path, talks[w.path](5), nil); resp.StatusCode != status || body != said || len(two.calls()) > 0 {
		t.Errorf("without a fallback: %d %s", resp.StatusCode, body)
	}
	first.Retries, first.Fallback = 0, []string{"two"}
	g.reload(first, second)
	if resp, body := g.post(t, w.path, talks[w.path](5), nil); resp.StatusCode != http.StatusOK || body != w.whole {
		t.Errorf("with a fallback: %d %s", resp.StatusCode, body)
	}
	if len(one.calls()) != 3 || len(two.calls()) != 1 {
		t.Errorf("asked %d and %d times", len(one.calls()), len(two.calls()))
	}
	for _, call := range append(one.calls(), two.calls()...) {
		if !isMasked(call.body) || string(call.body) != string(one.calls()[0].body) {
			t.Errorf("asked with %s", call.body)
		}
	}
}

// question is a valid request for a stream.
func question(w wire) string {
	if w.path == "/v1/responses" {
		return `{"model":"m","input":"hi","stream":true}`
	}
	return `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],"stream":true}`
}

// A provider is killed in mid-stream. The client has what came, in order, and an end that no reader
// takes for a good one; nobody is asked again, not even a fallback.
func testReplyBreaksOff(t *testing.T) {
	inEachShape(t, func(t *testing.T, w wire) {
		said := strings.Repeat("and so on, ", 400)
		p, spare := llmtest.New(t, llmtest.Options{}), newFar(t, says(http.StatusOK, "{}"))
		p.Script(llmtest.Step{Text: said, Pace: 2 * time.Millisecond})
		g := open(t, []chat.Provider{
			provider("p", w.kind, p.URL, func(p *chat.Provider) { p.Fallback = []string{"spare"} }),
			provider("spare", w.kind, spare.URL),
		})
		resp := g.do(t, http.MethodPost, w.path, question(w), http.Header{"Authorization": {"Bearer k"}, "Anthropic-Version": {"2023-06-01"}})
		defer resp.Body.Close()
		begun := make([]byte, 1500)
		if _, err := io.ReadFull(resp.Body, begun); err != nil {
			t.Fatalf("%v: %s", err, begun)
		}
		go p.Close()
		rest, err := io.ReadAll(resp.Body)
		if err == nil {
			t.Errorf("a clean end after %s", rest)
		}
		if got := string(begun) + string(rest); resp.StatusCode != http.StatusOK || !strings.Contains(got, "and so on") || strings.Contains(got, "[DONE]") {
			t.Errorf("got %d %s", resp.StatusCode, got)
		}
		if len(p.Requests()) != 1 || len(spare.calls()) != 0 {
			t.Errorf("asked %d times, and a fallback %d times", len(p.Requests()), len(spare.calls()))
		}
		g.has(t, `ctxgate_llm_requests_total{provider="p",result="cut"} 1`, "ctxgate_llm_requests_in_flight 0")
	})
}

// A client that is gone before its request is whole, before the reply, in a pause between tries, or
// during the reply: the far call ends, or never was.
func testClientLeaves(t *testing.T) {
	t.Run("before the reply and during it", TestLeavingEndsTheFarCall)
	t.Run("in a pause", TestLeavingDuringAPause)
	t.Run("in its own request", func(t *testing.T) {
		f := newFar(t, says(http.StatusOK, "{}"))
		g := open(t, []chat.Provider{provider("p", "openai", f.URL)})
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{\"model\":")
		g.has(t, "ctxgate_llm_requests_in_flight 1")
		_ = conn.Close()
		g.has(t, "ctxgate_llm_requests_in_flight 0")
		if len(f.calls()) != 0 {
			t.Errorf("asked with %s", f.calls()[0].body)
		}
	})
}

// A client that stops reading stops its provider: what is sent until then fits into the buffers of
// the connections. When it reads on, nothing is missing; when it does not, it is given up.
func testClientIsSlow(t *testing.T) {
	t.Run("for ever", TestSlowClientIsBounded)
	t.Run("for a while", func(t *testing.T) {
		const size, many = 64 << 10, 400 // 25 MB, more than what the connections buffer
		event := "data: " + strings.Repeat("x", size-8) + "\n\n"
		var sent atomic.Int64
		f := newFar(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			for range many {
				if _, err := io.WriteString(rw, event); err != nil {
					return
				}
				sent.Add(size)
			}
		})
		g := open(t, []chat.Provider{provider("p", "openai", f.URL)})
		narrow(g)
		resp := g.streaming(t, wires["completions"])
		stalled(t, &sent)
		if n := sent.Load(); n >= size*many {
			t.Errorf("all %d bytes were taken for a client that reads none", n)
		}
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != size*many {
			t.Errorf("got %d of %d bytes, %v", n, size*many, err)
		}
	})
}

// narrow makes the client's side of its connections buffer little.
func narrow(g *gate) {
	transport, _ := g.Client().Transport.(*http.Transport)
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetReadBuffer(64 << 10)
		}
		return conn, err
	}
}

// stalled waits until a number grows no more.
func stalled(t *testing.T, n *atomic.Int64) {
	t.Helper()
	last := int64(-1)
	for range 100 {
		if now := n.Load(); now > 0 && now == last {
			return
		}
		last = n.Load()
		time.Sleep(150 * time.Millisecond)
	}
	t.Fatal("it goes on and on")
}

// A provider that says nothing: before the first byte a fallback is asked, else the client is told;
// after it the reply is broken off.
func testProviderIsSilent(t *testing.T) {
	soon := func(p *chat.Provider) {
		p.FirstByte, p.Idle = seconds(80*time.Millisecond), seconds(80*time.Millisecond)
	}
	inEachShape(t, func(t *testing.T, w wire) {
		silent, spare := newFar(t, waits), newFar(t, says(http.StatusOK, w.whole))
		first := provider("p", w.kind, silent.URL, soon)
		second := provider("spare", w.kind, spare.URL)
		g := open(t, []chat.Provider{first, second})
		resp, body := g.post(t, w.path, w.request(true), nil)
		if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(body, "did not answer in time") || len(silent.calls()) != 1 {
			t.Errorf("got %d %s after %d calls", resp.StatusCode, body, len(silent.calls()))
		}
		first.Fallback = []string{"spare"}
		g.reload(first, second)
		if resp, body := g.post(t, w.path, w.request(true), nil); resp.StatusCode != http.StatusOK || body != w.whole {
			t.Errorf("with a fallback: %d %s", resp.StatusCode, body)
		}
		falls := newFar(t, streams(w.events, make(chan struct{})))
		first.BaseURL = secret.URL(falls.URL)
		g.reload(first, second)
		if body, err := readAll(g.streaming(t, w).Body); err == nil || body != w.events[0] {
			t.Errorf("in mid-stream: %q, %v", body, err)
		}
		if len(falls.calls()) != 1 || len(spare.calls()) != 1 {
			t.Errorf("asked %d times, and the fallback %d times", len(falls.calls()), len(spare.calls()))
		}
		g.has(t, `ctxgate_llm_requests_total{provider="p",result="timeout"} 2`)
	})
}

// R23: a masker that panics after all its work, and requests that it cannot read: the request goes
// as it came, and the next is masked again.
func testMaskingPanics(t *testing.T) {
	inEachShape(t, func(t *testing.T, w wire) {
		f := newFar(t, says(http.StatusOK, w.whole))
		var fails atomic.Bool
		g := open(t, []chat.Provider{provider("p", w.kind, f.URL)}, masking(keeper(t, nil), rolling), func(_ *chat.Settings, d *chat.Deps) {
			mask := d.Shrink
			d.Shrink = func(ctx context.Context, o chat.Outgoing) chat.Shrunk {
				out := mask(ctx, o)
				if fails.Load() {
					panic("the masker's last words")
				}
				return out
			}
		})
		sent := talks[w.path](5)
		for n, failing := range []bool{false, true, false} {
			fails.Store(failing)
			resp, body := g.post(t, w.path, sent, nil)
			got := f.calls()[n].body
			if resp.StatusCode != http.StatusOK || body != w.whole || failing && string(got) != sent || !failing && !isMasked(got) {
				t.Errorf("panics %v: %d %s for %s", failing, resp.StatusCode, body, got)
			}
		}
		deep := strings.TrimSuffix(sent, "}") + `,"metadata":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "}"
		if g.post(t, w.path, deep, nil); string(f.calls()[3].body) != deep {
			t.Errorf("a deep request went as %s", f.calls()[3].body)
		}
	})
}
