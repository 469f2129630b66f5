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
		Short: "Serve all servers as one MCP server on stdin and stdout",
		Long: `Serve all servers of the config file as one MCP server on stdin and stdout, for clients
that start their servers themselves.

This process is a bridge to the gateway of the config file, which all clients share: one
set of servers, one store, one memory budget, one log. The bridge connects to the gateway
that runs ('ctxgate serve', or one that another client started), or starts it in the
background; there it ends when nobody has used it for background.idle_timeout. If the
gateway is replaced, as by an upgrade, the bridge moves to the new one. If it dies, calls
in flight are answered with an error, since they may have been executed; the next calls
work.

A gateway in the background has the variables and permissions of the client that started
it, and the directory of the config file as its working directory. Some clients pass only
a few variables on: let secrets be references to files (file:PATH), or run 'ctxgate serve'.
Its log is printed by 'ctxgate logs', its state by 'ctxgate status'; 'ctxgate stop' ends it.

In a client's configuration:

  { "command": "ctxgate", "args": ["stdio", "--client", "cursor", "--config", "/path/to/ctxgate.toml"] }

--client names the client, so that results fit it; see docs/agents.md for the names.

With --alone there is no shared gateway: the servers start in this process with the first
message and stop with the client. Logs go to stderr only, and no listener is opened.

If the config file sets auth_token, each request must carry the token in
params.proxy.authToken. For a client that cannot do that, set the variable CTXGATE_TOKEN
(or AUTH_TOKEN) of this process to the token; a wrong token is an error at start:

  { "command": "ctxgate", "args": ["stdio", "--config", "/path/to/ctxgate.toml"],
    "env": { "CTXGATE_TOKEN": "…" } }`,
		Example: "  ctxgate stdio --config ctxgate.toml",
	}
	path := configFlag(cmd)
	alone := cmd.Flags().Bool("alone", false, "serve in this process, and share nothing with other clients")
	client := cmd.Flags().String("client", "", "the client that starts this process, such as claude-code, codex or cursor")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*alone {
			return bridgeStdio(cmd, *path, *client)
		}
		loaded, err := loadConfig(*path, false, tokenVariables...)
		if err != nil {
			return err
		}
		startLog(cmd, loaded)
		loaded.Memory.SetRuntimeLimit()
		opts := appOptions()
		opts.ClientID = *client
		opts.ClientToken, opts.Env = extractToken(opts.Env)
		stop := watchConfig(&opts, loaded)
		defer stop()
		return app.ServeStdio(cmd.Context(), loaded.Config, opts, os.Stdin, os.Stdout)
	}
	return cmd
}

// tokenVariables are the variables that may hold the client's token; the first that is set counts.
var tokenVariables = []string{"CTXGATE_TOKEN", "AUTH_TOKEN"}

// extractToken returns the token in the environment, and the environment without it: child processes do
// not get it.
func extractToken(env []string) (secret.Text, []string) {
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
