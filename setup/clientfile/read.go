package clientfile

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/ctxgate/ctxgate/clients"
	"github.com/ctxgate/ctxgate/internal/jsonedit"
	"github.com/ctxgate/ctxgate/internal/tomledit"
	"github.com/ctxgate/ctxgate/internal/yamledit"
)

// document is a file that can be read and edited in place.
type document interface {
	Keys(path ...string) ([]string, error)
	Value(path ...string) (any, bool, error)
	Line(path ...string) int
	Comment(path ...string) string
	Set(value any, path ...string) error
	Delete(path ...string) error
	Bytes() []byte
}

// document reads a file's text by the rules of its client.
func (f File) document(data []byte) (document, error) {
	var doc document
	var err error
	switch form := f.form(); form.format {
	case formatTOML:
		doc, err = tomledit.Parse(data)
	case formatYAML:
		doc, err = yamledit.Parse(data)
	default:
		doc, err = jsonedit.Parse(data, form.syntax)
		if err == nil {
			break
		}
		if _, lenient := jsonedit.Parse(data, jsonc); lenient == nil {
			err = fmt.Errorf("%s itself does not read this file (%w); correct it there first", f.clientName(), err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return doc, nil
}

// clientName is what people call the client.
func (f File) clientName() string {
	if c, ok := clients.ByID(f.Client); ok {
		return c.Name
	}
	return f.Client
}

// Read returns the servers of a file's text, in its order. What cannot be moved is marked (Server.Keep). A file
// that the client itself would reject is an error that says so.
func (f File) Read(data []byte) (Content, error) {
	doc, err := f.document(data)
	if err != nil {
		return Content{}, err
	}
	c := Content{}
	for _, place := range f.places(doc) {
		keys, err := doc.Keys(place.path...)
		if err != nil {
			return c, fmt.Errorf("%s: %w", f.Path, err)
		}
		for _, key := range keys {
			path := append(append([]string(nil), place.path...), key)
			value, _, err := doc.Value(path...)
			if err != nil {
				return c, fmt.Errorf("%s: %w", f.Path, err)
			}
			fields, ok := value.(map[string]any)
			if !ok {
				continue
			}
			in := f
			if place.project != "" {
				in.root = place.project
			}
			s := in.server(key, fields)
			s.path, s.Project = path, place.project
			s.Line, s.Comment = doc.Line(path...), doc.Comment(path...)
			c.Servers = append(c.Servers, s)
		}
	}
	f.applySwitches(doc, c.Servers)
	return c, nil
}

// place is a map or list of servers in a file.
type place struct {
	path    []string
	project string
}

// places returns where a document lists servers. The first is where the entry for ctxgate goes.
func (f File) places(doc document) []place {
	form := f.form()
	out := []place{{path: form.path}}
	if form.isBare && isBareMap(doc, form.path[0]) {
		out[0].path = nil
	}
	if f.Client == "claude-code" && f.Scope == User {
		projects, _ := doc.Keys("projects")
		for _, dir := range projects {
			path := []string{"projects", dir, "mcpServers"}
			if keys, err := doc.Keys(path...); err != nil || len(keys) > 0 {
				out = append(out, place{path: path, project: dir})
			}
		}
	}
	return out
}

// isBareMap says that a document is a map of servers, without the key that it usually has.
func isBareMap(doc document, usual string) bool {
	if _, ok, _ := doc.Value(usual); ok {
		return false
	}
	keys, _ := doc.Keys()
	for _, key := range keys {
		value, _, _ := doc.Value(key)
		fields, _ := value.(map[string]any)
		if fields["command"] != nil || fields["url"] != nil {
			return true
		}
	}
	return false
}

// applySwitches marks the servers that another part of the file, or a file beside it, turns off.
func (f File) applySwitches(doc document, servers []Server) {
	var only, except []string
	switch f.Client {
	case "gemini", "qwen":
		allowed, _, _ := doc.Value("mcp", "allowed")
		excluded, _, _ := doc.Value("mcp", "excluded")
		only, except = texts(allowed), texts(excluded)
		if beside := f.beside("mcp-server-enablement.json"); beside != nil {
			for i := range servers {
				v, _, _ := beside.Value(strings.ToLower(strings.TrimSpace(servers[i].Name)), "enabled")
				servers[i].Disabled = servers[i].Disabled || v == false
			}
		}
	case "copilot":
		if beside := f.beside("settings.json"); beside != nil && f.Scope == User {
			v, _, _ := beside.Value("disabledMcpServers")
			except = texts(v)
		}
	case "claude-code":
		f.noteProjectSwitches(doc, servers)
		if managed := f.env.managedServers(); managed != "" {
			for i := range servers {
				servers[i].Keep = "an administrator decides which servers Claude Code starts (" + managed + ")"
			}
		}
	}
	for i := range servers {
		s := &servers[i]
		s.Disabled = s.Disabled || contains(except, s.Name) || len(only) > 0 && !contains(only, s.Name)
	}
}

// beside reads a file in the same directory; nil without one.
func (f File) beside(name string) document {
	data, err := readFile(filepath.Join(filepath.Dir(f.Path), name))
	if err != nil {
		return nil
	}
	doc, err := jsonedit.Parse(data, jsonc)
	if err != nil {
		return nil
	}
	return doc
}

// noteProjectSwitches says which servers of Claude Code are turned off in some projects: behind ctxgate they are on in all.
func (f File) noteProjectSwitches(doc document, servers []Server) {
	projects, _ := doc.Keys("projects")
	for _, dir := range projects {
		v, _, _ := doc.Value("projects", dir, "disabledMcpServers")
		names := texts(v)
		for i := range servers {
			if s := &servers[i]; s.Project == "" && contains(names, s.Name) {
				s.Notes = append(s.Notes, "it is turned off in "+dir+"; behind ctxgate it is there in every project")
			}
		}
	}
}

// server reads one entry.
func (f File) server(name string, fields map[string]any) Server {
	s := Server{Name: name, fields: fields}
	if f.form().isList {
		s.Name = text(fields["name"])
	}
	e := fields
	if nested, ok := fields["transport"].(map[string]any); ok && f.Client == "cline" {
		e = merged(fields, nested)
	}
	f.readProgram(&s, e)
	f.readURL(&s, e)
	f.readSettings(&s, fields)
	s.Gateway = isGateway(s)
	switch {
	case f.form().old != "":
		s.Keep = f.form().old
	case s.Gateway:
		s.Keep = "it is ctxgate itself"
	case s.Keep == "":
		s.Keep = f.reasonToKeep(s, e)
	}
	return s
}

func merged(outer, inner map[string]any) map[string]any {
	m := make(map[string]any, len(outer)+len(inner))
	for k, v := range outer {
		m[k] = v
	}
	for k, v := range inner {
		m[k] = v
	}
	return m
}

// readProgram reads the fields of a program: command, arguments, environment, directory.
func (f File) readProgram(s *Server, e map[string]any) {
	var command string
	var args []string
	switch c := e[f.names().command].(type) {
	case string:
		command, args = c, texts(e["args"])
	case []any: // opencode: one list
		if list := texts(c); len(list) > 0 {
			command, args = list[0], list[1:]
		}
	case map[string]any: // Zed, older: {path, args, env}
		command, args = text(c["path"]), texts(c["args"])
		e = merged(e, map[string]any{"env": c["env"]})
	}
	if command == "" {
		return
	}
	s.Transport = Stdio
	s.Command = f.valueOf(command, inCommand)
	for _, a := range args {
		s.Args = append(s.Args, f.valueOf(a, inCommand))
	}
	s.Env = f.vars(e[f.names().env], inEnv)
	s.EnvFile = f.valueOf(text(e["envFile"]), inCommand)
	cwd := text(e["cwd"])
	if f.root != "" && !strings.HasPrefix(cwd, "$") && !strings.HasPrefix(cwd, "{") && !filepath.IsAbs(cwd) {
		cwd = filepath.Join(f.root, cwd)
	}
	s.Cwd = f.valueOf(cwd, inCommand)
	if f.Client == "codex" {
		for _, v := range list(e["env_vars"]) {
			if t, ok := v.(map[string]any); ok {
				v = t["name"]
			}
			s.PassEnv = append(s.PassEnv, text(v))
		}
	}
	if f.root == "" && cwd == "" {
		for _, a := range append([]string{command}, args...) {
			if a == "." || strings.HasPrefix(a, "./") || strings.HasPrefix(a, "../") {
				s.Notes = append(s.Notes, fmt.Sprintf("%q in its command is relative to the directory in which the client runs; in ctxgate it has one fixed directory", a))
				break
			}
		}
	}
}

// readURL reads the fields of a remote server.
func (f File) readURL(s *Server, e map[string]any) {
	if s.Command.Text != "" {
		return
	}
	var url string
	kind := text(e["type"])
	for _, name := range f.names().url {
		if url = text(e[name]); url != "" {
			if name == "httpUrl" {
				kind = "http"
			}
			break
		}
	}
	if url == "" {
		return
	}
	s.URL = f.valueOf(url, inURL)
	s.Headers = f.headers(e)
	s.Transport, s.TransportGuess, s.Keep = f.transport(kind, url)
	for _, name := range []string{"oauth", "auth", "oauthClient", "oauthClientId", "authProviderType", "oidc"} {
		if v, ok := e[name]; ok && v != nil && v != false {
			s.OAuth = true
		}
	}
	f.readOAuthClient(s, e)
	if s.OAuth {
		s.Notes = append(s.Notes, "it uses OAuth: log in again through ctxgate, the client's login stays with the client")
	}
}

// readOAuthClient reads the registered client: an object whose members each client names in its own way.
func (f File) readOAuthClient(s *Server, e map[string]any) {
	var all map[string]any
	for _, name := range []string{"oauth", "auth", "oauthClient"} {
		if m, ok := e[name].(map[string]any); ok {
			all = merged(all, m)
		}
	}
	pick := func(names ...string) Value {
		for _, m := range []map[string]any{all, e} {
			for _, name := range names {
				if v := text(m[name]); v != "" {
					return f.valueOf(v, inHeaders)
				}
			}
		}
		return Value{}
	}
	s.OAuthClient.ID = pick("clientId", "client_id", "CLIENT_ID", "oauthClientId")
	s.OAuthClient.Secret = pick("clientSecret", "client_secret", "CLIENT_SECRET")
	for _, m := range []map[string]any{all, e} {
		if scopes := texts(m["scopes"]); len(scopes) > 0 && s.OAuthClient.Scopes == nil {
			s.OAuthClient.Scopes = scopes
		}
	}
	if scope := text(all["scope"]); scope != "" && s.OAuthClient.Scopes == nil {
		s.OAuthClient.Scopes = strings.Fields(scope)
	}
}

// transport returns how the client would speak with a URL.
func (f File) transport(kind, url string) (t Transport, isGuess bool, keep string) {
	switch strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(kind)) {
	case "http", "streamablehttp":
		return HTTP, false, ""
	case "sse":
		if f.Client == "goose" {
			return SSE, false, "Goose no longer starts servers of type sse"
		}
		return SSE, false, ""
	case "", "remote":
	default:
		return "", false, fmt.Sprintf("ctxgate does not know its type %q", kind)
	}
	switch f.Client {
	case "claude-code":
		return HTTP, true, `Claude Code ignores it: it has a url and no type; add "type": "http" or "sse"`
	case "claude-desktop":
		return HTTP, true, "Claude Desktop ignores entries with a url; its remote servers are connectors, under Settings"
	case "cline", "qwen":
		return SSE, false, "" // both take a url without a type for SSE
	case "codex", "vscode", "goose":
		return HTTP, false, ""
	}
	if path, _, _ := strings.Cut(url, "?"); strings.HasSuffix(strings.TrimSuffix(path, "/"), "/sse") {
		return SSE, true, ""
	}
	return HTTP, true, ""
}

// headers reads the headers of a remote server, with those that the client makes from variables.
func (f File) headers(e map[string]any) []Var {
	switch f.Client {
	case "codex":
		out := f.vars(e["http_headers"], inHeaders)
		for _, v := range f.vars(e["env_http_headers"], inHeaders) {
			out = append(out, Var{v.Name, envValue("", v.Value.Text)})
		}
		if name := text(e["bearer_token_env_var"]); name != "" {
			out = append(out, Var{"Authorization", envValue("Bearer ", name)})
		}
		return out
	case "continue":
		options, _ := e["requestOptions"].(map[string]any)
		out := f.vars(options["headers"], inHeaders)
		if key := text(e["apiKey"]); key != "" {
			v := f.valueOf(key, inHeaders)
			v.Parts = append([]Part{{Kind: Literal, Text: "Bearer "}}, v.Parts...)
			out = append(out, Var{"Authorization", v})
		}
		return out
	}
	return f.vars(e["headers"], inHeaders)
}

// envValue is a reference to a variable behind a literal, for clients that name variables in fields of their own.
func envValue(prefix, name string) Value {
	v := Value{Text: prefix + "${" + name + "}"}
	if prefix != "" {
		v.Parts = append(v.Parts, Part{Kind: Literal, Text: prefix})
	}
	v.Parts = append(v.Parts, Part{Kind: EnvRef, Name: name, Text: "${" + name + "}"})
	return v
}

// isGateway says that an entry starts ctxgate.
func isGateway(s Server) bool {
	name := strings.TrimSuffix(filepath.Base(strings.ReplaceAll(s.Command.Text, `\`, "/")), ".exe")
	return name == "ctxgate" && len(s.Args) > 0 && s.Args[0].Text == "stdio"
}

// reasonToKeep returns why an entry cannot be moved.
func (f File) reasonToKeep(s Server, e map[string]any) string {
	switch kind := text(e["type"]); {
	case f.Client == "goose" && (kind == "builtin" || kind == "platform" || kind == "frontend" || kind == "inline_python"):
		return fmt.Sprintf("it is a part of Goose (type %s)", kind)
	case f.Client == "zed" && s.Transport == "":
		return "it comes from a Zed extension"
	case s.Transport == "":
		return "it has neither a command nor a url"
	case f.Client == "goose" && len(texts(e["env_keys"])) > 0:
		return fmt.Sprintf("Goose keeps its secrets (%s) in the system's keyring", strings.Join(texts(e["env_keys"]), ", "))
	case e["headersHelper"] != nil || e["http_headers_helper"] != nil:
		return "a program makes its headers"
	case e["sandboxEnabled"] == true:
		return "the client runs it in a sandbox"
	case f.Client == "zed" && e["remote"] == true:
		return "Zed runs it on the remote host of a project"
	case f.Client == "codex" && text(e["environment_id"]) != "" && e["environment_id"] != "local":
		return "Codex runs it in another environment"
	case strings.HasPrefix(s.URL.Text, "unix:") || strings.HasPrefix(s.URL.Text, "pipe:"):
		return "its url is a local socket"
	}
	values := append([]Value{s.Command, s.Cwd, s.URL, s.EnvFile, s.OAuthClient.ID, s.OAuthClient.Secret}, s.Args...)
	for _, v := range append(s.Env, s.Headers...) {
		values = append(values, v.Value)
	}
	for _, v := range values {
		for _, p := range v.Parts {
			if p.Kind == ClientRef {
				return fmt.Sprintf("only the client knows %s", p.Text)
			}
		}
	}
	return ""
}
