package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
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

  { "command": "ctxgate", "args": ["stdio", "--config", "/path/to/ctxgate.toml"] }`,
		Example: "  ctxgate stdio --config ctxgate.toml",
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := load(*path, false)
		if err != nil {
			return err
		}
		setLog(cmd, loaded)
		loaded.Memory.LimitRuntime()
		opts := options()
		stop := follow(&opts, loaded.File.Path)
		defer stop()
		return app.Stdio(cmd.Context(), loaded.Config, opts, os.Stdin, os.Stdout)
	}
	return cmd
}
