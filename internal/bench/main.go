// Command bench measures, in one run on one machine, so that ratios can be read on a noisy one:
//
//	go run ./internal/bench                masking, and how fast pruning is
//	go run ./internal/bench served BINARY  how well the pruner of a binary prunes, over HTTP
//
// Masking (mask.go, body.go, ways.go): three bodies of 10 MB pass through a copy, through
// encoding/json (decode to any, mask, encode), through a jsontext scan and splice, and through the
// gateway's own path with its strict checks. Rounds are interleaved and the median counts, so that
// a noisy machine is noisy for all alike.
//
// Pruning (speed.go, text.go): a source file of 10,000 lines, a log of a million, and how the time
// grows from a thousand lines on, beside grep.
//
// Quality (corpus.go, served.go): the samples of a benchmark that lies beside the repository, when
// it does; quality_test.go holds the bars.
//
// The exit code is 1 when a bar is missed that is a ratio; times are told, and whether they are
// within theirs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var (
	errUsage  = errors.New("usage: bench [served BINARY]")
	errMissed = errors.New("a bar was missed")
)

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch {
	case len(args) == 2 && args[0] == "served":
		return served(ctx, args[1])
	case len(args) > 0:
		return errUsage
	}
	masked := maskingHolds()
	pruned, err := pruningHolds(ctx)
	if err != nil {
		return err
	}
	if !masked || !pruned {
		return errMissed
	}
	return nil
}
