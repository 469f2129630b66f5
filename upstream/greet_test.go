package upstream

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/internal/frame"
	"github.com/ctxgate/ctxgate/mcp"
)

// A12, A13: how a program is spoken to that could not be greeted. The older greeting comes before
// the other framing, and a server that was known is met anew first.
func TestPuzzled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newPuppet(t).remote()
		state := func() string { return fmt.Sprint(r.knownEra(), ", ", r.firstFraming()) }
		want(t, "first", state(), "unknown, newline")
		for i, next := range []string{
			"legacy, newline", "unknown, content-length", "legacy, content-length", "unknown, newline", "legacy, newline",
		} {
			r.puzzled(&pipe{}, false)
			want(t, fmt.Sprint("after silence ", i+1), state(), next)
		}
		for i, next := range []string{"unknown, newline", "legacy, newline", "unknown, newline", "legacy, newline"} {
			r.puzzled(&pipe{}, true)
			want(t, fmt.Sprint("after a crash ", i+1), state(), next)
		}
		spoke := &pipe{in: frame.NewReader(nil, 1, nil)}
		spoke.heard.Store(true)
		r.framing = frame.ContentLength
		r.puzzled(spoke, false)
		want(t, "after one that spoke", state(), "unknown, newline")
		r.met(Hello{Era: mcp.EraLegacy})
		r.puzzled(spoke, false)
		want(t, "after one that was known", state(), "unknown, newline")
		r.met(Hello{Era: mcp.EraModern})
		want(t, "known", state(), "modern, newline")
	})
}

// Where the id of a message stands whose middle is not known.
func TestIDsAtTheEnds(t *testing.T) {
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

// A message over the limit without an id at its ends is that of the only call, if there is only one.
func TestOversizedReplyOfTheOnlyCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTaped(time.Minute)
		want(t, "of none", c.flightIn(nil, nil), nil)
		one := c.begin(t.Context(), calling(mcp.Ping, ``))
		want(t, "of one", c.flightIn([]byte(`{"result":{`), []byte(`}}`)), c.flight(1))
		two := c.begin(t.Context(), calling(mcp.Ping, ``))
		want(t, "of two", c.flightIn([]byte(`{"result":{`), []byte(`}}`)), nil)
		want(t, "by its tail", c.flightIn([]byte(`{"result":{`), []byte(`},"id":2}`)), c.flight(2))
		c.Close()
		<-one
		<-two
	})
}
