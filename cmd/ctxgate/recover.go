package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/linesearch"
	"github.com/ctxgate/ctxgate/recall"
)

type recoverFlags struct {
	lines, grep, tenant, call, since string
	number, list, json               bool
	limit                            int
}

func recoverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover ID | --call CALL_ID | --list",
		Short: "Print or find the original of a text that was cut",
		Long: `Print the original of a text that was cut, byte for byte. ID is the prune_id in the marker,
in upper or lower case; CALL_ID is the tool_call_id in the placeholder of an old tool
result. The gateway need not be running.

With --list, list what can be read back, the newest first: id, when it was cut,
characters, where it came from (server/tool, or llm:provider/tool for a result in a
conversation), then the id of the call and the first line. --grep then lists only texts
with a line that matches, and shows that line.

Exit code 4 means that the id is unknown or has expired.`,
		Example: `  ctxgate recover prn_4hs5…                    # all of it
  ctxgate recover prn_4hs5… --lines 10-40,90-  # some lines, in this order, each once
  ctxgate recover prn_4hs5… --grep 'panic|FAIL' --number
  ctxgate recover --call toolu_01AbC…          # the result of this tool call
  ctxgate recover --list --since 2h            # what was cut in the last two hours
  ctxgate recover --list --grep 'connection refused'`,
	}
	path := configFlag(cmd)
	var f recoverFlags
	cmd.Flags().StringVar(&f.lines, "lines", "", "print only these lines: 10-20,35,90-")
	cmd.Flags().StringVar(&f.grep, "grep", "", "print only lines, or list only texts, that match this regular expression (RE2)")
	cmd.Flags().BoolVarP(&f.number, "number", "n", false, "print line numbers")
	cmd.Flags().StringVar(&f.tenant, "tenant", auth.DefaultTenant, "the tenant that owns the original")
	cmd.Flags().BoolVarP(&f.list, "list", "l", false, "list what can be read back")
	cmd.Flags().StringVar(&f.call, "call", "", "the result of the tool call with this id")
	cmd.Flags().StringVar(&f.since, "since", "", "list only what was cut since then: 30m, 2h, 7d, 2026-11-16 or 2026-11-16T14:00")
	cmd.Flags().IntVar(&f.limit, "limit", 50, "list at most so many")
	cmd.Flags().BoolVar(&f.json, "json", false, "list as JSON, one object per line")
	cmd.Args = func(_ *cobra.Command, args []string) error { return f.checkArgs(args) }
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		listing, err := f.listRequest(time.Now())
		if err != nil {
			return &exitError{exitUsage, err}
		}
		req, err := f.readRequest(args)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		loaded, err := loadConfig(*path, true)
		if err != nil {
			return err
		}
		if loaded.State.Driver == "memory" {
			return errors.New("originals are only in the memory of the running gateway (state.driver = \"memory\"), where no other process can read them: set state.driver = \"sqlite\" to read them with this command")
		}
		storage, err := app.OpenStorage(cmd.Context(), loaded.Config)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, storage.Close()) }()
		if f.list {
			return f.printList(cmd, storage.Recall, listing)
		}
		if f.call != "" {
			if req.ID, err = f.findCall(cmd, storage.Recall, listing); err != nil {
				return err
			}
		}
		return printOriginal(cmd.Context(), cmd.OutOrStdout(), storage.Recall, f.tenant, req)
	}
	return cmd
}

// checkArgs requires exactly one of the three ways to say what to print.
func (f recoverFlags) checkArgs(args []string) error {
	switch {
	case f.list && (len(args) > 0 || f.lines != "" || f.number):
		return errors.New("recover --list takes no id, --lines or --number: print what it lists with 'ctxgate recover ID'")
	case !f.list && (f.json || f.since != "" && f.call == ""):
		return errors.New("--json and --since are for recover --list")
	case f.list || f.call != "" && len(args) == 0 || f.call == "" && len(args) == 1:
		return nil
	case f.call != "":
		return errors.New("recover takes a prune_id or --call, not both")
	}
	return errors.New("recover takes one argument, the prune_id in a marker; 'ctxgate recover --list' lists them, 'ctxgate recover --help' shows examples")
}

func (f recoverFlags) readRequest(args []string) (w recall.ReadRequest, err error) {
	w = recall.ReadRequest{LineNumbers: f.number}
	if len(args) > 0 {
		w.ID = args[0]
	}
	if f.lines != "" {
		if w.Ranges, err = recall.ParseRanges(f.lines); err != nil {
			return w, err
		}
	}
	if f.grep != "" {
		if w.Pattern, err = linesearch.Compile(f.grep); err != nil {
			return w, fmt.Errorf("--grep: %w", err)
		}
	}
	return w, nil
}

func printOriginal(ctx context.Context, out io.Writer, r *recall.Recall, tenant string, w recall.ReadRequest) error {
	original, err := r.Open(ctx, tenant, w.ID)
	if fault.KindOf(err) == fault.UnknownHandle {
		return &exitError{exitUnknown, recall.ErrUnknown} // the same message whatever the cause
	}
	if err != nil {
		return err
	}
	if w.Ranges == nil && w.Pattern == nil && !w.LineNumbers {
		return original.WriteText(ctx, out)
	}
	got, err := original.Read(ctx, w, recall.ReadLimit{}) // no limit: the text belongs to the user
	if err != nil {
		return err
	}
	_, err = out.Write(got.Text)
	return err
}
