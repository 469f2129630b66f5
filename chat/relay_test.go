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

// startStream requests a stream and returns the response once it has begun.
func (g *gateway) startStream(t *testing.T, w wire) *http.Response {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+w.path, strings.NewReader(w.request(true)))
	resp, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// If the provider disconnects during a reply, the client gets what came and a broken end, in every wire format,
// streamed or not. The request is not retried.
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
				_, _ = io.WriteString(rw, w.reply)
				_ = http.NewResponseController(rw).Flush()
				panic(http.ErrAbortHandler)
			},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				f := newStubProvider(t, serve)
				g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL)})
				resp := g.startStream(t, w)
				body, err := readAll(resp.Body)
				if err == nil {
					t.Errorf("the reply ended cleanly after %q", body)
				}
				if kind == "stream" && body != w.events[0] {
					t.Errorf("got %q, want %q", body, w.events[0])
				}
				if len(f.requests()) != 1 {
					t.Errorf("called %d times", len(f.requests()))
				}
				g.wantMetrics(t, `ctxgate_llm_requests_total{provider="p",result="cut"} 1`, "ctxgate_llm_requests_in_flight 0")
			})
		}
	}
}

// A stream ends when the provider sends nothing for timeout_idle.
func TestIdleTimeoutEndsAStream(t *testing.T) {
	w := wires["messages"]
	f := newStubProvider(t, streamEvents(w.events, make(chan struct{})))
	g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL, func(p *chat.Provider) { p.IdleTimeout = unitDuration(100 * time.Millisecond) })})
	if body, err := readAll(g.startStream(t, w).Body); err == nil || body != w.events[0] {
		t.Errorf("got %q, %v", body, err)
	}
	g.wantMetrics(t, `ctxgate_llm_requests_total{provider="p",result="timeout"} 1`)
}

// A stream may last longer than every timeout, as long as data keeps coming.
func TestLongStreamIsNotCut(t *testing.T) {
	w := wires["completions"]
	f := newStubProvider(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for range 10 {
			_, _ = io.WriteString(rw, w.events[0])
			_ = http.NewResponseController(rw).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	})
	short := unitDuration(250 * time.Millisecond)
	g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL, func(p *chat.Provider) { p.IdleTimeout, p.FirstByteTimeout = short, short })},
		func(s *chat.Settings, _ *chat.Deps) { s.HTTP.BodyTimeout = short })
	if body, err := readAll(g.startStream(t, w).Body); err != nil || body != strings.Repeat(w.events[0], 10) {
		t.Errorf("got %q, %v", body, err)
	}
}

// The same over HTTP/2, where an expired deadline would end the stream by itself.
func TestSlowStreamOverHTTP2(t *testing.T) {
	w := wires["messages"]
	f := newStubProvider(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		for _, e := range w.events {
			_, _ = io.WriteString(rw, e)
			_ = http.NewResponseController(rw).Flush()
			time.Sleep(150 * time.Millisecond)
		}
	})
	g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL)}, func(s *chat.Settings, _ *chat.Deps) { s.HTTP.BodyTimeout = unitDuration(50 * time.Millisecond) })
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	srv := httptest.NewUnstartedServer(&g.handler)
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

// A client that disconnects cancels the provider call, whether the reply has begun or not.
func TestDisconnectCancelsTheProviderCall(t *testing.T) {
	for _, begun := range []bool{false, true} {
		ended := make(chan struct{})
		w := wires["responses"]
		called := make(chan struct{}, 1)
		f := newStubProvider(t, func(rw http.ResponseWriter, r *http.Request) {
			called <- struct{}{}
			if begun {
				rw.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(rw, w.events[0])
				_ = http.NewResponseController(rw).Flush()
			}
			<-r.Context().Done()
			close(ended)
		})
		g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL)})
		ctx, disconnect := context.WithCancel(t.Context())
		finished := make(chan struct{})
		go func() {
			defer close(finished)
			req, _ := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+w.path, strings.NewReader(w.request(true)))
			if resp, err := g.Client().Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
		<-called
		time.Sleep(20 * time.Millisecond)
		disconnect()
		<-finished
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			t.Fatalf("begun=%v: the provider call was not canceled", begun)
		}
		g.wantMetrics(t, `ctxgate_llm_requests_total{provider="p",result="canceled"} 1`, "ctxgate_llm_requests_in_flight 0")
	}
}

// A client that does not read slows its provider down and is disconnected after body_timeout. The connections'
// buffers bound what the provider sends until then.
func TestSlowClientIsBounded(t *testing.T) {
	sent, ended := make(chan int, 1), make(chan struct{})
	f := newStubProvider(t, func(rw http.ResponseWriter, r *http.Request) {
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
	g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)}, func(s *chat.Settings, _ *chat.Deps) { s.HTTP.BodyTimeout = unitDuration(300 * time.Millisecond) })
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
		t.Errorf("the provider sent %d bytes for a client that reads none", n)
	}
	g.wantMetrics(t, "ctxgate_llm_requests_in_flight 0", `ctxgate_llm_requests_total{provider="p",result="canceled"} 1`)
}

// A reload changes the providers of new requests; a stream that has begun runs to its end.
func TestReloadDoesNotCutStreams(t *testing.T) {
	w := wires["completions"]
	taken := make(chan struct{})
	one, two := newStubProvider(t, streamEvents(w.events, taken)), newStubProvider(t, respond(200, w.reply))
	g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, one.URL)})
	resp := g.startStream(t, w)
	g.reload(providerConfig("p", w.kind, two.URL))
	if _, body := g.post(t, w.path, w.request(false), nil); body != w.reply {
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

// Empty replies, with and without a body, are relayed.
func TestEmptyReplies(t *testing.T) {
	for _, status := range []int{200, 204} {
		f := newStubProvider(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)})
		if resp, body := g.post(t, "/v1/responses", "{}", nil); resp.StatusCode != status || body != "" {
			t.Errorf("got %d %q", resp.StatusCode, body)
		}
	}
}
