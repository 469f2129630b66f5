package chat_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

func gzipText(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func zstdText(t *testing.T, text string, options ...zstd.EOption) string {
	t.Helper()
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, options...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A gzip or zstd request is routed by its model, masked, and forwarded decoded, without Content-Encoding. Any
// other coding is refused with 415.
func TestContentEncodings(t *testing.T) {
	text := wires["completions"].request(false)
	shrunk := 0
	f := newStubProvider(t, respond(200, "{}"))
	g := newGateway(t, []chat.Provider{
		providerConfig("named", "openai", f.URL, func(p *chat.Provider) { p.Models = []string{"m-*"} }),
		providerConfig("all", "openai", "http://127.0.0.1:1"),
	}, func(_ *chat.Settings, d *chat.Deps) {
		d.Shrink = func(context.Context, masking.Request) masking.Result { shrunk++; return masking.Result{} }
	})
	read := 0
	for _, tt := range []struct {
		coding []string
		body   string
		status int
	}{
		{nil, text, 200},
		{[]string{"identity"}, text, 200},
		{[]string{"gzip"}, gzipText(t, text), 200},
		{[]string{"x-gzip"}, gzipText(t, text), 200},
		{[]string{"GZIP"}, gzipText(t, text), 200},
		{[]string{"identity, gzip"}, gzipText(t, text), 200},
		{[]string{"gzip"}, gzipText(t, text[:20]) + gzipText(t, text[20:]), 200}, // several gzip members are one body
		{[]string{"zstd"}, zstdText(t, text), 200},
		{[]string{"zstd"}, zstdText(t, text, zstd.WithSingleSegment(true)), 200},
		{[]string{"zstd"}, zstdText(t, text[:20]) + zstdText(t, text[20:]), 200},
		{[]string{"br"}, text, 415},
		{[]string{"deflate"}, text, 415},
		{[]string{"compress"}, text, 415},
		{[]string{"*"}, text, 415},
		{[]string{"utf-8"}, text, 415},
		{[]string{"gzip, gzip"}, gzipText(t, gzipText(t, text)), 415},
		{[]string{"gzip", "zstd"}, text, 415},
		{[]string{"gzip"}, text, 400},
		{[]string{"zstd"}, text, 400},
		{[]string{"zstd"}, "", 400},
		{[]string{"gzip"}, "", 400},
		{[]string{"gzip"}, gzipText(t, text)[:30], 400},
		{[]string{"gzip"}, gzipText(t, text) + "more", 400},
		{[]string{"zstd"}, zstdText(t, text)[:30], 400},
		{[]string{"zstd"}, zstdText(t, text) + "more", 400},
		{[]string{"gzip"}, gzipText(t, "{"), 400},
	} {
		head := http.Header{"Content-Type": {"application/json"}}
		if tt.coding != nil {
			head["Content-Encoding"] = tt.coding
		}
		resp, body := g.post(t, "/v1/chat/completions", tt.body, head)
		if resp.StatusCode != tt.status {
			t.Errorf("%v %.20q: got %d %s, want %d", tt.coding, tt.body, resp.StatusCode, body, tt.status)
		}
		if accepted := resp.Header.Get("Accept-Encoding"); (accepted == "gzip, zstd") != (tt.status == 415) {
			t.Errorf("%v: Accept-Encoding %q beside %d", tt.coding, accepted, resp.StatusCode)
		}
		if tt.status != 200 {
			continue
		}
		read++
		calls := f.requests()
		last := calls[len(calls)-1]
		if sent := last.header.Get("Content-Encoding"); string(last.body) != text || sent != "" && sent != "identity" {
			t.Errorf("%v: forwarded %.40q %v", tt.coding, last.body, last.header)
		}
	}
	if n := len(f.requests()); n != read || shrunk != read {
		t.Errorf("%d forwarded and %d shrunk, want %d each", n, shrunk, read)
	}
}

// A decompression bomb is refused at the request limit or the memory budget, before it is buffered.
func TestS9DecompressionBombs(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	const decoded = 96 << 20
	zeros := io.LimitReader(zeroReader{}, decoded)
	var gz, zs bytes.Buffer
	z, err := zstd.NewWriter(&zs, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	g := gzip.NewWriter(&gz)
	if _, err := io.Copy(io.MultiWriter(z, g), zeros); err != nil {
		t.Fatal(err)
	}
	_, _ = z.Close(), g.Close()
	noise := make([]byte, 12<<20)
	_, _ = rand.Read(noise)
	f := newStubProvider(t, respond(200, "{}"))
	for name, tt := range map[string]struct {
		coding, body string
		budget       int64
		status       int
	}{
		"gzip":                      {"gzip", gz.String(), 0, 413},
		"zstd":                      {"zstd", zs.String(), 0, 413},
		"gzip, little memory":       {"gzip", gz.String(), 4 << 20, 503},
		"zstd, little memory":       {"zstd", zs.String(), 4 << 20, 503},
		"a window over eight MiB":   {"zstd", zstdText(t, string(noise), zstd.WithWindowSize(64<<20)), 0, 413},
		"a later window is larger":  {"zstd", zstdText(t, "{}", zstd.WithSingleSegment(true)) + zstdText(t, string(noise), zstd.WithWindowSize(8<<20)), 0, 413},
		"one segment of many bytes": {"zstd", zstdText(t, strings.Repeat(" ", 40<<20), zstd.WithSingleSegment(true)), 0, 413},
	} {
		t.Run(name, func(t *testing.T) {
			bounded := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)}, func(_ *chat.Settings, d *chat.Deps) {
				if tt.budget > 0 {
					d.Budget = membudget.New(tt.budget)
				}
			})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			resp, body := bounded.post(t, "/v1/chat/completions", tt.body, http.Header{"Content-Encoding": {tt.coding}})
			runtime.ReadMemStats(&after)
			if resp.StatusCode != tt.status {
				t.Errorf("got %d %s, want %d", resp.StatusCode, body, tt.status)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 200<<20 {
				t.Errorf("decoding %d bytes to %d MiB allocated %d MiB", len(tt.body), decoded>>20, allocated>>20)
			}
			if len(f.requests()) != 0 {
				t.Error("the request was forwarded")
			}
		})
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// I7: in what masking reads, a duplicate key or a key in the wrong case is refused: the provider might use the
// other one. Everything else is not checked.
func TestNestedDuplicateKeysAreRefused(t *testing.T) {
	f := newStubProvider(t, respond(200, "{}"))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL), providerConfig("a", "anthropic", f.URL)}, withMasking(newRecall(t, nil), oneTurnWindow))
	const chatPath, messagesPath, responsesPath = "/v1/chat/completions", "/v1/messages", "/v1/responses"
	for _, tt := range []struct {
		path, body string
		status     int
	}{
		{chatPath, `{"model":"m","model":"n","messages":[]}`, 400},
		{chatPath, `{"model":"m","messages":[{"role":"tool","tool_call_id":"a","content":"x","content":"y"}]}`, 400},
		{chatPath, `{"model":"m","messages":[{"role":"user","role":"tool","content":"y"}]}`, 400},
		{chatPath, `{"model":"m","messages":[{"role":"user","Content":"y"}]}`, 400},
		{chatPath, `{"model":"m","messages":[{"role":"user","c\u006fntent":"x","content":"y"}]}`, 400},
		{chatPath, `{"model":"m","messages":[{"role":"tool","tool_call_id":"a","tool_call_id":"b","content":"y"}]}`, 400},
		{chatPath, `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a","id":"b"}]}]}`, 400},
		{chatPath, `{"model":"m","messages":[{"role":"assistant","tool_calls":[],"tool_calls":[]}]}`, 400},
		{chatPath, `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","name":"g"}}]}]}`, 400},
		{chatPath, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x","text":"y"}]}]}`, 400},
		{chatPath, `{"model":"m","messages":[{"role":"user","content":"x","cache_control":{"type":"ephemeral","ttl":"5m","ttl":"1h"}}]}`, 400},
		{messagesPath, `{"model":"m","cache_control":{"type":"ephemeral","type":"x"},"messages":[{"role":"user","content":"x"}]}`, 400},
		{messagesPath, `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral","TTL":"1h"}}]}]}`, 400},
		{messagesPath, `{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x","text":"y"}]}]}]}`, 400},
		{messagesPath, `{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":true,"is_error":false,"content":"x"}]}]}`, 400},
		{responsesPath, `{"model":"m","input":[{"type":"function_call_output","call_id":"a","output":"x","output":"y"}]}`, 400},
		{responsesPath, `{"model":"m","input":[{"type":"function_call","call_id":"a","call_id":"b","name":"f"}]}`, 400},

		// No policy reads call arguments, tool schemas, metadata or what is nested in cache_control. Checking each
		// level would take time quadratic in the depth.
		{chatPath, `{"model":"m","messages":[{"role":"user","content":"x","cache_control":{"cache_control":{"ttl":1,"ttl":2}}}]}`, 200},
		{chatPath, `{"model":"m","metadata":{"a":1,"a":2},"messages":[]}`, 200},
		{chatPath, `{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{"a":1,"a":2}}}],"messages":[]}`, 200},
		{messagesPath, `{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{"a":1,"a":2}}]}]}`, 200},
	} {
		resp, body := g.post(t, tt.path, tt.body, nil)
		if resp.StatusCode != tt.status || tt.status == 400 && !strings.Contains(body, "key") {
			t.Errorf("%s: got %d %s", tt.body, resp.StatusCode, body)
		}
	}
	if n := len(f.requests()); n != 4 {
		t.Errorf("%d requests were forwarded, want 4", n)
	}
}
