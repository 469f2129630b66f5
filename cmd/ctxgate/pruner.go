package main

import (
	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
)

func prunerCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pruner",
		Short: "Run only the pruner",
		Long: `Run only the line pruner, an MCP server at http://127.0.0.1:8006/rpc (health at /health).
Its tools are prune_text, which leaves out the lines of a text that do not matter for a
goal, and recover_text, which returns them. 'ctxgate serve' includes it.

It needs no config file. The environment variables MCP_PRUNER_HOST, MCP_PRUNER_PORT,
MCP_PRUNER_MAX_INPUT_CHARS, MCP_PRUNER_PRUNE_ID_TTL_S, MCP_PRUNER_CACHE_TTL_S,
MCP_PRUNER_CACHE_MAX_ITEMS, KIMI_PRUNING_BACKEND and DEEPINFRA_API_KEY, _ENDPOINT_URL,
_TIMEOUT_MS, _MAX_DOCS override the section [mcp_pruner] of a config file.

No text leaves this machine unless you choose such a backend:
KIMI_PRUNING_BACKEND=deepinfra.`,
		Example: "  MCP_PRUNER_PORT=8006 ctxgate pruner",
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := loadConfig(*path, true)
		if err != nil {
			return err
		}
		startLog(cmd, loaded)
		loaded.Memory.SetRuntimeLimit()
		ctx := cmd.Context()
		opts := appOptions()
		if loaded.File != nil {
			stop := watchConfig(&opts, loaded)
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
