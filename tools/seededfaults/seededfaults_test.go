package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const sample = `package sample

import "fmt"

type flag bool

// Sign returns the sign of n.
func Sign(n int, verbose flag) string {
	if verbose {
		fmt.Println(n)
	}
	if got := func() int {
		if n == 1<<40 {
			return 0
		}
		return n
	}(); got < 0 &&
		n < 0 {
		return "-"
	} else if got > 0 {
		return "+"
	}
	if n > 10 {
		return "unreachable"
	}
	return "0"
}
`

const sampleTest = `package sample

import "testing"

func TestSign(t *testing.T) {
	for n, want := range map[int]string{-3: "-", 0: "0", 3: "+", 20: "+"} {
		if got := Sign(n, false); got != want {
			t.Errorf("the sign of %d is %s", n, got)
		}
	}
}
`

func TestUnnoticedFaultsAreReported(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module sample\n\ngo 1.26\n", "sample.go": sample, "sample_test.go": sampleTest,
		"untested/untested.go": "package untested\n\nfunc Max(a, b int) int {\n\tif a > b {\n\t\treturn a\n\t}\n\treturn b\n}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	o := options{least: 95, timeout: 5 * time.Minute, parallel: 2}
	got, err := tryPackage(t.Context(), ".", o)
	if err != nil {
		t.Fatal(err)
	}
	want := `.: 4 of 5 inverted conditions noticed (80.0 %)
  not noticed: ./sample.go:9: if verbose
`
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if got, err := tryPackage(t.Context(), "./untested", o); err != nil || got.share() != 0 || len(got.unnoticed) != 1 {
		t.Errorf("a package without tests: %v %v", got, err)
	}
	after, err := os.ReadFile("sample.go")
	if err != nil || string(after) != sample {
		t.Error("the source was changed", err)
	}
}

// Tests that fail without a fault would notice every fault.
func TestFailingTestsAreAnError(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod": "module sample\n\ngo 1.26\n", "sample.go": sample, "sample_test.go": strings.Replace(sampleTest, `20: "+"`, `20: "-"`, 1),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := tryPackage(t.Context(), ".", options{timeout: 5 * time.Minute, parallel: 2}); err == nil || !strings.Contains(err.Error(), "fails without a fault") {
		t.Errorf("%v %v", got, err)
	}
}

func TestTextKeepsItsLines(t *testing.T) {
	text, faults, err := seedFaults("sample.go", []byte(sample), 1)
	if err != nil || len(faults) != 5 || strings.Count(string(text), "\n") != strings.Count(sample, "\n") {
		t.Errorf("%d faults, %v:\n%s", len(faults), err, text)
	}
}
