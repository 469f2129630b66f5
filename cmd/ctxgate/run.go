package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/launch"
)

// runFlags are the flags of run.
type runFlags struct {
	config string
	quiet  bool
	log    string
}

func runAgentCommand() *cobra.Command {
	f := &runFlags{}
	var names []string
	for _, a := range launch.Agents() {
		names = append(names, a.Names[0])
	}
	cmd := &cobra.Command{
		Use:   "run AGENT [-- ARGS]",
		Short: "Start an agent whose tools and conversation go through ctxgate, for this run only",
		Long: `Start an agent that uses ctxgate for its MCP servers and, where that is possible, for the
conversation with its model. It holds for this process only: no file of yours is changed,
and nothing is left behind but the store of originals.

The agents are ` + strings.Join(names, ", ") + `.
What follows the agent's name is passed to it.

With a config file whose profile is "agents", the agent uses the gateway of that file,
which is started in the background unless it runs. With another profile, or with a model
address that the file does not have, this process is the gateway while the agent runs, on
a free port, with the profile "agents". Without a config file it also takes over the MCP
servers that the agent itself has configured, for this run.

A model address that you have set (ANTHROPIC_BASE_URL, the provider of Codex, …) becomes
the gateway's provider, with the agent's own credentials. Where the conversation cannot go
through the gateway, a line on stderr says why; the tools do all the same.

The exit code is the agent's.`,
		Example: `  ctxgate run claude
  ctxgate run claude -- -p "What does this repository do?"
  ctxgate run codex exec "Fix the failing test"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name an agent: " + strings.Join(names, ", "))
			}
			if _, ok := launch.Find(args[0]); !ok {
				if near := config.Nearest(args[0], names); near != "" {
					return fmt.Errorf("unknown agent %q; did you mean %q?", args[0], near)
				}
				return fmt.Errorf("unknown agent %q; the agents are %s ('ctxgate init' sets up others)", args[0], strings.Join(names, ", "))
			}
			return nil
		},
		ValidArgs: names,
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the agent's name is the agent's
	flags.StringVarP(&f.config, "config", "c", "", "the config file (.toml, .json, .yaml)")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing but errors")
	flags.StringVar(&f.log, "log", "", "write the log of a gateway of its own to this file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		agent, _ := launch.Find(args[0])
		rest := args[1:]
		if len(rest) > 0 && rest[0] == "--" {
			rest = rest[1:]
		}
		return runAgent(cmd, f, agent, rest)
	}
	return cmd
}

// runAgent starts the agent, waits for its end and prints what the gateway did.
func runAgent(cmd *cobra.Command, f *runFlags, agent launch.Agent, args []string) error {
	program, err := exec.LookPath(agent.Program)
	if err != nil {
		return fmt.Errorf("%s is not installed: there is no %q in PATH. Install it with '%s'", agent.Title, agent.Program, agent.Install)
	}
	host := launch.Host{GOOS: runtime.GOOS, Env: os.Environ()}
	if host.Home, err = os.UserHomeDir(); err != nil {
		return err
	}
	if host.Cwd, err = os.Getwd(); err != nil {
		return err
	}
	dir, err := makeRunDir()
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	// The gateway outlives the interrupts that are for the agent.
	ctx := context.WithoutCancel(cmd.Context())
	run := &agentRun{flags: f, agent: agent, host: host, args: args, dir: dir, model: agent.Model(host, args)}
	gate, err := run.openGateway(ctx)
	if err != nil {
		return err
	}
	defer gate.close()
	started, err := agent.Command(host, args, run.model, gate.wiring)
	if err != nil {
		return err
	}
	if !f.quiet {
		for _, note := range append(run.notes, started.Notes...) {
			fmt.Fprintln(cmd.ErrOrStderr(), "ctxgate:", secret.Redact(note))
		}
	}
	before := gate.readTotals(ctx)
	code, err := runForeground(ctx, program, started)
	if err != nil {
		return err
	}
	if !f.quiet {
		for _, line := range append(gate.downServers(ctx), gate.readTotals(ctx).since(before)) {
			fmt.Fprintln(cmd.ErrOrStderr(), "ctxgate:", line)
		}
	}
	if code != 0 {
		return &exitError{code, errReported}
	}
	return nil
}

// runForeground runs the agent on this process's terminal, passes signals on, and returns its exit code.
func runForeground(ctx context.Context, program string, c *launch.Command) (code int, err error) {
	child := exec.CommandContext(ctx, program, c.Args...) //nolint:gosec // the agent that the user named
	child.Env, child.Dir = c.Env, c.Cwd
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	notifyHangup(signals)
	defer signal.Stop(signals)
	if err := child.Start(); err != nil {
		return 0, fmt.Errorf("starting %s: %w", program, err)
	}
	done := make(chan error, 1)
	go func() { done <- child.Wait() }()
	for {
		select {
		case s := <-signals:
			if s == os.Interrupt && sendsInterrupts(os.Stdin) {
				continue
			}
			_ = child.Process.Signal(s)
		case err := <-done:
			var exit *exec.ExitError
			switch {
			case err == nil:
				return 0, nil
			case !errors.As(err, &exit):
				return 0, err
			case exit.ExitCode() >= 0:
				return exit.ExitCode(), nil
			}
			return exitProblem + signalExit(exit), nil
		}
	}
}

const runDirPrefix = "ctxgate-run-"

// makeRunDir makes the directory of the run's temporary files, and removes those of runs that were killed.
func makeRunDir() (string, error) {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), runDirPrefix+"*"))
	for _, dir := range old {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(dir), runDirPrefix+"%d-", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		info, err := os.Lstat(dir)
		if err == nil && info.IsDir() && secret.IsOwnedByUser(info) && !isRunning(pid) && time.Since(info.ModTime()) > time.Minute {
			_ = os.RemoveAll(dir)
		}
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", runDirPrefix, os.Getpid()))
	if err != nil {
		return "", fmt.Errorf("making a directory for temporary files: %w", err)
	}
	return dir, nil
}

// openRunLog opens the log of a gateway of its own; without a file nothing is logged: the terminal is the agent's.
func openRunLog(path string) (io.WriteCloser, error) {
	if path == "" {
		return discardLog{}, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, fs.FileMode(0o600))
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	return file, nil
}

type discardLog struct{}

func (discardLog) Write(p []byte) (int, error) { return len(p), nil }
func (discardLog) Close() error                { return nil }
