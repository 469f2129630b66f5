package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ctxgate/ctxgate/config"
)

// unknownCommand is the error for a command that does not exist; it names the one that was probably meant.
func unknownCommand(root *cobra.Command, name string) error {
	var known []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			known = append(append(known, c.Name()), c.Aliases...)
		}
	}
	if near := config.Nearest(name, known); near != "" {
		return fmt.Errorf("unknown command %q; did you mean %q?", name, near)
	}
	return fmt.Errorf("unknown command %q; 'ctxgate --help' lists them", name)
}

// suggestFlag adds the flag that was probably meant to an error about one that does not exist.
func suggestFlag(cmd *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) || missing.GetSpecifiedShortnames() != "" {
		return err
	}
	known := []string{"help"}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if near := config.Nearest(missing.GetSpecifiedName(), known); near != "" {
		return fmt.Errorf("%w; did you mean --%s?", err, near)
	}
	return fmt.Errorf("%w; '%s --help' lists them", err, cmd.CommandPath())
}
