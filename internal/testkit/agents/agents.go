//go:build unix

// Package agents runs real coding agents for tests: Claude Code, Codex, Gemini CLI, opencode, Qwen Code, Cline,
// Continue and the MCP Inspector. Each runs headless, in a home directory of its own, with dummy keys, against
// a model provider and MCP servers on loopback.
//
// Files: agents.go lists the agents; install.go finds what `make agents-install` installed; sandbox.go makes a
// home directory and environment, network.go refuses and records every request that leaves loopback; run.go
// runs a command, within a time limit, and ends its whole process tree. The files named for agents write each
// one's configuration and command line. script.go is the model's side of the conversation, for a
// fakeprovider; record.go turns what an agent sent into fixtures.
package agents

import (
	"slices"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// Agent is one of the real agents.
type Agent struct {
	// ID is ctxgate's name of the client, as in `ctxgate init --client`.
	ID string
	// Name is the name that people know.
	Name string
	// Package is its npm package.
	Package string
	// Shapes are the model APIs that it can use; the first is tested. None: it has no model.
	Shapes []fakeprovider.Shape
	// HasStdio and HasHTTP say how it connects to MCP servers.
	HasStdio, HasHTTP bool
	// Defers: the model sees only names of MCP tools, until it calls the agent's own search tool.
	Defers bool

	program  func(Install) ([]string, error)
	headless func(*Sandbox, Wiring, string) ([]string, error)
	list     func(*Sandbox, Wiring) ([]string, error)
}

// Wiring says what an agent is connected to.
type Wiring struct {
	// Server is an MCP server; nil: none beside those in the agent's files.
	Server *Server
	// ServerName is its name; "ctxgate" when empty.
	ServerName string
	// ModelURL is the root of a model API, without /v1. Empty: a refusing address.
	ModelURL string
	// Shape is the model API to use; None: the agent's first.
	Shape fakeprovider.Shape
}

// Server is an MCP server in an agent's configuration: a command, or a URL.
type Server struct {
	Command []string
	Env     map[string]string
	URL     string
}

// Key is the API key that agents send.
const Key = "sk-test-0000000000000000000000000000"

// All returns every agent.
func All() []Agent {
	return []Agent{claudeCode(), codex(), gemini(), opencode(), qwen(), cline(), continueCLI(), inspector()}
}

// ByID returns the agent with the given id.
func ByID(id string) Agent {
	all := All()
	i := slices.IndexFunc(all, func(a Agent) bool { return a.ID == id })
	if i < 0 {
		panic("there is no agent with the id " + id)
	}
	return all[i]
}

// HasLoop reports whether the agent has a model that calls tools.
func (a Agent) HasLoop() bool { return len(a.Shapes) > 0 }

// serverName is the name of the MCP server.
func (w Wiring) serverName() string {
	if w.ServerName == "" {
		return "ctxgate"
	}
	return w.ServerName
}

// shape is the model API to use.
func (w Wiring) shape(a Agent) fakeprovider.Shape {
	if w.Shape != fakeprovider.None || len(a.Shapes) == 0 {
		return w.Shape
	}
	return a.Shapes[0]
}

// modelURL is the root of the model API; without one, an address where nothing listens.
func (w Wiring) modelURL() string {
	if w.ModelURL == "" {
		return "http://127.0.0.1:9"
	}
	return w.ModelURL
}
