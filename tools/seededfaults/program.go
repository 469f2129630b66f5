package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// program is a test program with all faults of a package.
type program struct {
	path string
	dir  string // of the package, where it runs
	skip string // tests to leave out; "" for none
}

// test is one test function, and what it does without a fault.
type test struct {
	name    string
	took    time.Duration
	reaches map[string]bool // the numbers of the conditions that it evaluates
}

// quick is what a test may take to be among those that are tried first.
const quick = 500 * time.Millisecond

// findTests runs each test alone, without a fault, to find out which conditions it evaluates: only these tests can notice
// a fault there.
func (p program) findTests(ctx context.Context, o options) ([]test, error) {
	list, err := p.run(ctx, nil, o.timeout, "-test.list", ".")
	if err != nil {
		return nil, fmt.Errorf("the tests cannot be listed: %w\n%s", err, list)
	}
	var tests []test
	for name := range strings.FieldsSeq(string(list)) {
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example") {
			tests = append(tests, test{name: name})
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.parallel)
	for i := range tests {
		t := &tests[i]
		group.Go(func() error {
			reached := filepath.Join(filepath.Dir(p.path), t.name+".reached")
			began := time.Now()
			out, err := p.run(ctx, []string{reachedFile + "=" + reached}, o.timeout, "-test.run", "^"+t.name+"$")
			if err != nil {
				return fmt.Errorf("%s fails without a fault: %w\n%s", t.name, err, out)
			}
			t.took, t.reaches = time.Since(began), map[string]bool{}
			numbers, err := os.ReadFile(reached)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			for number := range strings.FieldsSeq(string(numbers)) {
				t.reaches[number] = true
			}
			return nil
		})
	}
	return tests, group.Wait()
}

// notices says whether the tests that evaluate a condition notice that it is inverted; quick ones are tried first.
func (p program) notices(ctx context.Context, f fault, tests []test, o options) (bool, error) {
	var names [2][]string
	var took [2]time.Duration
	for _, t := range tests {
		if !t.reaches[f.number] {
			continue
		}
		i := 0
		if t.took > quick {
			i = 1
		}
		names[i], took[i] = append(names[i], t.name), took[i]+t.took
	}
	for i := range names {
		if len(names[i]) == 0 {
			continue
		}
		// A fault can make the tests wait forever. What else the machine does must not look like that.
		timeout := min(o.timeout, 20*time.Second+10*took[i])
		_, err := p.run(ctx, []string{choice + "=" + f.number}, timeout, "-test.failfast", "-test.run", "^("+strings.Join(names[i], "|")+")$")
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) || errors.Is(err, exec.ErrWaitDelay) {
			return true, nil
		}
		if err != nil { // it did not run
			return false, err
		}
	}
	return false, nil
}

// run runs the program in its package's directory.
func (p program) run(ctx context.Context, env []string, timeout time.Duration, args ...string) ([]byte, error) {
	// A program that does not even end by its own timeout is killed.
	ctx, cancel := context.WithTimeout(ctx, timeout+10*time.Second)
	defer cancel()
	cmd := command(ctx, p.dir, p.path, append([]string{"-test.short", "-test.skip", p.skip, "-test.timeout", timeout.String()}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.Bytes(), err
}
