//go:build unix

package agents

import (
	"maps"
	"slices"
)

func inspector() Agent {
	return Agent{
		ID: "inspector", Name: "MCP Inspector", Package: "@modelcontextprotocol/inspector",
		HasStdio: true, HasHTTP: true,
		program: func(in Install) ([]string, error) {
			return in.script("inspector", "@modelcontextprotocol/inspector", "clients", "launcher", "build", "index.js")
		},
	}
}

// InspectorArgs are the arguments of the Inspector's command line for one method. A server's own flags are
// behind --, or the Inspector would take --config for its own.
func InspectorArgs(s *Server, method string, more ...string) []string {
	args := []string{"--cli", "--format", "json"}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		args = append(args, "-e", name+"="+s.Env[name])
	}
	args = append(append(args, "--method", method), more...)
	if s.URL != "" {
		return append(args, "--transport", "http", "--", s.URL)
	}
	return append(append(args, "--"), s.Command...)
}
