package clientfile

import (
	"strings"
	"testing"
)

// oneEntry rewires a file with one server and returns the new text.
func oneEntry(t *testing.T, client, path, in string, passEnv ...string) string {
	t.Helper()
	f := At(testEnv("/home/ann"), client, path, User)
	content, err := f.Read([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	var move []Move
	for _, s := range content.Servers {
		if s.Keep == "" {
			move = append(move, Move{Server: s})
		}
	}
	out, err := f.Rewire([]byte(in), Entry{Name: "ctxgate", Command: "/bin/ctxgate", Args: []string{"stdio"}, PassEnv: passEnv}, move)
	if err != nil {
		t.Fatal(err)
	}
	return string(out.Data)
}

// Claude Code, Cline and Claude Desktop drop the whole file for one comment; Gemini CLI does not start with a trailing comma.
// Such a file is left alone, with the line to correct.
func TestAFileThatTheClientRejectsIsNotRewired(t *testing.T) {
	const comment, comma = "{\n  // mine\n  \"mcpServers\": {}\n}", "{\n  \"mcpServers\": {},\n}"
	for _, c := range []struct{ client, in, want string }{
		{"claude-code", comment, "Claude Code itself does not read this file (line 2: a comment"},
		{"claude-desktop", comment, "line 2: a comment"},
		{"cline", comment, "line 2: a comment"},
		{"gemini", comma, "Gemini CLI itself does not read this file (line 2: a comma"},
		{"qwen", comma, "line 2: a comma"},
	} {
		f := At(testEnv("/home/ann"), c.client, "/f.json", User)
		_, readErr := f.Read([]byte(c.in))
		_, rewireErr := f.Rewire([]byte(c.in), Entry{Name: "ctxgate"}, nil)
		for _, err := range []error{readErr, rewireErr} {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", c.client, err)
			}
		}
	}
	for _, client := range []string{"vscode", "opencode", "zed", "copilot", "cursor"} {
		if _, err := At(testEnv("/home/ann"), client, "/f.json", User).Read([]byte("{\n  // c\n  \"a\": [1,],\n}")); err != nil {
			t.Errorf("%s reads comments and trailing commas: %v", client, err)
		}
	}
}

// Codex passes on ten variables, and Gemini CLI none whose name looks secret: what ctxgate needs is named in its entry.
func TestVariablesReachTheGateway(t *testing.T) {
	for _, c := range []struct{ client, path, in, want string }{
		{"codex", "/config.toml", "", `env_vars = ["MY_API_KEY"]`},
		{"gemini", "/settings.json", "", `"MY_API_KEY": "$MY_API_KEY"`},
		{"cursor", "/mcp.json", "", `"MY_API_KEY": "${env:MY_API_KEY}"`},
		{"vscode", "/mcp.json", "", `"MY_API_KEY": "${env:MY_API_KEY}"`},
	} {
		if got := oneEntry(t, c.client, c.path, c.in, "MY_API_KEY"); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s is missing in\n%s", c.client, c.want, got)
		}
	}
	// These pass on everything.
	for _, client := range []string{"claude-code", "qwen", "opencode", "copilot", "cline"} {
		if got := oneEntry(t, client, "/x.json", "", "MY_API_KEY"); strings.Contains(got, "MY_API_KEY") {
			t.Errorf("%s: needs no list of variables:\n%s", client, got)
		}
	}
}

// Codex gives ${VAR} to the child as it is, Gemini CLI and Qwen Code replace it everywhere: the same text means different things.
func TestTheSameTextIsAReferenceOnlyWhereTheClientExpandsIt(t *testing.T) {
	for _, c := range []struct {
		client, text string
		want         string
		in           field
	}{
		{"claude-code", "${A:-x y}-$B", "<env A or x y>-$B", inCommand},
		{"claude-desktop", "${A}", "${A}", inEnv},
		{"codex", "${A}", "${A}", inEnv},
		{"zed", "$A", "$A", inEnv},
		{"cursor", "${env:A}/${A}", "<env A>/<client A>", inEnv},
		{"vscode", "${input:key}", "<client input:key>", inEnv},
		{"cline", "${env:A}${B}", "<env A>${B}", inEnv},
		{"windsurf", "${file:/k}${B}", "<file /k>${B}", inHeaders},
		{"continue", "${{ secrets.A }}${B}", "<secret A>${B}", inEnv},
		{"gemini", "$A-${B}%C%", "<env A>-<env B>%C%", inCommand},
		{"opencode", "{env:A}${B}{file:./k}", "<env A>${B}<file ./k>", inEnv},
		{"copilot", "$A", "<env A>", inEnv},
		{"copilot", "$A", "$A", inCommand},
		{"goose", "$A", "$A", inEnv},
		{"goose", "Bearer $A", "Bearer <env A>", inHeaders},
	} {
		if got := show(At(testEnv("/home/ann"), c.client, "/f", User).valueOf(c.text, c.in)); got != c.want {
			t.Errorf("%s: %q is %s, want %s", c.client, c.text, got, c.want)
		}
	}
	windows := testEnv(`C:\Users\ann`)
	windows.GOOS = "windows"
	if got := show(At(windows, "gemini", "/f", User).valueOf("%APPDATA%/x", inCommand)); got != "<env APPDATA>/x" {
		t.Errorf("on Windows: %s", got)
	}
}

// A secret in a file is not resolved, and not repeated elsewhere: what is written is what was there.
func TestReferencesAreNotResolved(t *testing.T) {
	in := `{"mcpServers": {"a": {"command": "x", "env": {"T": "$SECRET"}}, "stays": {"command": "${input:y}"}}}`
	env := testEnv("/home/ann")
	env.Lookup = lookup(map[string]string{"SECRET": "s3cr3t"})
	f := At(env, "gemini", "/settings.json", User)
	content, err := f.Read([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.Rewire([]byte(in), Entry{Name: "ctxgate", Command: "c", PassEnv: []string{"SECRET"}}, []Move{{Server: content.Servers[0]}})
	if err != nil || strings.Contains(string(out.Data), "s3cr3t") || !strings.Contains(string(out.Data), `"$SECRET"`) {
		t.Errorf("%v: %s", err, out.Data)
	}
}

// A url without a type means something else to each client.
func TestAURLWithoutAType(t *testing.T) {
	for _, c := range []struct {
		client, key, url, want string
	}{
		{"claude-code", "url", "https://e.com/mcp", "ignored"},
		{"claude-desktop", "url", "https://e.com/mcp", "ignored"},
		{"cline", "url", "https://e.com/mcp", "sse"},
		{"qwen", "url", "https://e.com/mcp", "sse"},
		{"qwen", "httpUrl", "https://e.com/mcp", "http"},
		{"gemini", "url", "https://e.com/mcp", "http?"},
		{"gemini", "url", "https://e.com/sse?x=1", "sse?"},
		{"gemini", "httpUrl", "https://e.com/sse", "http"},
		{"windsurf", "serverUrl", "https://e.com/sse", "sse?"},
		{"vscode", "url", "https://e.com/sse", "http"},
	} {
		f := At(testEnv("/home/ann"), c.client, "/f.json", User)
		s := f.server("x", map[string]any{c.key: c.url})
		got := string(s.Transport)
		if s.TransportGuess {
			got += "?"
		}
		if s.Keep != "" {
			got = "ignored"
		}
		if got != c.want {
			t.Errorf("%s %s %s: %s, want %s", c.client, c.key, c.url, got, c.want)
		}
	}
}

// An entry of the name ctxgate is replaced, also by a second run, and nothing else changes.
func TestASecondRunChangesNothing(t *testing.T) {
	for _, c := range []struct{ client, path, in string }{
		{"cursor", "/mcp.json", "{\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\"}\n\t}\n}\n"},
		{"codex", "/config.toml", "# c\n[mcp_servers.a]\ncommand = \"x\"\n\n[tui]\n"},
		{"goose", "/config.yaml", "extensions:\n  a:\n    type: stdio\n    cmd: x\n# end\n"},
		{"continue", "/config.yaml", "mcpServers:\n  - name: a\n    command: x\n"},
	} {
		once := oneEntry(t, c.client, c.path, c.in)
		if twice := oneEntry(t, c.client, c.path, once); twice != once {
			t.Errorf("%s: first\n%s\nsecond\n%s", c.client, once, twice)
		}
	}
}

// A new file is what the client itself would make.
func TestANewFile(t *testing.T) {
	for _, c := range []struct{ client, path, want string }{
		{"cursor", "/mcp.json", "{\n  \"mcpServers\": {\n    \"ctxgate\": {\n      \"command\": \"/bin/ctxgate\",\n      \"args\": [\"stdio\"]\n    }\n  }\n}\n"},
		{"codex", "/config.toml", "[mcp_servers.ctxgate]\ncommand = \"/bin/ctxgate\"\nargs = [\"stdio\"]\n"},
		{"continue", "/config.yaml", "name: Local Config\nversion: 1.0.0\nschema: v1\nmcpServers:\n  - name: ctxgate\n    command: /bin/ctxgate\n    args:\n      - stdio\n"},
	} {
		if got := oneEntry(t, c.client, c.path, ""); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.client, got, c.want)
		}
	}
}

// What a client does for a server that ctxgate would not do: the server stays.
func TestServersThatRunElsewhereStay(t *testing.T) {
	for _, c := range []struct {
		client string
		fields map[string]any
	}{
		{"vscode", map[string]any{"command": "x", "sandboxEnabled": true}},
		{"zed", map[string]any{"command": "x", "remote": true}},
		{"codex", map[string]any{"command": "x", "environment_id": "cloud"}},
		{"claude-code", map[string]any{"type": "http", "url": "https://e.com", "headersHelper": "x"}},
	} {
		if s := At(testEnv("/home/ann"), c.client, "/f", User).server("x", c.fields); s.Keep == "" {
			t.Errorf("%s: %v can be moved", c.client, c.fields)
		}
	}
}

// The client that is registered with an OAuth server is kept, under whichever names.
func TestRegisteredOAuthClients(t *testing.T) {
	for _, c := range []struct {
		client string
		fields map[string]any
	}{
		{"claude-code", map[string]any{"type": "http", "url": "https://e.com", "oauth": map[string]any{"clientId": "id", "scopes": []any{"a", "b"}}}},
		{"cursor", map[string]any{"url": "https://e.com", "auth": map[string]any{"CLIENT_ID": "id", "CLIENT_SECRET": "${env:S}", "scopes": []any{"a", "b"}}}},
		{"codex", map[string]any{"url": "https://e.com", "oauth": map[string]any{"client_id": "id"}, "scopes": []any{"a", "b"}}},
		{"opencode", map[string]any{"type": "remote", "url": "https://e.com", "oauth": map[string]any{"clientId": "id", "scope": "a b"}}},
		{"copilot", map[string]any{"type": "http", "url": "https://e.com", "oauthClientId": "id", "scopes": []any{"a", "b"}}},
	} {
		s := At(testEnv("/home/ann"), c.client, "/f", User).server("x", c.fields)
		if !s.OAuth || s.OAuthClient.ID.Text != "id" || strings.Join(s.OAuthClient.Scopes, " ") != "a b" {
			t.Errorf("%s: %+v", c.client, s.OAuthClient)
		}
	}
}
