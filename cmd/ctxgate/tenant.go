package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/audit"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/keyring"
)

func tenantCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenant",
		Short: "Forget what is stored for a tenant",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(tenantForgetCommand())
	return cmd
}

func tenantForgetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "forget TENANT",
		Short: "Make all that is stored for a tenant unreadable, and remove it",
		Long: `Destroy the secret that a tenant's data is encrypted with, in the store of the config
file, and then remove the data: originals of texts that were cut, the state of
conversations, hidden rounds, tokens for servers. Copies of the store, such as backups
without the secret, cannot be read either.

The gateway may be running: when the command ends, no process that shares the store can
read the data, and within a second they drop what they have in memory. If the tenant
calls again, it begins anew. While root secrets are rotated, all of old_secrets must
still be in the config file.

There is no way back.`,
		Example: `  ctxgate tenant forget acme`,
		Args: withUsageExit(func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return errors.New("tenant forget takes one argument, the name of the tenant")
			}
			return nil
		}),
	}
	path := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		loaded, err := loadConfig(*path, true)
		if err != nil {
			return err
		}
		if loaded.State.Driver == "memory" {
			return errors.New("the tenant's data is only in the memory of the running gateway (state.driver = \"memory\"): restart it, and all data is gone")
		}
		log, err := app.OpenAudit(loaded.Config, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, log.Close()) }()
		tenant := args[0]
		forgotten, err := app.ForgetTenant(cmd.Context(), loaded.Config, tenant, func(f keyring.Forgotten, err error) {
			log.Record(&audit.Event{Kind: audit.KindAdmin, Method: "tenant forget", Tenant: tenant, Outcome: outcomeOf(err), BytesOut: f.Bytes, Count: int64(f.Groups)})
		})
		if err != nil && forgotten.Secrets > 0 {
			return fmt.Errorf("the tenant's data is unreadable, but was not removed completely: run the command again: %w", err)
		}
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "Forgot the tenant %q: %s destroyed; %s of texts, conversations and tokens removed, %s.\n",
			tenant, countOf(int64(forgotten.Secrets), "secret"), countOf(int64(forgotten.Groups), "item"), sizeText(forgotten.Bytes))
		return err
	}
	return cmd
}

// outcomeOf is how an action ended, for the audit log.
func outcomeOf(err error) string {
	if err != nil {
		return fault.KindOf(err).String()
	}
	return "ok"
}
