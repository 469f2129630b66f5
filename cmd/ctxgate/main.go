// Command ctxgate is the context gateway for AI agents. Each subcommand has its file; this one
// has the root, the exit codes and what the subcommands share.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/child"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// The exit codes, as --help documents them.
const (
	exitOK      = 0
	exitProblem = 1 // something went wrong; stderr says what
	exitUsage   = 2 // the command line is wrong
	exitUnknown = 4 // recover: the id is unknown or has expired
)

// exitError carries an exit code out of a subcommand.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func main() {
	child.Lifeline() // a process that was started to watch over a server does only that
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once.
	go func() { <-ctx.Done(); stop() }()
	err := root().ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	// Problems of a config are lines of their own, ready for an editor to jump to.
	var problems config.Problems
	if errors.As(err, &problems) {
		for _, p := range problems {
			fmt.Fprintln(os.Stderr, p)
		}
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
		Long: `ctxgate stands between AI agents and their tools. It cuts what would flood an
agent's context, marks every cut, and keeps the original so that it can be read back.

Start with a file ctxgate.toml:

  [[servers]]
  id = "files"
  command = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/me/project"]

then

  ctxgate check      # is the file right?
  ctxgate serve      # run; agents connect to http://127.0.0.1:8000/mcp
  ctxgate stdio      # or: be one MCP server on stdin and stdout
  ctxgate pruner     # or: only the pruner, at http://127.0.0.1:8006/rpc
  ctxgate prune      # or: a filter for pipes, text in, the lines that matter out
  ctxgate recover ID # read back what a marker says was cut

The config file is the one named with --config, else $CTXGATE_CONFIG, else
./ctxgate.toml, else ctxgate/ctxgate.toml in your config directory.

Exit codes: 0 all is well; 1 something went wrong, stderr says what; 2 the command
line is wrong; 4 (recover) the id is unknown or has expired.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q; 'ctxgate --help' lists them", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	cmd.AddCommand(serveCommand(), stdioCommand(), prunerCommand(), pruneCommand(), checkCommand(), recoverCommand(), versionCommand())
	for _, c := range append(cmd.Commands(), cmd) {
		c.Args = usage(c.Args)
	}
	return cmd
}

// usage makes a refusal of arguments exit with the code for it.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
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

// load finds, reads and checks the configuration and follows its secrets. The variables named in used
// are read elsewhere.
func load(named string, mayBeAbsent bool, used ...string) (config.Loaded, error) {
	env := config.Env(os.Environ())
	path, err := config.Find(named, env)
	if mayBeAbsent && errors.Is(err, config.ErrNoFile) {
		err = nil
	}
	if err != nil {
		return config.Loaded{}, err
	}
	loaded, problems := config.Load(path, env, used...)
	if len(problems) == 0 {
		problems = loaded.Resolve(env)
	}
	return loaded, problems.Err()
}

func warn(w io.Writer, warnings []string) {
	for _, text := range warnings {
		fmt.Fprintln(w, "warning:", text)
	}
}
