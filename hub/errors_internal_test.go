package hub

import (
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
)

// Every kind of failure has a code and a status at the gateway for single messages. The documents fix those of G5
// and P6; JSON-RPC reserves -32768..-32000, so the codes of our own are outside it.
func TestG5EveryKindHasACode(t *testing.T) {
	want := map[fault.Kind][2]int{
		fault.Internal:       {-32603, 502},
		fault.Syntax:         {-32700, 400},
		fault.InvalidRequest: {-32600, 400},
		fault.BadParams:      {-32602, 400},
		fault.NoMethod:       {-32601, 404},
		fault.Unauthorized:   {-31401, 401},
		fault.Forbidden:      {-31403, 403},
		fault.NotFound:       {-32001, 404},
		fault.UnknownHandle:  {-32004, 404},
		fault.TooLarge:       {-31413, 413},
		fault.Stalled:        {-31408, 408},
		fault.RateLimited:    {-31429, 429},
		fault.OverBudget:     {-31429, 429},
		fault.Unavailable:    {-32002, 502},
		fault.Timeout:        {-32002, 502},
		fault.BadReply:       {-32003, 502},
		fault.Full:           {-31503, 503},
		fault.Canceled:       {-32002, 499},
	}
	fixed := map[int]bool{-32700: true, -32600: true, -32601: true, -32602: true, -32603: true, -32001: true, -32002: true, -32003: true, -32004: true}
	for _, k := range fault.Kinds() {
		w, ok := want[k]
		if !ok {
			t.Errorf("%s has no entry in this table", k)
			continue
		}
		if got := [2]int{gatewayCode(k), front.HTTPStatus(k)}; got != w {
			t.Errorf("%s: got code and status %v, want %v", k, got, w)
		}
		if c := gatewayCode(k); !fixed[c] && c >= -32768 && c <= -32000 {
			t.Errorf("%s: code %d is in the reserved range", k, c)
		}
	}
	if got := gatewayCode(fault.Kind(200)); got != -32603 {
		t.Errorf("an unknown kind: got %d, want -32603", got)
	}
}
