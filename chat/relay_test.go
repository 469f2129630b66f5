package chat_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
)

// streaming asks for a stream, and gives the answer when it has begun.
func (g *gate) streaming(t *testing.T, w wire) *http.Response {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+w.path, strings.NewReader(w.request(true)))
	resp, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// A provider that is gone in the middle of a reply: what came is with the client, and the end is no
// clean one, in every shape, streamed or not. Nothing is asked again.
func TestCutReplyIsBroken(t *testing.T) {
	for name, w := range wires {
		for kind, serve := range map[string]http.HandlerFunc{
			"stream": func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(rw, w.events[0])
				_ = http.NewResponseController(rw).Flush()
				panic(http.ErrAbortHandler)
			},
			"length": func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Length", "100000")
				_, _ = io.WriteString(rw, w.whole)
				_ = http.NewResponseController(rw).Flush()
				panic(http.ErrAbortHandler)
			},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				f := newFar(t, serve)
				g := open(t, []chat.Provider{provider("p", w.kind, f.URL)})
				resp := g.streaming(t, w)
				body, err := readAll(resp.Body)
				if err == nil {
					t.Errorf("a clean end after %q", body)
				}
				if kind == "stream" && body != w.events[0] {
					t.Errorf("got %q, want %q", body, w.events[0])
				}
				if len(f.calls()) != 1 {
					t.Errorf("asked %d times", len(f.calls()))
				}
				g.has(t, `ctxgate_llm_requests_total{provider="p",result="cut"} 1`, "ctxgate_llm_requests_in_flight 0")
			})
		}
	}
}

// A provider that falls silent in the middle of a reply is waited for no longer than timeout_idle.
func TestSilenceEndsAStream(t *testing.T) {
	w := wires["messages"]
	f := newFar(t, streams(w.events, make(chan struct{})))
	g := open(t, []chat.Provider{provider("p", w.kind, f.URL, func(p *chat.Provider) { p.Idle = seconds(100 * time.Millisecond) })})
	if body, err := readAll(g.streaming(t, w).Body); err == nil || body != w.events[0] {
		t.Errorf("got %q, %v", body, err)
	}
	g.has(t, `ctxgate_llm_requests_total{provider="p",result="timeout"} 1`)
}

// A stream may go on for longer than any limit, as long as it is not silent.
func TestALongStreamIsNotSilent(t *testing.T) {
	w := wires["completions"]
	f := newFar(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for range 10 {
			_, _ = io.WriteString(rw, w.events[0])
			_ = http.NewResponseController(rw).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	})
	short := seconds(250 * time.Millisecond)
	g := open(t, []chat.Provider{provider("p", w.kind, f.URL, func(p *chat.Provider) { p.Idle, p.FirstByte = short, short })},
		func(s *chat.Settings, _ *chat.Deps) { s.HTTP.BodyTimeout = short })
	if body, err := readAll(g.streaming(t, w).Body); err != nil || body != strings.Repeat(w.events[0], 10) {
		t.Errorf("got %q, %v", body, err)
	}
}

// The same over HTTP/2, where a deadline that has passed would end the stream by itself.
func TestASlowStreamOverHTTP2(t *testing.T) {
	w := wires["messages"]
	f := newFar(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for _, e := range w.events {
			_, _ = io.WriteString(rw, e)
			_ = http.NewResponseController(rw).Flush()
			time.Sleep(150 * time.Millisecond)
		}
	})
	g := open(t, []chat.Provider{provider("p", w.kind, f.URL)}, func(s *chat.Settings, _ *chat.Deps) { s.HTTP.BodyTimeout = seconds(50 * time.Millisecond) })
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	srv := httptest.NewUnstartedServer(&g.main)
	srv.Config.Protocols = &protocols
	srv.Start()
	defer srv.Close()
	transport := &http.Transport{Protocols: &protocols}
	defer transport.CloseIdleConnections()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+w.path, strings.NewReader(w.request(true)))
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := readAll(resp.Body); err != nil || resp.ProtoMajor != 2 || body != strings.Join(w.events, "") {
		t.Errorf("got %s %q, %v", resp.Proto, body, err)
	}
}

// A client that leaves ends the far call, whether the reply has begun or not.
func TestLeavingEndsTheFarCall(t *testing.T) {
	for _, begun := range []bool{false, true} {
		ended := make(chan struct{})
		w := wires["responses"]
		asked := make(chan struct{}, 1)
		f := newFar(t, func(rw http.ResponseWriter, r *http.Request) {
			asked <- struct{}{}
			if begun {
				rw.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(rw, w.events[0])
				_ = http.NewResponseController(rw).Flush()
			}
			<-r.Context().Done()
			close(ended)
		})
		g := open(t, []chat.Provider{provider("p", w.kind, f.URL)})
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+w.path, strings.NewReader(w.request(true)))
			if resp, err := g.Client().Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		<-asked
		time.Sleep(20 * time.Millisecond)
		leave()
		<-gone
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Fatalf("begun=%v: the far call goes on", begun)
		}
		g.has(t, `ctxgate_llm_requests_total{provider="p",result="canceled"} 1`, "ctxgate_llm_requests_in_flight 0")
	}
}

// A client that does not read slows its provider down, and is given up after body_timeout. What
// was sent until then is bounded by what the connections buffer.
func TestSlowClientIsBounded(t *testing.T) {
	sent, ended := make(chan int, 1), make(chan struct{})
	f := newFar(t, func(rw http.ResponseWriter, r *http.Request) {
		defer close(ended)
		rw.Header().Set("Content-Type", "text/event-stream")
		event := "data: " + strings.Repeat("x", 64<<10) + "\n\n"
		n := 0
		defer func() { sent <- n }()
		for r.Context().Err() == nil {
			m, err := io.WriteString(rw, event)
			if n += m; err != nil {
				return
			}
		}
	})
	g := open(t, []chat.Provider{provider("p", "openai", f.URL)}, func(s *chat.Settings, _ *chat.Deps) { s.HTTP.BodyTimeout = seconds(300 * time.Millisecond) })
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the provider is still sending")
	}
	if n := <-sent; n > 64<<20 {
		t.Errorf("%d bytes were taken for a client that reads none", n)
	}
	g.has(t, "ctxgate_llm_requests_in_flight 0", `ctxgate_llm_requests_total{provider="p",result="canceled"} 1`)
}

// A reload changes who is asked from now on; a stream that has begun goes on to its end.
func TestReloadDoesNotCutStreams(t *testing.T) {
	w := wires["completions"]
	taken := make(chan struct{})
	one, two := newFar(t, streams(w.events, taken)), newFar(t, says(200, w.whole))
	g := open(t, []chat.Provider{provider("p", w.kind, one.URL)})
	resp := g.streaming(t, w)
	g.reload(provider("p", w.kind, two.URL))
	if _, body := g.post(t, w.path, w.request(false), nil); body != w.whole {
		t.Errorf("after the reload: %q", body)
	}
	for range len(w.events) - 1 {
		taken <- struct{}{}
	}
	if body, err := readAll(resp.Body); err != nil || body != strings.Join(w.events, "") {
		t.Errorf("the stream: %q, %v", body, err)
	}
	g.reload()
	if resp, _ := g.post(t, w.path, w.request(false), nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("without providers: %d", resp.StatusCode)
	}
}

// An empty reply, and one without a body at all, are replies.
func TestEmptyReplies(t *testing.T) {
	for _, status := range []int{200, 204} {
		f := newFar(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		g := open(t, []chat.Provider{provider("p", "openai", f.URL)})
		if resp, body := g.post(t, "/v1/responses", "{}", nil); resp.StatusCode != status || body != "" {
			t.Errorf("got %d %q", resp.StatusCode, body)
		}
	}
}
