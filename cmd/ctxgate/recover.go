package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/linesearch"
	"github.com/ctxgate/ctxgate/recall"
)

type recoverFlags struct {
	lines, grep, tenant string
	number              bool
}

func recoverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover ID",
		Short: "Print the original of something that was cut",
		Long: `Print the original that a marker names, byte for byte. ID is the prune_id of the marker, in
upper or lower case.

Exit code 4 means that the id is unknown or has expired.`,
		Example: `  ctxgate recover prn_4hs5…                 # all of it
  ctxgate recover prn_4hs5… --lines 10-40,90-  # some lines, in the order asked, each once
  ctxgate recover prn_4hs5… --grep 'panic|FAIL' --number`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("recover takes one id: the prune_id that a marker names")
			}
			return nil
		},
	}
	path := configFlag(cmd)
	var f recoverFlags
	cmd.Flags().StringVar(&f.lines, "lines", "", "only these lines: 10-20,35,90-")
	cmd.Flags().StringVar(&f.grep, "grep", "", "only lines that match this regular expression (RE2)")
	cmd.Flags().BoolVarP(&f.number, "number", "n", false, "put the line number before each line")
	cmd.Flags().StringVar(&f.tenant, "tenant", auth.DefaultTenant, "whose original it is")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		wish, err := f.wish(args[0])
		if err != nil {
			return &exitError{exitUsage, err}
		}
		loaded, err := load(*path, true)
		if err != nil {
			return err
		}
		if loaded.State.Driver == "memory" {
			return errors.New("originals are kept in the memory of the running gateway (state.driver = \"memory\"), where no other process can read them")
		}
		vault, err := app.OpenVault(cmd.Context(), loaded.Config)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, vault.Close()) }()
		return print(cmd.Context(), cmd.OutOrStdout(), vault.Recall, f.tenant, wish)
	}
	return cmd
}

// wish is what the flags ask for.
func (f recoverFlags) wish(id string) (w recall.Wish, err error) {
	w = recall.Wish{ID: id, Number: f.number}
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

func print(ctx context.Context, out io.Writer, r *recall.Recall, tenant string, w recall.Wish) error {
	original, err := r.Open(ctx, tenant, w.ID)
	if fault.KindOf(err) == fault.Unknown {
		return &exitError{exitUnknown, recall.ErrUnknown} // one answer, whatever the cause
	}
	if err != nil {
		return err
	}
	if w.Ranges == nil && w.Pattern == nil && !w.Number {
		return original.WriteText(ctx, out)
	}
	got, err := original.Read(ctx, w, recall.Limit{}) // no limit: what is printed is the user's own
	if err != nil {
		return err
	}
	_, err = out.Write(got.Text)
	return err
}
