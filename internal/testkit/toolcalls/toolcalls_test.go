package toolcalls

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestCallsWithoutAGateway(t *testing.T) {
	server := httptest.NewServer(Server(Text()))
	defer server.Close()
	c, err := Connect(t.Context(), Options{Address: strings.TrimPrefix(server.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, kind := range []Kind{{Bytes: 200}, {Bytes: 8 << 10, Fresh: true}, {Bytes: 1 << 20, Fresh: true}} {
		cuts, err := Run(t.Context(), []*Caller{c}, 50, kind)
		if err != nil || cuts != 0 {
			t.Fatalf("%+v: %d cut, %v", kind, cuts, err)
		}
		if got := c.reply.Len(); got < kind.Bytes/2 || got > kind.Bytes*5/4+1000 {
			t.Errorf("%+v: a reply of %d bytes", kind, got)
		}
	}
	if _, err := c.Call(Kind{Read: true}); err == nil {
		t.Error("an original was read though none was kept")
	}
}
