package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/config"
)

func checkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "List every problem of a config file",
		Long: `Read the config file and print every problem on stderr, each with its file and line. For
a file without problems it prints nothing and exits 0.

References to secrets (env:NAME, file:PATH) are not resolved, so that a file can be
checked on a machine without the secrets; --secrets resolves them, as serve does.

--servers also starts every server and prints its MCP version and how many tools, prompts
and resources it offers. It waits for servers that npx, uvx or docker have to fetch first,
and shows their progress on stderr. A server that does not start, with the last lines of
its stderr and the setting that ended the wait, or a tool name that two servers claim, is
a problem: the exit code is 1.

--as explains what the access rules decide for a caller, rule by rule: of a tool, a
resource, a prompt or a model, or, without one, what they make of the caller.

--verbose also prints the defaults that the profile sets, one per line, and which of them
the file or the environment overrides; and where the prices of the LLM providers' models
come from.`,
		Example: "  ctxgate check --config ctxgate.toml && echo ok\n  ctxgate check --as ann@acme --roles dev --tool fs::write_file --arguments '{\"path\":\"/etc/hosts\"}'",
	}
	path := configFlag(cmd)
	secrets := cmd.Flags().Bool("secrets", false, "also resolve env: and file: references")
	servers := cmd.Flags().Bool("servers", false, "also start every server and print what it offers")
	verbose := cmd.Flags().BoolP("verbose", "v", false, "also print what the profile sets, and warnings: variables and keys that have no effect")
	as := addAsFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := as.check(cmd.Flags()); err != nil {
			return err
		}
		env := config.Env(os.Environ())
		file, err := config.FindFile(*path, env)
		if err != nil {
			return err
		}
		loaded, problems := loadFile(file, env)
		problems = append(problems, loaded.CheckExposed()...)
		if _, err := app.LoadLock(loaded.Pins); err != nil {
			problems = append(problems, loaded.File.Problems("", err)...)
		}
		problems.Sort()
		if len(problems) == 0 && (*secrets || *servers) {
			problems = loaded.ResolveSecrets(env)
		}
		if !*secrets { // as serve does: with the profile agents one server is down, and the others are checked
			problems = loaded.TolerateServers(problems)
		}
		if *verbose {
			printWarnings(cmd.ErrOrStderr(), loaded.Warnings)
			printProfile(cmd.OutOrStdout(), loaded, env)
			printPrices(cmd.OutOrStdout(), loaded)
		}
		if len(problems) == 0 && as.subject != "" {
			return as.explain(cmd, loaded.Config)
		}
		if len(problems) > 0 || !*servers {
			return problems.Err()
		}
		return checkServers(cmd, loaded.Config)
	}
	return cmd
}

// printProfile prints what the profile sets.
func printProfile(w io.Writer, loaded config.Loaded, env config.Env) {
	settings := loaded.ProfileSettings(env)
	if len(settings) == 0 {
		fmt.Fprintf(w, "profile %q sets nothing\n", loaded.Profile)
		return
	}
	fmt.Fprintf(w, "profile %q sets\n", loaded.Profile)
	for _, s := range settings {
		fmt.Fprintln(w, " ", s)
	}
}

// printPrices prints where the prices of models come from.
func printPrices(w io.Writer, loaded config.Loaded) {
	report := loaded.Chat.PriceReport()
	if len(report) == 0 {
		return
	}
	fmt.Fprintln(w, "prices")
	for _, line := range report {
		fmt.Fprintln(w, " ", line)
	}
}
