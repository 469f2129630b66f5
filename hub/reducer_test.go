package hub_test

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/testkit/stubreducer"
)

// A reducer that is only registered is chosen by a policy, and its original is stored first.
func TestPolicyChoosesARegisteredReducer(t *testing.T) {
	stubreducer.Register(t, stubreducer.Opening)
	text := strings.Repeat("0123456789", 1000)
	up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":{"t":"`+text+`"}}`)
	g := startRPCGateway(t, up.URL, func(s *setup) {
		var p hub.Policy
		p.SetDefaults()
		p.Tool, p.Reduce = "read", stubreducer.Name
		s.hub.Policies = []hub.Policy{p}
	})
	call := func(tool string) string {
		return textOf(t, g.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`).body)
	}
	if got := call("read"); !strings.HasPrefix(got, text[:40]+"\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=10000 head=40 tail=0] ...\n[recover: prune_id=prn_") {
		t.Errorf("read: got %q", got)
	}
	if got := call("other"); !strings.Contains(got, "head=2000 tail=2000") {
		t.Errorf("other: got %q", got)
	}
}
