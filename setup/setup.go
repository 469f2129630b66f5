// Package setup moves the MCP servers of a user's clients behind ctxgate, and back.
//
// NewPlan (plan.go) finds the servers in the clients' files (setup/clientfile reads and edits those), decides which are
// the same and under which ids they go (identity.go), converts them (convert.go, entry.go) and works out every file that
// changes (configfile.go for ctxgate's own). print.go shows a plan to a person. Backups (backup.go) writes the files of a
// plan, all or none, and undo.go puts them back. change.go adds and removes single servers.
//
// Invariants: nothing is written before the plan is complete and the new configuration is valid; no credential stands in
// the configuration or in what is printed (credential.go tells them from settings): each goes into a file of its own that
// only the user can read. Every byte of a client's file that is not about a moved server stays. The package reads no
// environment and asks no questions: the command does.
package setup

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/clients"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// Options say what a plan is for.
type Options struct {
	GOOS    string
	Home    string
	Cwd     string
	Env     config.Env
	Clients []string // only these; empty for all
	Project bool     // the files of the project in Cwd instead of the user's
	Config  string   // the absolute path of the configuration to write
	Secrets string   // the directory for credentials
	Program string   // the absolute path of ctxgate
	Time    time.Time
}

func (o Options) clientEnv() clientfile.Env {
	return clientfile.Env{GOOS: o.GOOS, Home: o.Home, Cwd: o.Cwd, Lookup: o.Env.Lookup}
}

// titleOf is the name of a client as people write it.
func titleOf(client string) string {
	if c, ok := clients.ByID(client); ok {
		return c.Name
	}
	return client
}

// joinNames lists names as people do: "a, b and c".
func joinNames(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// Tilde writes a path below the user's home as people do.
func (o Options) Tilde(path string) string {
	if rest, ok := strings.CutPrefix(path, o.Home+string(filepath.Separator)); ok && o.Home != "" {
		return "~" + string(filepath.Separator) + rest
	}
	return path
}
