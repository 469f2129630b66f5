package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
)

// TestRedisStore: what one gateway keeps in Redis, another machine with the same secret reads back.
func TestRedisStore(t *testing.T) {
	up, err := startFakeServer(func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, c rpcCall) {
		seed := c.intArg("seed")
		replyText(w, c, encodeText(seededText(seed), seed))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer up.close()
	server := redisserver.Start(t, redisserver.Single, redisserver.Options{User: "gateway", Password: "pass/word"})
	more := redisLines(t, server)
	here, there := newSite(t, up.url, more), newSite(t, up.url, more)
	g := here.start(t)
	client, done := newClient()
	defer done()
	ids := map[int]string{}
	for seed := range 5 {
		if ids[seed], err = callMasked(client, g.RPC("up"), seed); err != nil {
			t.Fatal(err)
		}
	}
	for seed, id := range ids {
		var text bytes.Buffer
		there.recoverText(t, &text, id)
		if text.String() != seededText(seed) {
			t.Errorf("seed %d: `ctxgate recover %s` prints another text", seed, id)
		}
	}
}

// redisLines configure a store in Redis.
func redisLines(t *testing.T, server *redisserver.Server) string {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(strings.Repeat("s", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("secret = \"file:%s\"\n[state]\ndriver = \"redis\"\nurl = %q\n", path, server.URL())
}

// TestRedisStoreThatLoses: a server that may lose what it acknowledged is refused, unless the configuration allows it. The
// password is in no output.
func TestRedisStoreThatLoses(t *testing.T) {
	server := redisserver.Start(t, redisserver.Single, redisserver.Options{AppendFsync: "everysec", Password: "hunter2hunter2"})
	s := newSite(t, "http://127.0.0.1:1", redisLines(t, server))
	run := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), binary, "recover", "prn_00000000000000000000000000", "--config", s.config)
		cmd.Env, cmd.Dir = append(os.Environ(), s.environ()...), s.dir
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "hunter2") {
			t.Errorf("the output has the password: %s", out)
		}
		return string(out), err
	}
	if out, err := run(); err == nil || !strings.Contains(out, "appendfsync everysec") || !strings.Contains(out, "state.durability") {
		t.Errorf("%v: %s", err, out)
	}
	s.replaceInConfig(t, "[state]\n", "[state]\ndurability = \"none\"\n")
	if out, err := run(); err == nil || strings.Contains(out, "appendfsync") {
		t.Errorf("%v: %s", err, out)
	}
}
