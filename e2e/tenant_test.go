package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/mcp"
)

// readBack asks the gateway for an original, as an MCP client does. It returns the whole reply.
func readBack(t *testing.T, client *http.Client, g *testGateway, id string) string {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"recover_text","arguments":{"prune_id":%q},"_meta":{%q:"2026-07-28",%q:{}}}}`,
		id, mcp.MetaProtocolVersion, mcp.MetaClientCapabilities)
	header := http.Header{mcp.HeaderVersion: {"2026-07-28"}, mcp.HeaderMethod: {"tools/call"}, mcp.HeaderName: {"recover_text"}, "Accept": {"application/json, text/event-stream"}}
	status, reply, err := post(client, g.URL+"/mcp", body, header)
	if err != nil || status != http.StatusOK {
		t.Fatalf("%d %.300s %v", status, reply, err)
	}
	return string(reply)
}

// After ctxgate tenant forget no process on the same SQLite file reads the tenant's texts, however often the running
// gateway has read them just before. What is cut afterwards can be read back, under the same id.
func TestTenantIsForgottenByEveryProcess(t *testing.T) {
	s := compatSite(t)
	first, second := s.start(t), s.start(t)
	client, done := newClient()
	defer done()
	id := cutResult(t, client, first, 1)
	reads := func(want bool) {
		t.Helper()
		for i, g := range []*testGateway{first, second} {
			if got := readBack(t, client, g, id); strings.Contains(got, "text 1, line 200:") != want || strings.Contains(got, "unknown or expired") == want {
				t.Errorf("gateway %d: %.300s; want readable %v", i, got, want)
			}
		}
		code := 0
		if !want {
			code = 4
		}
		s.run(t, code, "recover", id)
	}
	reads(true)
	if out, _ := s.run(t, 0, "tenant", "forget", "nobody"); !strings.Contains(out, "0 secrets destroyed") {
		t.Errorf("of nobody: %s", out)
	}
	reads(true)
	if out, _ := s.run(t, 0, "tenant", "forget", "default"); !strings.Contains(out, `the tenant "default": 1 secret destroyed`) {
		t.Errorf("of the tenant: %s", out)
	}
	reads(false)
	if again := cutResult(t, client, second, 1); again != id {
		t.Errorf("the same text has the id %s, before %s", again, id)
	}
	reads(true)
	s.run(t, 2, "tenant", "forget")
}

// A gateway that is restarted with another root secret reads what was stored under the old one, as long as that is
// listed. Without it the ids are unknown.
func TestRootSecretIsRotated(t *testing.T) {
	s := compatSite(t)
	client, done := newClient()
	defer done()
	g := s.start(t)
	old := cutResult(t, client, g, 1)
	g.stop(t)
	config, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	next := filepath.Join(s.dir, "next-secret")
	if err := os.WriteFile(next, bytes.Repeat([]byte("n"), 40), 0o600); err != nil {
		t.Fatal(err)
	}
	write := func(top string) {
		t.Helper()
		if err := os.WriteFile(s.config, append([]byte(top), config...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(fmt.Sprintf("secret = \"file:%s\"\nold_secrets = [\"file:%s\"]\n", next, filepath.Join(s.data, "secret")))
	g = s.start(t)
	fresh := cutResult(t, client, g, 1)
	if fresh == old {
		t.Error("the new secret gives the old id")
	}
	for _, id := range []string{old, fresh} {
		if got := readBack(t, client, g, id); strings.Contains(got, "unknown or expired") {
			t.Errorf("%s: %.300s", id, got)
		}
	}
	g.stop(t)
	write(fmt.Sprintf("secret = \"file:%s\"\n", next))
	g = s.start(t)
	if got := readBack(t, client, g, old); !strings.Contains(got, "unknown or expired") {
		t.Errorf("without the old secret: %.300s", got)
	}
	if got := readBack(t, client, g, fresh); strings.Contains(got, "unknown or expired") {
		t.Errorf("the new id: %.300s", got)
	}
}
