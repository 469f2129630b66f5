package setup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/jsonedit"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/tomledit"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/internal/yamledit"
	"github.com/ctxgate/ctxgate/setup/clientfile"
	"github.com/ctxgate/ctxgate/upstream"
)

// clientKeys are the keys under which clients list servers, and a client that does so. In ctxgate's own configuration
// "servers" is a list, not a table.
var clientKeys = []struct{ key, client string }{
	{"mcpServers", "claude-code"}, {"servers", "vscode"}, {"mcp_servers", "codex"}, {"mcp", "opencode"}, {"context_servers", "zed"}, {"extensions", "goose"},
}

// LoadClientFile loads the servers of a file that is a client's, not ctxgate's, with the profile agents. ok is false for
// any other file. Servers that cannot be used are left out with a warning.
func LoadClientFile(path string, data []byte, env clientfile.Env, vars config.Env) (loaded config.Loaded, ok bool, problems config.Problems) {
	file, ok := clientFileOf(path, data, env)
	if !ok {
		return config.Loaded{}, false, nil
	}
	loaded, problems = config.LoadBytes("client.toml", []byte(`profile = "agents"`), vars)
	loaded.File.Path = path
	content, err := file.Read(data)
	if err != nil {
		return loaded, true, append(problems, config.Problem{File: path, Text: strings.TrimPrefix(err.Error(), path+": ")})
	}
	loaded.Warnings = append(loaded.Warnings, fmt.Sprintf("%s is a file of MCP clients; its servers are used as they are. 'ctxgate init' moves the servers of your agents behind ctxgate", path))
	taken := idSet{}
	for _, s := range content.Servers {
		if s.Keep != "" && !strings.Contains(s.Keep, "ignores it") {
			loaded.Warnings = append(loaded.Warnings, s.Name+" is left out: "+s.Keep)
			continue
		}
		loaded.Upstream.Servers = append(loaded.Upstream.Servers, directServer(s, taken.choose(s.Name, file.Client), vars.Lookup))
	}
	return loaded, true, problems
}

// clientFileOf tells by a file's place, or by the keys in it, whose it is.
func clientFileOf(path string, data []byte, env clientfile.Env) (clientfile.File, bool) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return clientfile.File{}, false
	}
	var doc document
	switch strings.ToLower(filepath.Ext(path)) {
	case ".toml":
		doc, err = tomledit.Parse(data)
	case ".json", ".jsonc":
		doc, err = jsonedit.Parse(data, jsonedit.JSONC)
	case ".yaml", ".yml":
		doc, err = yamledit.Parse(data)
	default:
		return clientfile.File{}, false
	}
	if err != nil {
		return clientfile.File{}, false
	}
	for _, k := range clientKeys {
		value, _, _ := doc.Value(k.key)
		_, isTable := value.(map[string]any)
		_, isList := value.([]any)
		if !isTable && (!isList || k.key != "mcpServers") {
			continue
		}
		for _, f := range clientfile.Find(env) {
			if f.Path == absolute {
				return f, true
			}
		}
		switch {
		case isList: // a YAML file with a list
			k.client = "continue"
		case k.client == "claude-code" && strings.Contains(string(data), "${env:"), k.client == "claude-code" && strings.Contains(string(data), "//"):
			if _, err := jsonedit.Parse(data, jsonedit.Strict); err != nil || strings.Contains(string(data), "${env:") {
				k.client = "cursor"
			}
		}
		return clientfile.At(env, k.client, absolute, clientfile.Project), true
	}
	return clientfile.File{}, false
}

// directServer is a client's server as ctxgate starts it, with its references resolved.
func directServer(s clientfile.Server, id string, lookup func(string) (string, bool)) upstream.ServerConfig {
	c := upstream.ServerConfig{}
	c.SetDefaults()
	c.ID, c.Disabled, c.EnabledTools, c.DisabledTools = id, s.Disabled, s.EnabledTools, s.DisabledTools
	c.ResponseTimeout = unit.Duration(s.Timeout)
	if s.StartupTimeout > 0 {
		c.StartupTimeout = unit.Duration(s.StartupTimeout)
	}
	resolve := func(v clientfile.Value) string {
		var b strings.Builder
		for _, p := range v.Parts {
			switch p.Kind {
			case clientfile.EnvRef, clientfile.SecretRef:
				value, _ := lookup(p.Name)
				if value == "" {
					value = p.Default
				}
				if value == "" && c.Fault == "" {
					c.Fault = "environment variable " + p.Name + " is not set"
				}
				b.WriteString(value)
			case clientfile.FileContent:
				text, err := secret.Parse("file:" + p.Name).Resolve(lookup)
				if err != nil && c.Fault == "" {
					c.Fault = err.Error()
				}
				b.WriteString(text.Reveal())
			default:
				b.WriteString(p.Text)
			}
		}
		return b.String()
	}
	keep := func(name, value string) secret.Text {
		if isCredential(name, value) {
			secret.Register(value)
		}
		return secret.Literal(value)
	}
	if s.Transport == clientfile.Stdio {
		for _, v := range append([]clientfile.Value{s.Command}, s.Args...) {
			c.Command = append(c.Command, resolve(v))
		}
		c.Cwd = resolve(s.Cwd)
		c.Env = map[string]secret.Text{}
		for _, v := range s.Env {
			c.Env[v.Name] = keep(v.Name, resolve(v.Value))
		}
		for _, name := range s.PassEnv {
			if value, isSet := lookup(name); isSet && !slices.ContainsFunc(s.Env, func(v clientfile.Var) bool { return v.Name == name }) {
				c.Env[name] = keep(name, value)
			}
		}
		return c
	}
	c.URL = secret.URL(resolve(s.URL))
	if s.Transport == clientfile.SSE {
		c.Transport = "sse"
	}
	c.Headers = map[string]secret.Text{}
	for _, h := range s.Headers {
		c.Headers[h.Name] = keep(h.Name, resolve(h.Value))
	}
	return c
}
