package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// What released versions wrote is kept in testdata/compat, one directory per version: configs holds config files that
// users of that version have, data a data directory with its store, and originals.json what is in it.
//
// Every later version loads all of it. A change that cannot must migrate it or answer with a message that says what to
// do, and then a test here expects that message. To add the files of a release, check out its tag and run
//
//	go test ./e2e -run TestCompat -write-compat v1.2.3   (with -compat-binary to write it with another ctxgate)
//
// and add the config files of that version by hand.
const compatDir = "testdata/compat"

var (
	writeCompat  = flag.String("write-compat", "", "write the store of this version to testdata/compat")
	compatBinary = flag.String("compat-binary", "", "the ctxgate that writes it, if not the one under test")
)

// compatOriginal is a text in the store of a version.
type compatOriginal struct {
	ID     string `json:"id"`
	Call   string `json:"tool_call_id,omitempty"` // recorded since v0.1.0
	Server string `json:"server"`
	Tool   string `json:"tool"`
	Seed   int    `json:"seed"` // of compatText
	SHA256 string `json:"sha256"`
}

const compatServer, compatLarge, compatTurns = "up", 6, 12

// compatText is a text of about 20 KB, or 3 MiB for one seed, that compresses well.
func compatText(seed int) string {
	lines := 400
	if seed == compatLarge {
		lines = 60_000
	}
	var b strings.Builder
	for i := range lines {
		fmt.Fprintf(&b, "text %d, line %d: é 漢字 \"quoted\"\t%d\n", seed, i, i%7)
	}
	return b.String()
}

func hashText(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// compatSite is a site whose MCP server answers with compatText, and whose store never expires.
func compatSite(t *testing.T) site {
	t.Helper()
	up, err := startFakeServer(func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, c rpcCall) {
		replyText(w, c, quoteJSON(compatText(c.intArg("seed"))))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.close)
	provider := fakeprovider.New(t, fakeprovider.Options{NoCache: true})
	provider.ScriptFunc(func(fakeprovider.Request) fakeprovider.Step { return fakeprovider.ReplyText("Done.") })
	return newSite(t, up.url, fmt.Sprintf("[state]\nttl = \"36500d\"\n[[providers]]\nname = \"anthropic\"\nkind = \"anthropic\"\nbase_url = %q\n", provider.URL))
}

// cutResult calls the server through the gateway and returns the id in the marker.
func cutResult(t *testing.T, client *http.Client, g *testGateway, seed int) string {
	t.Helper()
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read","arguments":{"seed":%d}}}`, seed)
	status, reply, err := post(client, g.RPC(compatServer), call, nil)
	id := regexp.MustCompile(`prn_[0-9a-z]{26}`).FindString(string(reply))
	if err != nil || status != http.StatusOK || id == "" {
		t.Fatalf("%d %.300s %v", status, reply, err)
	}
	return id
}

// writeCompatStore writes the store of a version: results of an MCP server, one of them large, and masked results of a
// conversation.
func writeCompatStore(t *testing.T, name string) {
	if *compatBinary != "" {
		under := binary
		binary = *compatBinary
		defer func() { binary = under }()
	}
	s := compatSite(t)
	g := s.start(t)
	client, done := newClient()
	defer done()
	var originals []compatOriginal
	for seed := range compatLarge + 1 {
		originals = append(originals, compatOriginal{ID: cutResult(t, client, g, seed), Server: compatServer, Tool: "read", Seed: seed, SHA256: hashText(compatText(seed))})
	}
	messages := []map[string]any{{"role": "user", "content": "Look around."}}
	for i := range compatTurns {
		id, seed := fmt.Sprintf("toolu_%02d", i), 100+i
		messages = append(messages,
			map[string]any{"role": "assistant", "content": []any{map[string]any{"type": "tool_use", "id": id, "name": "Read", "input": map[string]any{}}}},
			map[string]any{"role": "user", "content": []any{map[string]any{"type": "tool_result", "tool_use_id": id, "content": compatText(seed)}}})
		if i < compatTurns-8 { // the window of the default policy
			originals = append(originals, compatOriginal{Call: id, Server: "llm:anthropic", Tool: "Read", Seed: seed, SHA256: hashText(compatText(seed))})
		}
	}
	body, err := json.Marshal(map[string]any{"model": "claude-test", "max_tokens": 100, "messages": messages,
		"tools": []any{map[string]any{"name": "Read", "input_schema": map[string]any{"type": "object"}}, map[string]any{"name": "recover_text", "input_schema": map[string]any{"type": "object"}}}})
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"X-Api-Key": {"sk-x"}, "Anthropic-Version": {"2023-06-01"}}
	if status, reply, err := post(client, g.URL+"/v1/messages", string(body), header); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s %v", status, reply, err)
	}
	g.stop(t)
	dir := filepath.Join(compatDir, name)
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"ctxgate.db", "secret"} {
		copyFile(t, filepath.Join(s.data, file), filepath.Join(dir, "data", file))
	}
	list, err := json.MarshalIndent(originals, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "originals.json"), append(list, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestCompat: what earlier versions wrote still loads.
func TestCompat(t *testing.T) {
	if *writeCompat != "" {
		writeCompatStore(t, *writeCompat)
	}
	versions, err := filepath.Glob(filepath.Join(compatDir, "*"))
	if err != nil || len(versions) == 0 {
		t.Fatalf("no version in %s: %v", compatDir, err)
	}
	for _, dir := range versions {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Run("configs", func(t *testing.T) { checkCompatConfigs(t, dir) })
			t.Run("store", func(t *testing.T) { checkCompatStore(t, dir) })
		})
	}
}

// checkCompatConfigs: every config file is accepted, without a warning.
func checkCompatConfigs(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "configs", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no config files: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		home := t.TempDir()
		s := site{dir: home, config: filepath.Join(home, filepath.Base(file))}
		// @HOME@ stands for the user's home; references to secrets lead somewhere.
		config := strings.ReplaceAll(string(text), "@HOME@", filepath.ToSlash(home))
		if err := os.WriteFile(s.config, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), binary, "check", "--config", s.config)
		cmd.Dir, cmd.Env = s.dir, s.environ()
		for _, m := range regexp.MustCompile(`(env|file):([A-Za-z0-9_./-]+)`).FindAllStringSubmatch(config, -1) {
			if m[1] == "env" {
				cmd.Env = append(cmd.Env, m[2]+"=0123456789abcdef0123456789abcdef")
				continue
			}
			secret := m[2]
			if !filepath.IsAbs(secret) {
				secret = filepath.Join(home, secret)
			}
			if strings.HasPrefix(secret, home) {
				_ = os.MkdirAll(filepath.Dir(secret), 0o700)
				_ = os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef\n"), 0o600)
			}
		}
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("check of %s: %v\n%s", file, err, out)
		}
	}
}

// checkCompatStore: every original is listed and is read back byte for byte, and a gateway gives the same text the same
// id.
func checkCompatStore(t *testing.T, dir string) {
	raw, err := os.ReadFile(filepath.Join(dir, "originals.json"))
	var originals []compatOriginal
	if err == nil {
		err = json.Unmarshal(raw, &originals)
	}
	if err != nil || len(originals) == 0 {
		t.Fatal(err)
	}
	s := compatSite(t)
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"ctxgate.db", "secret"} {
		copyFile(t, filepath.Join(dir, "data", file), filepath.Join(s.data, file))
	}

	listed := map[string]string{} // ids by hash
	out, _ := s.run(t, 0, "recover", "--list", "--json", "--limit", "1000")
	for line := range strings.Lines(out) {
		var e struct{ ID, Server, Tool string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		text, _ := s.run(t, 0, "recover", e.ID)
		listed[hashText(text)+" "+e.Server+"/"+e.Tool] = e.ID
	}
	for _, o := range originals {
		id := listed[o.SHA256+" "+o.Server+"/"+o.Tool]
		if id == "" || o.ID != "" && id != o.ID {
			t.Errorf("%+v is listed as %q", o, id)
		}
		if hashText(compatText(o.Seed)) != o.SHA256 {
			t.Fatalf("compatText has changed for %d", o.Seed)
		}
		if o.Call != "" && filepath.Base(dir) != "before-v0.1.0" { // which did not record calls
			if text, _ := s.run(t, 0, "recover", "--call", o.Call); hashText(text) != o.SHA256 {
				t.Errorf("--call %s printed %.80q", o.Call, text)
			}
		}
	}
	if len(listed) != len(originals) {
		t.Errorf("%d originals are listed, %d were stored", len(listed), len(originals))
	}

	g := s.start(t)
	client, done := newClient()
	defer done()
	for _, o := range originals {
		if o.Server == compatServer {
			if id := cutResult(t, client, g, o.Seed); id != o.ID {
				t.Errorf("text %d has the id %s, not %s: what a model was shown is not recoverable", o.Seed, id, o.ID)
			}
		}
	}
	g.stop(t)
}
