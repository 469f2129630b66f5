package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
)

func stdioCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stdio",
		Short: "Be one MCP server on stdin and stdout, with all servers behind it",
		Long: `Be one MCP server on stdin and stdout, for clients that start their servers themselves. All
servers of the config file are behind it; they start with the first message and end with
the client. Logs go to stderr only, one line for each call and for each request of a
server to the client; no address is opened. The config file is read again when it
changes, and on SIGHUP, as by 'ctxgate serve'.

In a client's configuration:

  { "command": "ctxgate", "args": ["stdio", "--config", "/path/to/ctxgate.toml"] }

With auth_token in the config file, each request must carry the token in
params.proxy.authToken. For a client that cannot add it, start the process with the token
in its environment, in CTXGATE_TOKEN (or AUTH_TOKEN); a wrong one is an error at start:

  { "command": "ctxgate", "args": ["stdio", "--config", "/path/to/ctxgate.toml"],
    "env": { "CTXGATE_TOKEN": "…" } }`,
		Example: "  ctxgate stdio --config ctxgate.toml",
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := load(*path, false, tokenVariables...)
		if err != nil {
			return err
		}
		setLog(cmd, loaded)
		loaded.Memory.LimitRuntime()
		opts := options()
		opts.Token, opts.Env = takeToken(opts.Env)
		stop := follow(&opts, loaded)
		defer stop()
		return app.Stdio(cmd.Context(), loaded.Config, opts, os.Stdin, os.Stdout)
	}
	return cmd
}

// tokenVariables are those in which a client's configuration can give the process its token; the
// first that is set counts.
var tokenVariables = []string{"CTXGATE_TOKEN", "AUTH_TOKEN"}

// takeToken is the token that the process was started with, and the environment without it: programs
// that we start do not get it.
func takeToken(env []string) (secret.Text, []string) {
	var token secret.Text
	for _, name := range slices.Backward(tokenVariables) {
		if found, err := secret.Parse("env:" + name).Resolve(config.Env(env).Lookup); err == nil {
			token = found
		}
	}
	rest := slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(tokenVariables, name)
	})
	return token, rest
}
