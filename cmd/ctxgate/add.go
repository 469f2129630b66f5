package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/setup"
)

func addCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add NAME {-- COMMAND [ARGUMENT]... | URL}",
		Short: "Add an MCP server to the config file",
		Long: `Add an MCP server to the config file: a command after --, or the URL of a server. The
rest of the file stays as it is, comments included. Without a config file, one is made in
your config directory. A running gateway picks the server up.

Values may be references: env:NAME, file:PATH, or text with ${NAME} in it (in a command:
${env:NAME}, ${file:PATH}). A value that looks like a credential is not written into the
config file, but into a file of its own that only you can read.`,
		Example: `  ctxgate add files -- npx -y @modelcontextprotocol/server-filesystem /home/me/project
  ctxgate add github --env GITHUB_PERSONAL_ACCESS_TOKEN=env:GITHUB_TOKEN -- npx -y @modelcontextprotocol/server-github
  ctxgate add docs https://docs.example.com/mcp --header "Authorization: Bearer env:DOCS_TOKEN"`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("want a name and a command or URL: ctxgate add NAME -- COMMAND…, or ctxgate add NAME URL")
			}
			return nil
		},
	}
	flags := cmd.Flags()
	path := configFlag(cmd)
	env := flags.StringArrayP("env", "e", nil, "a variable for the command, as NAME=VALUE; may be repeated")
	headers := flags.StringArrayP("header", "H", nil, `a header for the URL, as "Name: value" or Name=value; may be repeated`)
	transport := flags.StringP("transport", "t", "http", "of a URL: http or sse")
	cwd := flags.String("cwd", "", "the directory in which the command runs")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		add, err := parseAddition(args, *env, *headers, *cwd)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		if add.URL == "" && flags.Changed("transport") {
			return &exitError{exitUsage, errors.New("--transport is for a URL; a command speaks on stdin and stdout")}
		}
		add.Transport = *transport
		file, err := configToEdit(*path)
		if err != nil {
			return err
		}
		change, err := setup.Add(file, placeOf(file), add)
		if err != nil {
			return err
		}
		if err := change.Write(); err != nil {
			return err
		}
		printChange(cmd.OutOrStdout(), "added "+add.Name+" to ", change)
		return nil
	}
	return cmd
}

var urlScheme = regexp.MustCompile(`^(https?://|env:|file:)`)

func parseAddition(args, env, headers []string, cwd string) (add setup.Addition, err error) {
	add.Name = args[0]
	isURL := urlScheme.MatchString(args[1])
	switch {
	case isURL && len(args) > 2:
		return add, fmt.Errorf("a URL takes no arguments, found %q", args[2])
	case isURL && len(env) > 0:
		return add, errors.New("--env is for a command; a URL takes --header")
	case !isURL && len(headers) > 0:
		return add, errors.New("--header is for a URL; a command takes --env")
	case isURL && cwd != "":
		return add, errors.New("--cwd is for a command")
	case isURL:
		add.URL = args[1]
	default:
		add.Command = args[1:]
	}
	if add.Cwd = cwd; cwd != "" {
		if add.Cwd, err = filepath.Abs(cwd); err != nil {
			return add, err
		}
	}
	for _, e := range env {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return add, errors.New("--env wants NAME=VALUE")
		}
		add.Env = append(add.Env, setup.Pair{Name: name, Value: value})
	}
	for _, h := range headers {
		at := strings.IndexAny(h, ":=")
		if at < 1 {
			return add, errors.New(`--header wants "Name: value" or Name=value`)
		}
		add.Headers = append(add.Headers, setup.Pair{Name: strings.TrimSpace(h[:at]), Value: strings.TrimSpace(h[at+1:])})
	}
	return add, nil
}

func removeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Aliases: []string{"rm"},
		Short:   "Remove an MCP server from the config file",
		Long: `Remove an MCP server from the config file, with the comments above it. The rest of the
file stays as it is. A file that 'ctxgate add' or 'ctxgate init' made for its credential is
removed, too. A running gateway stops the server.`,
		Example: "  ctxgate remove files",
		Args:    cobra.ExactArgs(1),
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := config.FindFile(*path, os.Environ())
		if err != nil {
			return err
		}
		change, err := setup.Remove(file, placeOf(file), args[0])
		if err != nil {
			return err
		}
		if err := change.Write(); err != nil {
			return err
		}
		printChange(cmd.OutOrStdout(), "removed "+args[0]+" from ", change)
		return nil
	}
	return cmd
}

// configToEdit returns the config file to edit: the one that ctxgate would load, or else a new one in the user's config
// directory.
func configToEdit(named string) (string, error) {
	file, err := config.FindFile(named, os.Environ())
	if errors.Is(err, config.ErrNoFile) {
		return config.UserFile(os.Environ())
	}
	return file, err
}

// placeOf is where the credentials of a config file are.
func placeOf(file string) setup.Place {
	home, _ := os.UserHomeDir() // without one, paths are written in full
	return setup.Place{Secrets: secretsDir(file), Home: home, Env: os.Environ()}
}

func printChange(out io.Writer, what string, c *setup.Change) {
	fmt.Fprintln(out, what+c.Path)
	for _, path := range c.Secrets {
		if strings.HasPrefix(what, "added") {
			fmt.Fprintln(out, "a credential is in "+path+", readable only by you")
		} else {
			fmt.Fprintln(out, "removed "+path)
		}
	}
	switch {
	case c.IsNew:
		fmt.Fprintln(out, "'ctxgate check --servers' starts it once; 'ctxgate init --client claude-code' connects an agent")
	case strings.HasPrefix(what, "added"):
		fmt.Fprintln(out, "a running gateway picks it up; 'ctxgate check --servers' starts it once")
	default:
		fmt.Fprintln(out, "a running gateway stops it")
	}
}
