package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// SecretFiles are the files that the configuration's secrets are read from, in order. A change of
// one of them is a change of the configuration.
func (l *Loaded) SecretFiles() []string { return l.secretFiles }

// secretFiles finds them, while references are still references.
func (c *Config) secretFiles() []string {
	var files []string
	eachSecret(reflect.ValueOf(c).Elem(), "", func(_ string, t secret.Text) secret.Text {
		if path, ok := strings.CutPrefix(t.Source(), "file:"); ok && path != "" {
			files = append(files, path)
		}
		return t
	})
	slices.Sort(files)
	return slices.Compact(files)
}
