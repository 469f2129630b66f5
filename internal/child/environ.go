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

// The variables that a child inherits: it needs them to run at all, to find its files and to reach the network.
// Everything else may be a secret of the gateway.
var (
	unixNames = nameSet(`HOME LOGNAME PATH SHELL TERM USER LANG LANGUAGE TZ TMPDIR XDG_RUNTIME_DIR
		SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS
		HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy`)
	windowsNames = nameSet(`APPDATA COMSPEC HOMEDRIVE HOMEPATH LOCALAPPDATA PATH PATHEXT PROCESSOR_ARCHITECTURE
		PROGRAMDATA PROGRAMFILES SYSTEMDRIVE SYSTEMROOT TEMP TMP USERNAME USERPROFILE WINDIR`)
)

func nameSet(list string) map[string]bool {
	set := map[string]bool{}
	for _, name := range strings.Fields(list) {
		set[name] = true
	}
	return set
}

// Environment is a child's environment: the inherited part of the gateway's own, and the configured variables, which
// win. It is sorted and without duplicates.
func Environment(own []string, configured map[string]string) []string {
	return environmentOn(runtime.GOOS == "windows", own, configured)
}

func environmentOn(windows bool, own []string, configured map[string]string) []string {
	fold := func(name string) string { return name }
	if windows {
		fold = strings.ToUpper // Path and PATH are the same
	}
	vars := map[string]string{} // folded name to name=value
	for _, entry := range own {
		name, value, ok := strings.Cut(entry, "=")
		if ok && isInherited(windows, fold(name)) && !strings.HasPrefix(value, "()") {
			vars[fold(name)] = entry
		}
	}
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		vars[fold(name)] = name + "=" + configured[name]
	}
	return slices.Sorted(maps.Values(vars))
}

func isInherited(windows bool, name string) bool {
	if windows {
		return windowsNames[name]
	}
	xdg := strings.HasPrefix(name, "XDG_") && (strings.HasSuffix(name, "_HOME") || strings.HasSuffix(name, "_DIRS"))
	return unixNames[name] || xdg || strings.HasPrefix(name, "LC_")
}

// findExecutable finds the executable as a shell in the child's environment would, but never in the current directory.
func findExecutable(spec Spec) (string, error) {
	if spec.Dir != "" {
		if info, err := os.Stat(spec.Dir); err != nil {
			return "", fmt.Errorf("working directory: %w", err)
		} else if !info.IsDir() {
			return "", fmt.Errorf("working directory: %s is not a directory", spec.Dir)
		}
	}
	name := spec.Command[0]
	if filepath.Base(name) != name {
		if !filepath.IsAbs(name) {
			name = filepath.Join(spec.Dir, name)
		}
		abs, err := filepath.Abs(name) // the shim runs in another directory
		if err != nil {
			return "", err
		}
		return exec.LookPath(abs)
	}
	for _, dir := range filepath.SplitList(lookupEnv(spec.Env, "PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

func lookupEnv(env []string, name string) string {
	value := ""
	for _, entry := range env {
		n, v, _ := strings.Cut(entry, "=")
		if n == name || (runtime.GOOS == "windows" && strings.EqualFold(n, name)) {
			value = v
		}
	}
	return value
}
