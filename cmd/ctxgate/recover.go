package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
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
  ctxgate recover prn_4hs5… --lines 10-40,90-  # some lines, in the order asked
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
		selection, err := f.selection()
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
		return print(cmd.Context(), cmd.OutOrStdout(), vault.Recall, f.tenant, args[0], selection)
	}
	return cmd
}

// selection writes part of a text; nil means all of it.
type selection func(w io.Writer, text []byte) error

func (f recoverFlags) selection() (selection, error) {
	var ranges []recall.Range
	var err error
	if f.lines != "" {
		if ranges, err = recall.ParseRanges(f.lines); err != nil {
			return nil, err
		}
	}
	if f.grep != "" {
		re, err := regexp.Compile(f.grep)
		if err != nil {
			return nil, fmt.Errorf("--grep: %w", err)
		}
		return func(w io.Writer, text []byte) error { return recall.WriteMatches(w, text, re, ranges, f.number) }, nil
	}
	if ranges == nil && f.number {
		ranges = []recall.Range{{First: 1, Last: math.MaxInt}}
	}
	if ranges == nil {
		return nil, nil
	}
	return func(w io.Writer, text []byte) error { return recall.WriteLines(w, text, ranges, f.number) }, nil
}

func print(ctx context.Context, w io.Writer, r *recall.Recall, tenant, id string, only selection) error {
	original, err := r.Open(ctx, tenant, id)
	if fault.KindOf(err) == fault.Unknown {
		return &exitError{exitUnknown, recall.ErrUnknown} // one answer, whatever the cause
	}
	if err != nil {
		return err
	}
	if only == nil {
		return original.WriteText(ctx, w)
	}
	var text bytes.Buffer
	if err := original.WriteText(ctx, &text); err != nil {
		return err
	}
	return only(w, text.Bytes())
}
