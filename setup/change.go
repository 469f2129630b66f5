package setup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/jsonedit"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/textedit"
	"github.com/ctxgate/ctxgate/internal/tomledit"
	"github.com/ctxgate/ctxgate/internal/yamledit"
	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// Addition is a server that the user adds.
type Addition struct {
	Name      string
	Command   []string // or URL
	URL       string
	Transport string // "" for http
	Cwd       string
	Env       []Pair
	Headers   []Pair
}

// Place is where credentials go, and how they are found.
type Place struct {
	Secrets string // the directory for files of credentials
	Home    string
	Env     config.Env
}

// Change is an edit of a configuration, ready to be written.
type Change struct {
	Path    string
	IsNew   bool
	Secrets []string // files of credentials that are made, or removed

	edits   []Edit
	removed []string
}

// document is a configuration file that can be edited in place.
type document interface {
	Keys(path ...string) ([]string, error)
	Value(path ...string) (any, bool, error)
	Set(value any, path ...string) error
	Delete(path ...string) error
	Bytes() []byte
}

// parseConfig opens a configuration for editing, in the format of its extension.
func parseConfig(path string, data []byte) (document, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".toml":
		return tomledit.Parse(data)
	case ".json":
		return jsonedit.Parse(data, jsonedit.Strict)
	case ".yaml", ".yml":
		return yamledit.Parse(data)
	}
	return nil, fmt.Errorf("%s: the name of a config file ends in .toml, .json, .yaml or .yml", path)
}

// Add works out how to add a server to the configuration at path, which is made if it does not exist. Values that are
// references stay; credentials go into files.
func Add(path string, place Place, add Addition) (*Change, error) {
	env := place.Env
	before, err := ReadExisting(path)
	if err != nil {
		return nil, err
	}
	v := newVault(path, place.Secrets, place.Home, env)
	entry, err := (&converter{vault: v, id: add.Name}).addedEntry(add)
	if err != nil {
		return nil, err
	}
	after, err := addEntry(path, before, entry)
	if err != nil {
		return nil, err
	}
	if err := checkEdited(path, before, after, env); err != nil {
		return nil, err
	}
	c := &Change{Path: path, IsNew: before == nil, edits: append(v.edits(), Edit{Path: path, Before: before, After: after, Mode: 0o600})}
	for _, e := range v.edits() {
		c.Secrets = append(c.Secrets, e.Path)
	}
	return c, nil
}

// addedEntry converts what the user wrote on the command line.
func (c *converter) addedEntry(add Addition) (Entry, error) {
	e := Entry{ID: add.Name, Cwd: add.Cwd}
	before := ""
	for _, word := range add.Command {
		written := word
		if !strings.Contains(word, "${env:") && !strings.Contains(word, "${file:") {
			var err error
			if written, err = c.literalArgument(before, word); err != nil {
				return e, err
			}
		}
		e.Command = append(e.Command, written)
		before = word
	}
	for _, list := range []struct {
		from     []Pair
		to       *[]Pair
		isHeader bool
	}{{add.Env, &e.Env, false}, {add.Headers, &e.Headers, true}} {
		for _, p := range list.from {
			if t, err := secret.ParseTemplate(p.Value); err != nil || t.IsLiteral() {
				if p.Value, err = c.literalText(p.Name, p.Value, list.isHeader); err != nil {
					return e, err
				}
			}
			*list.to = append(*list.to, p)
		}
	}
	if add.URL == "" {
		return e, nil
	}
	if add.Transport != "http" {
		e.Transport = add.Transport
	}
	if secret.URL(add.URL).Source() != "" { // with references of its own
		e.URL = add.URL
		return e, nil
	}
	address, login, err := c.address(clientfile.Value{Text: add.URL, Parts: []clientfile.Part{{Kind: clientfile.Literal, Text: add.URL}}})
	e.URL = address
	if login != nil {
		e.Headers = append(e.Headers, *login)
	}
	return e, err
}

// addEntry returns the text of a configuration with one server more.
func addEntry(path string, before []byte, entry Entry) ([]byte, error) {
	text := before
	if text == nil {
		if text = []byte(newConfig("ctxgate add")); filepath.Ext(path) != ".toml" {
			text = nil
		}
	}
	doc, err := parseConfig(path, text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	count, err := serverCount(doc, entry.ID, path)
	if err != nil {
		return nil, err
	}
	if _, isToml := doc.(*tomledit.Doc); isToml {
		out := appendBlocks(text, []string{entry.toml()})
		if _, err := tomledit.Parse(out); err == nil { // it fails after servers = [ … ]
			return out, nil
		}
	}
	if before == nil {
		if err := doc.Set("agents", "profile"); err != nil {
			return nil, err
		}
	}
	object := entry.object()
	if count == 0 {
		err = doc.Set([]any{object}, "servers")
	} else {
		err = doc.Set(object, "servers", strconv.Itoa(count))
	}
	return doc.Bytes(), err
}

// serverCount counts the servers of a configuration. One of the same id is an error.
func serverCount(doc document, id, path string) (int, error) {
	keys, err := doc.Keys("servers")
	if err != nil {
		return 0, err
	}
	for _, key := range keys {
		if got, _, _ := doc.Value("servers", key, "id"); got == id {
			return 0, fmt.Errorf("%s has a server %q already; 'ctxgate remove %s' removes it", path, id, id)
		}
	}
	return len(keys), nil
}

// object is the entry for JSON and YAML.
func (e Entry) object() textedit.Object {
	var o textedit.Object
	add := func(key string, value any, isSet bool) {
		if isSet {
			o = append(o, textedit.Member{Key: key, Value: value})
		}
	}
	pairs := func(list []Pair) textedit.Object {
		var o textedit.Object
		for _, p := range list {
			o = append(o, textedit.Member{Key: p.Name, Value: p.Value})
		}
		return o
	}
	add("id", e.ID, true)
	add("command", e.Command, len(e.Command) > 0)
	add("cwd", e.Cwd, e.Cwd != "")
	add("url", e.URL, e.URL != "")
	add("transport", e.Transport, e.Transport != "")
	add("env", pairs(e.Env), len(e.Env) > 0)
	add("headers", pairs(e.Headers), len(e.Headers) > 0)
	return o
}

// checkEdited refuses an edit that would make the configuration invalid. Problems that it has already are named as such.
func checkEdited(path string, before, after []byte, env config.Env) error {
	_, problems := config.LoadBytes(path, after, env)
	if len(problems) == 0 {
		return nil
	}
	if before != nil {
		if _, old := config.LoadBytes(path, before, env); len(old) > 0 {
			return fmt.Errorf("correct the configuration first:\n%w", old)
		}
	}
	return problems
}

// Remove works out how to remove a server from the configuration at path, with the files of its credentials that
// nothing else refers to.
func Remove(path string, place Place, id string) (*Change, error) {
	before, err := ReadExisting(path)
	if err != nil {
		return nil, err
	}
	if before == nil {
		return nil, fmt.Errorf("%s does not exist", path)
	}
	doc, err := parseConfig(path, before)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	keys, err := doc.Keys("servers")
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, key := range keys {
		got, _, _ := doc.Value("servers", key, "id")
		if got != id {
			ids = append(ids, fmt.Sprint(got))
			continue
		}
		if err := doc.Delete("servers", key); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		after := doc.Bytes()
		if err := checkEdited(path, before, after, place.Env); err != nil {
			return nil, err
		}
		c := &Change{Path: path, edits: []Edit{{Path: path, Before: before, After: after}}}
		c.findUnused(place, before, after)
		return c, nil
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("%s has no servers", path)
	}
	return nil, fmt.Errorf("%s has no server %q; it has %s", path, id, strings.Join(ids, ", "))
}

// findUnused finds the files of credentials that only the text before refers to.
func (c *Change) findUnused(place Place, before, after []byte) {
	entries, err := os.ReadDir(place.Secrets)
	if err != nil {
		return
	}
	v := newVault(c.Path, place.Secrets, place.Home, place.Env)
	for _, e := range entries {
		path := filepath.Join(place.Secrets, e.Name())
		names := []string{path, strings.TrimSuffix(strings.TrimPrefix(v.reference(path), "${file:"), "}")}
		refers := func(text []byte) bool {
			return slices.ContainsFunc(names, func(name string) bool { return refersTo(text, name) })
		}
		if e.Type().IsRegular() && refers(before) && !refers(after) {
			c.removed = append(c.removed, path)
			c.Secrets = append(c.Secrets, path)
		}
	}
}

// refersTo reports whether a configuration has a reference to a file. A longer name does not count.
func refersTo(text []byte, path string) bool {
	written := strings.Trim(tomlString("file:"+path), `"`)
	for rest := string(text); ; {
		_, after, ok := strings.Cut(rest, written)
		if !ok {
			return false
		}
		if after == "" || strings.ContainsAny(after[:1], "\"'}&\n\r ,") {
			return true
		}
		rest = after
	}
}

// Write writes the change: the credentials first, the configuration last.
func (c *Change) Write() error {
	m := &Manifest{}
	for i, e := range c.edits {
		if err := m.writeEdit(e); err != nil {
			for _, done := range c.edits[:i] {
				err = errors.Join(err, os.Remove(done.Path))
			}
			return err
		}
	}
	for _, path := range c.removed {
		if err := os.Remove(path); err != nil {
			return fmt.Errorf("the server is removed, but not the file of its credential: %w", err)
		}
	}
	return nil
}
