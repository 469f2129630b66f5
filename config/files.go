package config

import (
	"reflect"
	"slices"
)

// SecretFiles are the files that the configuration's secrets are read from, in order. A change of
// one of them is a change of the configuration.
func (l *Loaded) SecretFiles() []string { return l.secretFiles }

// secretFiles finds them, while references are still references.
func (c *Config) secretFiles() []string {
	var files []string
	eachReference(reflect.ValueOf(c).Elem(), func(_ string, r referred) { files = append(files, r.Files()...) })
	slices.Sort(files)
	return slices.Compact(files)
}
