// Package launch works out how to start an agent so that it uses a gateway, for that process only: the address of its
// model, its MCP entry, and temporary files where an agent takes nothing else. No file of the user's is changed.
//
// Path through the files: launch.go has the agents and what they have in common; the file named for an agent knows its
// variables, options and settings. settings.go reads settings that agents keep in files.
//
// Invariants: an address that the user has set for a model becomes the gateway's provider, or the conversation is left
// alone and a note says why; it is never bypassed silently. An agent that cannot be told its model's address still gets
// its tools through the gateway. The package reads no environment of its own and starts nothing.
package launch

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// EntryName is the name of the gateway among an agent's MCP servers.
const EntryName = "ctxgate"

// Host is where an agent will run.
type Host struct {
	GOOS string
	Home string
	Cwd  string
	Env  []string
}

// Lookup returns a variable of the host.
func (h Host) Lookup(name string) (string, bool) {
	for _, kv := range slices.Backward(h.Env) {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// value is a variable's value; "" if it is not set.
func (h Host) value(name string) string {
	v, _ := h.Lookup(name)
	return v
}

// Agent is an agent that can be started.
type Agent struct {
	ID      string   // as in package clients
	Names   []string // by which people call it on the command line, the usual one first
	Title   string
	Program string // its executable
	Install string // the command that installs it

	// KeepsServers: it cannot be told to leave its own MCP servers out, so they are not served in their place.
	KeepsServers bool

	model func(h Host, args []string) Model
	wire  func(c *Command, w Wiring) error
}

// Kinds of model APIs, as the config key providers.kind has them.
const (
	Anthropic = "anthropic"
	OpenAI    = "openai"
	Gemini    = "gemini"
)

// Model is how an agent reaches its models.
type Model struct {
	Kinds    []string          // the APIs whose conversations can pass the gateway; none: Direct says why
	Upstream map[string]string // by kind: the base URL that the user has set
	Direct   string            // why the conversation, or a part of it, does not pass the gateway

	setting string // an agent's own setting that has to be overridden
}

// Wiring is what an agent is connected to.
type Wiring struct {
	URL     string            // of the gateway, without a path; "" leaves the models alone
	Command []string          // of the MCP entry
	Env     map[string]string // of that command: some agents pass few variables on
	MCPURL  string            // of the MCP entry, if it has no Command
	Token   string            // that the gateway requires; "" for none
	Replace []string          // the agent's own MCP servers, which are behind the gateway for this run
	IsOnly  bool              // all of them are
	Dir     string            // for temporary files

	model Model
}

// Command is how to start the agent.
type Command struct {
	Host
	Args  []string
	Notes []string // what the user should know
}

// Agents are the agents that can be started.
func Agents() []Agent {
	return []Agent{claudeCode(), codex(), gemini(), openCode(), qwen(), cline(), continueCLI(), copilot(), goose()}
}

// Find returns the agent with a name.
func Find(name string) (Agent, bool) {
	all := Agents()
	i := slices.IndexFunc(all, func(a Agent) bool { return a.ID == name || slices.Contains(a.Names, name) })
	if i < 0 {
		return Agent{}, false
	}
	return all[i], true
}

// Model finds out how the agent reaches its models.
func (a Agent) Model(h Host, args []string) Model { return a.model(h, args) }

// Command is how to start the agent with the user's arguments. It may write temporary files.
func (a Agent) Command(h Host, args []string, m Model, w Wiring) (*Command, error) {
	h.Env = slices.Clone(h.Env)
	c := &Command{Host: h, Args: slices.Clone(args)}
	w.model = m
	if len(m.Kinds) == 0 {
		w.URL = ""
	}
	if m.Direct != "" {
		c.Notes = append(c.Notes, m.Direct)
	}
	if err := a.wire(c, w); err != nil {
		return nil, fmt.Errorf("preparing %s: %w", a.Title, err)
	}
	c.bypassProxy()
	return c, nil
}

// hasKind reports whether the gateway has a provider for an API, so that conversations can go through it.
func (w Wiring) hasKind(kind string) bool { return w.URL != "" && slices.Contains(w.model.Kinds, kind) }

// setenv sets a variable of the agent.
func (c *Command) setenv(name, value string) {
	c.Env = append(slices.DeleteFunc(c.Env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") }), name+"="+value)
}

// prepend puts options before the user's arguments.
func (c *Command) prepend(args ...string) { c.Args = append(args, c.Args...) }

func (c *Command) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// bypassProxy keeps requests to the gateway, on this machine, away from a proxy.
func (c *Command) bypassProxy() {
	isProxied := slices.ContainsFunc([]string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"}, func(name string) bool { return c.value(name) != "" })
	if !isProxied {
		return
	}
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		list := c.value(name)
		if list == "*" || slices.Contains(strings.Split(list, ","), "127.0.0.1") {
			continue
		}
		c.setenv(name, strings.TrimPrefix(list+",127.0.0.1,localhost", ","))
	}
}

// mcpEntry is an MCP entry in the form that most agents read.
type mcpEntry struct {
	Type    string            `json:"type,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	HTTPURL string            `json:"httpUrl,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Tools   []string          `json:"tools,omitempty"`
}

// entry is the gateway's MCP entry, with the type that a URL has in the agent's file.
func (w Wiring) entry(urlType string) mcpEntry {
	if len(w.Command) > 0 {
		e := mcpEntry{Command: w.Command[0], Args: w.Command[1:], Env: maps.Clone(w.Env)}
		if w.Token != "" {
			if e.Env == nil {
				e.Env = map[string]string{}
			}
			e.Env["CTXGATE_TOKEN"] = w.Token
		}
		return e
	}
	e := mcpEntry{Type: urlType, URL: w.MCPURL}
	if w.Token != "" {
		e.Headers = map[string]string{"Authorization": "Bearer " + w.Token}
	}
	return e
}

// mcpFile is a file with MCP servers in the form that most agents read.
type mcpFile struct {
	Servers map[string]mcpEntry `json:"mcpServers"`
}

func (w Wiring) file(urlType string) mcpFile {
	return mcpFile{map[string]mcpEntry{EntryName: w.entry(urlType)}}
}

// writeJSON writes a temporary file that only the user can read.
func (w Wiring) writeJSON(name string, content any) (string, error) {
	text, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return "", err
	}
	path := filepath.Join(w.Dir, name)
	return path, os.WriteFile(path, append(text, '\n'), 0o600)
}

// hasOption reports whether the user's arguments have an option, with a value behind it or after "=".
func hasOption(args []string, names ...string) bool {
	for _, a := range args {
		if a == "--" {
			return false
		}
		name, _, _ := strings.Cut(a, "=")
		if slices.Contains(names, name) {
			return true
		}
	}
	return false
}
