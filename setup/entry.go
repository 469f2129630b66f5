package setup

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// Entry is a server as ctxgate's configuration has it.
type Entry struct {
	ID              string
	Command         []string
	Cwd             string
	Env             []Pair
	URL             string
	Transport       string // "" for http
	Headers         []Pair
	OAuth           []Pair // of the registered client
	OAuthScopes     []string
	Disabled        bool
	EnabledTools    []string
	DisabledTools   []string
	StartupTimeout  time.Duration
	ResponseTimeout time.Duration
}

// newEntry converts a client's server. An error says why the server has to stay where it is.
func (c *converter) newEntry(s clientfile.Server) (Entry, error) {
	e := Entry{ID: c.id, Disabled: s.Disabled, DisabledTools: s.DisabledTools, StartupTimeout: s.StartupTimeout, ResponseTimeout: s.Timeout}
	if s.EnabledTools != nil {
		e.EnabledTools = s.EnabledTools
		if len(s.EnabledTools) == 0 {
			return e, fmt.Errorf("none of its tools are enabled")
		}
	}
	if s.Transport == clientfile.Stdio {
		return e, c.addProgram(&e, s)
	}
	var login *Pair
	var err error
	if e.URL, login, err = c.address(s.URL); err != nil {
		return e, err
	}
	if s.Transport == clientfile.SSE {
		e.Transport = "sse"
	}
	for _, h := range s.Headers {
		value, err := c.text(h.Name, h.Value, true)
		if err != nil {
			return e, err
		}
		if value != "" {
			e.Headers = append(e.Headers, Pair{h.Name, value})
		}
		if strings.EqualFold(h.Name, "Authorization") {
			login = nil
		}
	}
	if login != nil {
		e.Headers = append(e.Headers, *login)
	}
	if err := c.addOAuthClient(&e, s.OAuthClient); err != nil {
		return e, err
	}
	e.OAuthScopes = s.OAuthClient.Scopes
	return e, nil
}

// addOAuthClient converts the client that is registered with a server.
func (c *converter) addOAuthClient(e *Entry, o clientfile.OAuthClient) error {
	if o.ID.Text == "" {
		return nil
	}
	if !o.ID.IsLiteral() {
		return fmt.Errorf("the id of its OAuth client is a reference, and ctxgate has none there")
	}
	e.OAuth = append(e.OAuth, Pair{"client_id", o.ID.String()})
	if o.Secret.Text == "" {
		return nil
	}
	value, err := c.text("client_secret", o.Secret, false)
	if err == nil && o.Secret.IsLiteral() && value == o.Secret.String() {
		value, err = c.vault.store(c.id, "client_secret", value)
		value = shortForm(value)
	}
	if err == nil && value != "" {
		e.OAuth = append(e.OAuth, Pair{"client_secret", value})
	}
	return err
}

// addProgram converts what is about the child process.
func (c *converter) addProgram(e *Entry, s clientfile.Server) error {
	if s.EnvFile.Text != "" {
		return fmt.Errorf("it reads its variables from a file (envFile), and ctxgate has no such setting")
	}
	before := ""
	for _, v := range append([]clientfile.Value{s.Command}, s.Args...) {
		word, err := c.argument(before, v)
		if err != nil {
			return err
		}
		e.Command = append(e.Command, word)
		before = v.String()
	}
	if !s.Cwd.IsLiteral() {
		return fmt.Errorf("its working directory is not fixed")
	}
	e.Cwd = expandHome(s.Cwd.String(), c.home)
	if s.Cwd.Text == "" && slices.ContainsFunc(append([]clientfile.Value{s.Command}, s.Args...), isRelativePath) {
		return fmt.Errorf("its command has a path relative to the directory in which the client runs; write it in full, or give it a cwd")
	}
	for _, v := range s.Env {
		value, err := c.text(v.Name, v.Value, false)
		if err != nil {
			return err
		}
		e.Env = append(e.Env, Pair{v.Name, value})
	}
	for _, name := range s.PassEnv {
		if !slices.ContainsFunc(e.Env, func(p Pair) bool { return p.Name == name }) {
			c.vars = append(c.vars, name)
			e.Env = append(e.Env, Pair{name, "${" + name + ":-}"})
		}
	}
	return nil
}

func isRelativePath(v clientfile.Value) bool {
	s := v.String()
	return s == "." || s == ".." || strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../")
}

func expandHome(path, home string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && home != "" {
		return home + "/" + rest
	}
	return path
}

// toml is the entry as text, without the comment above it.
func (e Entry) toml() string {
	var b strings.Builder
	line := func(key, value string) { fmt.Fprintf(&b, "%s = %s\n", key, value) }
	b.WriteString("[[servers]]\n")
	line("id", tomlString(e.ID))
	if len(e.Command) > 0 {
		line("command", tomlList(e.Command))
	}
	if e.Cwd != "" {
		line("cwd", tomlString(e.Cwd))
	}
	if e.URL != "" {
		line("url", tomlString(e.URL))
	}
	if e.Transport != "" {
		line("transport", tomlString(e.Transport))
	}
	if e.Disabled {
		line("disabled", "true")
	}
	if len(e.EnabledTools) > 0 {
		line("enabled_tools", tomlList(e.EnabledTools))
	}
	if len(e.DisabledTools) > 0 {
		line("disabled_tools", tomlList(e.DisabledTools))
	}
	if e.StartupTimeout > 0 {
		line("startup_timeout", tomlString(e.StartupTimeout.String()))
	}
	if e.ResponseTimeout > 0 {
		line("response_timeout", tomlString(e.ResponseTimeout.String()))
	}
	for _, table := range []struct {
		key   string
		pairs []Pair
	}{{"env", e.Env}, {"headers", e.Headers}} {
		if len(table.pairs) == 0 {
			continue
		}
		fmt.Fprintf(&b, "[servers.%s]\n", table.key)
		for _, p := range table.pairs {
			line(tomlKey(p.Name), tomlString(p.Value))
		}
	}
	if len(e.OAuth) > 0 || len(e.OAuthScopes) > 0 {
		b.WriteString("[servers.oauth]\n")
		for _, p := range e.OAuth {
			line(p.Name, tomlString(p.Value))
		}
		if len(e.OAuthScopes) > 0 {
			line("scopes", tomlList(e.OAuthScopes))
		}
	}
	return b.String()
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func tomlKey(s string) string {
	if bareKey.MatchString(s) {
		return s
	}
	return tomlString(s)
}

// tomlString quotes a text. What JSON escapes, TOML reads the same way, but for DEL.
func tomlString(s string) string {
	if !strings.ContainsAny(s, "\\\"'\n\r\t") && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return `"` + s + `"`
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\x7f", `\u007F`)
}

func tomlList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = tomlString(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
