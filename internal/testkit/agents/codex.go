//go:build unix

package agents

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

func codex() Agent {
	return Agent{
		ID: "codex", Name: "Codex", Package: "@openai/codex",
		Shapes: []fakeprovider.Shape{fakeprovider.Responses}, HasStdio: true, HasHTTP: true,
		program: func(in Install) ([]string, error) {
			return in.binary("codex", "@openai/codex-*/vendor/*/bin/codex")
		},
		headless: func(s *Sandbox, w Wiring, prompt string) ([]string, error) {
			codexConfig(s, w)
			return []string{"exec", "--skip-git-repo-check", "--json", "--dangerously-bypass-approvals-and-sandbox", prompt}, nil
		},
		list: func(s *Sandbox, w Wiring) ([]string, error) {
			codexConfig(s, w)
			return []string{"mcp", "list", "--json"}, nil
		},
	}
}

// codexConfig uses the built-in provider at another address, which tries a websocket first.
func codexConfig(s *Sandbox, w Wiring) {
	s.Setenv("CODEX_API_KEY", Key)
	var b strings.Builder
	fmt.Fprintf(&b, "model = \"gpt-5.5\"\nopenai_base_url = %q\ncheck_for_update_on_startup = false\n", w.modelURL()+"/v1")
	b.WriteString("[analytics]\nenabled = false\n[otel]\nexporter = \"none\"\n")
	if w.Server != nil {
		// Without required, Codex does not wait for the server before its first request.
		fmt.Fprintf(&b, "[mcp_servers.%s]\nrequired = true\n", w.serverName())
		if w.Server.URL != "" {
			fmt.Fprintf(&b, "url = %q\n", w.Server.URL)
		} else {
			fmt.Fprintf(&b, "command = %q\nargs = [", w.Server.Command[0])
			for _, arg := range w.Server.Command[1:] {
				fmt.Fprintf(&b, "%q, ", arg)
			}
			fmt.Fprintf(&b, "]\n[mcp_servers.%s.env]\n", w.serverName())
			for _, name := range slices.Sorted(maps.Keys(w.Server.Env)) {
				fmt.Fprintf(&b, "%s = %q\n", name, w.Server.Env[name])
			}
		}
	}
	s.WriteFile(".codex/config.toml", b.String())
}
