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

func at(f *far) upstream.Server { return upstream.Server{URL: secret.URL(f.URL + "/mcp")} }

// A13: a server of the newer era is asked once, and every request says everything about itself.
func TestGreetingOfTheNewerEra(t *testing.T) {
	f := modern(t)
	n := connect(t, at(f), func(_ *upstream.Config, s *upstream.Server) {
		s.Headers = map[string]secret.Text{"authorization": secret.Parse("Bearer t"), "accept": secret.Parse("text/html")}
	})
	n.must(t, mcp.ToolsCall, `{"name":"b::x","arguments":{}}`, func(c *upstream.Call) {
		c.Changes = []jsonscan.Change{{Key: "name", Value: []byte(`"x"`)}}
	})
	hello, up := n.Shared().Up()
	if !up || hello.Era != mcp.EraModern || hello.Version != mcp.V20260728 {
		t.Errorf("got %+v, up %t", hello, up)
	}
	for _, what := range []string{mcp.Discover, mcp.ToolsCall} {
		h := f.await(t, what, 1)
		for name, want := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer t",
			mcp.HeaderVersion: mcp.V20260728, mcp.HeaderMethod: what, mcp.HeaderSession: "",
		} {
			if got := h.head.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", what, name, got, want)
			}
		}
	}
	if got := f.got(mcp.ToolsCall)[0].head.Get(mcp.HeaderName); got != "x" {
		t.Errorf("Mcp-Name is %q, want the name that is sent", got)
	}
	if f.got(mcp.Initialize) != nil || f.got("GET") != nil {
		t.Error("a server of the newer era was spoken to in the older one")
	}
}

// A13: whatever is answered that is not of the newer era means the older one, whose headers are
// the session and, once it was agreed on, the revision.
func TestGreetingOfTheOlderEra(t *testing.T) {
	for name, refusal := range map[string]act{
		"no session":     status(400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`),
		"no such method": replyAs(200, "error", `{"code":-32601,"message":"Method not found"}`),
		"other versions": replyAs(400, "error", `{"code":-32022,"message":"Unsupported","data":{"supported":["2025-11-25"]}}`),
		"not there":      status(404, "nothing here"),
		"not allowed":    status(405, ""),
		"accepted":       status(202, ""),
		"a page":         status(200, "<html>"),
		"broken":         status(500, "oops"),
		"older result":   reply(`{"supportedVersions":["2025-11-25"],"capabilities":{}}`),
	} {
		t.Run(name, func(t *testing.T) {
			f := legacy(t).on(mcp.Discover, refusal)
			n := connect(t, at(f), nil)
			n.must(t, mcp.ToolsCall, `{"name":"x"}`)
			hello, _ := n.Shared().Up()
			if hello.Era != mcp.EraLegacy || hello.Version != mcp.V20250618 {
				t.Errorf("got %+v", hello)
			}
			for what, want := range map[string][2]string{
				mcp.Initialize: {"", ""}, mcp.Initialized: {"2025-06-18", "s1"}, mcp.ToolsCall: {"2025-06-18", "s1"},
			} {
				h := f.await(t, what, 1)
				if got := [2]string{h.head.Get(mcp.HeaderVersion), h.head.Get(mcp.HeaderSession)}; got != want {
					t.Errorf("%s: version and session are %q, want %q", what, got, want)
				}
				if got := h.head.Get(mcp.HeaderMethod); got != "" {
					t.Errorf("%s: Mcp-Method is %q in the older era", what, got)
				}
			}
		})
	}
}

// A13: a server that refuses the newest revision and offers it is of the newer era.
func TestRevisionThatIsRefusedAndOffered(t *testing.T) {
	f := modern(t)
	ready := f.acts[mcp.Discover]
	f.on(mcp.Discover, func(w http.ResponseWriter, h heard) {
		f.on(mcp.Discover, ready)
		replyAs(400, "error", `{"code":-32022,"message":"Unsupported","data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}`)(w, h)
	})
	n := connect(t, at(f), nil)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	if hello, _ := n.Shared().Up(); hello.Era != mcp.EraModern || f.got(mcp.Initialize) != nil || len(f.got(mcp.Discover)) != 2 {
		t.Errorf("got %+v after %d questions", hello, len(f.got(mcp.Discover)))
	}
}

// A13: the era of a server is found out once; it is asked again when the greeting is refused.
func TestEraIsRemembered(t *testing.T) {
	f := legacy(t)
	n := connect(t, at(f), nil)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	f.on(mcp.ToolsCall, status(404, "")).on(mcp.Initialize, func(w http.ResponseWriter, h heard) {
		f.on(mcp.ToolsCall, nil)
		begin("s2")(w, h)
	})
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	if got := len(f.got(mcp.Discover)); got != 1 {
		t.Errorf("the era was asked for %d times, want once", got)
	}
	f.on(mcp.ToolsCall, status(404, "")).on(mcp.Initialize, status(410, "not any more")).
		on(mcp.Discover, reply(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`))
	_, _ = n.call(t, mcp.ToolsCall, `{"name":"x"}`)
	f.on(mcp.ToolsCall, nil)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	if hello, _ := n.Shared().Up(); hello.Era != mcp.EraModern {
		t.Errorf("got %+v, want the newer era", hello)
	}
}

// A2: a server that was away when it was asked is not taken for an older one.
func TestAServerThatIsAwayHasNoEra(t *testing.T) {
	for name, away := range map[string]act{
		"busy": status(503, "starting"), "behind a proxy": status(502, ""), "limited": status(429, ""),
		"gone": func(http.ResponseWriter, heard) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			f := modern(t)
			ready := f.acts[mcp.Discover]
			f.on(mcp.Discover, func(w http.ResponseWriter, h heard) {
				f.on(mcp.Discover, ready)
				away(w, h)
			})
			n := connect(t, at(f), nil)
			n.must(t, mcp.ToolsCall, `{"name":"x"}`)
			if hello, _ := n.Shared().Up(); hello.Era != mcp.EraModern || f.got(mcp.Initialize) != nil {
				t.Errorf("got %+v", hello)
			}
		})
	}
}

// A13, G4: a result is what the server sent, to the byte, in one body or in an event, and also
// when a server of 2025-03-26 puts it into a batch.
func TestResultsAreTheServersBytes(t *testing.T) {
	const odd = `{ "content" : [ ] ,"x_unknown":{"n":1.50e+3,"s":"\u00e9\/"}, "_meta":{"vendor/x":[1, 2]} }`
	line := `{"jsonrpc":"2.0","id":%s,"result":` + odd + `}`
	for name, a := range map[string]act{
		"body":  reply(odd),
		"event": stream("data: " + line + "\n\n"),
		"lines": stream("id: 1\nevent: message\ndata: " + strings.Replace(line, `"result"`, "\ndata:"+`"result"`, 1) + "\n\n"),
		"other events before": stream(": hello\n\n", "event: ping\ndata: {}\n\n", "id: 1\ndata:\n\n",
			"data: "+line+"\n\n", "data: this is not read\n\n"),
		"batch": func(w http.ResponseWriter, h heard) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, ` [{"jsonrpc":"2.0","method":"notifications/x"},`+line+`]`, h.ID)
		},
		"400": replyAs(400, "result", odd),
	} {
		t.Run(name, func(t *testing.T) {
			f := modern(t).on(mcp.ToolsCall, a)
			if got := connect(t, at(f), nil).must(t, mcp.ToolsCall, `{"name":"x"}`); got != odd {
				t.Errorf("got  %s\nwant %s", got, odd)
			}
		})
	}
}

// A5, A13: what comes on a call's stream belongs to that call, and its questions are answered by
// its client while others wait.
func TestStreamOfACall(t *testing.T) {
	f := legacy(t)
	answered := make(chan struct{})
	f.on("answer", func(w http.ResponseWriter, _ heard) {
		close(answered)
		w.WriteHeader(http.StatusAccepted)
	})
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h heard) {
		if h.Params.Name == "other" {
			<-answered
			reply(`{"content":[]}`)(w, h)
			return
		}
		stream(`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`+"\n\n",
			`data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hi"}}`+"\n\n",
			`data: {"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"?"}}`+"\n\n")(w, h)
		<-answered
		write(w, h, done)
	})
	asker, other := &peer{answer: yes(`{"action":"accept"}`)}, &peer{answer: yes(`{"action":"wrong"}`)}
	can := mcp.Client{Capabilities: []byte(`{"elicitation":{}}`)}
	n := connectAs(t, at(f), can, nil)
	with := func(p *peer) func(*upstream.Call) {
		return func(c *upstream.Call) { c.Peer, c.Client, c.Progress = p, can, true }
	}
	n.must(t, mcp.ToolsList, `{}`)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		_, _ = n.call(t, mcp.ToolsCall, `{"name":"other"}`, with(other))
	}()
	f.await(t, mcp.ToolsCall, 1)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`, with(asker))
	<-finished
	if got := asker.heard(); len(got) != 2 || !strings.Contains(got[0], `"progress":1`) || !strings.Contains(got[1], `"hi"`) {
		t.Errorf("the call's client heard %q", got)
	}
	if len(asker.asked) != 1 || len(other.asked) != 0 || len(other.heard()) != 0 {
		t.Errorf("asked %q and %q, the other heard %q", asker.asked, other.asked, other.heard())
	}
	h := f.await(t, "answer", 1)
	if want := `{"jsonrpc":"2.0","id":"q1","result":{"action":"accept"}}`; h.body != want || h.head.Get(mcp.HeaderSession) != "s1" {
		t.Errorf("got %s (session %q), want %s", h.body, h.head.Get(mcp.HeaderSession), want)
	}
}

// A13: a client that leaves a call of the newer era closes its stream, and says no more.
func TestCancellationInTheNewerEra(t *testing.T) {
	f := modern(t)
	left := make(chan struct{})
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h heard) {
		stream()(w, h)
		<-h.ctx.Done()
		close(left)
	})
	n := connect(t, at(f), nil)
	leave(t, f, n, left)
	if got := f.got(mcp.Cancelled); got != nil {
		t.Errorf("the server was sent %v", got)
	}
}

// A13: a client that leaves a call of the older era makes the gateway say so.
func TestCancellationInTheOlderEra(t *testing.T) {
	f := legacy(t)
	left := make(chan struct{})
	f.on(mcp.ToolsCall, func(_ http.ResponseWriter, h heard) {
		<-h.ctx.Done()
		close(left)
	})
	n := connect(t, at(f), nil)
	leave(t, f, n, left)
	h := f.await(t, mcp.Cancelled, 1)
	want := fmt.Sprintf(`"requestId":%s`, f.got(mcp.ToolsCall)[0].ID)
	if !strings.Contains(h.body, want) || h.head.Get(mcp.HeaderSession) != "s1" {
		t.Errorf("got %s, want %s", h.body, want)
	}
}

// leave makes a call and leaves once the server has it; left is closed when the server saw it.
func leave(t *testing.T, f *far, n *near, left chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		_, err := n.Shared().Call(ctx, newCall(t, mcp.ToolsCall, `{"name":"x"}`))
		failed <- err
	}()
	f.await(t, mcp.ToolsCall, 1)
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

// A13: what a server of the older era says outside calls comes on a stream of its own.
func TestStreamOfTheServer(t *testing.T) {
	f := legacy(t)
	f.on("GET", func(w http.ResponseWriter, h heard) {
		stream("id: g1\nretry: 150\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")(w, h)
		if h.head.Get(mcp.HeaderLastEvent) != "" {
			write(w, h, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/vendor\"}\n\n"+
				"data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n\n")
			<-h.ctx.Done()
		}
	})
	n := connect(t, at(f), nil)
	n.ears.await(t, mcp.ToolsChanged)
	n.ears.await(t, "notifications/vendor")
	if h := f.await(t, "answer", 1); h.body != `{"jsonrpc":"2.0","id":7,"result":{}}` {
		t.Errorf("got %s", h.body)
	}
	gets := f.got("GET")
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

// A13: connections are used again, whether a call is answered in a body or by a stream. The end of
// a stream comes after its reply, so that the next call may be ahead of it.
func TestConnectionsAreUsedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		act  act
		most int64
	}{"body": {reply(`{"content":[]}`), 2}, "stream": {stream(done), 4}} {
		t.Run(name, func(t *testing.T) {
			f := modern(t).on(mcp.ToolsCall, tt.act)
			n := connect(t, at(f), nil)
			for range 100 {
				n.must(t, mcp.ToolsCall, `{"name":"x"}`)
			}
			if got := f.accepted.Load(); got > tt.most {
				t.Errorf("%d connections for 100 calls", got)
			}
		})
	}
}

// A server that does not end a call's stream does not keep its connection.
func TestAnsweredStreamIsLeft(t *testing.T) {
	f := modern(t)
	left := make(chan struct{})
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h heard) {
		stream(done)(w, h)
		<-h.ctx.Done()
		close(left)
	})
	n := connect(t, at(f), nil)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	select {
	case <-left:
	case <-time.After(5 * time.Second):
		t.Fatal("the stream is still open")
	}
}

// A13: the session is ended with the connection.
func TestSessionIsEnded(t *testing.T) {
	f := legacy(t)
	n := connect(t, at(f), nil)
	n.must(t, mcp.Ping, `{}`)
	n.Close()
	h := f.await(t, "DELETE", 1)
	if h.head.Get(mcp.HeaderSession) != "s1" || h.head.Get(mcp.HeaderVersion) != mcp.V20250618 {
		t.Errorf("got %v", h.head)
	}
}

// A2: a server that does not answer the end of its session does not hold up the gateway.
func TestEndOfASessionIsBounded(t *testing.T) {
	f := legacy(t).on("DELETE", func(_ http.ResponseWriter, h heard) { <-h.ctx.Done() })
	n := connect(t, at(f), nil)
	n.must(t, mcp.Ping, `{}`)
	began := time.Now()
	n.Close()
	if took := time.Since(began); took < time.Second || took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A call that is under way when the connection is closed ends with it.
func TestCloseEndsCalls(t *testing.T) {
	f := legacy(t).on(mcp.ToolsCall, func(_ http.ResponseWriter, h heard) { <-h.ctx.Done() })
	n := connect(t, at(f), nil)
	failed := make(chan error, 1)
	go func() {
		_, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`)
		failed <- err
	}()
	f.await(t, mcp.ToolsCall, 1)
	n.Close()
	if err := <-failed; fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
}

// A13: a server without the newer transport is found at the same address.
func TestFallsBackToTheOldestTransport(t *testing.T) {
	for _, code := range []int{400, 404, 405} {
		t.Run(strconv.Itoa(code), func(t *testing.T) { // each is over before the next: nothing of it may be left
			f := oldest(t)
			f.on(mcp.Initialize+" at /mcp", status(code, "no")).on(mcp.Discover, status(code, "no"))
			n := connect(t, at(f), nil)
			n.must(t, mcp.ToolsCall, `{"name":"x"}`)
			if got := f.got("GET"); len(got) != 1 || got[0].path != "/mcp" {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A2: a silent server makes the call fail in time, and the connection stays.
func TestSlowServer(t *testing.T) {
	f := legacy(t).on(mcp.ToolsCall, func(_ http.ResponseWriter, h heard) { <-h.ctx.Done() })
	n := connect(t, at(f), func(c *upstream.Config, _ *upstream.Server) {
		c.ResponseTimeout = unit.Duration(150 * time.Millisecond)
	})
	if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != fault.Timeout {
		t.Errorf("got %v", err)
	}
	f.await(t, mcp.Cancelled, 1)
	n.must(t, mcp.Ping, `{}`)
	if n.count.Load() != 0 {
		t.Error("the connection was given up")
	}
}

// The stream of changes of the newer era stays open, and is opened again when the server ends it.
func TestStreamOfChanges(t *testing.T) {
	f := modern(t).on(mcp.Discover, reply(`{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}`))
	f.on(mcp.Listen, func(w http.ResponseWriter, h heard) {
		stream("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\",\"params\":{}}\n\n")(w, h)
		if len(f.got(mcp.Listen)) == 2 {
			<-h.ctx.Done()
		}
	})
	n := connect(t, at(f), nil)
	h := f.await(t, mcp.Listen, 2)
	if h.head.Get(mcp.HeaderMethod) != mcp.Listen || !strings.Contains(h.body, `"toolsListChanged":true`) {
		t.Errorf("got %s with %v", h.body, h.head)
	}
	n.ears.await(t, mcp.ToolsChanged)
}

// A13: credentials of the entry go to the entry's own address only.
func TestRedirectsOfAStreamAreNotFollowed(t *testing.T) {
	stranger := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("a redirect was followed: %s %s", r.Method, r.URL)
	}))
	defer stranger.Close()
	for _, code := range []int{301, 302, 303, 307, 308} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			f := modern(t).on(mcp.ToolsCall, func(w http.ResponseWriter, _ heard) {
				w.Header().Set("Location", stranger.URL)
				w.WriteHeader(code)
			})
			_, err := connect(t, at(f), nil).call(t, mcp.ToolsCall, `{"name":"x"}`)
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
