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

// check is a result of the conformance suite.
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

// requirements are the scenarios that a revision requires, and unscored ones.
type requirements struct {
	Server    []string `yaml:"server"`
	Client    []string `yaml:"client"`
	NotScored []struct {
		Scenario string `yaml:"scenario"`
		Leg      string `yaml:"leg"`
	} `yaml:"not_scored"`
}

// scoredScenarios returns the scenarios that count.
func scoredScenarios(t *testing.T, side string, e revision) []string {
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

// suiteResults are the results of a run of the suite.
type suiteResults struct {
	side         string
	checks       map[string][]check
	scored       []string
	output       []byte            // of the suite
	clientOutput map[string]string // stderr of each scenario's client
}

// runSuite runs the conformance suite for a revision. Exit code 1 only repeats its findings; others mean that
// it could not run.
func runSuite(t *testing.T, side string, e revision, env []string, args ...string) suiteResults {
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
	f := suiteResults{side: side, checks: map[string][]check{}, output: output, clientOutput: map[string]string{}}
	f.scored = scoredScenarios(t, side, e)
	if *scenario != "" {
		f.scored = []string{*scenario}
	}
	if err := filepath.WalkDir(dir, f.collectResults(dir)); err != nil {
		t.Fatalf("the conformance suite left no results: %v\n%s", err, output)
	}
	return f
}

var timestamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z$`)

// collectResults reads the results: a folder for each scenario, named for it and the time.
func (f suiteResults) collectResults(root string) fs.WalkDirFunc {
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
		f.checks[name] = checks
		if output, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stderr.txt")); err == nil {
			f.clientOutput[name] = string(output)
		}
		return nil
	}
}

// keepScenarios drops all other scenarios.
func (f *suiteResults) keepScenarios(wanted func(string) bool) {
	other := func(name string) bool { return !wanted(name) }
	f.scored = slices.DeleteFunc(f.scored, other)
	maps.DeleteFunc(f.checks, func(name string, _ []check) bool { return other(name) })
}

// failure is a failed check, or a scenario that did not finish.
type failure struct {
	scenario string
	check    check
}

func (f failure) key() string { return f.scenario + ":" + f.check.ID }

// failures returns the failures that count, the first of each id.
func (f suiteResults) failures() []failure {
	var out []failure
	for _, name := range f.scored {
		checks, ran := f.checks[name]
		if !ran {
			out = append(out, failure{name, check{ID: name, Description: "the scenario did not finish", ErrorMessage: f.excerpt(name)}})
		}
		if output := f.clientOutput[name]; strings.Contains(output, adapterError) {
			out = append(out, failure{name, check{ID: "adapter", Description: "the adapter ran its programs", ErrorMessage: truncate(output, 800)}})
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

// excerpt is the suite's output about a scenario that did not finish.
func (f suiteResults) excerpt(name string) string {
	_, about, found := bytes.Cut(f.output, []byte("Failed to run scenario "+name+":"))
	if !found {
		about = f.output[max(0, len(f.output)-800):]
	}
	return string(about[:min(len(about), 800)])
}

func (f suiteResults) count(scenarios []string, status string) int {
	n := 0
	for _, name := range scenarios {
		for _, c := range f.checks[name] {
			if c.Status == status {
				n++
			}
		}
	}
	return n
}

// unscored returns the scenarios that ran without counting.
func (f suiteResults) unscored() []string {
	var out []string
	for name := range f.checks {
		if !slices.Contains(f.scored, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// String describes a failure in detail.
func (f failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "✗ %s\n    check:   %s\n    wanted:  %s\n", f.scenario, f.check.ID, f.check.Description)
	fmt.Fprintf(&b, "    got:     %s\n", strings.ReplaceAll(f.check.ErrorMessage, "\n", "\n             "))
	var details bytes.Buffer
	if len(f.check.Details) > 0 && json.Indent(&details, f.check.Details, "             ", "  ") == nil {
		fmt.Fprintf(&b, "    details: %s\n", truncate(details.String(), 4000))
	}
	for _, r := range f.check.References {
		fmt.Fprintf(&b, "    see:     %s\n", r.URL)
	}
	return b.String()
}

func truncate(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + " …"
}

// logCounts logs the counts and the unscored failures.
func (f suiteResults) logCounts(t *testing.T) {
	t.Helper()
	t.Logf("%d scenarios: %d checks passed, %d failed, %d warned", len(f.scored),
		f.count(f.scored, "SUCCESS"), f.count(f.scored, "FAILURE"), f.count(f.scored, "WARNING"))
	for _, name := range f.scored {
		for _, c := range f.checks[name] {
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

// requireKnownOnly fails the test for every unknown failure, and for every known failure that passes.
func (f suiteResults) requireKnownOnly(t *testing.T, known map[string]string) {
	t.Helper()
	f.logCounts(t)
	failed, logged := map[string]bool{}, map[string]bool{}
	for _, x := range f.failures() {
		failed[x.key()] = true
		if why := cmp.Or(known[x.key()], known["?"+x.key()]); why != "" {
			t.Logf("known: %s (%s)", x.key(), why)
			continue
		}
		t.Errorf("%s", x)
		if output := f.clientOutput[x.scenario]; output != "" && !logged[x.scenario] {
			logged[x.scenario] = true
			t.Logf("output of the client of %s:\n%s", x.scenario, truncate(output, 4000))
		}
	}
	for key, why := range known {
		if name, _, _ := strings.Cut(key, ":"); !failed[key] && slices.Contains(f.scored, name) {
			t.Errorf("%s passes now; remove it from testdata/known-failures.txt (%s)", key, why)
		}
	}
}

// The suite passes with the Go SDK's own server in both revisions. Unrestricted over HTTP, the server cannot
// send requests to a legacy client.
func TestServerSuiteDirect(t *testing.T) {
	for _, e := range []revision{legacy, modern} {
		t.Run(e.version(), func(t *testing.T) {
			f := runSuite(t, "server", e, nil, "--url", e.startReference(t))
			f.requireKnownOnly(t, nil)
		})
		t.Run(e.version()+" unrestricted", func(t *testing.T) {
			f := runSuite(t, "server", e, nil, "--url", both.startReference(t))
			f.requireKnownOnly(t, knownFailures(t, e, both, "http"))
		})
	}
}
