package peers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// startProvider starts a real identity provider, oidc-provider, with a new key.
func startProvider(t *testing.T, address, keyID string) *process.Process {
	t.Helper()
	module(t, "oidc-provider", "package.json")
	_, port, _ := strings.Cut(address, ":")
	p := startProcess(t, "provider-"+keyID, exec.Command(node(t), npm(t, "identity-provider.mjs"), port, keyID))
	err := wait.Until(startLimit, "the identity provider did not start", func() (bool, error) {
		resp, err := http.Get("http://" + address + "/.well-known/openid-configuration")
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// clientCredentials gets a token for a resource, as a program without a user does.
func clientCredentials(t *testing.T, issuer, resource string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "scope": {"mcp"}, "resource": {resource}}
	req, _ := http.NewRequest(http.MethodPost, issuer+"/token", strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth("agent", "agent-secret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Token == "" {
		t.Fatalf("status %d, %v", resp.StatusCode, err)
	}
	return answer.Token
}

// listTools asks the gateway for its tools.
func listTools(t *testing.T, at, token string) (status int, challenge string) {
	t.Helper()
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
	req, _ := http.NewRequest(http.MethodPost, at, strings.NewReader(body))
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list",
	} {
		req.Header.Set(name, value)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode == http.StatusOK && !strings.Contains(string(text), `"tools"`) {
		t.Errorf("got %s", text)
	}
	return resp.StatusCode, resp.Header.Get("WWW-Authenticate")
}

// Tokens of a real identity provider: JWTs and opaque ones, for the gateway and for others; the provider goes away and
// comes back with another key.
func TestIdentityProvider(t *testing.T) {
	t.Parallel()
	idp, address := freeAddress(t), freeAddress(t)
	issuer, base := "http://"+idp, "http://"+address
	first := startProvider(t, idp, "k1")
	home := t.TempDir()
	s := site{home: home, config: filepath.Join(home, "ctxgate.toml")}
	text := fmt.Sprintf(`listen = %q
public_url = %q
data_dir = %q
[state]
driver = "memory"
[oidc]
issuer = %q
audience = "urn:ctxgate"
tenant_claim = "org"
roles_claim = "groups"
scopes = ["mcp"]
[oidc.introspection]
client_id = "gateway"
client_secret = "file:%s"
[access]
default = "deny"
[[access.rules]]
effect = "allow"
when = 'caller.tenant == "acme" && caller.subject == "agent" && "dev" in caller.roles && caller.issuer == %q'
`, address, base, filepath.Join(home, "data"), issuer, filepath.Join(home, "secret"), issuer)
	if err := os.WriteFile(filepath.Join(home, "secret"), []byte("gateway-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	serveSite(t, s)

	// RFC 9728: from the refusal to the provider.
	status, challenge := listTools(t, base+"/mcp", "")
	at := regexp.MustCompile(`^Bearer resource_metadata="([^"]+)", scope="mcp"$`).FindStringSubmatch(challenge)
	if status != http.StatusUnauthorized || at == nil {
		t.Fatalf("status %d, %q", status, challenge)
	}
	resp, err := http.Get(at[1])
	if err != nil {
		t.Fatal(err)
	}
	var metadata struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
	}
	err = json.NewDecoder(resp.Body).Decode(&metadata)
	resp.Body.Close()
	if err != nil || metadata.Resource != base+"/mcp" || len(metadata.Servers) != 1 || metadata.Servers[0] != issuer {
		t.Fatalf("%+v, %v", metadata, err)
	}

	token := func(resource string) string { return clientCredentials(t, issuer, resource) }
	check := func(name, at, token string, want int, inChallenge string) {
		t.Helper()
		if status, challenge := listTools(t, at, token); status != want || !strings.Contains(challenge, inChallenge) {
			t.Errorf("%s: status %d, %q", name, status, challenge)
		}
	}
	jwt, opaque, unused := token("urn:ctxgate"), token("urn:opaque"), token("urn:ctxgate")
	ofOne := token(base + "/mcp/files")
	check("a JWT", base+"/mcp", jwt, 200, "")
	check("a JWT for the endpoint", base+"/mcp", token(base+"/mcp"), 200, "")
	check("an opaque token", base+"/mcp", opaque, 200, "")
	check("a JWT for another", base+"/mcp", token("https://other.example.com/mcp"), 401, `error="invalid_token"`)
	check("a JWT for one server", base+"/mcp", ofOne, 401, `error="invalid_token"`)
	check("a changed JWT", base+"/mcp", jwt[:len(jwt)-10]+"AAAAAAAAAA", 401, `error="invalid_token"`)
	check("an unknown opaque token", base+"/mcp", opaque+"x", 401, `error="invalid_token"`)

	// The provider goes away: what is known works, and nothing else.
	first.Kill()
	check("a JWT without the provider", base+"/mcp", jwt, 200, "")
	check("a new JWT without the provider", base+"/mcp", unused, 200, "")
	check("an opaque token without the provider", base+"/mcp", opaque, 200, "")
	if status, _ := listTools(t, base+"/mcp", opaque+"y"); status < 400 {
		t.Errorf("an unknown opaque token without the provider: status %d", status)
	}

	// It comes back with another key.
	startProvider(t, idp, "k2")
	rotated := token("urn:ctxgate")
	err = wait.Until(30*time.Second, "the new key is not accepted", func() (bool, error) {
		status, _ := listTools(t, base+"/mcp", rotated)
		return status == http.StatusOK, nil
	})
	if err != nil {
		t.Error(err)
	}
	check("a JWT of the key that was withdrawn", base+"/mcp", jwt, 401, `error="invalid_token"`)
}

// The commands of docs/identity.md work, in order.
func TestIdentityDocument(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "identity.md"))
	if err != nil {
		t.Fatal(err)
	}
	idp, address := freeAddress(t), freeAddress(t)
	startProvider(t, idp, "k1")
	var script strings.Builder
	script.WriteString("set -eu\n")
	for block := range strings.SplitSeq(string(doc), "```sh\n") {
		if commands, _, ok := strings.Cut(block, "```"); ok && !strings.HasPrefix(block, "# Who calls") {
			script.WriteString(commands)
		}
	}
	text := strings.NewReplacer("https://idp.example.com", "http://"+idp, "127.0.0.1:8000", address).Replace(script.String())
	home := t.TempDir()
	cmd := exec.Command("bash")
	cmd.Dir = home
	cmd.Env = append(gateway.Environment(home, gateway.NoPruner, "CTXGATE_ADMIN_LISTEN="), "PATH="+filepath.Dir(ctxgate.path(t))+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Stdin = strings.NewReader(text)
	cmd.WaitDelay = exitLimit
	out, err := cmd.CombinedOutput()
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(home, "ctxgate.log"))
		t.Fatalf("%v\n%s\n%s", err, out, log)
	}
	for _, want := range []string{"ann 200", "ann's new token 200", "ann's old token 401", "nobody 401", "agent 200", `"authorization_servers":["http://` + idp + `"]`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the commands did not print %q:\n%s", want, out)
		}
	}
}
