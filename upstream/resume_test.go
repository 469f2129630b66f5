package upstream_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
)

const resumableEvent = "id: p1\nretry: 300\ndata: \n\n"

// slowRetryEvent asks for a longer pause than the default.
const slowRetryEvent = "id: p1\nretry: 1500\ndata: \n\n"

// A13: a legacy stream that ends before the reply is resumed after the server's retry time, as often as necessary (2025-11-25,
// Resumability and Redelivery).
func TestResumption(t *testing.T) {
	f := newLegacyServer(t)
	var ended atomic.Int64
	began := time.Now()
	end := func() { ended.Store(int64(time.Since(began))) }
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h httpRequest) {
		respondEvents(slowRetryEvent)(w, h)
		end()
	})
	type visit struct {
		last  string
		after time.Duration
	}
	visits := make(chan visit, 3)
	f.on("GET", func(w http.ResponseWriter, h httpRequest) {
		last := h.head.Get(mcp.HeaderLastEvent)
		if last == "" {
			respondStatus(405, "")(w, h)
			return
		}
		visits <- visit{last, time.Since(began) - time.Duration(ended.Load())}
		h.ID = f.requests(mcp.ToolsCall)[0].ID
		switch last {
		case "p1":
			respondEvents("id: p2\n"+`data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}`+"\n\n")(w, h)
			end()
		default:
			respondEvents("id: p3\n"+finalEvent)(w, h)
		}
	})
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	for _, want := range []string{"p1", "p2"} {
		got := <-visits
		if got.last != want || got.after < 1480*time.Millisecond {
			t.Errorf("resumed at %q after %v, want %q after 1.5s", got.last, got.after, want)
		}
	}
	if len(f.requests(mcp.ToolsCall)) != 1 {
		t.Error("the call was made again")
	}
}

// The reply may come on the server's own stream while the call's is broken.
func TestReplyOnServerStream(t *testing.T) {
	f := newLegacyServer(t)
	began := make(chan httpRequest, 1)
	f.on(mcp.ToolsCall, func(w http.ResponseWriter, h httpRequest) {
		respondEvents(resumableEvent)(w, h)
		began <- h
	})
	f.on("GET", func(w http.ResponseWriter, h httpRequest) {
		if h.head.Get(mcp.HeaderLastEvent) != "" {
			t.Error("the stream was resumed for a call that has its reply")
		}
		respondEvents()(w, h)
		h.ID = (<-began).ID
		writeEvent(w, h, finalEvent)
		<-h.ctx.Done()
	})
	n := connect(t, httpEntry(f), nil)
	f.awaitRequest(t, "GET", 1)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
	time.Sleep(400 * time.Millisecond)
}

// A2: if a stream cannot be resumed, the call fails; it was started, so it is not repeated.
func TestResumptionFailure(t *testing.T) {
	for name, tt := range map[string]struct {
		call, get handler
	}{
		"not offered":      {respondEvents(resumableEvent), respondStatus(405, "")},
		"session is gone":  {respondEvents(resumableEvent), respondStatus(404, "")},
		"no stream":        {respondEvents(resumableEvent), respond(`{}`)},
		"no place":         {respondEvents("retry: 1\ndata: \n\n"), respondStatus(405, "")},
		"place taken away": {respondEvents(resumableEvent, "id:\ndata:\n\n"), respondStatus(405, "")},
		"unusable place":   {respondEvents("id: a\x01b\ndata: \n\n"), respondStatus(405, "")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newLegacyServer(t).on(mcp.ToolsCall, tt.call).on("GET", tt.get)
			n := connect(t, httpEntry(f), nil)
			if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != fault.Unavailable {
				t.Errorf("got %v", err)
			}
			if len(f.requests(mcp.ToolsCall)) != 1 {
				t.Error("the call was made again")
			}
		})
	}
}

// A13: modern streams cannot be resumed.
func TestNoResumptionForModernServers(t *testing.T) {
	f := newModernServer(t).on(mcp.ToolsCall, respondEvents("id: p1\ndata: \n\n"))
	n := connect(t, httpEntry(f), nil)
	if _, err := n.call(t, mcp.ToolsCall, `{"name":"x"}`); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("got %v", err)
	}
	if f.requests("GET") != nil {
		t.Error("a modern stream was resumed")
	}
}

// Resumption is tried again while the server cannot be reached and the client waits.
func TestResumptionAfterAnOutage(t *testing.T) {
	f := newLegacyServer(t).on(mcp.ToolsCall, respondEvents("id: p1\nretry: 100\ndata: \n\n"))
	var tries atomic.Int64
	f.on("GET", func(w http.ResponseWriter, h httpRequest) {
		if h.head.Get(mcp.HeaderLastEvent) == "" {
			respondStatus(405, "")(w, h)
			return
		}
		if tries.Add(1) < 3 {
			panic(http.ErrAbortHandler)
		}
		h.ID = f.requests(mcp.ToolsCall)[0].ID
		respondEvents(finalEvent)(w, h)
	})
	n := connect(t, httpEntry(f), nil)
	n.mustCall(t, mcp.ToolsCall, `{"name":"x"}`)
}

// A2: a server that refuses its stream because it forgot the session gets a new handshake before any call fails.
func TestServerStreamNotFound(t *testing.T) {
	f := newLegacyServer(t)
	f.on("GET", func(w http.ResponseWriter, h httpRequest) {
		f.on("GET", respondStatus(404, "")).on(mcp.Ping, func(w http.ResponseWriter, h httpRequest) {
			f.on("GET", respondStatus(405, "")).on(mcp.Ping, nil)
			respondStatus(404, "")(w, h)
		})
		respondEvents("retry: 100\ndata:\n\n")(w, h)
	})
	n := connect(t, httpEntry(f), nil)
	f.awaitRequest(t, mcp.Initialize, 2)
	n.mustCall(t, mcp.Ping, `{}`)
}
