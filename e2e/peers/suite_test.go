package peers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const suiteLimit = 2 * time.Minute

// check is one finding of the conformance suite.
type check struct {
	ID           string          `json:"id"`
	Description  string          `json:"description"`
	Status       string          `json:"status"`
	ErrorMessage string          `json:"errorMessage"`
	Details      json.RawMessage `json:"details"`
	References   []struct {
		URL string `json:"url"`
	} `json:"specReferences"`
}

// requirements are what a revision demands of one side, and what the suite runs besides.
type requirements struct {
	Server    []string `yaml:"server"`
	Client    []string `yaml:"client"`
	NotScored []struct {
		Scenario string `yaml:"scenario"`
		Leg      string `yaml:"leg"`
	} `yaml:"not_scored"`
}

// scored are the scenarios that count.
func scored(t *testing.T, side string, e era) []string {
	t.Helper()
	text, err := os.ReadFile(scoped(t, "conformance", "requirements", e.version()+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var r requirements
	if err := yaml.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if side == "client" {
		return r.Client
	}
	return r.Server
}

// findings are the checks of each scenario that ran.
type findings struct {
	side   string
	of     map[string][]check
	scored []string
	output []byte            // what the suite printed
	client map[string]string // what the client of a scenario printed, on the client's side
}

// suite runs the conformance suite at one revision. Its exit code says no more than its findings,
// except when it could not run at all.
func suite(t *testing.T, side string, e era, env []string, args ...string) findings {
	t.Helper()
	dir := filepath.Join(t.ArtifactDir(), "conformance")
	args = append([]string{scoped(t, "conformance", "dist", "index.js"), side, "-o", dir}, args...)
	if *scenario != "" {
		args = append(args, "--scenario", *scenario, "--spec-version", e.version(), "--force")
	} else {
		args = append(args, "--requirements", e.version())
	}
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, node(t), args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 5 * time.Second
	output, err := cmd.CombinedOutput()
	exit := new(exec.ExitError)
	if failed := errors.As(err, &exit) && exit.ExitCode() == 1; err != nil && !failed {
		t.Fatalf("the conformance suite: %v\n%s", err, output)
	}
	f := findings{side: side, of: map[string][]check{}, output: output, client: map[string]string{}}
	f.scored = scored(t, side, e)
	if *scenario != "" {
		f.scored = []string{*scenario}
	}
	if err := filepath.WalkDir(dir, f.collect(dir)); err != nil {
		t.Fatalf("the conformance suite left no results: %v\n%s", err, output)
	}
	return f
}

var timestamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$`)

// collect reads the results: a folder for each scenario, named for it and the time of day.
func (f findings) collect(root string) fs.WalkDirFunc {
	return func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "checks.json" {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		name := timestamp.ReplaceAllString(filepath.ToSlash(folder), "")
		if f.side == "server" {
			name = strings.TrimPrefix(name, "server-")
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var checks []check
		if err := json.Unmarshal(text, &checks); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		f.of[name] = checks
		if said, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stderr.txt")); err == nil {
			f.client[name] = string(said)
		}
		return nil
	}
}

// keep forgets all scenarios but some.
func (f *findings) keep(wanted func(string) bool) {
	other := func(name string) bool { return !wanted(name) }
	f.scored = slices.DeleteFunc(f.scored, other)
	maps.DeleteFunc(f.of, func(name string, _ []check) bool { return other(name) })
}

// failure is a check that failed; a scenario that fell over is one too, named for itself.
type failure struct {
	scenario string
	check    check
}

func (f failure) key() string { return f.scenario + ":" + f.check.ID }

// failures are those that count, the first of each id.
func (f findings) failures() []failure {
	var out []failure
	for _, name := range f.scored {
		checks, ran := f.of[name]
		if !ran {
			out = append(out, failure{name, check{ID: name, Description: "the scenario did not end", ErrorMessage: f.excerpt(name)}})
		}
		if said := f.client[name]; strings.Contains(said, adapterTrouble) {
			out = append(out, failure{name, check{ID: "adapter", Description: "the adapter could run its programs", ErrorMessage: cut(said, 800)}})
		}
		seen := map[string]bool{}
		for _, c := range checks {
			if c.Status == "FAILURE" && !seen[c.ID] {
				seen[c.ID] = true
				out = append(out, failure{name, c})
			}
		}
	}
	return out
}

// excerpt is what the suite printed about a scenario it could not finish.
func (f findings) excerpt(name string) string {
	_, about, found := bytes.Cut(f.output, []byte("Failed to run scenario "+name+":"))
	if !found {
		about = f.output[max(0, len(f.output)-800):]
	}
	return string(about[:min(len(about), 800)])
}

func (f findings) count(scenarios []string, status string) int {
	n := 0
	for _, name := range scenarios {
		for _, c := range f.of[name] {
			if c.Status == status {
				n++
			}
		}
	}
	return n
}

// unscored are the scenarios that ran without counting.
func (f findings) unscored() []string {
	var out []string
	for name := range f.of {
		if !slices.Contains(f.scored, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// String is a failure as one wants to read it when looking for the cause.
func (f failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "✗ %s\n    check:   %s\n    wanted:  %s\n", f.scenario, f.check.ID, f.check.Description)
	fmt.Fprintf(&b, "    got:     %s\n", strings.ReplaceAll(f.check.ErrorMessage, "\n", "\n             "))
	var details bytes.Buffer
	if len(f.check.Details) > 0 && json.Indent(&details, f.check.Details, "             ", "  ") == nil {
		fmt.Fprintf(&b, "    details: %s\n", cut(details.String(), 4000))
	}
	for _, r := range f.check.References {
		fmt.Fprintf(&b, "    see:     %s\n", r.URL)
	}
	return b.String()
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + " …"
}

// report prints the counts, and what failed without counting.
func (f findings) report(t *testing.T) {
	t.Helper()
	t.Logf("%d scenarios: %d checks passed, %d failed, %d warned", len(f.scored),
		f.count(f.scored, "SUCCESS"), f.count(f.scored, "FAILURE"), f.count(f.scored, "WARNING"))
	for _, name := range f.scored {
		for _, c := range f.of[name] {
			if c.Status == "WARNING" {
				t.Logf("warned: %s:%s: %s", name, c.ID, c.ErrorMessage)
			}
		}
	}
	for _, name := range f.unscored() {
		if n := f.count([]string{name}, "FAILURE"); n > 0 {
			t.Logf("not scored: %s, %d of %d failed", name, n, n+f.count([]string{name}, "SUCCESS"))
		}
	}
}

// judge fails the test for every failure that was not known, and for every known one that is none.
func (f findings) judge(t *testing.T, known map[string]string) {
	t.Helper()
	f.report(t)
	failed, told := map[string]bool{}, map[string]bool{}
	for _, x := range f.failures() {
		failed[x.key()] = true
		if why := cmp.Or(known[x.key()], known["?"+x.key()]); why != "" {
			t.Logf("known: %s (%s)", x.key(), why)
			continue
		}
		t.Errorf("%s", x)
		if said := f.client[x.scenario]; said != "" && !told[x.scenario] {
			told[x.scenario] = true
			t.Logf("the client of %s said:\n%s", x.scenario, cut(said, 4000))
		}
	}
	for key, why := range known {
		if name, _, _ := strings.Cut(key, ":"); !failed[key] && slices.Contains(f.scored, name) {
			t.Errorf("%s passes now; take it off the list of what is known (%s)", key, why)
		}
	}
}

// The suite finds nothing wrong with the Go SDK's own server in neither era, each as it serves it best. As
// it comes over HTTP, the server cannot ask an older client anything.
func TestServerSuiteDirect(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		t.Run(e.version(), func(t *testing.T) {
			f := suite(t, "server", e, nil, "--url", e.listening(t))
			f.judge(t, nil)
		})
		t.Run(e.version()+" as it comes", func(t *testing.T) {
			f := suite(t, "server", e, nil, "--url", both.listening(t))
			f.judge(t, known(t, e, both, "http"))
		})
	}
}
