package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
)

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say everything that is wrong with a config file",
		Long: `Read the config file and print every problem on stderr, each with its file and line. A good
file prints nothing and exits 0.

Secrets are not followed, so that a file can be checked where they are not; with
--secrets they are, as serve does.

With --servers every server is started too, and what it says of itself is printed; one
that does not start, and a name that two servers want, is a problem.`,
		Example: "  ctxgate check --config ctxgate.toml && echo good",
	}
	path := configFlag(cmd)
	secrets := cmd.Flags().Bool("secrets", false, "also follow env: and file: references")
	servers := cmd.Flags().Bool("servers", false, "also start every server and print what it offers")
	verbose := cmd.Flags().BoolP("verbose", "v", false, "also print what this version reads but does not act on")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		env := config.Env(os.Environ())
		file, err := config.Find(*path, env)
		if err != nil {
			return err
		}
		loaded, problems := config.Load(file, env)
		problems = append(problems, loaded.CheckExposed()...)
		problems.Sort()
		if len(problems) == 0 && (*secrets || *servers) {
			problems = loaded.Resolve(env)
		}
		if *verbose {
			warn(cmd.ErrOrStderr(), loaded.Warnings)
		}
		if len(problems) > 0 || !*servers {
			return problems.Err()
		}
		return checkServers(cmd, loaded.Config)
	}
	return cmd
}

// checkServers starts every server and prints what it is.
func checkServers(cmd *cobra.Command, cfg config.Config) error {
	slog.SetDefault(app.Logger(cmd.ErrOrStderr(), config.Log{Level: "ERROR"}))
	found, clashes, err := app.Survey(cmd.Context(), cfg, options())
	if err != nil {
		return err
	}
	bad := len(clashes)
	for _, f := range found {
		if f.Problem != nil {
			bad++
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", f.Server, secret.Redact(f.Problem.Error()))
			continue
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", f.Server, f.Line)
	}
	for _, text := range clashes {
		fmt.Fprintln(cmd.ErrOrStderr(), text)
	}
	switch {
	case bad == 1:
		return &exitError{exitProblem, errors.New("1 problem with the servers")}
	case bad > 1:
		return &exitError{exitProblem, fmt.Errorf("%d problems with the servers", bad)}
	}
	return nil
}
