package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/setup"
	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// initFlags are the flags of init.
type initFlags struct {
	config                     string
	clients                    []string
	yes, dryRun, undo, project bool
}

func initCommand() *cobra.Command {
	f := &initFlags{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Move the MCP servers of your agents behind ctxgate",
		Long: `Find the MCP servers in the config files of your agents, write them into one
ctxgate.toml, and put ctxgate in their place. It shows what it found and what it would
write, and asks once. Every file is backed up first; 'ctxgate init --undo' puts all of
them back, byte for byte. Run it again whenever an agent has a new server.

The agents are ` + strings.Join(clientfile.Clients[:7], ", ") + `,
` + strings.Join(clientfile.Clients[7:], ", ") + `.

References to variables stay references. Credentials that stand in an agent's file move
into files of their own that only you can read; ctxgate.toml refers to them.

By default it is about your own files, and writes ctxgate/ctxgate.toml in your config
directory. With --project it is about the files of the current directory (.mcp.json,
.cursor/mcp.json and the like), and writes ./ctxgate.toml.`,
		Example: `  ctxgate init                      # show, ask, write
  ctxgate init --dry-run            # show every change, write nothing
  ctxgate init --client codex       # only Codex; connects it even if it has no servers yet
  ctxgate init --undo`,
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&f.dryRun, "dry-run", false, "show the change of every file, and write nothing")
	flags.StringArrayVar(&f.clients, "client", nil, "only this agent; may be repeated")
	flags.BoolVar(&f.project, "project", false, "the files of the current directory instead of your own")
	flags.BoolVar(&f.undo, "undo", false, "put back what the last init changed; again: the one before")
	flags.StringVarP(&f.config, "config", "c", "", "write this file (.toml) instead")
	_ = cmd.RegisterFlagCompletionFunc("client", cobra.FixedCompletions(clientfile.Clients, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagFilename("config", "toml")
	cmd.MarkFlagsMutuallyExclusive("undo", "project")
	cmd.MarkFlagsMutuallyExclusive("undo", "client")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		opts, backups, err := f.options()
		if err != nil {
			return err
		}
		if f.undo {
			return undoInit(cmd, opts, backups, f.dryRun)
		}
		return f.runInit(cmd, opts, backups)
	}
	return cmd
}

// options gathers what setup needs to know about this machine.
func (f *initFlags) options() (setup.Options, setup.Backups, error) {
	opts := setup.Options{GOOS: runtime.GOOS, Env: os.Environ(), Clients: f.clients, Project: f.project, Time: time.Now()}
	err := opts.CheckClients()
	if err != nil {
		return opts, setup.Backups{}, &exitError{exitUsage, err}
	}
	if opts.Home, err = os.UserHomeDir(); err != nil {
		return opts, setup.Backups{}, err
	}
	if opts.Cwd, err = os.Getwd(); err != nil {
		return opts, setup.Backups{}, err
	}
	if opts.Program, err = ownPath(); err != nil {
		return opts, setup.Backups{}, err
	}
	user, err := config.UserFile(opts.Env)
	if err != nil {
		return opts, setup.Backups{}, err
	}
	named, _ := opts.Env.Lookup("CTXGATE_CONFIG")
	switch {
	case f.config != "":
		opts.Config = f.config
	case f.project:
		opts.Config = "ctxgate.toml"
	case named != "":
		opts.Config = named
	default:
		opts.Config = user
	}
	if opts.Config, err = filepath.Abs(opts.Config); err != nil {
		return opts, setup.Backups{}, err
	}
	if filepath.Ext(opts.Config) != ".toml" {
		return opts, setup.Backups{}, &exitError{exitUsage, fmt.Errorf("init writes a .toml file, not %s; name one with --config", opts.Config)}
	}
	opts.Secrets = secretsDir(opts.Config)
	data, err := config.UserDataDir(opts.Env)
	return opts, setup.Backups{Dir: filepath.Join(data, "backups")}, err
}

// secretsDir is the directory for the credentials of a configuration: never in a project, whose files people share.
func secretsDir(file string) string {
	user, err := config.UserFile(os.Environ())
	if err != nil {
		return "" // there is no home directory, which storing one reports
	}
	dir := filepath.Join(filepath.Dir(user), "secrets")
	if path, err := filepath.Abs(file); err == nil && path != user { // servers of different files may have the same ids
		sum := sha256.Sum256([]byte(path))
		dir = filepath.Join(dir, filepath.Base(filepath.Dir(path))+"-"+hex.EncodeToString(sum[:4]))
	}
	return dir
}

// ownPath is the path of this program, as the user's PATH names it where it does: a link stays right after an upgrade.
func ownPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if named, err := exec.LookPath(os.Args[0]); err == nil {
		if named, err = filepath.Abs(named); err == nil && isSameFile(named, self) {
			return named, nil
		}
	}
	return self, nil
}

func isSameFile(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

func (f *initFlags) runInit(cmd *cobra.Command, opts setup.Options, backups setup.Backups) error {
	plan, err := setup.NewPlan(opts)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if err := plan.Print(out, isColoured(out)); err != nil {
		return err
	}
	if len(plan.Edits) == 0 {
		fmt.Fprintf(out, "\nNothing to change.%s\n", plan.Advice())
		return nil
	}
	if f.dryRun {
		return plan.PrintDiff(out)
	}
	if !f.yes {
		again := strings.Join(append([]string{"ctxgate"}, os.Args[1:]...), " ") + " --yes"
		ok, err := confirm(cmd.InOrStdin(), out, "\nWrite this? A backup is made first. [y/N] ")
		switch {
		case errors.Is(err, errNobodyToAsk):
			fmt.Fprintf(out, "\nNothing was changed. To go ahead: %s\n", again)
			return nil
		case err != nil:
			return err
		case !ok:
			fmt.Fprintln(out, "Nothing was changed.")
			return nil
		}
	}
	if plan, err = applyPlan(plan, backups); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	plan.PrintDone(out)
	return nil
}

// applyPlan writes a plan. Some agents write their files all the time, Claude Code for one: if the same plan still holds
// for what a file has now, that is written.
func applyPlan(plan *setup.Plan, backups setup.Backups) (*setup.Plan, error) {
	shown := planText(plan)
	for try := 1; ; try++ {
		_, err := backups.Apply(plan.Edits, plan.Time)
		if !errors.Is(err, setup.ErrChanged) || try == 10 {
			return plan, err
		}
		again, planErr := setup.NewPlan(plan.Options)
		if planErr != nil {
			return plan, planErr
		}
		if planText(again) != shown {
			return plan, err
		}
		plan = again
	}
}

func planText(p *setup.Plan) string {
	var b strings.Builder
	_ = p.Print(&b, false) // to memory
	return b.String()
}

func undoInit(cmd *cobra.Command, opts setup.Options, backups setup.Backups, isDry bool) error {
	last, err := backups.Last()
	if err != nil {
		return err
	}
	if last == nil {
		return setup.ErrNothingToUndo
	}
	out := cmd.OutOrStdout()
	if isDry {
		fmt.Fprintf(out, "ctxgate init --undo would put back what was written at %s:\n", last.Time.Local().Format(time.DateTime))
		for _, f := range last.Files {
			fmt.Fprintln(out, "  "+f.Path)
		}
		return nil
	}
	env := clientfile.Env{GOOS: opts.GOOS, Home: opts.Home, Cwd: opts.Cwd, Lookup: opts.Env.Lookup}
	failed := 0
	for _, o := range last.Undo(env, opts.Time) {
		text := fmt.Sprintf("%-9s  %s", o.Result, opts.Tilde(o.Path))
		if o.Detail != "" {
			text += "\n           " + o.Detail
		}
		fmt.Fprintln(out, text)
		if o.Result == setup.Failed {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of the files could not be put back; the others were. Run 'ctxgate init --undo' again when the cause is removed", failed)
	}
	fmt.Fprintln(out, "\nYour agents are as before. Restart those that are running.")
	return nil
}

var errNobodyToAsk = errors.New("stdin is not a terminal")

// confirm asks a person. Without one it fails with errNobodyToAsk.
func confirm(in io.Reader, out io.Writer, question string) (bool, error) {
	if !isTerminal(in) {
		return false, errNobodyToAsk
	}
	fmt.Fprintf(out, "%s", question)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && answer == "" { // /dev/null, or Ctrl-D
		fmt.Fprintln(out)
		return false, errNobodyToAsk
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// isColoured reports whether the output is a person's terminal with colours.
func isColoured(out io.Writer) bool {
	_, noColor := os.LookupEnv("NO_COLOR")
	return !noColor && os.Getenv("TERM") != "dumb" && isTerminal(out)
}
