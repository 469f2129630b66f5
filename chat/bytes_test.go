package chat_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm/openaichat"
)

// streamEvents answers with events. Unless taken is nil, it waits for taken before each event but the first.
func streamEvents(events []string, taken <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for i, e := range events {
			if i > 0 && taken != nil {
				select {
				case <-taken:
				case <-r.Context().Done():
					return
				}
			}
			_, _ = io.WriteString(w, e)
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// H10: the request is forwarded byte for byte with its path, query and headers, and the reply is relayed byte
// for byte, in all three wire formats, streamed or not.
func TestH10BytesAreTheClients(t *testing.T) {
	for name, w := range wires {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " stream=", stream), func(t *testing.T) {
				answer, want := respond(200, w.reply), w.reply
				if stream {
					answer, want = streamEvents(w.events, nil), strings.Join(w.events, "")
				}
				f := newStubProvider(t, func(rw http.ResponseWriter, r *http.Request) {
					rw.Header().Set("X-Request-Id", "req_theirs")
					rw.Header().Set("X-Ratelimit-Remaining-Tokens", "5")
					rw.Header().Set("Openai-Processing-Ms", "12")
					rw.Header().Set("Anthropic-Organization-Id", "org")
					rw.Header().Set("Set-Cookie", "__cf=1")
					rw.Header().Set("Access-Control-Allow-Origin", "*")
					answer(rw, r)
				})
				g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL)})
				resp, body := g.post(t, w.path+"?beta=true&x=%20y", w.request(stream), http.Header{
					"Content-Type": {"application/json; charset=utf-8"}, "Anthropic-Beta": {"a", "b"}, "User-Agent": {"sdk/1"},
					"X-Stainless-Lang": {"js"}, "Accept-Encoding": {"gzip, br"}, "Connection": {"X-Hop"}, "X-Hop": {"1"}, "Cookie": {"c=1"},
				})
				if resp.StatusCode != http.StatusOK || body != want {
					t.Fatalf("got %d %q, want %q", resp.StatusCode, body, want)
				}
				got := f.requests()[0]
				if diff := cmp.Diff(w.request(stream), string(got.body)); diff != "" {
					t.Error(diff)
				}
				if got.uri != w.path+"?beta=true&x=%20y" {
					t.Errorf("the provider was asked for %s", got.uri)
				}
				wantHeader := http.Header{
					"Content-Type": {"application/json; charset=utf-8"}, "Anthropic-Beta": {"a", "b"}, "User-Agent": {"sdk/1"},
					"X-Stainless-Lang": {"js"}, "Content-Length": {fmt.Sprint(len(got.body))},
				}
				if diff := cmp.Diff(wantHeader, got.header); diff != "" {
					t.Errorf("headers sent to the provider: %s", diff)
				}
				for name, want := range map[string]string{
					"X-Request-Id": "req_theirs", "X-Ratelimit-Remaining-Tokens": "5", "Openai-Processing-Ms": "12",
					"Anthropic-Organization-Id": "org", "Set-Cookie": "", "Access-Control-Allow-Origin": "",
				} {
					if got := resp.Header.Get(name); got != want {
						t.Errorf("%s: got %q, want %q", name, got, want)
					}
				}
				if !stream && resp.ContentLength != int64(len(want)) {
					t.Errorf("length %d, want %d", resp.ContentLength, len(want))
				}
				g.wantMetrics(t, `ctxgate_llm_requests_total{provider="p",result="ok"} 1`)
			})
		}
	}
}

// H10: the client receives each event before the provider sends the next.
func TestH10EventsAreNotHeldBack(t *testing.T) {
	for name, w := range wires {
		t.Run(name, func(t *testing.T) {
			taken := make(chan struct{})
			f := newStubProvider(t, streamEvents(w.events, taken))
			g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL)})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+w.path, strings.NewReader(w.request(true)))
			resp, err := g.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if got := resp.Header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
				t.Errorf("Content-Type %q", got)
			}
			for i, want := range w.events {
				if i > 0 {
					taken <- struct{}{}
				}
				got := make([]byte, len(want))
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
					t.Fatalf("event %d: got %q, %v; want %q", i, got, err, want)
				}
			}
			if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
				t.Errorf("after the last event: %q, %v", rest, err)
			}
		})
	}
}

// H3, H10: bytes that the shrinker does not edit stay the same; a shrinker that fails changes nothing (R23).
func TestH3OnlyTheEditsChange(t *testing.T) {
	w := wires["completions"]
	body := w.request(false)
	at := strings.Index(body, `\u00e9`)
	edit := func(spans ...int) masking.Result {
		var out masking.Result
		for i := 0; i < len(spans); i += 2 {
			out.Edits = append(out.Edits, jsonscan.Edit{Span: jsonscan.Span{Start: spans[i], End: spans[i+1]}, Text: []byte("[masked]")})
		}
		return out
	}
	for name, tt := range map[string]struct {
		shrink chat.Shrinker
		want   string
	}{
		"none":         {func(context.Context, masking.Request) masking.Result { return masking.Result{} }, body},
		"one":          {func(context.Context, masking.Request) masking.Result { return edit(at, at+6) }, body[:at] + "[masked]" + body[at+6:]},
		"panic":        {func(context.Context, masking.Request) masking.Result { panic("boom") }, body},
		"out of range": {func(context.Context, masking.Request) masking.Result { return edit(at, 1<<20) }, body},
		"backwards":    {func(context.Context, masking.Request) masking.Result { return edit(at, at-1) }, body},
		"out of order": {func(context.Context, masking.Request) masking.Result { return edit(at, at+6, 0, 1) }, body},
	} {
		t.Run(name, func(t *testing.T) {
			f := newStubProvider(t, respond(200, w.reply))
			p := providerConfig("p", w.kind, f.URL)
			p.Cache.Read = 0.1
			var seen masking.Request
			g := newGateway(t, []chat.Provider{p}, func(_ *chat.Settings, d *chat.Deps) {
				d.Shrink = func(ctx context.Context, o masking.Request) masking.Result { seen = o; return tt.shrink(ctx, o) }
			})
			if resp, _ := g.post(t, w.path, body, nil); resp.StatusCode != http.StatusOK {
				t.Fatalf("got %d", resp.StatusCode)
			}
			if diff := cmp.Diff(tt.want, string(f.requests()[0].body)); diff != "" {
				t.Error(diff)
			}
			if seen.Codec != (openaichat.Codec{}) || seen.Model != "m-1" || seen.Provider != "p" || seen.CachePrices.Read != 0.1 || seen.Tenant != "default" {
				t.Errorf("the shrinker got %+v", seen)
			}
		})
	}
}

// A count_tokens request is forwarded: it is neither shrunk nor accounted.
func TestCountTokensPassesThrough(t *testing.T) {
	f := newStubProvider(t, respond(200, `{"input_tokens":7,"usage":{"input_tokens":7}}`))
	g := newGateway(t, []chat.Provider{providerConfig("p", "anthropic", f.URL)}, func(_ *chat.Settings, d *chat.Deps) {
		d.Shrink = func(context.Context, masking.Request) masking.Result {
			t.Error("the request was shrunk")
			return masking.Result{}
		}
	})
	body := wires["messages"].request(false)
	if resp, got := g.post(t, "/v1/messages/count_tokens", body, nil); resp.StatusCode != http.StatusOK || !strings.Contains(got, `"input_tokens":7`) {
		t.Errorf("got %d %s", resp.StatusCode, got)
	}
	if got := f.requests()[0]; got.uri != "/v1/messages/count_tokens" || string(got.body) != body {
		t.Errorf("the provider got %s %q", got.uri, got.body)
	}
	if accounted := g.meter.Savings().Total; accounted.Requests != 0 {
		t.Errorf("accounted %+v", accounted)
	}
}

// A compressed reply that the gateway did not ask for is relayed unchanged.
func TestCompressedReplies(t *testing.T) {
	f := newStubProvider(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, "\x1f\x8bnot really")
	})
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/v1/responses", strings.NewReader(`{"model":"x"}`))
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, body := readReply(t, resp); body != "\x1f\x8bnot really" || resp.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("got %q %v", body, resp.Header)
	}
}

// H10: large bodies keep their bytes, with a Content-Length or chunked.
func TestH10LargeBodies(t *testing.T) {
	f := newStubProvider(t, respond(200, "{}"))
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)})
	for _, size := range []int{1<<20 - 20, 1 << 20, 3 << 20, 9 << 20} {
		body := `{"model":"m","input":"` + strings.Repeat("0123456789abcdef", size/16) + `"}`
		for _, r := range []io.Reader{strings.NewReader(body), io.MultiReader(strings.NewReader(body))} {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/v1/responses", r)
			resp, err := g.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			readReply(t, resp)
			if got := f.requests()[len(f.requests())-1]; resp.StatusCode != http.StatusOK || string(got.body) != body {
				t.Errorf("%d bytes: status %d, and the provider got %d bytes", len(body), resp.StatusCode, len(got.body))
			}
		}
	}
}
