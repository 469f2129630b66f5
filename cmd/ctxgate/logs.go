package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/daemon"
)

func logsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logs",
		Short: "Print the log of the gateway in the background",
		Long: `Print the end of the log of the gateway that clients start in the background. The log of
'ctxgate serve' and of 'ctxgate stdio --alone' goes to stderr instead.

The log is kept in the directory logs of your data directory: at most 8 MB, and as much of
what was before.`,
		Example: "  ctxgate logs -f",
	}
	path := configFlag(cmd)
	follow := cmd.Flags().BoolP("follow", "f", false, "go on printing what is added")
	lines := cmd.Flags().IntP("lines", "n", 100, "how many lines to print")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		program, err := gatewayOf(*path)
		if err != nil {
			return err
		}
		name := program.Endpoint.Log
		if g, err := daemon.Running(cmd.Context(), program.Endpoint, version()); err == nil && !g.Background {
			fmt.Fprintf(cmd.ErrOrStderr(), "the gateway that runs (pid %d) was started by 'ctxgate serve': its log is on its stderr; this is an older one\n", g.PID)
		}
		older, _ := os.ReadFile(daemon.OlderLog(name))
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) && !*follow {
			return fmt.Errorf("there is no log: no gateway was started in the background for %s", program.Endpoint.Config)
		}
		var now []byte
		if err == nil {
			now, err = io.ReadAll(f)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reading the log: %w", err)
		}
		if _, err := cmd.OutOrStdout().Write(lastLines(append(older, now...), *lines)); err != nil || !*follow {
			return err
		}
		return followLog(cmd.Context(), cmd.OutOrStdout(), name, f)
	}
	return cmd
}

// lastLines is the end of a text: n lines.
func lastLines(text []byte, n int) []byte {
	end := len(text)
	if end > 0 && text[end-1] == '\n' {
		end--
	}
	for ; n > 0; n-- {
		at := bytes.LastIndexByte(text[:end], '\n')
		if at < 0 {
			return text
		}
		end = at
	}
	return text[min(end+1, len(text)):]
}

// followLog prints what is added to a log until ctx ends. f is the log as far as it was read; nil before there is one.
func followLog(ctx context.Context, out io.Writer, name string, f *os.File) error {
	for {
		if f != nil {
			if _, err := io.Copy(out, f); err != nil {
				return fmt.Errorf("printing the log: %w", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
		if f == nil || wasRenamed(name, f) {
			if f != nil {
				if _, err := io.Copy(out, f); err != nil { // what came before it was renamed
					return fmt.Errorf("printing the log: %w", err)
				}
				_ = f.Close()
			}
			f, _ = os.Open(name)
		}
	}
}

// wasRenamed reports whether name is another file than f.
func wasRenamed(name string, f *os.File) bool {
	now, err := os.Stat(name)
	own, e := f.Stat()
	return err == nil && e == nil && !os.SameFile(now, own)
}
