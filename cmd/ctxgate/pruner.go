package main

import (
	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
)

func prunerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pruner",
		Short: "Run the pruner alone",
		Long: `Run the line pruner alone, an MCP server at http://127.0.0.1:8006/rpc (health at /health). Its
tools are prune_text, which makes a text shorter for a goal, and recover_text, which gives
back what was left out. 'ctxgate serve' serves it too, beside everything else.

It needs no config file. The variables MCP_PRUNER_HOST, MCP_PRUNER_PORT,
MCP_PRUNER_MAX_INPUT_CHARS, MCP_PRUNER_PRUNE_ID_TTL_S, MCP_PRUNER_CACHE_TTL_S,
MCP_PRUNER_CACHE_MAX_ITEMS, KIMI_PRUNING_BACKEND and DEEPINFRA_API_KEY, _ENDPOINT_URL,
_TIMEOUT_MS, _MAX_DOCS win over the section [mcp_pruner] of one.

Nothing leaves this machine unless a backend says so: KIMI_PRUNING_BACKEND=deepinfra.`,
		Example: "  MCP_PRUNER_PORT=8006 ctxgate pruner",
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := load(*path, true)
		if err != nil {
			return err
		}
		setLog(cmd, loaded)
		loaded.Memory.LimitRuntime()
		ctx := cmd.Context()
		opts := options()
		if loaded.File != nil {
			stop := follow(&opts, loaded)
			defer stop()
		}
		a, err := app.NewPruner(ctx, loaded.Config, opts)
		if err != nil {
			return err
		}
		return a.Run(ctx)
	}
	return cmd
}
