package upstream

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/internal/frame"
	"github.com/ctxgate/ctxgate/mcp"
)

// A12, A13: how a child is started again after its handshake failed. First it gets initialize, then the other framing; if its
// protocol was known, that is forgotten first.
func TestHandshakeFailureChangesNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _ := newFakeServer(t).newServer()
		state := func() string { return fmt.Sprint(server.knownProtocol(), ", ", server.firstFraming()) }
		checkEqual(t, "first", state(), "unknown, newline")
		for i, next := range []string{
			"legacy, newline", "unknown, content-length", "legacy, content-length", "unknown, newline", "legacy, newline",
		} {
			server.noteHandshakeFailure(0, false, false)
			checkEqual(t, fmt.Sprint("after silence ", i+1), state(), next)
		}
		for i, next := range []string{"unknown, newline", "legacy, newline", "unknown, newline", "legacy, newline"} {
			server.noteHandshakeFailure(0, false, true)
			checkEqual(t, fmt.Sprint("after a crash ", i+1), state(), next)
		}
		server.framing = frame.ContentLength
		server.noteHandshakeFailure(frame.Newline, true, false)
		checkEqual(t, "after one that spoke", state(), "unknown, newline")
		server.noteHandshake(Handshake{Protocol: mcp.Legacy})
		server.noteHandshakeFailure(frame.Newline, true, false)
		checkEqual(t, "after one that was known", state(), "unknown, newline")
		server.noteHandshake(Handshake{Protocol: mcp.Modern})
		checkEqual(t, "known", state(), "modern, newline")
	})
}

// The id of a message of which only the ends are known.
func TestIDInHeadAndTail(t *testing.T) {
	for text, want := range map[string]int64{
		`{"jsonrpc":"2.0","id":12,"result":{"te`:  12,
		`{ "id" : 12 , "result":`:                 12,
		`{"id":12`:                                0, // the number may go on
		`{"id":"12","result":`:                    0,
		`{"id":null,"result":`:                    0,
		`{"id":-1,"result":`:                      0,
		`{"result":{"id":12,`:                     0,
		`{"list":[1],"id":12,`:                    0,
		`{"jsonrpc":"2.0","result":"no id`:        0,
		`{"id":99999999999999999999999,"result":`: 1<<63 - 1,
		``: 0,
	} {
		if got := idInHead([]byte(text)); got != want {
			t.Errorf("head %s: got %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]int64{
		`xx"},"id":12}`:                      12,
		`xx"}, "id" : 12 } `:                 12,
		`xx"},"id":12,"jsonrpc":"2.0"}`:      12,
		`xx","id":12}}`:                      0,
		`"id":12},"jsonrpc":"2.0"}`:          0,
		`"id":12,"list":[]}`:                 0,
		`"id":12,"result":{}}`:               0,
		`xx"},"id":"12"}`:                    0,
		`xx"},"id":12`:                       0,
		`\"id\":12}`:                         0,
		`no end`:                             0,
		`{"id":3},"id":12,"jsonrpc":"2.0"}`:  12,
		`"a":{"id":3}},"x":1,"jsonrpc":"2"}`: 0,
	} {
		if got := idInTail([]byte(text)); got != want {
			t.Errorf("tail %s: got %d, want %d", text, got, want)
		}
	}
}

// A message over the limit without an id at its ends belongs to the only call, if there is just one.
func TestOversizedReplyFailsTheOnlyCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestConn(time.Minute)
		checkEqual(t, "of none", c.oversizedCall(nil, nil), nil)
		one := c.beginCall(t.Context(), newCall(mcp.Ping, ``))
		checkEqual(t, "of one", c.oversizedCall([]byte(`{"result":{`), []byte(`}}`)), c.inflightCall(1))
		two := c.beginCall(t.Context(), newCall(mcp.Ping, ``))
		checkEqual(t, "of two", c.oversizedCall([]byte(`{"result":{`), []byte(`}}`)), nil)
		checkEqual(t, "by its tail", c.oversizedCall([]byte(`{"result":{`), []byte(`},"id":2}`)), c.inflightCall(2))
		c.Close()
		<-one
		<-two
	})
}
