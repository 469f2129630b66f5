//go:build unix

package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// Install is where `make agents-install` has installed the agents, each in a folder with its own lock file.
type Install struct {
	Dir  string // e2e/agents/npm
	Node string // the directory of Node.js's programs
}

// FindInstall finds the installed agents from any directory of the repository.
func FindInstall() (Install, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Install{}, err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			return Install{}, errors.New("not inside the repository: no go.mod")
		}
	}
	in := Install{Dir: filepath.Join(dir, "e2e", "agents", "npm")}
	found, _ := filepath.Glob(filepath.Join(in.Dir, "node", "node_modules", "node-*", "bin", "node"))
	if len(found) == 0 {
		return in, fmt.Errorf("no Node.js is installed in %s: run `make agents-install`", filepath.Join(in.Dir, "node"))
	}
	in.Node = filepath.Dir(found[0])
	return in, nil
}

// Version is the installed version of an agent.
func (in Install) Version(a Agent) (string, error) {
	data, err := os.ReadFile(in.path(a.ID, a.Package, "package.json"))
	if err != nil {
		return "", fmt.Errorf("%s is not installed: run `make agents-install`: %w", a.Name, err)
	}
	var p struct{ Version string }
	return p.Version, json.Unmarshal(data, &p)
}

// path is a file of an agent's packages.
func (in Install) path(id string, parts ...string) string {
	return filepath.Join(append([]string{in.Dir, id, "node_modules"}, parts...)...)
}

// script is a command that runs a JavaScript file of an agent.
func (in Install) script(id string, parts ...string) ([]string, error) {
	file := in.path(id, parts...)
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("%s is not installed: run `make agents-install`: %w", id, err)
	}
	return []string{filepath.Join(in.Node, "node"), file}, nil
}

// binary is the native program of an agent that matches a pattern below its packages. Their install scripts,
// which would link it, do not run.
func (in Install) binary(id, pattern string) ([]string, error) {
	found, _ := filepath.Glob(in.path(id, pattern))
	if len(found) == 0 {
		return nil, fmt.Errorf("%s is not installed for %s/%s: run `make agents-install`", id, runtime.GOOS, runtime.GOARCH)
	}
	return found[:1], nil
}
