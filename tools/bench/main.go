// Command bench compares, in one run on one machine, so that ratios hold on a noisy one:
//
//	go run ./tools/bench                masking, pruning speed, and the LLM proxy in brief
//	go run ./tools/bench model          the LLM proxy beside other proxies, in full
//	go run ./tools/bench growing [NAME=BINARY ...]
//	                                    the cost of a request in growing conversations, also with other binaries
//	go run ./tools/bench engines        processor time per call with each store, of the gateway and of the store
//	go run ./tools/bench guarded        processor time per call with a token, 100 access rules, limits and the audit log, and without
//	go run ./tools/bench served BINARY  the pruning quality of a binary's pruner, over HTTP
//	go run ./tools/bench limits         the pruning quality within a number of characters, beside masking
//
// Masking (mask.go, body.go, ways.go): three bodies of 10 MB go through a copy, through encoding/json (decode
// to any, mask, encode), through a jsontext scan and splice, and through the gateway's own path with its
// strict checks. Rounds are interleaved and the median counts, so that noise hits all alike.
//
// Pruning (speed.go, text.go): a source file of 10,000 lines and a log of a million beside grep, and how the
// time grows from a thousand lines on.
//
// The LLM proxy (model.go, proxies.go, conversation.go, load.go, streams.go): conversations of 400 messages
// go to a provider through the real binary with masking, through a bare httputil.ReverseProxy and through
// nginx, each a process of its own, in short interleaved rounds; and a hundred streams do. growing.go replays
// conversations turn by turn.
//
// Engines (engines.go, redisengine.go, bucketengine.go): tool calls that keep nothing, keep a result, show it again and read it back, with every
// store that is installed; beside each store bare with the same commands. guarded.go has calls that are authenticated, decided, limited and
// logged.
//
// Quality (corpus.go, served.go, limits.go): the samples of a benchmark beside the repository, if it is there;
// quality_test.go has the limits.
//
// The exit code is 1 when a ratio misses its bar. Times are printed with their bars but do not fail.
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
	errUsage  = errors.New("usage: bench [model [brief] | growing [NAME=BINARY ...] | engines [brief] | guarded | served BINARY | limits]")
	errMissed = errors.New("a bar was missed")
)

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch {
	case len(args) == 2 && args[0] == "served":
		return benchServed(ctx, args[1])
	case len(args) == 1 && args[0] == "limits":
		return benchLimits(ctx)
	case len(args) > 0 && args[0] == "growing":
		return compareGrowing(ctx, args[1:])
	case len(args) > 0 && args[0] == "model":
		return benchModel(ctx, args[1:])
	case len(args) == 1 && args[0] == "engines":
		return compareEngines(ctx, engineEffort{rounds: 3, calls: 600, callers: 16, bareCommands: 3000})
	case len(args) == 2 && args[0] == "engines" && args[1] == "brief":
		return compareEngines(ctx, engineEffort{rounds: 1, calls: 100, callers: 4, bareCommands: 200})
	case len(args) == 1 && args[0] == "guarded":
		return compareGuarded(ctx, engineEffort{rounds: 15, calls: 1000, callers: 8})
	case len(args) == 3 && args[0] == "bare": // started by the proxy benchmark itself
		return serveBare(ctx, args[1], args[2])
	case len(args) > 0:
		return errUsage
	}
	masked := benchMasking()
	pruned, err := benchPruning(ctx)
	if err != nil {
		return err
	}
	// A proxy's speed depends on the machine's load: only the full run fails on it.
	if _, err := benchLLMProxy(ctx, brief); err != nil {
		return err
	}
	if !masked || !pruned {
		return errMissed
	}
	return nil
}

// benchModel measures only the LLM proxy.
func benchModel(ctx context.Context, args []string) error {
	much := full
	if len(args) == 1 && args[0] == "brief" {
		much = brief
	} else if len(args) > 0 {
		return errUsage
	}
	held, err := benchLLMProxy(ctx, much)
	if err == nil && !held {
		err = errMissed
	}
	return err
}
