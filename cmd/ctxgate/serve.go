package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/config"
)

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway",
		Long: `Run the gateway: the main listener for agents (127.0.0.1:8000), the pruner's (127.0.0.1:8006)
and the admin listener for you (127.0.0.1:8090, /metrics; the token is in the data directory
unless you set one).

Agents reach all servers at http://127.0.0.1:8000/mcp, and one of them, under its own
names, at /mcp/ID.

The config file is read again when it changes, and on SIGHUP. A file with a mistake in it
is reported and changes nothing; servers whose entries are the same go on untouched.

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
		setLog(cmd, loaded)
		loaded.Memory.LimitRuntime()
		ctx := cmd.Context()
		a, err := app.New(ctx, loaded.Config, options())
		if err != nil {
			return err
		}
		go watch(ctx, a, loaded.File.Path)
		return a.Run(ctx)
	}
	return cmd
}

// options is what the gateway needs to know of this process.
func options() app.Options { return app.Options{Version: version(), Env: os.Environ()} }

// setLog makes the log that the configuration asks for, and begins it with what is worth a line.
func setLog(cmd *cobra.Command, loaded config.Loaded) {
	slog.SetDefault(app.Logger(cmd.ErrOrStderr(), loaded.Log))
	for _, w := range loaded.Warnings {
		slog.Warn(w)
	}
}

// watch reloads the configuration when its file changes and when the process is asked to.
func watch(ctx context.Context, a *app.App, file string) {
	hangup := make(chan os.Signal, 1)
	notifyHangup(hangup)
	defer signal.Stop(hangup)
	asked := make(chan struct{})
	go func() {
		for range hangup {
			select {
			case asked <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	err := a.Watch(ctx, file, asked, func() (config.Config, error) {
		loaded, err := load(file, false)
		if err == nil {
			slog.SetDefault(app.Logger(os.Stderr, loaded.Log))
		}
		return loaded.Config, err
	})
	if err != nil {
		slog.Warn("changes of the config file are not noticed", "error", err)
	}
}
