//go:build unix

// Package agents tests the real ctxgate binary with real coding agents, as MCP clients and as clients of the
// LLM proxy. A scripted model calls the agents' tools, so the agents do what they do for people: they list
// tools, call them, hand results to the model, and let it read back what was cut.
//
// Files: main_test.go chooses the agents and builds ctxgate; logserver_test.go is the MCP server behind it;
// setup_test.go starts gateway, provider and agent; roles_test.go tests each agent in both roles, inspector_test.go
// the Inspector and the agents' own lists of servers, findings_test.go what is particular to one agent, fit_test.go the
// limits of the agents; report_test.go
// writes docs/agents.md, record_test.go the recordings that other packages are tested with.
//
// `make agents-install` installs the agents, `make agents` runs all of them, `make agents-ci` those that CI runs.
// Nothing leaves loopback, every run has a time limit, and every process is ended by its pid.
package agents_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/agents"
	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
)

// binary is the ctxgate under test.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "log-server" {
		serveLogs(os.Args[2:])
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "wordy-server" {
		serveWordy()
		return
	}
	if len(os.Args) > 3 && os.Args[1] == "tee" {
		os.Exit(agents.RunTee(os.Args[2], os.Args[3:]))
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "agents")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binary, err = gateway.Build(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	status := m.Run()
	if err := finishReport(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// inCI are the agents that run without a choice: the others take longer to install than to test.
var inCI = []string{"claude-code", "codex", "continue", "inspector"}

// chosen returns the agents to test: those in CTXGATE_AGENTS, "all", or those of CI.
func chosen() []agents.Agent {
	ids := inCI
	if list := os.Getenv("CTXGATE_AGENTS"); list != "" {
		ids = strings.Fields(strings.ReplaceAll(list, ",", " "))
	}
	return slices.DeleteFunc(agents.All(), func(a agents.Agent) bool {
		return !slices.Contains(ids, a.ID) && !slices.Contains(ids, "all")
	})
}

// requireAgent skips the test unless the agent is chosen.
func requireAgent(t *testing.T, id string) agents.Agent {
	t.Helper()
	if !slices.ContainsFunc(chosen(), func(a agents.Agent) bool { return a.ID == id }) {
		t.Skipf("%s is not in CTXGATE_AGENTS", id)
	}
	return agents.ByID(id)
}
