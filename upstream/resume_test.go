package upstream_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
)

const primed = "id: p1\nretry: 300\ndata: \n\n"

// patient asks for longer than anybody would wait by himself.
const patient = "id: p1\nretry: 1500\ndata: \n\n"

// A13: a stream of the older era that ends before the reply is taken up again after the time the
// server asked for, as often as it takes (2025-11-25, Resumability and Redelivery).
func TestResumption(t *testing.T) {
	f := legacy(t)
	var ended atomic.Int64
	began := time.Now()
	end := func() { ended.Store(int64(time.Since(began))) }
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h heard) {
		stream(patient)(w, h)
		end()
	})
	type visit struct {
		last  string
		after time.Duration
	}
	visits := make(chan visit, 3)
	f.on("GET", func(w http.ResponseWriter, h heard) {
		last := h.head.Get(mcp.HeaderLastEvent)
		if last == "" {
			status(405, "")(w, h)
			return
		}
		visits <- visit{last, time.Since(began) - time.Duration(ended.Load())}
		h.ID = f.got(mcp.ToolsCall)[0].ID
		switch last {
		case "p1":
			stream("id: p2\n"+`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`+"\n\n")(w, h)
			end()
		default:
			stream("id: p3\n"+done)(w, h)
		}
	})
	n := connect(t, at(f), nil)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	for _, want := range []string{"p1", "p2"} {
		got := <-visits
		if got.last != want || got.after < 1480*time.Millisecond {
			t.Errorf("resumed at %q after %v, want %q after 1.5s", got.last, got.after, want)
		}
	}
	if len(f.got(mcp.ToolsCall)) != 1 {
		t.Error("the call was made again")
	}
}

// The reply may come on the server's own stream while a call's is not there.
func TestReplyOnAnotherStream(t *testing.T) {
	f := legacy(t)
	began := make(chan heard, 1)
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h heard) {
		stream(primed)(w, h)
		began <- h
	})
	f.on("GET", func(w http.ResponseWriter, h heard) {
		if h.head.Get(mcp.HeaderLastEvent) != "" {
			t.Error("the stream was resumed for a call that has its reply")
		}
		stream()(w, h)
		h.ID = (<-began).ID
		write(w, h, done)
		<-h.ctx.Done()
	})
	n := connect(t, at(f), nil)
	f.await(t, "GET", 1)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
	time.Sleep(400 * time.Millisecond)
}

// A2: where a stream cannot be taken up again, the call is lost; it was begun, so it is not made
// again.
func TestResumptionThatFails(t *testing.T) {
	for name, tt := range map[string]struct {
		call, get act
	}{
		"not offered":      {stream(primed), status(405, "")},
		"session is gone":  {stream(primed), status(404, "")},
		"no stream":        {stream(primed), reply(`{}`)},
		"no place":         {stream("retry: 1\ndata: \n\n"), status(405, "")},
		"place taken away": {stream(primed, "id:\ndata:\n\n"), status(405, "")},
		"unusable place":   {stream("id: a\x01b\ndata: \n\n"), status(405, "")},
	} {
		t.Run(name, func(t *testing.T) {
			f := legacy(t).on(mcp.ToolsCall, tt.call).on("GET", tt.get)
			n := connect(t, at(f), nil)
			if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != fault.Unavailable {
				t.Errorf("got %v", err)
			}
			if len(f.got(mcp.ToolsCall)) != 1 {
				t.Error("the call was made again")
			}
		})
	}
}

// A13: streams of the newer era have no places: one that breaks off is not taken up again.
func TestNoResumptionInTheNewerEra(t *testing.T) {
	f := modern(t).on(mcp.ToolsCall, stream("id: p1\ndata: \n\n"))
	n := connect(t, at(f), nil)
	if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	if f.got("GET") != nil {
		t.Error("a stream of the newer era was resumed")
	}
}

// A server that cannot be reached for a moment is tried again while the client waits.
func TestResumptionAfterAnOutage(t *testing.T) {
	f := legacy(t).on(mcp.ToolsCall, stream("id: p1\nretry: 100\ndata: \n\n"))
	var tries atomic.Int64
	f.on("GET", func(w http.ResponseWriter, h heard) {
		if h.head.Get(mcp.HeaderLastEvent) == "" {
			status(405, "")(w, h)
			return
		}
		if tries.Add(1) < 3 {
			panic(http.ErrAbortHandler)
		}
		h.ID = f.got(mcp.ToolsCall)[0].ID
		stream(done)(w, h)
	})
	n := connect(t, at(f), nil)
	n.must(t, mcp.ToolsCall, `{"name":"x"}`)
}

// A2: a server that takes its stream away because it forgot the session is greeted again, before
// any call has to find out.
func TestStreamThatIsTakenAway(t *testing.T) {
	f := legacy(t)
	f.on("GET", func(w http.ResponseWriter, h heard) {
		f.on("GET", status(404, "")).on(mcp.Ping, func(w http.ResponseWriter, h heard) {
			f.on("GET", status(405, "")).on(mcp.Ping, nil)
			status(404, "")(w, h)
		})
		stream("retry: 100\ndata:\n\n")(w, h)
	})
	n := connect(t, at(f), nil)
	f.await(t, mcp.Initialize, 2)
	n.must(t, mcp.Ping, `{}`)
}
