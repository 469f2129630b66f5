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
		Long: `Run the gateway. By default it opens three listeners:

  127.0.0.1:8000  for agents: /mcp serves all MCP servers together, /mcp/ID one of them
                  under its own names; /v1/… is the LLM API
  127.0.0.1:8006  the pruner: /rpc
  127.0.0.1:8090  for you: /metrics and /savings. The token is in the file admin-token of
                  the data directory unless you configure one

The gateway reloads the config file when the file, or a file with one of its secrets,
changes, and on SIGHUP. A file with a mistake is reported and changes nothing. Servers
whose entries are unchanged keep running.

SIGTERM or Ctrl-C drains, and so does 'ctxgate stop': calls in flight may finish within
http.drain_grace. A second signal stops the process at once.

Clients of 'ctxgate stdio' use this gateway while it runs: it takes over from one that they
started in the background, without losing a call. With --background it is started like
those: it ends when nobody has used it for background.idle_timeout, and an upgrade of
ctxgate replaces it.`,
		Example: "  ctxgate serve --config ctxgate.toml",
	}
	path := configFlag(cmd)
	background := cmd.Flags().Bool("background", false, "start the gateway in the background, unless it runs, and return")
	detached := cmd.Flags().Bool(flagDetached, false, "")
	startedBy := cmd.Flags().String(flagStartedBy, "", "")
	takeOver := cmd.Flags().Bool(flagTakeOver, false, "")
	for _, name := range []string{flagDetached, flagStartedBy, flagTakeOver} { // by which a client starts it
		_ = cmd.Flags().MarkHidden(name)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *detached:
			return serveDetached(cmd, *path, *startedBy, *takeOver)
		case *background:
			return startBackground(cmd, *path)
		}
		loaded, err := loadConfig(*path, false)
		if err == nil {
			err = loaded.CheckExposed().Err()
		}
		if err != nil {
			return err
		}
		startLog(cmd, loaded)
		loaded.Memory.SetRuntimeLimit()
		ctx := cmd.Context()
		opts := appOptions()
		opts.Stdout = os.Stdout
		release := openSocket(ctx, &opts, loaded.File.Path)
		stop := watchConfig(&opts, loaded)
		defer stop()
		a, err := app.New(ctx, loaded.Config, opts)
		release()
		if err != nil {
			if opts.Socket != nil && opts.Socket.Handover != nil {
				opts.Socket.Handover.Abort()
			}
			return err
		}
		return a.Run(ctx)
	}
	return cmd
}

// appOptions describes this process to the gateway.
func appOptions() app.Options { return app.Options{Version: version(), Env: os.Environ()} }

// startLog sets up the configured log and writes the warnings to it.
func startLog(cmd *cobra.Command, loaded config.Loaded) {
	slog.SetDefault(app.NewLogger(cmd.ErrOrStderr(), loaded.Log))
	logWarnings(loaded)
}

func logWarnings(loaded config.Loaded) {
	for _, w := range loaded.Warnings {
		slog.Warn(w)
	}
}

// watchConfig makes the gateway reload its configuration when the file or a secret's file changes, and on
// SIGHUP. The returned function stops listening for SIGHUP.
func watchConfig(opts *app.Options, first config.Loaded) (stop func()) {
	hangup := make(chan os.Signal, 1)
	notifyHangup(hangup)
	requests, done := make(chan struct{}), make(chan struct{})
	go func() {
		for {
			select {
			case <-hangup:
			case <-done:
				return
			}
			select {
			case requests <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	if opts.LogWriter == nil {
		opts.LogWriter = os.Stderr
	}
	file := first.File.Path
	var secrets atomic.Pointer[[]string]
	recordSecretFiles := func(loaded config.Loaded) {
		files := loaded.SecretFiles()
		secrets.Store(&files)
	}
	recordSecretFiles(first)
	opts.Source = &app.ConfigSource{
		File: file, ReloadRequests: requests, SecretFiles: func() []string { return *secrets.Load() },
		Load: func() (config.Config, error) {
			loaded, err := loadConfig(file, false)
			if loaded.File != nil {
				recordSecretFiles(loaded)
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
