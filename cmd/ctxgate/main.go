// Command ctxgate is the context gateway for AI agents. Each subcommand has its own file; this file has the
// root command, the exit codes and what the subcommands share.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/daemon"
	"github.com/ctxgate/ctxgate/internal/child"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/setup"
	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// The exit codes, as --help documents them.
const (
	exitOK         = 0
	exitProblem    = 1 // an error, described on stderr
	exitUsage      = 2 // wrong command line
	exitNotRunning = 3 // status: no gateway runs
	exitUnknown    = 4 // recover: the id is unknown or has expired
	exitTampered   = 5 // audit verify: the log was changed or is not complete
)

// exitError carries an exit code out of a subcommand.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func main() {
	child.RunIfShim() // a process that was started to watch over a server does only that
	os.Exit(runCommand())
}

func runCommand() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	go func() { <-ctx.Done(); stop() }()
	err := root().ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	// Config problems are printed as "file:line: text", so that editors can jump to them.
	var problems config.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Fprintln(os.Stderr, p)
		}
		return exitProblem
	}
	if errors.Is(err, errReported) {
		var exit *exitError
		if errors.As(err, &exit) {
			return exit.code
		}
		return exitProblem
	}
	var start *daemon.StartError
	if errors.As(err, &start) { // the gateway's own words, config problems among them
		fmt.Fprintln(os.Stderr, start.Text)
		return exitProblem
	}
	fmt.Fprintln(os.Stderr, "ctxgate:", secret.Redact(err.Error()))
	var exit *exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	return exitProblem
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ctxgate",
		Short: "The context gateway for AI agents",
		Long: `ctxgate is a gateway between AI agents and their tools (MCP servers) and models (LLM
APIs). It shortens tool results that would flood the agent's context, marks every cut,
and stores the original so that it can be read back.

To start:

  ctxgate run claude      # one agent through ctxgate, for this run only
  ctxgate init            # put ctxgate before the MCP servers of all your agents
  ctxgate check --servers # start every server once and see what it offers
  ctxgate status          # servers, agents, what was cut today

'init' writes a config file, which you can also write yourself:

  profile = "agents"

  [[servers]]
  id = "files"
  command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/me/project"]

Agents start 'ctxgate stdio', or connect to http://127.0.0.1:8000/mcp of 'ctxgate serve'.

The config file is the one given with --config, else $CTXGATE_CONFIG, else
./ctxgate.toml, else ctxgate/ctxgate.toml in your config directory.

Exit codes: 0 success; 1 an error, described on stderr; 2 wrong command line;
3 (status) no gateway runs; 4 (recover) the id is unknown or has expired;
5 (audit verify) the log was changed, or lines are missing.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return &exitError{exitUsage, suggestFlag(cmd, err)} })
	cmd.Version = version() // makes --version work
	cmd.SetVersionTemplate(versionLine())
	cmd.AddCommand(serveCommand(), stdioCommand(), stopCommand(), logsCommand(), prunerCommand(), pruneCommand(), checkCommand(), recoverCommand(), statusCommand(), auditCommand(), tenantCommand(), versionCommand())
	cmd.AddCommand(pinCommand(), healthcheckCommand(), stateCommand())
	cmd.AddCommand(runAgentCommand(), initCommand(), addCommand(), removeCommand())
	for _, c := range append(cmd.Commands(), cmd) {
		c.Args = withUsageExit(c.Args)
	}
	return cmd
}

// withUsageExit makes an error about the arguments exit with exitUsage.
func withUsageExit(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check == nil {
			check = cobra.NoArgs
		}
		if err := check(cmd, args); err != nil {
			return &exitError{exitUsage, err}
		}
		return nil
	}
}

func configFlag(cmd *cobra.Command) *string {
	path := cmd.Flags().StringP("config", "c", "", "the config file (.toml, .json, .yaml)")
	_ = cmd.MarkFlagFilename("config", "toml", "json", "yaml", "yml")
	return path
}

// loadConfig finds, reads and validates the configuration and resolves its secrets. It does not warn of the
// variables named in used.
func loadConfig(named string, optional bool, used ...string) (config.Loaded, error) {
	env := config.Env(os.Environ())
	path, err := config.FindFile(named, env)
	if optional && errors.Is(err, config.ErrNoFile) {
		err = nil
	}
	if err != nil {
		return config.Loaded{}, err
	}
	loaded, problems := loadFile(path, env, used...)
	if len(problems) == 0 {
		if problems = loaded.TolerateServers(loaded.ResolveSecrets(env)); len(problems) > 0 {
			return loaded, &unresolvedError{problems}
		}
	}
	return loaded, problems.Err()
}

// unresolvedError is the problems of a configuration whose secrets were resolved.
type unresolvedError struct{ config.Problems }

func (e *unresolvedError) Error() string { return e.Problems.Error() }
func (e *unresolvedError) Unwrap() error { return e.Problems }

// loadFile loads a config file, or the servers of a file that is a client's.
func loadFile(path string, env config.Env, used ...string) (config.Loaded, config.Problems) {
	if data, err := setup.ReadExisting(path); err == nil && data != nil && path != "" {
		home, _ := os.UserHomeDir()
		clients := clientfile.Env{GOOS: runtime.GOOS, Home: home, Lookup: env.Lookup}
		if loaded, isClients, problems := setup.LoadClientFile(path, data, clients, env); isClients {
			return loaded, problems
		}
	}
	return config.Load(path, env, used...)
}

func printWarnings(w io.Writer, warnings []string) {
	for _, text := range warnings {
		fmt.Fprintln(w, "warning:", text)
	}
}
