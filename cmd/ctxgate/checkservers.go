package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/secret"
)

const (
	progressPause = 5 * time.Second // between two lines about the same server, if stderr is not a terminal
	worthTelling  = 2 * time.Second // a start that took longer is shown with its duration
	maxShownTail  = 10              // lines of stderr of a server that failed
)

// checkServers starts every server and prints what it offers.
func checkServers(cmd *cobra.Command, cfg config.Config) error {
	slog.SetDefault(slog.New(withoutStderr{app.NewLogger(cmd.ErrOrStderr(), config.Log{Level: "ERROR"}).Handler()}))
	progress := newProgressPrinter(cmd.ErrOrStderr())
	bad := 0
	clashes, err := app.ProbeServers(cmd.Context(), cfg, appOptions(), hub.ProbeWatcher{
		Progress: progress.show,
		Found: func(r hub.ProbeResult) {
			progress.clear()
			took := ""
			if r.Took >= worthTelling {
				took = fmt.Sprintf(" (%d s)", int(r.Took.Seconds()))
			}
			if r.Err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s%s\n", r.Server, r.Summary, took)
				return
			}
			bad++
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s%s\n", r.Server, secret.Redact(r.Err.Error()), took)
			for _, line := range r.Stderr[max(0, len(r.Stderr)-maxShownTail):] {
				fmt.Fprintf(cmd.ErrOrStderr(), "  %s says: %s\n", r.Server, line)
			}
		},
	})
	progress.clear()
	if err != nil {
		return err
	}
	if err := cmd.Context().Err(); err != nil {
		return &exitError{exitProblem, errors.New("interrupted before all servers were checked")}
	}
	for _, text := range clashes {
		fmt.Fprintln(cmd.ErrOrStderr(), text)
	}
	switch bad += len(clashes); {
	case bad == 1:
		return &exitError{exitProblem, errors.New("1 problem with the servers")}
	case bad > 1:
		return &exitError{exitProblem, fmt.Errorf("%d problems with the servers", bad)}
	}
	return nil
}

// withoutStderr leaves the stderr of servers out of the log: of a server that fails, its last lines are printed.
type withoutStderr struct{ slog.Handler }

func (h withoutStderr) Handle(ctx context.Context, r slog.Record) error {
	isStderr := false
	r.Attrs(func(a slog.Attr) bool {
		isStderr = isStderr || a.Key == "stderr"
		return !isStderr
	})
	if isStderr {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// progressPrinter prints the progress of slow servers: in place on a terminal, else a line for each every few seconds.
type progressPrinter struct {
	out        io.Writer
	isTerminal bool
	lines      int // that are on the terminal now
	printedAt  time.Time
}

func newProgressPrinter(out io.Writer) *progressPrinter {
	return &progressPrinter{out: out, isTerminal: isTerminal(out) && os.Getenv("TERM") != "dumb"}
}

func (p *progressPrinter) show(starts []fmt.Stringer) {
	if !p.isTerminal && time.Since(p.printedAt) < progressPause {
		return
	}
	p.printedAt = time.Now()
	p.clear()
	for _, s := range starts {
		fmt.Fprintln(p.out, s)
	}
	if p.isTerminal {
		p.lines = len(starts)
	}
}

// clear removes the progress from the terminal.
func (p *progressPrinter) clear() {
	if p.lines > 0 {
		fmt.Fprintf(p.out, "\x1b[%dA\x1b[J", p.lines)
		p.lines = 0
	}
}
