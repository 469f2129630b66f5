package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/recall"
)

// Env is the process environment in the form of os.Environ.
type Env []string

// Lookup returns a variable's value: the first one if it is set twice, as everywhere in Go.
func (e Env) Lookup(name string) (string, bool) {
	prefix := name + "="
	for _, kv := range e {
		if value, ok := strings.CutPrefix(kv, prefix); ok {
			return value, true
		}
	}
	return "", false
}

// Loaded is a configuration and where it came from.
type Loaded struct {
	Config
	File     *File    // nil when there was none
	Warnings []string // for the log

	secretFiles []string
}

// Load reads a file (none for an empty path), applies the environment and validates everything that does
// not depend on the secrets. It returns all problems at once. It does not warn of the variables named in
// used: they are read elsewhere.
func Load(path string, env Env, used ...string) (Loaded, Problems) {
	if path == "" {
		return loadParsed(nil, nil, env, used)
	}
	file, problems := ReadFile(path)
	return loadParsed(file, problems, env, used)
}

// LoadBytes is Load for a file whose content is in memory: one that is about to be written.
func LoadBytes(path string, data []byte, env Env) (Loaded, Problems) {
	file, problems := ReadBytes(path, data)
	return loadParsed(file, problems, env, nil)
}

func loadParsed(file *File, problems Problems, env Env, used []string) (Loaded, Problems) {
	out := Loaded{File: file}
	out.Config = DefaultFor(profileOf(out.File, env))
	problems = append(problems, out.File.Decode(&out.Config)...)
	out.expandPaths(env)
	fromEnv, warnings := ApplyEnv(&out.Config, env, append(used, "CTXGATE_CONFIG")...)
	problems = append(problems, fromEnv...)
	warnings = append(warnings, out.applyPrunerEnv(env)...)
	out.State.Blobs.ApplyEnv(env.Lookup)
	for _, w := range warnings {
		out.Warnings = append(out.Warnings, w.String())
	}
	unread := problems
	for _, p := range out.File.Problems("", out.validate()...) {
		if !unread.explains(p) {
			problems = append(problems, p)
		}
	}
	if out.DataDir == "" {
		out.DataDir, _ = dataDir(env)
	}
	if out.Pins.Mode == pins.ModeLock {
		out.Pins.File = out.LockPath()
	}
	out.secretFiles = out.Config.secretFiles()
	problems.Sort()
	return out, problems
}

// LockPath is the path of the file of approved definitions, whether it is in use or not.
func (l Loaded) LockPath() string {
	if l.Pins.File != "" || l.File == nil {
		return cmp.Or(l.Pins.File, pins.LockFile)
	}
	return filepath.Join(filepath.Dir(l.File.Path), pins.LockFile)
}

// CheckExposed is [Config.CheckExposed] with file and line.
func (l Loaded) CheckExposed() Problems { return l.File.Problems("", l.Config.CheckExposed()) }

// ResolveSecrets resolves every reference to a secret. The two secrets that can be generated at the first
// start stay empty if they are not set.
func (l *Loaded) ResolveSecrets(env Env) Problems {
	clearUnset(&l.Secret, "CTXGATE_SECRET", env)
	clearUnset(&l.Admin.Token, "CTXGATE_ADMIN_TOKEN", env)
	eachSecretRef(reflect.ValueOf(&l.Config).Elem(), func(path string, r secretRefs) {
		for _, file := range r.Files() {
			if lax := secret.PermissionWarning(file); lax != "" {
				l.Warnings = append(l.Warnings, path+": "+lax)
			}
		}
	})
	for i, s := range l.Upstream.Servers {
		if s.Disabled { // its references may be what is missing
			l.Upstream.Servers[i].Env, l.Upstream.Servers[i].Headers = nil, nil
			for j := range s.CredentialsFor {
				s.CredentialsFor[j].Env, s.CredentialsFor[j].Headers = nil, nil
			}
		}
	}
	problems := l.File.Locate(append(ResolveSecrets(&l.Config, env.Lookup), l.resolveCommands(env)...))
	if len(problems) == 0 { // URLs are complete now
		problems = l.File.Problems("", l.validate()...)
		l.Warnings = append(append(l.Warnings, l.Auth.Warnings()...), l.Budget.Warnings()...)
	}
	if s := l.Secret.Reveal(); s != "" && len(s) < recall.MinSecretBytes {
		problems = append(problems, l.File.Problems("", fmt.Errorf("secret: must have at least %d bytes", recall.MinSecretBytes))...)
	}
	for i, old := range l.OldSecrets {
		if s := old.Reveal(); s != "" && len(s) < recall.MinSecretBytes {
			problems = append(problems, l.File.Problems("", fmt.Errorf("old_secrets[%d]: must have at least %d bytes", i, recall.MinSecretBytes))...)
		}
	}
	if len(l.OldSecrets) > maxOldSecrets {
		problems = append(problems, l.File.Problems("", fmt.Errorf("old_secrets: at most %d secrets, because every unknown id is looked up under each", maxOldSecrets))...)
	}
	if l.DataDir == "" {
		problems = append(problems, l.File.Problems("", errors.New("data_dir: there is no home directory for the default; set data_dir"))...)
	}
	problems.Sort()
	return problems
}

const maxOldSecrets = 8

// TolerateServers takes the problems of [Loaded.ResolveSecrets] that concern one server each. With the profile agents
// such a server is down and says why, and the others work: one variable that is missing in the environment of one client
// must not take every server from all of them. It returns the other problems.
func (l *Loaded) TolerateServers(problems Problems) Problems {
	if l.Profile != profileAgents {
		return problems
	}
	return slices.DeleteFunc(problems, func(p Problem) bool {
		at := splitPath(p.Key)
		if len(at) < 3 || at[0].key != "servers" || at[1].index >= len(l.Upstream.Servers) {
			return false
		}
		s := &l.Upstream.Servers[at[1].index]
		s.Fault = p.Key[len(p.listEntry())+1:] + ": " + p.Text
		l.Warnings = append(l.Warnings, "server "+s.ID+" is down: "+s.Fault)
		return true
	})
}

// clearUnset removes a reference to the secret's own variable if that variable is not set.
func clearUnset(s *secret.Text, name string, env Env) {
	if v, _ := env.Lookup(name); v == "" && s.Source() == "env:"+name {
		*s = secret.Text{}
	}
}

// ErrNoFile is returned by FindFile when there is no config file.
var ErrNoFile = errors.New("no config file")

// FindFile returns the file to load: the named one, else $CTXGATE_CONFIG, else ./ctxgate.toml, else the
// one in the user's config directory.
func FindFile(named string, env Env) (string, error) {
	if named != "" {
		return named, nil
	}
	if v, ok := env.Lookup("CTXGATE_CONFIG"); ok && v != "" {
		return v, nil
	}
	places := []string{"ctxgate.toml"}
	if dir, err := configDir(env); err == nil {
		places = append(places, filepath.Join(dir, "ctxgate.toml"))
	}
	for _, p := range places {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: looked for %s. 'ctxgate init' writes one from the MCP servers that your agents have, 'ctxgate run claude' works without one; "+
		"a file elsewhere is named with --config or CTXGATE_CONFIG", ErrNoFile, strings.Join(places, " and "))
}

// UserFile is the config file in the user's config directory, whether it exists or not.
func UserFile(env Env) (string, error) {
	dir, err := configDir(env)
	return filepath.Join(dir, "ctxgate.toml"), err
}

// UserDataDir is the data directory of a configuration that does not set data_dir.
func UserDataDir(env Env) (string, error) { return dataDir(env) }

var errNoHome = errors.New("there is no home directory")

// configDir is the directory of the user's config file.
func configDir(env Env) (string, error) {
	return userDir(env, map[string][2]string{
		"linux":   {"XDG_CONFIG_HOME", ".config"},
		"darwin":  {"XDG_CONFIG_HOME", "Library/Application Support"},
		"windows": {"AppData", "AppData/Roaming"},
	})
}

// dataDir is the default directory of the secret and the SQLite file.
func dataDir(env Env) (string, error) {
	return userDir(env, map[string][2]string{
		"linux":   {"XDG_DATA_HOME", ".local/share"},
		"darwin":  {"XDG_DATA_HOME", "Library/Application Support"},
		"windows": {"LocalAppData", "AppData/Local"},
	})
}

// userDir is the directory that a variable names, or one below the user's home; defaults gives both for
// each operating system.
func userDir(env Env, places map[string][2]string) (string, error) {
	position, ok := places[runtime.GOOS]
	if !ok {
		position = places["linux"]
	}
	if dir, ok := env.Lookup(position[0]); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "ctxgate"), nil
	}
	dir, err := homeDir(env)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.FromSlash(position[1]), "ctxgate"), nil
}

// applyPrunerEnv applies the environment variables of the original pruner (P10). CTXGATE_ variables
// override them.
func (l *Loaded) applyPrunerEnv(env Env) Problems {
	var warnings Problems
	asked := l.Pruner.EnvBackend
	if _, ours := env.Lookup("CTXGATE_MCP_PRUNER_BACKEND"); ours {
		l.Pruner.EnvBackend = ""
	}
	if !l.Pruner.ApplyBackendEnv() {
		warnings = append(warnings, Problem{File: "KIMI_PRUNING_BACKEND", Text: "unknown backend " + quote(asked) + "; the backend stays " + quote(l.Pruner.Backend)})
	}
	if _, ours := env.Lookup("CTXGATE_MCP_PRUNER_LISTEN"); ours {
		l.Pruner.Host, l.Pruner.Port = "", nil
	}
	l.Pruner.ApplyListenEnv()
	return warnings
}
