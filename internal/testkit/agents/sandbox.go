//go:build unix

package agents

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Sandbox is the home directory and environment of one agent's runs.
type Sandbox struct {
	Home string // an empty home directory
	Work string // the project that the agent works in
	Env  []string
	// KeepFiles leaves the files of agents as they are, if they exist.
	KeepFiles bool

	tb      testing.TB
	install Install
	network *network
}

// NewSandbox makes a home directory for agents. It fails the test if the agents are not installed. The home
// directory is short, because unix sockets in it must have short names.
func NewSandbox(tb testing.TB) *Sandbox {
	tb.Helper()
	in, err := FindInstall()
	if err != nil {
		tb.Fatal(err)
	}
	home, err := os.MkdirTemp("", "agent")
	if err != nil {
		tb.Fatal(err)
	}
	if home, err = filepath.EvalSymlinks(home); err != nil {
		tb.Fatal(err)
	}
	s := &Sandbox{Home: home, Work: filepath.Join(home, "work"), tb: tb, install: in, network: newNetwork(tb)}
	tb.Cleanup(func() {
		endProcesses(tb, home)
		removeAll(tb, home)
	})
	for _, dir := range []string{s.Work, s.path("tmp")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	// Without XDG_RUNTIME_DIR: Codex would not pass it on to servers, and they would look elsewhere for the gateway.
	s.Env = append([]string{
		"HOME=" + home,
		"PATH=" + in.Node + ":" + os.Getenv("PATH"),
		"TMPDIR=" + s.path("tmp"),
		"USER=tester", "LANG=C.UTF-8", "TERM=dumb", "CI=1", "NO_COLOR=1", "DO_NOT_TRACK=1",
	}, s.network.environ()...)
	return s
}

// Setenv adds a variable to the environment.
func (s *Sandbox) Setenv(name, value string) {
	s.Env = append(slices.DeleteFunc(s.Env, func(kv string) bool {
		return len(kv) > len(name) && kv[:len(name)+1] == name+"="
	}), name+"="+value)
}

// Outside returns the hosts that agents tried to reach beyond loopback, sorted, without repetition.
func (s *Sandbox) Outside() []string { return s.network.hosts() }

func (s *Sandbox) path(parts ...string) string {
	return filepath.Join(append([]string{s.Home}, parts...)...)
}

// WriteFile writes a file below the home directory.
func (s *Sandbox) WriteFile(name, text string) string {
	s.tb.Helper()
	path := s.path(name)
	if _, err := os.Stat(path); err == nil && s.KeepFiles {
		return path
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.tb.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.tb.Fatal(err)
	}
	return path
}

// writeJSON writes a JSON file below the home directory.
func writeJSON[T any](s *Sandbox, name string, v T) string {
	s.tb.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		s.tb.Fatal(err)
	}
	return s.WriteFile(name, string(text)+"\n")
}

// removeAll removes a directory that a process may just have written into.
func removeAll(tb testing.TB, dir string) {
	tb.Helper()
	for range 3 {
		if os.RemoveAll(dir) == nil {
			return
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		tb.Logf("%v", err)
	}
}

// AddProgram puts an agent into the sandbox's PATH, under the name that people start it by.
func (s *Sandbox) AddProgram(a Agent, name string) {
	s.tb.Helper()
	program, err := a.program(s.install)
	if err != nil {
		s.tb.Fatal(err)
	}
	path := s.WriteFile(filepath.Join("bin", name), "#!/bin/sh\nexec '"+strings.Join(program, "' '")+"' \"$@\"\n")
	if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // a program of the test's
		s.tb.Fatal(err)
	}
	s.Setenv("PATH", filepath.Dir(path)+":"+s.install.Node+":"+os.Getenv("PATH"))
}
