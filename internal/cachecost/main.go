// Package main measures what masking does to the bill. It plays conversations of agents through the
// model's door, as a client would, against a provider on loopback that caches prompts and charges
// for them as the real ones do (internal/llmtest), and prints what each policy costs relative to
// masking nothing.
//
// Path through the files: sheets.go says what is measured and which bars hold; world.go opens a
// provider and the gateway in front of it; play.go plays every conversation that is needed, once;
// table.go prints; plot.go and axes.go draw the plot; page.go holds docs/savings.md against both.
//
// Invariants: costs are the provider's own bill at the prices of the table, input only: the output
// is the same under every policy. Nothing is estimated, and two runs print the same bytes. It ends
// with 1 when a bar is missed, when the page shows something else, or when a conversation cannot be
// played to its end.
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
	flag.StringVar(&o.plot, "plot", "", "draw the plot into this file, and measure nothing else")
	flag.StringVar(&o.page, "page", "docs/savings.md", "the page that shows the tables, and beside it the plot")
	flag.BoolVar(&o.write, "write", false, "bring page and plot up to date, instead of saying that they are not")
	flag.Parse()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // a line per request is not what is asked for
	debug.SetGCPercent(400)                        // bodies of a megabyte, and little else
	if err := o.run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cachecost:", err)
		os.Exit(1)
	}
}

type options struct {
	short, write bool
	plot, page   string
}

func (o options) run(ctx context.Context, w io.Writer) error {
	if o.plot != "" {
		paid, err := play(ctx, []sheet{drawn()})
		if err != nil {
			return err
		}
		return os.WriteFile(o.plot, drawn().draw(paid), 0o644)
	}
	if o.write && o.short {
		return errors.New("the page shows everything: -write goes with the full tables only")
	}
	all := sheets(o.short)
	paid, err := play(ctx, all)
	if err != nil {
		return err
	}
	text, missed := report(all, paid)
	fmt.Fprintf(w, "%s\n", text)
	var problems []error
	for _, m := range missed {
		problems = append(problems, errors.New(m))
	}
	if o.write {
		problems = append(problems, write(o.page, text, drawn().draw(paid)))
	} else {
		problems = append(problems, check(o.page, text, drawn().draw(paid)))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	fmt.Fprintln(w, "Every bar holds, and the page shows this.")
	return nil
}
