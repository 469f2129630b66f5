package config

import (
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// expandPaths replaces ~ and $HOME where a file names paths, and makes relative paths relative to the file: data_dir,
// state.path, state.blobs.cache_dir, audit.path, pins.file, the files of secrets, and the cwd and command of servers. In arguments and variables of servers it replaces
// only ~ and $HOME, and only where they start a path. What variables of the environment set is left as it is: a shell has
// expanded it.
func (l *Loaded) expandPaths(env Env) {
	home, _ := homeDir(env)
	dir := "."
	if l.File != nil {
		dir = filepath.Dir(l.File.Path)
	}
	move := func(path string) string {
		path = expandHome(path, home)
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
	absolute := func(path string) string {
		if abs, err := filepath.Abs(move(path)); err == nil && path != "" {
			return abs
		}
		return path
	}
	l.DataDir = move(l.DataDir)
	l.State.Path = move(l.State.Path)
	l.State.Blobs.CacheDir = move(l.State.Blobs.CacheDir)
	if l.Audit.IsFile() {
		l.Audit.Path = move(l.Audit.Path)
	}
	l.Pins.File = move(l.Pins.File)
	for i := range l.Upstream.Servers {
		s := &l.Upstream.Servers[i]
		s.Cwd = absolute(s.Cwd)
		for j, arg := range s.Command {
			arg = commandRef.ReplaceAllStringFunc(arg, func(ref string) string {
				t, _ := secret.ParseTemplate(ref)
				return t.MoveFiles(move).Written()
			})
			switch isProgram := j == 0; {
			case isProgram && filepath.Base(arg) != arg && !strings.HasPrefix(arg, "${"):
				s.Command[j] = absolute(arg)
			default:
				s.Command[j] = expandArgument(arg, home)
			}
		}
		expand := func(env map[string]secret.Text) {
			for name, value := range env {
				env[name] = value.EditStart(func(text string) string { return expandHome(text, home) })
			}
		}
		expand(s.Env)
		for _, r := range s.CredentialsFor {
			expand(r.Env)
		}
	}
	eachSecret(reflect.ValueOf(&l.Config).Elem(), "", visitor{
		text: func(_ string, t secret.Text) secret.Text { return t.MoveFiles(move) },
		url:  func(_ string, u secret.URL) secret.URL { return u.MoveFiles(move) },
	})
}

// homeDir is the user's home directory.
func homeDir(env Env) (string, error) {
	for _, name := range []string{"HOME", "USERPROFILE"} {
		if dir, ok := env.Lookup(name); ok && dir != "" {
			return dir, nil
		}
	}
	return "", errNoHome
}

// expandHome replaces ~, $HOME or ${HOME} at the start of a path. Without a home directory the path stays as it is.
func expandHome(path, home string) string {
	for _, name := range []string{"~", "${HOME}", "$HOME"} {
		rest, ok := strings.CutPrefix(path, name)
		if !ok || home == "" {
			continue
		}
		if rest == "" || rest[0] == '/' || runtime.GOOS == "windows" && rest[0] == '\\' || name != "~" && rest[0] == ':' {
			return home + rest
		}
	}
	return path
}

// expandArgument does so in an argument of a command, also in the value of an option: --dir=~/x.
func expandArgument(arg, home string) string {
	if option, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(arg, "-") {
		return option + "=" + expandHome(value, home)
	}
	return expandHome(arg, home)
}
