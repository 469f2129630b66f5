package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/audit"
)

func auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check the log of decisions",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(auditVerifyCommand())
	return cmd
}

func auditVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify [FILE...]",
		Short: "Check that no line of the audit log was changed or removed",
		Long: `Check the audit log of the config file (audit.path): that every line was written by a
gateway with its secret, that no line is missing, twice or in another place, from the
oldest rotated file to the last line that was recorded in the data directory. The gateway
may be running.

With FILE, check these files instead, in any order: rotated files that were moved
elsewhere, or what was captured from stdout or syslog ("-" is stdin). Whether lines are
missing before the first and after the last is then checked only with --complete.

Exit code 5 means that the log was changed, or that lines are missing.`,
		Example: `  ctxgate audit verify
  ctxgate audit verify /archive/audit.log.*
  journalctl -t ctxgate -o cat | ctxgate audit verify --syslog -`,
		Args: withUsageExit(cobra.ArbitraryArgs),
	}
	path := configFlag(cmd)
	var opts audit.VerifyOptions
	cmd.Flags().BoolVar(&opts.Complete, "complete", false, "the files are the whole log: check its beginning and end, too")
	cmd.Flags().BoolVar(&opts.Prefixed, "syslog", false, "lines have a header of syslog before them")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		loaded, err := loadConfig(*path, true)
		if err != nil {
			return err
		}
		switch {
		case loaded.Audit.Path == "" && len(files) == 0:
			return errors.New("there is no audit log: set audit.path in the config file, or name the files to check")
		case !loaded.Audit.IsFile() && len(files) == 0:
			return &exitError{exitUsage, errors.New("the audit log goes to stdout or syslog: name the files in which it was captured")}
		}
		opts.Files = files
		report, err := app.VerifyAudit(loaded.Config, opts)
		if err != nil {
			return err
		}
		if err := report.Write(cmd.OutOrStdout()); err != nil {
			return err
		}
		if !report.OK() {
			return &exitError{exitTampered, errReported}
		}
		return nil
	}
	return cmd
}
