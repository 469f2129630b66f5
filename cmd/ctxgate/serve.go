package main

import (
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"

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

The config file is read again when it or a file that it takes a secret from changes, and on SIGHUP. A file with a mistake in it
is reported and changes nothing; servers whose entries are the same go on untouched.

SIGTERM or Ctrl-C drains: calls under way finish within http.drain_grace. A second
signal ends at once.`,
		Example: "  ctxgate serve --config ctxgate.toml",
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := load(*path, false)
		if err == nil {
			err = loaded.CheckExposed().Err()
		}
		if err != nil {
			return err
		}
		setLog(cmd, loaded)
		loaded.Memory.LimitRuntime()
		ctx := cmd.Context()
		opts := options()
		stop := follow(&opts, loaded)
		defer stop()
		a, err := app.New(ctx, loaded.Config, opts)
		if err != nil {
			return err
		}
		return a.Run(ctx)
	}
	return cmd
}

// options is what the gateway needs to know of this process.
func options() app.Options { return app.Options{Version: version(), Env: os.Environ()} }

// setLog makes the log that the configuration asks for, and begins it with what is worth a line.
func setLog(cmd *cobra.Command, loaded config.Loaded) {
	slog.SetDefault(app.Logger(cmd.ErrOrStderr(), loaded.Log))
	logWarnings(loaded)
}

func logWarnings(loaded config.Loaded) {
	for _, w := range loaded.Warnings {
		slog.Warn(w)
	}
}

// follow lets the gateway reload its configuration when the file or that of a secret changes, and on SIGHUP. The function
// it gives ends the latter.
func follow(opts *app.Options, first config.Loaded) (stop func()) {
	hangup := make(chan os.Signal, 1)
	notifyHangup(hangup)
	asked, done := make(chan struct{}), make(chan struct{})
	go func() {
		for {
			select {
			case <-hangup:
			case <-done:
				return
			}
			select {
			case asked <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	opts.LogTo = os.Stderr
	file := first.File.Path
	var secrets atomic.Pointer[[]string]
	note := func(loaded config.Loaded) {
		files := loaded.SecretFiles()
		secrets.Store(&files)
	}
	note(first)
	opts.Source = &app.Source{
		File: file, Asked: asked, Secrets: func() []string { return *secrets.Load() },
		Load: func() (config.Config, error) {
			loaded, err := load(file, false)
			if loaded.File != nil {
				note(loaded)
			}
			if err == nil {
				logWarnings(loaded)
			}
			return loaded.Config, err
		},
	}
	return func() {
		signal.Stop(hangup)
		close(done)
	}
}
