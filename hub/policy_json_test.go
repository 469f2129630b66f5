package hub_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/hub"
)

// G+4: a tool whose policy says json = true gets JSON back, in content and in structuredContent,
// and every other tool gets the mask.
func TestGPlus4PolicyJSON(t *testing.T) {
	var list []string
	for i := range 500 {
		list = append(list, fmt.Sprintf(`{"n":%d,"s":"some words here"}`, i))
	}
	data := `{"rows":[` + strings.Join(list, ",") + `]}`
	quoted, _ := json.Marshal(data)
	up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":`+string(quoted)+`}],"structuredContent":`+data+`}}`)
	yes := true
	g := startRPCGateway(t, up.URL, func(s *setup) {
		rule := hub.Policy{JSON: &yes}
		rule.SetDefaults()
		rule.Tool = "list_*"
		s.hub.Policies = []hub.Policy{rule}
	})
	call := func(tool string) (text, structured string) {
		got := g.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`)
		var reply struct {
			Result struct {
				Content           []struct{ Text string }
				StructuredContent json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(got.body), &reply); err != nil || len(reply.Result.Content) != 1 {
			t.Fatalf("%v: %.300s", err, got.body)
		}
		return reply.Result.Content[0].Text, string(reply.Result.StructuredContent)
	}
	text, structured := call("list_rows")
	if !json.Valid([]byte(text)) || len(text) > 4000 || len(structured) > 4200 || !strings.Contains(text, `elements=500 dropped=`) {
		t.Errorf("%d and %d bytes: %.400s", len(text), len(structured), text)
	}
	_, id, _ := strings.Cut(text, "[recover: prune_id=")
	id, _, _ = strings.Cut(id, " ")
	if back := g.recover(t, id); back != data {
		t.Errorf("read back %d bytes of %d", len(back), len(data))
	}
	if text, structured := call("other"); json.Valid([]byte(text)) || !strings.Contains(text, " head=2000 tail=2000] ...\n") || structured != data {
		t.Errorf("another tool's: %.100s", text)
	}
}
