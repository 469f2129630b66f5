package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

type options struct {
	least    float64
	skip     string
	timeout  time.Duration
	parallel int
}

// report is what the tests of a package noticed.
type report struct {
	pkg       string
	faults    int
	unnoticed []fault
}

func (r report) share() float64 {
	if r.faults == 0 {
		return 100
	}
	return 100 * float64(r.faults-len(r.unnoticed)) / float64(r.faults)
}

func (r report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d of %d inverted conditions noticed (%.1f %%)\n", r.pkg, r.faults-len(r.unnoticed), r.faults, r.share())
	for _, f := range r.unnoticed {
		fmt.Fprintf(&b, "  not noticed: %s/%s\n", strings.TrimPrefix(r.pkg, "./"), f)
	}
	return b.String()
}

// tryPackage builds the package's tests with all faults, checks that they pass without one, and runs them with each.
func tryPackage(ctx context.Context, pkg string, o options) (report, error) {
	work, err := os.MkdirTemp("", "seededfaults-")
	if err != nil {
		return report{}, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	dir, faults, err := buildFaulty(ctx, pkg, work)
	if err != nil {
		return report{}, fmt.Errorf("%s: %w", pkg, err)
	}
	p := program{path: filepath.Join(work, "faulty.test"), dir: dir, skip: o.skip}
	if _, err := os.Stat(p.path); errors.Is(err, os.ErrNotExist) { // go test -c builds nothing where there are no tests
		return report{pkg, len(faults), faults}, nil
	}
	tests, err := p.findTests(ctx, o)
	if err != nil {
		return report{}, fmt.Errorf("%s: %w", pkg, err)
	}
	noticed := make([]bool, len(faults))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.parallel)
	for i, f := range faults {
		group.Go(func() error {
			var err error
			noticed[i], err = p.notices(ctx, f, tests, o)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return report{}, fmt.Errorf("%s: %w", pkg, err)
	}
	r := report{pkg: pkg, faults: len(faults)}
	for i, f := range faults {
		if !noticed[i] {
			r.unnoticed = append(r.unnoticed, f)
		}
	}
	return r, nil
}

// buildFaulty compiles the tests of a package with all its faults to work/faulty.test.
func buildFaulty(ctx context.Context, pkg, work string) (dir string, faults []fault, err error) {
	out, err := command(ctx, "", "go", "list", "-json=Dir,Name,GoFiles", pkg).Output()
	if err != nil {
		return "", nil, fmt.Errorf("go list: %w", err)
	}
	var p struct {
		Dir, Name string
		GoFiles   []string
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return "", nil, err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	write := func(name string, text []byte) error {
		overlay.Replace[filepath.Join(p.Dir, name)] = filepath.Join(work, name)
		return os.WriteFile(filepath.Join(work, name), text, 0o600)
	}
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		src, err := os.ReadFile(path)
		if err != nil {
			return "", nil, err
		}
		text, found, err := seedFaults(path, src, len(faults)+1)
		if err == nil {
			err = write(name, text)
		}
		if err != nil {
			return "", nil, err
		}
		faults = append(faults, found...)
	}
	if err := write(selectorFile, fmt.Appendf(nil, selectorText, p.Name, len(faults)+1)); err != nil {
		return "", nil, err
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", nil, err
	}
	if err := os.WriteFile(filepath.Join(work, "overlay.json"), list, 0o600); err != nil {
		return "", nil, err
	}
	build := command(ctx, "", "go", "test", "-c", "-overlay", filepath.Join(work, "overlay.json"), "-o", filepath.Join(work, "faulty.test"), pkg)
	if out, err := build.CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("building the tests: %w\n%s", err, out)
	}
	return p.Dir, faults, nil
}

func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = dir, 5*time.Second
	return cmd
}
