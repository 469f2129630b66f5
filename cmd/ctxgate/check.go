package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/config"
)

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say everything that is wrong with a config file",
		Long: `Read the config file and print every problem on stderr, each with its file and line. A good
file prints nothing and exits 0.

Secrets are not followed, so that a file can be checked where they are not; with
--secrets they are, as serve does.`,
		Example: "  ctxgate check --config ctxgate.toml && echo good",
	}
	path := configFlag(cmd)
	secrets := cmd.Flags().Bool("secrets", false, "also follow env: and file: references")
	verbose := cmd.Flags().BoolP("verbose", "v", false, "also print what this version reads but does not act on")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		env := config.Env(os.Environ())
		file, err := config.Find(*path, env)
		if err != nil {
			return err
		}
		loaded, problems := config.Load(file, env)
		if len(problems) == 0 && *secrets {
			problems = loaded.Resolve(env)
		}
		if *verbose {
			warn(cmd.ErrOrStderr(), loaded.Warnings)
		}
		return problems.Err()
	}
	return cmd
}
