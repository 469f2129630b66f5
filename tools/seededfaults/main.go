// Command seededfaults inverts every if condition of the packages that are its arguments, one at a time, and reports
// which of these faults the package's own tests do not notice.
//
//	go run ./tools/seededfaults ./auth ./gate
//
// It fails if a package's tests notice less than -least percent. No source is changed: all faults of a package are
// compiled into one test program with go's -overlay, and an environment variable chooses one for a run (flip.go, run.go).
// Only the tests that evaluate a condition are run with its fault (program.go). It is noticed if they fail, panic or take
// longer than -timeout.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"
)

func main() {
	if !run() {
		os.Exit(1)
	}
}

// run tries the packages and reports whether each notices enough.
func run() bool {
	var o options
	flag.Float64Var(&o.least, "least", 95, "the least share of faults, in percent, that the tests of each package must notice")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long the tests of a package may take")
	flag.StringVar(&o.skip, "skip", "", "a regular expression of tests to leave out: those that measure time fail on a busy machine, which looks as if they noticed")
	flag.IntVar(&o.parallel, "parallel", runtime.GOMAXPROCS(0), "how many test programs run at a time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok := true
	for _, pkg := range flag.Args() {
		r, err := tryPackage(ctx, pkg, o)
		if err != nil {
			fmt.Fprintln(os.Stderr, "seededfaults:", err)
			return false
		}
		fmt.Print(r)
		ok = ok && r.share() >= o.least
	}
	if !ok {
		fmt.Printf("less than %g %% noticed: each line above needs a test that fails when its condition is inverted\n", o.least)
	}
	return ok
}
