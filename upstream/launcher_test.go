package upstream

import (
	"strings"
	"testing"
)

// Launchers that fetch a server before they run it are recognised, also behind other programs.
func TestLauncherOf(t *testing.T) {
	for command, want := range map[string]string{
		"npx|-y|@modelcontextprotocol/server-memory": "npx: npx @modelcontextprotocol/server-memory",
		"/usr/local/bin/npx|--yes|a":                 "npx: npx a",
		`C:\Program Files\nodejs\npx.cmd|-y|a`:       "npx: npx a",
		"cmd|/c|npx|-y|a":                            "npx: npx a",
		"cmd.exe|/d|/C|npx.cmd|a":                    "npx: npx a",
		"env|-u|X|npx|a":                             "",
		"env|A=b|C=d|npx|a":                          "npx: npx a",
		"sh|-c|exec npx -y a --flag":                 "npx: npx a",
		"bash|-lc|uvx mcp-server-git":                "uvx: uvx mcp-server-git",
		"uvx|mcp-server-fetch":                       "uvx: uvx mcp-server-fetch",
		"uv|run|server.py":                           "uv: uv server.py",
		"uv|--directory|x|run|a":                     "uv: uv a",
		"uv|pip|run":                                 "",
		"bunx|a":                                     "bunx: bunx a",
		"pnpm|dlx|a":                                 "pnpm: pnpm a",
		"pnpm|--silent|dlx|a":                        "pnpm: pnpm a",
		"pnpm|start":                                 "",
		"npm|exec|--|a":                              "npm: npm a",
		"npm|run|server":                             "",
		"docker|run|-i|--rm|mcp/memory":              "docker: docker mcp/memory",
		"docker|exec|-i|c|server":                    "",
		"docker":                                     "",
		"node|server.js":                             "",
		"./npx-like|a":                               "",
		"sh|-c":                                      "",
		"sh|script.sh":                               "",
		"cmd|/c":                                     "",
		"env|env|env|env|env|npx":                    "",
		"":                                           "",
	} {
		got := ""
		if l := launcherOf(strings.Split(command, "|")); l != nil {
			got = l.name + ": " + l.key
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
}
