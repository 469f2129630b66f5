package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
)

func stateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "state",
		Short: "Repair the store",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(stateRebuildCommand())
	return cmd
}

func stateRebuildCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Find all originals in the bucket again after the store was lost",
		Long: `Read the bucket of state.blobs and put into the store what it lacks: the secrets of
tenants, the tokens for servers, the approved definitions, and for every original where
in the bucket it is. Run it after the store (state.driver) was emptied, replaced or
restored from an old copy.

Gateways may be running: nothing that they store is replaced, and a tenant that was
forgotten stays forgotten. Run it again if it fails; what was found stays.`,
		Example: `  ctxgate state rebuild`,
		Args:    withUsageExit(cobra.NoArgs),
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		loaded, err := loadConfig(*path, true)
		if err != nil {
			return err
		}
		if !loaded.State.Blobs.IsSet() {
			return errors.New("originals are not in a bucket (state.blobs.url is not set): there is nothing to rebuild from")
		}
		if loaded.State.Driver == "memory" {
			return errors.New("the store is only in the memory of the running gateway (state.driver = \"memory\"), where no other process can write")
		}
		rebuilt, err := app.RebuildIndex(cmd.Context(), loaded.Config)
		_, printErr := fmt.Fprintf(cmd.OutOrStdout(), "Read %s with %s; %s and %d secrets, tokens and approvals were missing and are back.\n",
			countOf(int64(rebuilt.Segments), "segment"), countOf(int64(rebuilt.Values), "original"),
			countOf(int64(rebuilt.Restored), "original"), rebuilt.Archived)
		return errors.Join(err, printErr)
	}
	return cmd
}
