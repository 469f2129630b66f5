package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/admin"
	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/pins"
)

const pinsPath = "/api/v1/pins"

type pinFlags struct {
	approve         []string
	all, init, json bool
}

func pinCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pin",
		Short: "Show and approve tools whose definitions changed",
		Long: `Show what is held back of the servers' tools, and why. Of a tool that changed, it shows how
its definition differs from the approved one: words that are gone in [-…-], new ones in
{+…+}, hidden characters as <U+200B>. The exit code is 1 when something is held back.

--approve SERVER::TOOL approves the definition that the tool has now, SERVER::  the
instructions of a server, SERVER all that is held back of it, and --all everything.

--init writes ctxgate.lock, beside the config file, from what the servers have now. With
pins.mode = "lock" only what this file has is served: commit it, and review its changes.

It asks the running gateway, or starts every server once if none runs. Names with hidden
characters, and names that look like another one, are not approved: rename the tool.`,
		Example: `  ctxgate pin                               # what is held back, and what changed
  ctxgate pin --approve files::read_file    # this tool, as it is now
  ctxgate pin --init && git add ctxgate.lock`,
	}
	path := configFlag(cmd)
	var f pinFlags
	cmd.Flags().StringSliceVar(&f.approve, "approve", nil, "approve SERVER::TOOL, SERVER:: or SERVER")
	cmd.Flags().BoolVar(&f.all, "all", false, "approve everything that is held back")
	cmd.Flags().BoolVar(&f.init, "init", false, "write ctxgate.lock from what the servers have now")
	cmd.Flags().BoolVar(&f.json, "json", false, "print what the servers have, and what is held back, as JSON")
	cmd.MarkFlagsMutuallyExclusive("approve", "all", "init", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := loadConfig(*path, false)
		if err != nil {
			return err
		}
		return f.runPin(cmd, loaded)
	}
	return cmd
}

func (f pinFlags) runPin(cmd *cobra.Command, loaded config.Loaded) error {
	source, err := findGateway(loaded.File.Path)
	if err != nil {
		return err
	}
	report, isRunning, err := readPins(cmd, source, loaded)
	if err != nil {
		return err
	}
	switch {
	case f.json:
		out := json.NewEncoder(cmd.OutOrStdout())
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		return out.Encode(report)
	case f.init:
		return writeNewLock(cmd.OutOrStdout(), loaded, report)
	case f.all || len(f.approve) > 0:
		approvals, err := f.chosen(report)
		if err != nil || len(approvals) == 0 {
			return err
		}
		if err := applyApprovals(cmd.Context(), source, loaded, report.Mode, approvals, isRunning); err != nil {
			return err
		}
		for _, a := range approvals {
			fmt.Fprintln(cmd.OutOrStdout(), "approved", pinName(a.Server, a.Tool))
		}
		return nil
	}
	held := printHeld(cmd.OutOrStdout(), report)
	if held > 0 {
		return &exitError{exitProblem, fmt.Errorf("%d held back: 'ctxgate pin --approve SERVER::TOOL' approves one", held)}
	}
	return nil
}

// readPins asks the running gateway what the servers have, or starts the servers.
func readPins(cmd *cobra.Command, source statusSource, loaded config.Loaded) (report pins.Report, isRunning bool, err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), statusTimeout)
	defer cancel()
	raw, err := source.askGateway(ctx, http.MethodGet, pinsPath, nil)
	var exit *exitError
	switch {
	case err == nil:
		if err := json.Unmarshal(raw, &report); err != nil || report.Mode == "" {
			return report, true, fmt.Errorf("the gateway's answer cannot be read: its version may be another than this program's, %s", version())
		}
		return report, true, nil
	case !errors.As(err, &exit) || exit.code != exitNotRunning:
		return report, false, err
	}
	report, err = probePins(cmd, loaded.Config)
	return report, false, err
}

// probePins starts every server and says what each has. A server that does not start is an error.
func probePins(cmd *cobra.Command, cfg config.Config) (pins.Report, error) {
	slog.SetDefault(slog.New(withoutStderr{app.NewLogger(cmd.ErrOrStderr(), config.Log{Level: "ERROR"}).Handler()}))
	progress := newProgressPrinter(cmd.ErrOrStderr())
	report, err := app.ProbePins(cmd.Context(), cfg, appOptions(), hub.ProbeWatcher{
		Progress: progress.show,
		Found: func(r hub.ProbeResult) {
			progress.clear()
			if r.Err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", r.Server, secret.Redact(r.Err.Error()))
			}
		},
	})
	progress.clear()
	return report, err
}

// pinName is a tool, or the instructions of a server, as --approve takes it.
func pinName(server, tool string) string {
	name, _ := pins.MarkHidden(tool)
	return server + "::" + name
}

// eachItem calls f for all instructions and tools of a report.
func eachItem(report pins.Report, f func(server string, item pins.ItemReport)) {
	for _, s := range report.Servers {
		if s.Listed {
			f(s.ID, s.Instructions)
		}
		for _, item := range s.Tools {
			f(s.ID, item)
		}
	}
}

// printHeld prints what is held back, and returns how much that is.
func printHeld(w io.Writer, report pins.Report) (held int) {
	if report.Mode == pins.ModeOff {
		fmt.Fprintln(w, "pins.mode is \"off\": definitions are not compared; see docs/pins.md")
	}
	for _, s := range report.Servers {
		if !s.Listed {
			fmt.Fprintf(w, "%s: its tools are not known: see 'ctxgate status'\n", s.ID)
		}
	}
	served := 0
	eachItem(report, func(server string, item pins.ItemReport) {
		if item.Held == "" {
			served++
			if item.HiddenText > 0 {
				fmt.Fprintf(w, "%s: served, with %d hidden characters; see pins.hidden_characters\n", pinName(server, item.Name), item.HiddenText)
			}
			return
		}
		held++
		fmt.Fprintf(w, "%s: %s\n", pinName(server, item.Name), item.Held)
		switch {
		case item.Held == pins.Changed && item.Old == nil:
			fmt.Fprintln(w, "  the approved text was too long to be kept, so only that it changed is known; it is now")
			printIndented(w, pins.Diff(nil, item.Definition))
		case item.Approvable():
			printIndented(w, pins.Diff(item.Old, item.Definition))
		default:
			printIndented(w, item.Text)
		}
	})
	if held == 0 && report.Mode != pins.ModeOff {
		fmt.Fprintf(w, "nothing is held back; %d definitions are served as they were approved\n", served)
	}
	return held
}

func printIndented(w io.Writer, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintln(w, " ", strings.TrimSuffix(line, "\n"))
	}
}

// chosen returns what is to be approved.
func (f pinFlags) chosen(report pins.Report) ([]pins.Approval, error) {
	if report.Mode == pins.ModeOff {
		return nil, errors.New("pins.mode is \"off\": nothing is held back, and nothing has to be approved")
	}
	used := map[string]bool{}
	var out []pins.Approval
	var failed error
	eachItem(report, func(server string, item pins.ItemReport) {
		one := server + "::" + item.Name
		isChosen := f.all || slices.Contains(f.approve, server) || slices.Contains(f.approve, one)
		if !isChosen || !item.Approvable() {
			return
		}
		if used[one] {
			failed = errors.Join(failed, fmt.Errorf("%s: the server has several definitions of it, for different clients: only one can be approved", pinName(server, item.Name)))
			return
		}
		used[server], used[one] = true, true
		a, err := item.Approval(server)
		failed = errors.Join(failed, err)
		out = append(out, a)
	})
	for _, name := range f.approve {
		if !used[name] {
			failed = errors.Join(failed, fmt.Errorf("--approve %s: nothing of that name waits for approval: 'ctxgate pin' lists what does", name))
		}
	}
	return out, failed
}

// applyApprovals approves definitions where the mode keeps them: in the lock, by the running gateway, or in the store.
func applyApprovals(ctx context.Context, source statusSource, loaded config.Loaded, mode string, approvals []pins.Approval, isRunning bool) error {
	switch {
	case mode == pins.ModeLock: // the gateway reads the file when it changes
		lock, err := app.ReadLock(loaded.LockPath())
		if errors.Is(err, fs.ErrNotExist) {
			lock, err = pins.Lock{}, nil
		}
		if err != nil {
			return err
		}
		lock.Approve(approvals...)
		return writeLock(loaded.LockPath(), lock)
	case !isRunning && loaded.State.Driver == "memory":
		return errors.New("what was seen first is only in the memory of the running gateway (state.driver = \"memory\"), and none runs")
	case !isRunning:
		return app.ApprovePins(ctx, loaded.Config, approvals)
	}
	var req admin.ApproveRequest
	for _, a := range approvals {
		req.Items = append(req.Items, admin.ApprovedItem{Server: a.Server, Tool: a.Tool, SHA256: a.Hash})
	}
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	_, err = source.askGateway(ctx, http.MethodPost, pinsPath+"/approve", body)
	return err
}

// writeNewLock writes the lock from what the servers have now.
func writeNewLock(w io.Writer, loaded config.Loaded, report pins.Report) error {
	lock := pins.Lock{}
	var failed error
	tools := 0
	for _, s := range report.Servers {
		if !s.Listed {
			failed = errors.Join(failed, fmt.Errorf("%s: its tools are not known: start it, or disable it, and try again", s.ID))
		}
	}
	eachItem(report, func(server string, item pins.ItemReport) {
		_, taken := lock[server].Tools[item.Name]
		switch a, err := item.Approval(server); {
		case err != nil:
			failed = errors.Join(failed, err)
		case pins.HasHidden(item.Name):
			fmt.Fprintf(w, "%s: left out: %s\n", pinName(server, item.Name), item.Text)
		case taken:
			fmt.Fprintf(w, "%s: the server has several definitions of it, for different clients: only one of them is approved\n", pinName(server, item.Name))
		default:
			lock.Approve(a)
			if item.Name != "" {
				tools++
			}
		}
	})
	if failed != nil {
		return failed
	}
	path := loaded.LockPath()
	if err := writeLock(path, lock); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s: %d tools of %d servers\n", path, tools, len(lock))
	if loaded.Pins.Mode != pins.ModeLock {
		fmt.Fprintln(w, "to serve only these, set in the config file:\n\n[pins]\nmode = \"lock\"")
	}
	return nil
}

// writeLock replaces the lock in one step.
func writeLock(path string, lock pins.Lock) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".ctxgate.lock-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(lock.Encode())
	if err := errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
