package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

// The tests of this file and of document001, document002 and document003 run the examples, test lists and
// tables of the user's documents against the default configuration. docs/documents.md covers the rest.

// startDocument000 starts a gateway with the document's four servers, whose ports are replaced by a fake
// server's, and the default configuration otherwise.
func startDocument000(t *testing.T, m handler, more string) *testGateway {
	t.Helper()
	up, err := startFakeServer(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.close)
	table, err := os.ReadFile(filepath.Join("testdata", "documents", "000-servers.toml"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(table)
	for _, port := range []string{"8004", "8005", "8006", "8007"} {
		text = strings.ReplaceAll(text, "http://127.0.0.1:"+port, up.url)
	}
	return startDocument000With(t, text, more)
}

func startDocument000With(t *testing.T, servers, more string) *testGateway {
	t.Helper()
	dir := t.TempDir()
	s := site{dir: dir, config: filepath.Join(dir, "ctxgate.toml"), data: filepath.Join(dir, "data")}
	text := fmt.Sprintf("listen = \"127.0.0.1:0\"\ndata_dir = %q\n%s\n[admin]\nlisten = \"127.0.0.1:0\"\n%s", s.data, more, servers)
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.start(t)
}

var document000Servers = []string{"fast-filesystem", "json-query", "sequential-thinking", "shrimp-task-manager"}

// G6, 000 "Mapping Serveurs": the document's table with its four ports is a valid configuration.
func TestDocument000ServerTable(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs(filepath.Join("testdata", "documents", "000-servers.toml"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "check", "--config", file)
	home := t.TempDir()
	cmd.Dir, cmd.Env = home, gateway.Environment(home)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range document000Servers {
		if want := fmt.Sprintf("id = %q\nrpc = \"http://127.0.0.1:%d\"\n", name, 8004+i); !strings.Contains(string(text), want) {
			t.Errorf("the table lacks %s", want)
		}
	}
	_, table, _ := strings.Cut(string(text), "\n\n")
	if page, err := os.ReadFile(filepath.Join("..", "docs", "documents.md")); err != nil || !strings.Contains(string(page), "```toml\n"+table+"```") {
		t.Errorf("docs/documents.md does not show the table as it is tested: %v", err)
	}
}

// 000 "Tests Unitaires": une string de 10000 chars devient head, marqueur, tail, pas plus longue que
// max_chars et le marqueur. The default configuration adds one line to the marker, by which the original
// can be read back (G+1); with recover_line = false the form is the document's to the byte.
func TestDocument000String(t *testing.T) {
	t.Parallel()
	input := strings.Repeat("début ", 1000) + strings.Repeat("suite.", 666) + "fini" // 10000 characters
	if n := utf8.RuneCountInString(input); n != 10000 {
		t.Fatalf("the input has %d characters", n)
	}
	runes := []rune(input)
	head, tail := string(runes[:2000]), string(runes[8000:])
	const marker = "\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=10000 head=2000 tail=2000] ...\n"
	for more, exact := range map[string]bool{"": false, "masking = { recover_line = false }": true} {
		g := startDocument000(t, func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, c rpcCall) {
			replyText(w, c, quoteJSON(input))
		}, more)
		client, done := newClient()
		defer done()
		for _, server := range document000Servers {
			status, body, err := post(client, g.RPC(server), `{"jsonrpc":"2.0","id":"ide-1","method":"tools/call","params":{"name":"read_file","arguments":{"path":"a"}}}`, nil)
			if err != nil || status != http.StatusOK {
				t.Fatalf("%s: %d %s %v", server, status, body, err)
			}
			var answer struct {
				JSONRPC, ID string
				Result      struct{ Content []struct{ Text string } }
			}
			if err := json.Unmarshal(body, &answer); err != nil || answer.JSONRPC != "2.0" || answer.ID != "ide-1" {
				t.Fatalf("%s: %s %v", server, body, err)
			}
			text := answer.Result.Content[0].Text
			if !strings.HasPrefix(text, head+marker) || !strings.HasSuffix(text, tail) {
				t.Errorf("%s: head, marker or tail is missing: %q", server, text[2000:min(len(text), 2400)])
			}
			if exact && text != head+marker+tail {
				t.Errorf("%s: not the document's form", server)
			}
			const recoverLine = 80 // [recover: prune_id=… chars=2001-8000] and its line break
			if n := utf8.RuneCountInString(text); n > 4000+utf8.RuneCountInString(marker)+recoverLine {
				t.Errorf("%s: %d characters", server, n)
			}
		}
	}
}

// 000 "Test sur structure JSON": a dict that holds a list and a nested dict; error.data too. What is short
// keeps its bytes.
func TestDocument000Structure(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	cut := strings.Repeat("x", 2000) + `\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=5000 head=2000 tail=2000] ...\n` + strings.Repeat("x", 2000)
	const result = `"result":{"a":["LONG",{"b":{"c":"LONG","n":1.0e2}},null],"court":"été","base64":"LONG"}`
	const failure = `"error":{"code":-1,"message":"m","data":{"trace":["LONG"]}}`
	for _, member := range []string{result, failure} {
		g := startDocument000(t, func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, c rpcCall) {
			sendBody(w, "application/json", []byte(`{"jsonrpc":"2.0",`+strings.ReplaceAll(member, "LONG", long)+`,"id":`+string(c.ID)+`}`))
		}, "masking = { recover_line = false }")
		client, done := newClient()
		defer done()
		status, body, err := post(client, g.RPC("json-query"), `{"jsonrpc":"2.0","id":7,"method":"query"}`, nil)
		if want := `{"jsonrpc":"2.0",` + strings.ReplaceAll(member, "LONG", cut) + `,"id":7}`; err != nil || status != http.StatusOK || string(body) != want {
			t.Errorf("%d %v\n got %.300s\nwant %.300s", status, err, body, want)
		}
	}
}

// 000 "Test erreurs forwarding" and "Contraintes": a server that is down or too slow, an answer that is no
// JSON, a server that is not in the table: a JSON-RPC error with the request's id, never an exception.
func TestDocument000Errors(t *testing.T) {
	t.Parallel()
	gone, err := process.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	hold := func(u *fakeServer, _ http.ResponseWriter, r *http.Request, _ rpcCall) { u.waitForRelease(r) }
	page := func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, _ rpcCall) {
		sendBody(w, "text/html", []byte("<h1>not JSON</h1>"))
	}
	slow := startDocument000(t, hold, "response_timeout = 1")
	htmlServer := startDocument000(t, page, "")
	down := startDocument000With(t, fmt.Sprintf("[[servers]]\nid = \"fast-filesystem\"\nrpc = \"http://%s\"\n", gone), "")
	client, done := newClient()
	defer done()
	for name, tt := range map[string]struct {
		g      *testGateway
		server string
		code   int
	}{
		"TimeoutException": {slow, "fast-filesystem", -32002},
		"ConnectError":     {down, "fast-filesystem", -32002},
		"non-JSON":         {htmlServer, "shrimp-task-manager", -32003},
		"inconnu":          {htmlServer, "unknown", -32001},
	} {
		_, body, err := post(client, tt.g.RPC(tt.server), `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{}}`, nil)
		var answer struct {
			JSONRPC string
			ID      int
			Error   struct {
				Code    int
				Message string
			}
		}
		if err != nil || json.Unmarshal(body, &answer) != nil || answer.JSONRPC != "2.0" || answer.ID != 9 || answer.Error.Code != tt.code || answer.Error.Message == "" {
			t.Errorf("%s: %s %v", name, body, err)
		}
	}
}
