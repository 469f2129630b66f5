package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
)

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway",
		Long: `Run the gateway: the main listener for agents (127.0.0.1:8000) and the admin listener for
you (127.0.0.1:8090, /metrics; the token is in the data directory unless you set one).

SIGTERM or Ctrl-C drains: calls under way finish within http.drain_grace. A second
signal ends at once.`,
		Example: "  ctxgate serve --config ctxgate.toml",
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := load(*path, false)
		if err != nil {
			return err
		}
		slog.SetDefault(app.Logger(cmd.ErrOrStderr(), loaded.Log))
		for _, w := range loaded.Warnings {
			slog.Warn(w)
		}
		a, err := app.New(cmd.Context(), loaded.Config, version())
		if err != nil {
			return err
		}
		return a.Run(cmd.Context())
	}
	return cmd
}
