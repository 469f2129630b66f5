package config

import (
	"errors"
	"path/filepath"
	"runtime"
)

var errNoHome = errors.New("there is no home directory")

// configDir is where the user's config file is.
func configDir(env Env) (string, error) {
	return userDir(env, map[string][2]string{
		"linux":   {"XDG_CONFIG_HOME", ".config"},
		"darwin":  {"XDG_CONFIG_HOME", "Library/Application Support"},
		"windows": {"AppData", "AppData/Roaming"},
	})
}

// dataDir is where the secret and the SQLite file are.
func dataDir(env Env) (string, error) {
	return userDir(env, map[string][2]string{
		"linux":   {"XDG_DATA_HOME", ".local/share"},
		"darwin":  {"XDG_DATA_HOME", "Library/Application Support"},
		"windows": {"LocalAppData", "AppData/Local"},
	})
}

// userDir is the folder that a variable names, or one below the user's home.
func userDir(env Env, places map[string][2]string) (string, error) {
	place, ok := places[runtime.GOOS]
	if !ok {
		place = places["linux"]
	}
	if dir, ok := env.Lookup(place[0]); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "ctxgate"), nil
	}
	for _, home := range []string{"HOME", "USERPROFILE"} {
		if dir, ok := env.Lookup(home); ok && dir != "" {
			return filepath.Join(dir, filepath.FromSlash(place[1]), "ctxgate"), nil
		}
	}
	return "", errNoHome
}
