//go:build unix

package agents_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/ctxgate/ctxgate/internal/testkit/agents"
)

// row is what the tests saw of one agent.
type row struct {
	Stdio, HTTP string
	Model       string // the path of the model API
	ToolName    string // as the model sees it
	Masked      string
	ReadBack    string
	Outside     []string // hosts beyond loopback that it asked for
}

func (r *row) set(transport, value string) {
	if transport == "http" {
		r.HTTP = value
		return
	}
	r.Stdio = value
}

// results collects the rows of a run.
type results struct {
	mu   sync.Mutex
	rows map[string]*row
}

var table = results{rows: map[string]*row{}}

func (t *results) record(a agents.Agent, f func(*row)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows[a.ID] == nil {
		t.rows[a.ID] = &row{}
	}
	f(t.rows[a.ID])
}

// reportHead is the part of docs/agents.md before the table.
const reportHead = `# Agents

What was seen with real agents, headless, against a scripted model that is as strict as the real APIs. Written by ` + "`make agents`" + `.

| agent | version | MCP over stdio | over HTTP | model API through ctxgate | tool name that the model sees | old results masked | read back |
|---|---|---|---|---|---|---|---|
`

// writeReport writes docs/agents.md.
func writeReport(path string) error {
	in, err := agents.FindInstall()
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(reportHead)
	for _, a := range agents.All() {
		version, err := in.Version(a)
		if err != nil {
			return err
		}
		table.mu.Lock()
		r := table.rows[a.ID]
		table.mu.Unlock()
		if r == nil {
			r = &row{}
		}
		cells := []string{a.Name, version, r.Stdio, r.HTTP, r.Model, r.ToolName, r.Masked, r.ReadBack}
		for i, cell := range cells {
			if cell == "" {
				cells[i] = "failed"
			}
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	b.WriteString("\n" + whatToSet())
	return os.WriteFile(path, []byte(b.String()), 0o644) //nolint:gosec // a document
}

// whatToSet is what a person sets for each agent, and what is particular to it.
func whatToSet() string {
	var b strings.Builder
	b.WriteString("## What to set\n\n`ctxgate init` writes the MCP entry and `ctxgate run` sets both for one run; by hand:\n\n")
	b.WriteString("| agent | as MCP client | as model client | particular |\n|---|---|---|---|\n")
	for _, a := range agents.All() {
		n := notes[a.ID]
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", a.Name, n.mcp, n.model, strings.Join(n.facts, "; "))
	}
	return b.String()
}

// note is what a person has to know of an agent.
type note struct {
	mcp, model string
	facts      []string
}

var notes = map[string]note{
	"claude-code": {
		"`claude mcp add ctxgate -- ctxgate stdio --client claude-code`", "`ANTHROPIC_BASE_URL=http://127.0.0.1:8000`",
		[]string{"speaks MCP 2026-07-28", "passes long results of a tool on whole if `_meta[\"anthropic/maxResultSizeChars\"]` says so, which `profile = \"agents\"` sets", "MCP tools are deferred: the model sees names and loads schemas with `ToolSearch`; `_meta[\"anthropic/alwaysLoad\"]` loads one at once"},
	},
	"codex": {
		"`[mcp_servers.ctxgate]` in `~/.codex/config.toml`, with `required = true`", "`openai_base_url = \"http://127.0.0.1:8000/v1\"`",
		[]string{"without `required` the first request may leave before the server is up", "tools are in the namespace `mcp__ctxgate`, deferred behind `tool_search` for models that have it", "tries a websocket first, which ctxgate answers with 426", "passes only ten variables of the environment to servers"},
	},
	"gemini": {
		"`mcpServers` in `~/.gemini/settings.json`", "`GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:8000`, with an API key", []string{"removes variables with secret-looking names from a server's environment"},
	},
	"opencode": {
		"`mcp` in `opencode.json`", "`provider.<id>.options.baseURL`", []string{"for a URL set `\"oauth\": false`"},
	},
	"qwen": {
		"`mcpServers` in `~/.qwen/settings.json`; a URL in `httpUrl`", "`OPENAI_BASE_URL=http://127.0.0.1:8000/v1`", []string{"MCP tools are deferred behind its own `tool_search`", "results are lists of one text, which only `profile = \"agents\"` masks"},
	},
	"cline": {
		"`~/.cline/data/settings/cline_mcp_settings.json`; a URL with `\"type\": \"streamableHttp\"`", "`cline auth -p openai -b http://127.0.0.1:8000/v1 -k KEY -m MODEL`", []string{"gives the model the whole JSON of a result"},
	},
	"continue": {
		"`mcpServers` in `~/.continue/config.yaml`", "`models[].apiBase`", []string{"sends tool names as they are: `::` in them fails at every model API, `__` works", "gives the model the whole JSON of a result"},
	},
	"inspector": {
		"`--cli --method tools/list -- ctxgate stdio --config FILE`", "–", []string{"takes a `--config` before `--` for its own"},
	},
}

// finishReport writes the report if all agents ran.
func finishReport() error {
	path := os.Getenv("CTXGATE_AGENTS_REPORT")
	if path == "" || slices.ContainsFunc(agents.All(), func(a agents.Agent) bool { return table.rows[a.ID] == nil }) {
		return nil
	}
	return writeReport(path)
}
