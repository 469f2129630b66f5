package child

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// What a program needs of our environment to run at all, to find its files and to reach the
// network. Everything else may be a secret of ours.
var (
	unixNames = words(`HOME LOGNAME PATH SHELL TERM USER LANG LANGUAGE TZ TMPDIR XDG_RUNTIME_DIR
		SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS
		HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy`)
	windowsNames = words(`APPDATA COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE
		PROGRAMDATA PROGRAMFILES SYSTEMDRIVE SYSTEMROOT TEMP TMP USERNAME USERPROFILE WINDIR`)
)

func words(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// Environment is what a program gets: the harmless part of our own environment, and the
// variables that were configured for it, which win. It is sorted and names nothing twice.
func Environment(own []string, add map[string]string) []string {
	return environment(runtime.GOOS == "windows", own, add)
}

func environment(windows bool, own []string, add map[string]string) []string {
	fold := func(name string) string { return name }
	if windows {
		fold = strings.ToUpper // Path and PATH are one
	}
	vars := map[string]string{} // folded name to name=value
	for _, entry := range own {
		name, value, ok := strings.Cut(entry, "=")
		if ok && allowed(windows, fold(name)) && !strings.HasPrefix(value, "()") {
			vars[fold(name)] = entry
		}
	}
	for _, name := range slices.Sorted(maps.Keys(add)) {
		vars[fold(name)] = name + "=" + add[name]
	}
	return slices.Sorted(maps.Values(vars))
}

func allowed(windows bool, name string) bool {
	if windows {
		return windowsNames[name]
	}
	xdg := strings.HasPrefix(name, "XDG_") && (strings.HasSuffix(name, "_HOME") || strings.HasSuffix(name, "_DIRS"))
	return unixNames[name] || xdg || strings.HasPrefix(name, "LC_")
}

// lookup finds the program the way a shell in its environment would, except that the current
// directory is never searched.
func lookup(spec Spec) (string, error) {
	if spec.Dir != "" {
		if info, err := os.Stat(spec.Dir); err != nil {
			return "", fmt.Errorf("working directory: %w", err)
		} else if !info.IsDir() {
			return "", fmt.Errorf("working directory: %s is not a directory", spec.Dir)
		}
	}
	name := spec.Command[0]
	if filepath.Base(name) != name {
		return lookupPath(spec.Dir, name)
	}
	for _, dir := range filepath.SplitList(variable(spec.Env, "PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

func lookupPath(dir, name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	// The shim runs elsewhere, so a relative path would be another there.
	abs, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	return exec.LookPath(abs)
}

func variable(env []string, name string) string {
	value := ""
	for _, entry := range env {
		n, v, _ := strings.Cut(entry, "=")
		if n == name || (runtime.GOOS == "windows" && strings.EqualFold(n, name)) {
			value = v
		}
	}
	return value
}
