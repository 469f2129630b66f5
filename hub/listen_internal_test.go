package hub

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
)

// Where there are several tenants, all callers of one have at most half of the streams together.
func TestStreamsHaveAShareForEachTenant(t *testing.T) {
	cfg := Config{MaxSessions: 8}
	h := &Hub{}
	open := func(tenant string, i int) (*listenStream, error) {
		l := &listenStream{hub: h, req: &Request{CallerKey: fmt.Sprintf("%s\x00\x00%d", tenant, i)}}
		return l, h.listenStreams.addStream(l, cfg)
	}
	var held []*listenStream
	for i := range 6 { // a single tenant has more
		l, err := open("a", i)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
	}
	other, err := open("b", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open("a", 7); fault.KindOf(err) != fault.Full || !strings.Contains(fault.PublicOf(err), "this tenant has 6 streams") {
		t.Errorf("beyond the share: %v", err)
	}
	for _, l := range held[:3] {
		l.stop()
	}
	if _, err := open("a", 8); err != nil {
		t.Errorf("within the share: %v", err)
	}
	other.stop()
	if n := h.listenStreams.tenants; len(n) != 1 || n["a"] != 4 {
		t.Errorf("%v", n)
	}
}
