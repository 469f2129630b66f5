// Command bench measures, in one run on one machine, so that ratios can be read on a noisy one:
//
//	go run ./internal/bench                masking, how fast pruning is, and the model's door in brief
//	go run ./internal/bench model          what the model's door costs beside other proxies, in full
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
// The model's door (model.go, doors.go, talk.go, load.go, streams.go): conversations of 400 messages
// go to a provider through the real binary with masking on, through a bare httputil.ReverseProxy and
// through nginx, each a process of its own, in small rounds in turn; and a hundred streams do.
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
	errUsage  = errors.New("usage: bench [model [brief] | served BINARY]")
	errMissed = errors.New("a bar was missed")
)

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch {
	case len(args) == 2 && args[0] == "served":
		return served(ctx, args[1])
	case len(args) > 0 && args[0] == "model":
		return model(ctx, args[1:])
	case len(args) == 3 && args[0] == "bare": // what the model's bench starts for itself
		return serveBare(ctx, args[1], args[2])
	case len(args) > 0:
		return errUsage
	}
	masked := maskingHolds()
	pruned, err := pruningHolds(ctx)
	if err != nil {
		return err
	}
	// How fast a proxy is depends on the machine's neighbours: here it is told, in full it is held.
	if _, err := modelHolds(ctx, brief); err != nil {
		return err
	}
	if !masked || !pruned {
		return errMissed
	}
	return nil
}

// model measures the model's door only.
func model(ctx context.Context, args []string) error {
	much := full
	if len(args) == 1 && args[0] == "brief" {
		much = brief
	} else if len(args) > 0 {
		return errUsage
	}
	held, err := modelHolds(ctx, much)
	if err == nil && !held {
		err = errMissed
	}
	return err
}
