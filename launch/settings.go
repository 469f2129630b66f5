package launch

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"
)

const maxSettingsBytes = 16 << 20

// readSettings reads a settings file; nil without one. A file that cannot be read says nothing: the agent complains.
func readSettings(path string) []byte {
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxSettingsBytes {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return data
}

// readJSONC decodes a JSON file with comments.
func readJSONC[T any](path string) (v T) {
	if plain, err := hujson.Standardize(readSettings(path)); err == nil {
		_ = json.Unmarshal(plain, &v)
	}
	return v
}

// readTOML decodes a TOML file.
func readTOML[T any](path string) (v T) {
	_ = toml.Unmarshal(readSettings(path), &v)
	return v
}

// upwards lists a file in the working directory and in each directory above it, the nearest first.
func (h Host) upwards(name ...string) []string {
	var files []string
	for dir := h.Cwd; ; dir = filepath.Dir(dir) {
		files = append(files, filepath.Join(append([]string{dir}, name...)...))
		if dir == filepath.Dir(dir) || dir == h.Home {
			return files
		}
	}
}

// dir is the directory that a variable names, or one below the user's home.
func (h Host) dir(variable string, below ...string) string {
	if dir := h.value(variable); variable != "" && dir != "" {
		return dir
	}
	return filepath.Join(append([]string{h.Home}, below...)...)
}

// readDotEnv reads the first of some files of variables that exists.
func readDotEnv(files ...string) map[string]string {
	for _, file := range files {
		raw := readSettings(file)
		if raw == nil {
			continue
		}
		out := map[string]string{}
		for line := range strings.Lines(string(raw)) {
			name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
			if ok && !strings.HasPrefix(name, "#") {
				out[strings.TrimSpace(name)] = strings.Trim(strings.TrimSpace(value), `"'`)
			}
		}
		return out
	}
	return nil
}
