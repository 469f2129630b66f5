package upstream_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

func httpEntry(f *fakeHTTP) upstream.ServerConfig {
	return upstream.ServerConfig{URL: secret.URL(f.URL + "/mcp")}
}

// A13: a modern server gets one server/discover, and every request has all its metadata.
func TestModernHandshake(t *testing.T) {
	f := newModernServer(t)
	n := connect(t, httpEntry(f), func(_ *upstream.Config, s *upstream.ServerConfig) {
		s.Headers = map[string]secret.Text{"authorization": secret.Parse("Bearer t"), "accept": secret.Parse("text/html")}
	})
	n.mustCall(t, mcp.ToolsCall, `{"name":"b::x","arguments":{}}`, func(c *upstream.Call) {
		c.Changes = []jsonscan.Change{{Key: "name", Value: []byte(`"x"`)}}
	})
	handshake, up := n.SharedConn().Handshake()
	if !up || handshake.Protocol != mcp.Modern || handshake.Version != mcp.V20260728 {
		t.Errorf("got %+v, up %t", handshake, up)
	}
	for _, what := range []string{mcp.ServerDiscover, mcp.ToolsCall} {
		h := f.awaitRequest(t, what, 1)
		for name, want := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer t",
			mcp.HeaderVersion: mcp.V20260728, mcp.HeaderMethod: what, mcp.HeaderSession: "",
		} {
			if got := h.head.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", what, name, got, want)
			}
		}
	}
	if got := f.requests(mcp.ToolsCall)[0].head.Get(mcp.HeaderName); got != "x" {
		t.Errorf("Mcp-Name is %q, want the name that is sent", got)
	}
	if f.requests(mcp.Initialize) != nil || f.requests("GET") != nil {
		t.Error("a server of the modern protocol got initialize")
	}
}

// A13: any answer that is not modern means a legacy server, whose headers are the session and, after initialize, the revision.
func TestLegacyHandshake(t *testing.T) {
	for name, refusal := range map[string]handler{
		"no session":     respondStatus(400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`),
		"no such method": respondAs(200, "error", `{"code":-32601,"message":"Method not found"}`),
		"other versions": respondAs(400, "error", `{"code":-32022,"message":"Unsupported","data":{"supported":["2025-11-25"]}}`),
		"not there":      respondStatus(404, "nothing here"),
		"not allowed":    respondStatus(405, ""),
		"accepted":       respondStatus(202, ""),
		"a page":         respondStatus(200, "<html>"),
		"broken":         respondStatus(500, "oops"),
		"legacy result":  respond(`{"supportedVersions":["2025-11-25"],"capabilities":{}}`),
	} {
		t.Run(name, func(t *testing.T) {
			f := newLegacyServer(t).on(mcp.ServerDiscover, refusal)
			n := connect(t, httpEntry(f), nil)
			n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
			handshake, _ := n.SharedConn().Handshake()
			if handshake.Protocol != mcp.Legacy || handshake.Version != mcp.V20250618 {
				t.Errorf("got %+v", handshake)
			}
			for what, want := range map[string][2]string{
				mcp.Initialize: {"", ""}, mcp.NotifyInitialized: {"2025-06-18", "s1"}, mcp.ToolsCall: {"2025-06-18", "s1"},
			} {
				h := f.awaitRequest(t, what, 1)
				if got := [2]string{h.head.Get(mcp.HeaderVersion), h.head.Get(mcp.HeaderSession)}; got != want {
					t.Errorf("%s: version and session are %q, want %q", what, got, want)
				}
				if got := h.head.Get(mcp.HeaderMethod); got != "" {
					t.Errorf("%s: Mcp-Method is %q in the legacy protocol", what, got)
				}
			}
		})
	}
}

// A13: a server that refuses the modern revision and lists it is a modern one.
func TestRevisionRefusedAndListed(t *testing.T) {
	f := newModernServer(t)
	ready := f.handlers[mcp.ServerDiscover]
	f.on(mcp.ServerDiscover, func(w http.ResponseWriter, h httpRequest) {
		f.on(mcp.ServerDiscover, ready)
		respondAs(400, "error", `{"code":-32022,"message":"Unsupported","data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}`)(w, h)
	})
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	if handshake, _ := n.SharedConn().Handshake(); handshake.Protocol != mcp.Modern || f.requests(mcp.Initialize) != nil || len(f.requests(mcp.ServerDiscover)) != 2 {
		t.Errorf("got %+v after %d server requests", handshake, len(f.requests(mcp.ServerDiscover)))
	}
}

// A13: the protocol of a server is remembered, and found out anew when the handshake is refused.
func TestProtocolIsRemembered(t *testing.T) {
	f := newLegacyServer(t)
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	f.on(mcp.ToolsCall, respondStatus(404, "")).on(mcp.Initialize, func(w http.ResponseWriter, h httpRequest) {
		f.on(mcp.ToolsCall, nil)
		startSession("s2")(w, h)
	})
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	if got := len(f.requests(mcp.ServerDiscover)); got != 1 {
		t.Errorf("%d handshakes, want one", got)
	}
	f.on(mcp.ToolsCall, respondStatus(404, "")).on(mcp.Initialize, respondStatus(410, "not any more")).
		on(mcp.ServerDiscover, respond(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`))
	_, _ = n.call(t, mcp.ToolsCall, `{"name":"x"}`)
	f.on(mcp.ToolsCall, nil)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	if handshake, _ := n.SharedConn().Handshake(); handshake.Protocol != mcp.Modern {
		t.Errorf("got %+v, want the modern protocol", handshake)
	}
}

// A2: a server that was unreachable at server/discover is not taken for a legacy one.
func TestUnreachableServerIsNotTakenForLegacy(t *testing.T) {
	for name, away := range map[string]handler{
		"busy": respondStatus(503, "starting"), "behind a proxy": respondStatus(502, ""), "limited": respondStatus(429, ""),
		"gone": func(http.ResponseWriter, httpRequest) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newModernServer(t)
			ready := f.handlers[mcp.ServerDiscover]
			f.on(mcp.ServerDiscover, func(w http.ResponseWriter, h httpRequest) {
				f.on(mcp.ServerDiscover, ready)
				away(w, h)
			})
			n := connect(t, httpEntry(f), nil)
			n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
			if handshake, _ := n.SharedConn().Handshake(); handshake.Protocol != mcp.Modern || f.requests(mcp.Initialize) != nil {
				t.Errorf("got %+v", handshake)
			}
		})
	}
}

// A13, G4: a result is what the server sent, to the byte, in a body, in an event, or in a batch of 2025-03-26.
func TestResultsAreUnchanged(t *testing.T) {
	const unusual = `{ "content" : [ ] ,"x_unknown":{"n":1.50e+3,"s":"\u00e9\/"}, "_meta":{"vendor/x":[1, 2]} }`
	line := `{"jsonrpc":"2.0","id":%s,"result":` + unusual + `}`
	for name, a := range map[string]handler{
		"body":  respond(unusual),
		"event": respondEvents("data: " + line + "\n\n"),
		"lines": respondEvents("id: 1\nevent: message\ndata: " + strings.Replace(line, `"result"`, "\ndata:"+`"result"`, 1) + "\n\n"),
		"other events before": respondEvents(": hello\n\n", "event: ping\ndata: {}\n\n", "id: 1\ndata:\n\n",
			"data: "+line+"\n\n", "data: this is not read\n\n"),
		"batch": func(w http.ResponseWriter, h httpRequest) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, ` [{"jsonrpc":"2.0","method":"notifications/x"},`+line+`]`, h.ID)
		},
		"400": respondAs(400, "result", unusual),
	} {
		t.Run(name, func(t *testing.T) {
			f := newModernServer(t).on(mcp.ToolsCall, a)
			if got := connect(t, httpEntry(f), nil).mustCall(t, mcp.ToolsCall, `{"name":"x"}`); got != unusual {
				t.Errorf("got  %s\nwant %s", got, unusual)
			}
		})
	}
}

// A5, A13: messages on a call's stream belong to that call, and its server requests are answered by its client while other
// calls wait.
func TestCallStream(t *testing.T) {
	f := newLegacyServer(t)
	answered := make(chan struct{})
	f.on("answer", func(w http.ResponseWriter, _ httpRequest) {
		close(answered)
		w.WriteHeader(http.StatusAccepted)
	})
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h httpRequest) {
		if h.Params.Name == "other" {
			<-answered
			respond(`{"content":[]}`)(w, h)
			return
		}
		respondEvents(`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`+"\n\n",
			`data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hi"}}`+"\n\n",
			`data: {"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"?"}}`+"\n\n")(w, h)
		<-answered
		writeEvent(w, h, finalEvent)
	})
	asker, other := &fakePeer{answer: resultReply(`{"action":"accept"}`)}, &fakePeer{answer: resultReply(`{"action":"wrong"}`)}
	can := mcp.Client{Capabilities: []byte(`{"elicitation":{}}`)}
	n := connectAs(t, httpEntry(f), can, nil)
	with := func(p *fakePeer) func(*upstream.Call) {
		return func(c *upstream.Call) { c.Peer, c.Client, c.WantsProgress = p, can, true }
	}
	n.mustCall(t, mcp.ToolsList, `{}`)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		_, _ = n.call(t, mcp.ToolsCall, `{"name":"other"}`, with(other))
	}()
	f.awaitRequest(t, mcp.ToolsCall, 1)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`, with(asker))
	<-finished
	if got := asker.notifications(); len(got) != 2 || !strings.Contains(got[0], `"progress":1`) || !strings.Contains(got[1], `"hi"`) {
		t.Errorf("the call's client received %q", got)
	}
	if len(asker.asked) != 1 || len(other.asked) != 0 || len(other.notifications()) != 0 {
		t.Errorf("asked %q and %q, the other received %q", asker.asked, other.asked, other.notifications())
	}
	h := f.awaitRequest(t, "answer", 1)
	if want := `{"jsonrpc":"2.0","id":"q1","result":{"action":"accept"}}`; h.body != want || h.head.Get(mcp.HeaderSession) != "s1" {
		t.Errorf("got %s (session %q), want %s", h.body, h.head.Get(mcp.HeaderSession), want)
	}
}

// A13: canceling a modern call closes its stream, and sends nothing.
func TestModernCancellation(t *testing.T) {
	f := newModernServer(t)
	left := make(chan struct{})
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h httpRequest) {
		respondEvents()(w, h)
		<-h.ctx.Done()
		close(left)
	})
	n := connect(t, httpEntry(f), nil)
	callAndCancel(t, f, n, left)
	if got := f.requests(mcp.NotifyCancelled); got != nil {
		t.Errorf("the server was sent %v", got)
	}
}

// A13: canceling a legacy call sends a cancellation.
func TestLegacyCancellation(t *testing.T) {
	f := newLegacyServer(t)
	left := make(chan struct{})
	f.on(mcp.ToolsCall, func(_ http.ResponseWriter, h httpRequest) {
		<-h.ctx.Done()
		close(left)
	})
	n := connect(t, httpEntry(f), nil)
	callAndCancel(t, f, n, left)
	h := f.awaitRequest(t, mcp.NotifyCancelled, 1)
	want := fmt.Sprintf(`"requestId":%s`, f.requests(mcp.ToolsCall)[0].ID)
	if !strings.Contains(h.body, want) || h.head.Get(mcp.HeaderSession) != "s1" {
		t.Errorf("got %s, want %s", h.body, want)
	}
}

// callAndCancel makes a call and cancels it once the server has it; left is closed when the server noticed.
func callAndCancel(t *testing.T, f *fakeHTTP, n *testClient, left chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		_, err := n.SharedConn().Call(ctx, newCall(t, mcp.ToolsCall, `{"name":"x"}`))
		failed <- err
	}()
	f.awaitRequest(t, mcp.ToolsCall, 1)
	began := time.Now()
	cancel()
	if err := <-failed; fault.KindOf(err) != fault.Canceled {
		t.Errorf("got %v", err)
	}
	select {
	case <-left:
	case <-time.After(5 * time.Second):
		t.Fatal("the POST was not stopped")
	}
	if took := time.Since(began); took > 400*time.Millisecond {
		t.Errorf("the POST was stopped after %v", took)
	}
}

// A13: a legacy server sends messages outside calls on a stream of its own.
func TestServerStream(t *testing.T) {
	f := newLegacyServer(t)
	f.on("GET", func(w http.ResponseWriter, h httpRequest) {
		respondEvents("id: g1\nretry: 150\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")(w, h)
		if h.head.Get(mcp.HeaderLastEvent) != "" {
			writeEvent(w, h, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/vendor\"}\n\n"+
				"data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n\n")
			<-h.ctx.Done()
		}
	})
	n := connect(t, httpEntry(f), nil)
	n.ears.awaitNotification(t, mcp.NotifyToolsChanged)
	n.ears.awaitNotification(t, "notifications/vendor")
	if h := f.awaitRequest(t, "answer", 1); h.body != `{"jsonrpc":"2.0","id":7,"result":{}}` {
		t.Errorf("got %s", h.body)
	}
	gets := f.requests("GET")
	if len(gets) != 2 {
		t.Fatalf("the stream was opened %d times, want 2", len(gets))
	}
	for i, want := range []string{"", "g1"} {
		h := gets[i].head
		if got := h.Get(mcp.HeaderLastEvent); got != want || h.Get("Accept") != "text/event-stream" || h.Get(mcp.HeaderSession) != "s1" || h.Get(mcp.HeaderVersion) != mcp.V20250618 {
			t.Errorf("GET %d had %v", i, h)
		}
	}
}

// A13: connections are reused, whether a call is answered in a body or a stream. The end of a stream comes after its reply, so
// the next call may come first.
func TestConnectionsAreReused(t *testing.T) {
	for name, tt := range map[string]struct {
		act  handler
		most int64
	}{"body": {respond(`{"content":[]}`), 2}, "stream": {respondEvents(finalEvent), 4}} {
		t.Run(name, func(t *testing.T) {
			f := newModernServer(t).on(mcp.ToolsCall, tt.act)
			n := connect(t, httpEntry(f), nil)
			for range 100 {
				n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
			}
			if got := f.accepted.Load(); got > tt.most {
				t.Errorf("%d connections for 100 calls", got)
			}
		})
	}
}

// A server that does not end a call's stream does not keep the connection.
func TestUnendedStreamIsReleased(t *testing.T) {
	f := newModernServer(t)
	left := make(chan struct{})
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h httpRequest) {
		respondEvents(finalEvent)(w, h)
		<-h.ctx.Done()
		close(left)
	})
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	select {
	case <-left:
	case <-time.After(5 * time.Second):
		t.Fatal("the stream is still open")
	}
}

// A13: the session is deleted with the connection.
func TestSessionIsDeleted(t *testing.T) {
	f := newLegacyServer(t)
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.Ping, `{}`)
	n.Close()
	h := f.awaitRequest(t, "DELETE", 1)
	if h.head.Get(mcp.HeaderSession) != "s1" || h.head.Get(mcp.HeaderVersion) != mcp.V20250618 {
		t.Errorf("got %v", h.head)
	}
}

// A2: a server that does not answer the DELETE of its session does not block the gateway.
func TestSessionDeletionIsBounded(t *testing.T) {
	f := newLegacyServer(t).on("DELETE", func(_ http.ResponseWriter, h httpRequest) { <-h.ctx.Done() })
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.Ping, `{}`)
	began := time.Now()
	n.Close()
	if took := time.Since(began); took < time.Second || took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A call in flight ends when the connection is closed.
func TestCloseEndsCalls(t *testing.T) {
	f := newLegacyServer(t).on(mcp.ToolsCall, func(_ http.ResponseWriter, h httpRequest) { <-h.ctx.Done() })
	n := connect(t, httpEntry(f), nil)
	failed := make(chan error, 1)
	go func() {
		_, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`)
		failed <- err
	}()
	f.awaitRequest(t, mcp.ToolsCall, 1)
	n.Close()
	if err := <-failed; fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
}

// A13: an HTTP+SSE server is found at the same URL.
func TestFallbackToSSE(t *testing.T) {
	for _, code := range []int{400, 404, 405} {
		t.Run(strconv.Itoa(code), func(t *testing.T) { // each is over before the next: nothing of it may be left
			f := newSSEServer(t)
			f.on(mcp.Initialize+" at /mcp", respondStatus(code, "no")).on(mcp.ServerDiscover, respondStatus(code, "no"))
			n := connect(t, httpEntry(f), nil)
			n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
			if got := f.requests("GET"); len(got) != 1 || got[0].path != "/mcp" {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A2: a call to a silent server times out, and the connection stays.
func TestSlowServer(t *testing.T) {
	f := newLegacyServer(t).on(mcp.ToolsCall, func(_ http.ResponseWriter, h httpRequest) { <-h.ctx.Done() })
	n := connect(t, httpEntry(f), func(c *upstream.Config, _ *upstream.ServerConfig) {
		c.ResponseTimeout = unit.Duration(150 * time.Millisecond)
	})
	if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != fault.Timeout {
		t.Errorf("got %v", err)
	}
	f.awaitRequest(t, mcp.NotifyCancelled, 1)
	n.mustCall(t, mcp.Ping, `{}`)
	if n.count.Load() != 0 {
		t.Error("the connection was given up")
	}
}

// The listen stream of a modern server is opened again when the server ends it.
func TestListenStreamIsReopened(t *testing.T) {
	f := newModernServer(t).on(mcp.ServerDiscover, respond(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}`))
	f.on(mcp.SubscriptionsListen, func(w http.ResponseWriter, h httpRequest) {
		respondEvents("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\",\"params\":{}}\n\n")(w, h)
		if len(f.requests(mcp.SubscriptionsListen)) == 2 {
			<-h.ctx.Done()
		}
	})
	n := connect(t, httpEntry(f), nil)
	h := f.awaitRequest(t, mcp.SubscriptionsListen, 2)
	if h.head.Get(mcp.HeaderMethod) != mcp.SubscriptionsListen || !strings.Contains(h.body, `"toolsListChanged":true`) {
		t.Errorf("got %s with %v", h.body, h.head)
	}
	n.ears.awaitNotification(t, mcp.NotifyToolsChanged)
}

// A13: configured credentials go to the configured URL only.
func TestRedirectsAreNotFollowed(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed: %s %s", r.Method, r.URL)
	}))
	defer stranger.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			f := newModernServer(t).on(mcp.ToolsCall, func(w http.ResponseWriter, _ httpRequest) {
				w.Header().Set("Location", stranger.URL)
				w.WriteHeader(code)
			})
			_, err := connect(t, httpEntry(f), nil).call(t, mcp.ToolsCall, `{"name":"x"}`)
			if fault.KindOf(err) != fault.BadReply {
				t.Errorf("got %v", err)
			}
		})
	}
}

func sortedKeys(h http.Header, prefix string) []string {
	var out []string
	for name := range h {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
