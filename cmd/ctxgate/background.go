package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/daemon"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// The hidden flags of a serve that a client started.
const (
	flagDetached  = "detached"
	flagStartedBy = "started-by"
	flagTakeOver  = "take-over"
)

// gatewayOf says where the gateway of a config file is, and how it is started in the background.
func gatewayOf(named string) (daemon.Program, error) {
	env := config.Env(os.Environ())
	path, err := config.FindFile(named, env)
	if err != nil {
		return daemon.Program{}, err
	}
	return gatewayOfFile(path)
}

// gatewayOfFile is gatewayOf for a path.
func gatewayOfFile(path string) (daemon.Program, error) {
	places := daemon.Places{RuntimeDir: os.Getenv("XDG_RUNTIME_DIR"), TempDir: os.TempDir()}
	if runtime.GOOS != "windows" {
		places.TempDir = "/tmp" // clients pass different values of TMPDIR on, or none
	}
	places.DataDir, _ = config.UserDataDir(config.Env(os.Environ()))
	endpoint, err := daemon.Locate(path, places)
	if err != nil {
		return daemon.Program{}, err
	}
	own, err := os.Executable()
	if err != nil {
		return daemon.Program{}, fmt.Errorf("finding this program: %w", err)
	}
	return daemon.Program{
		Endpoint: endpoint, Path: own, Version: version(), Env: os.Environ(),
		Args: []string{"serve", "--config", endpoint.Config, "--" + flagDetached},
	}, nil
}

// serveDetached runs the gateway that a client has started. Its stdout is a pipe to whoever started it, which
// learns there that the gateway is ready, or why it is not.
func serveDetached(cmd *cobra.Command, path, client string, takeOver bool) error {
	err := runDetached(cmd.Context(), path, client, takeOver)
	var failed *startFailure
	if errors.As(err, &failed) {
		daemon.ReportError(os.Stdout, secret.Redact(failed.Error()))
		slog.Error("the gateway did not start", "error", failed.err)
		return &exitError{exitProblem, failed.err}
	}
	return err
}

// startFailure is an error before the gateway was ready.
type startFailure struct {
	err    error
	client string
}

// Error names the client whose variables the gateway has: some pass only a few of theirs on.
func (e *startFailure) Error() string {
	text := e.err.Error()
	var problems config.Problems
	if errors.As(e.err, &problems) {
		lines := make([]string, 0, len(problems))
		for _, p := range problems {
			lines = append(lines, p.String())
		}
		text = strings.Join(lines, "\n")
	}
	var unresolved *unresolvedError
	if errors.As(e.err, &unresolved) {
		text += "\n(the gateway has the variables that the program which starts it passes on"
		if e.client != "" {
			text += ", here " + e.client
		}
		text += "; 'ctxgate serve' in a shell has all of them, and a reference file:PATH needs none)"
	}
	return text
}

func runDetached(ctx context.Context, path, client string, takeOver bool) error {
	program, err := gatewayOfFile(path)
	if err != nil {
		return &startFailure{err, client}
	}
	log, err := daemon.OpenLog(program.Endpoint.Log)
	if err != nil {
		return &startFailure{err, client}
	}
	slog.SetDefault(app.NewLogger(log, config.Log{Level: "INFO"}))
	loaded, err := loadConfig(path, false, tokenVariables...)
	if err == nil {
		err = loaded.CheckExposed().Err()
	}
	if err != nil {
		return &startFailure{err, client}
	}
	slog.SetDefault(app.NewLogger(log, loaded.Log))
	logWarnings(loaded)
	loaded.Memory.SetRuntimeLimit()
	opts := appOptions()
	_, opts.Env = extractToken(opts.Env) // the client's own
	opts.LogWriter = log
	opts.Socket = &app.Socket{
		Program: program, Background: true, StartedBy: client, Executable: daemon.NewExecutable(program.Path),
		Ready: func() { daemon.ReportReady(os.Stdout) },
	}
	slog.Info("the gateway starts", "version", version(), "pid", os.Getpid(), "started_by", client, "config", program.Endpoint.Config)
	if takeOver {
		if opts.Socket.Handover, err = daemon.BeginHandover(ctx, program.Endpoint, version()); err != nil {
			return &startFailure{err, client}
		}
	}
	stop := watchConfig(&opts, loaded)
	defer stop()
	a, err := app.New(ctx, loaded.Config, opts)
	if err != nil {
		if takeOver {
			opts.Socket.Handover.Abort()
		}
		return &startFailure{err, client}
	}
	return a.Run(ctx)
}

// startBackground starts the gateway in the background, for a person, and says where it is.
func startBackground(cmd *cobra.Command, path string) error {
	program, err := gatewayOf(path)
	if err != nil {
		return err
	}
	g, err := program.Ensure(cmd.Context(), "")
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "the gateway of %s runs (pid %d, ctxgate %s)\n", g.Config, g.PID, g.Version)
	if g.Listen != "" {
		fmt.Fprintf(out, "  MCP: http://%s/mcp\n", g.Listen)
	}
	if g.Log != "" {
		fmt.Fprintf(out, "  log: %s\n", g.Log)
	}
	return nil
}

// openSocket makes a serve in the foreground the gateway of its config file. It takes over from one in the background; beside
// another one in the foreground it runs without a socket. The lock is held until release.
func openSocket(ctx context.Context, opts *app.Options, file string) (release func()) {
	none := func() {}
	program, err := gatewayOfFile(file)
	if err != nil {
		slog.Warn("clients of 'ctxgate stdio' do not find this gateway", "error", err)
		return none
	}
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	unlock, err := program.Endpoint.Lock(limited)
	if err != nil {
		slog.Warn("clients of 'ctxgate stdio' do not find this gateway", "error", err)
		return none
	}
	socket := &app.Socket{Program: program}
	running, err := daemon.Running(limited, program.Endpoint, version())
	switch {
	case err == nil && !running.Background:
		slog.Warn("another gateway of this config file has its socket: clients of 'ctxgate stdio' use that one", "pid", running.PID)
		unlock()
		return none
	case err == nil:
		if socket.Handover, err = daemon.BeginHandover(limited, program.Endpoint, version()); err != nil {
			slog.Warn("the gateway in the background cannot be replaced: 'ctxgate stop' ends it", "pid", running.PID, "error", err)
		} else {
			slog.Info("taking over from the gateway in the background", "pid", running.PID)
		}
	}
	opts.Socket = socket
	return unlock
}

// bridgeStdio serves a client by the gateway of the config file.
func bridgeStdio(cmd *cobra.Command, path, client string) error {
	slog.SetDefault(app.NewLogger(cmd.ErrOrStderr(), config.Log{Level: "INFO"}))
	token, _ := extractToken(os.Environ())
	isReported := false
	err := daemon.RunBridge(cmd.Context(), daemon.BridgeOptions{
		In: os.Stdin, Out: os.Stdout,
		Connect: func(ctx context.Context) (*daemon.Conn, daemon.Gateway, error) {
			program, err := gatewayOf(path)
			if err != nil {
				return nil, daemon.Gateway{}, err
			}
			return program.ConnectMCP(ctx, client, token.Reveal())
		},
		Failed: func(err error) { // at once: the client may take its time
			printError(cmd.ErrOrStderr(), err)
			isReported = true
		},
	})
	if err != nil && isReported {
		return &exitError{exitProblem, errReported}
	}
	return err
}

// errReported is an error that was printed already.
var errReported = errors.New("")

// printError prints an error of the gateway as the gateway itself would.
func printError(w io.Writer, err error) {
	var start *daemon.StartError
	if errors.As(err, &start) {
		fmt.Fprintln(w, start.Text)
		return
	}
	fmt.Fprintln(w, "ctxgate:", secret.Redact(err.Error()))
}
