// Command cachecost measures what masking does to the bill. It replays agents' conversations through the LLM
// proxy against testkit/fakeprovider, which caches prompts and charges for them as the real providers do, and
// prints what each policy costs relative to masking nothing.
//
// Files: tables.go defines what is measured and the bars, todaysprices.go the table of today's models; setup.go starts a provider and the gateway in front
// of it; replay.go replays every needed conversation once; report.go prints the tables; plot.go draws the
// plot; page.go compares both with docs/savings.md.
//
// Costs are the provider's bill at the prices of the table, input only: the output is the same under every
// policy. Nothing is estimated, and two runs print the same bytes. The exit code is 1 if a bar is missed, the
// page is out of date, or a conversation cannot be replayed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
)

func main() {
	o := options{}
	flag.BoolVar(&o.short, "short", false, "fewer conversations and prices")
	flag.StringVar(&o.plot, "plot", "", "only draw the plot, into this file")
	flag.StringVar(&o.page, "page", "docs/savings.md", "page with the tables; the plot lies beside it")
	flag.BoolVar(&o.write, "write", false, "update page and plot instead of checking them")
	flag.Parse()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // no log line per request
	debug.SetGCPercent(400)                        // most of the heap is bodies of a megabyte
	if err := o.runCommand(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cachecost:", err)
		os.Exit(1)
	}
}

type options struct {
	short, write bool
	plot, page   string
}

func (o options) runCommand(ctx context.Context, w io.Writer) error {
	if o.plot != "" {
		paid, err := replayAll(ctx, plottedTable())
		if err != nil {
			return err
		}
		return os.WriteFile(o.plot, plottedTable().drawPlot(paid), 0o644)
	}
	if o.write && o.short {
		return errors.New("-write needs the full tables: leave out -short")
	}
	all := []reportTable{newModelTable(o.short)}
	for _, t := range costTables(o.short) {
		all = append(all, t)
	}
	paid, err := replayAll(ctx, all...)
	if err != nil {
		return err
	}
	text, missed := writeReport(all, paid)
	fmt.Fprintf(w, "%s\n", text)
	var problems []error
	for _, m := range missed {
		problems = append(problems, errors.New(m))
	}
	if o.write {
		problems = append(problems, writePage(o.page, text, plottedTable().drawPlot(paid)))
	} else {
		if o.short { // the table of models has fewer columns then
			text, _ = writeReport(all[1:], paid)
		}
		problems = append(problems, checkPage(o.page, text, plottedTable().drawPlot(paid)))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	fmt.Fprintln(w, "Every bar holds, and the page is up to date.")
	return nil
}
