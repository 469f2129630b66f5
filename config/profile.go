package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/reduce"
)

// The profiles.
const (
	profileDocument = "document"
	profileAgents   = "agents"
)

// DefaultFor is the configuration of a file that sets nothing but the profile.
func DefaultFor(profile string) Config {
	c := Default()
	if profile == profileAgents {
		c.setAgentsDefaults()
	}
	return c
}

// setAgentsDefaults sets what serves today's agents. Everything in it is a default: what a file or the environment
// sets wins.
func (c *Config) setAgentsDefaults() {
	c.Profile = profileAgents

	// Model APIs and some clients refuse ":" in the names of tools.
	c.Hub.Naming.Separator = "__"
	c.Hub.FitClients = true
	// Nobody sees what a model is told in such characters; a marker is as short, and says that they were there.
	c.Pins.HiddenCharacters = pins.HiddenMark
	c.Hub.Masking.Markers = reduce.PlainMarkers
	// As long as the most patient clients wait for a call (Gemini CLI: 10 minutes, Codex: 5).
	c.Upstream.ResponseTimeout = unit.Duration(10 * time.Minute)
	// prune_text and health are for programs; in an agent's list of tools they only cost tokens.
	c.Pruner.Builtin = false

	masks := &c.Chat.ObservationMasking
	masks.Schema1.Agents = true
	// Agents such as Claude Code mark their last message for the cache at every turn: without this nothing of
	// their history is ever masked. With advance = "auto" the window moves only when that lowers the cost.
	masks.Schema1.PastBreakpoints = true
	// With "auto" this is how much stays whole when the window moves; until it moves again it grows to several times
	// as much. Reads from the cache are so cheap today that rewriting eight turns pays back only in very long
	// conversations. Three is what Anthropic's own context editing keeps.
	masks.Schema1.WindowTurns = 3
	masks.Schema1.Template = history.PlainTemplate
	masks.NewResults.Markers = reduce.PlainMarkers
	masks.Recovery.Offer = true
	c.Chat.Providers = defaultProviders()
	// What a move of the window is worth depends on the model: nobody should have to write prices down.
	c.Chat.LLM.PriceTable = true
}

// defaultProviders are the providers that most agents call, with the client's own credentials. Their prices are in the
// built-in table.
func defaultProviders() []chat.Provider {
	list := make([]chat.Provider, 3)
	for i, p := range []struct {
		name string
		kind chat.APIKind
		url  secret.URL
	}{
		{"anthropic", "anthropic", "https://api.anthropic.com"},
		{"openai", "openai", "https://api.openai.com/v1"},
		{"google", "gemini", "https://generativelanguage.googleapis.com"},
	} {
		list[i].SetDefaults()
		list[i].Name, list[i].Kind, list[i].BaseURL = p.name, p.kind, p.url
	}
	return list
}

// profileOf is the profile of a load. It is known before the file is decoded, because its defaults lie under the
// file. A value that is no profile is reported by the decoder.
func profileOf(f *File, env Env) string {
	profile := profileDocument
	if f != nil {
		if n := f.root.vals["profile"]; n != nil && n.kind == textKind {
			profile = n.text
		}
	}
	if v, ok := env.Lookup(envPrefix + "PROFILE"); ok && v != "" {
		profile = v
	}
	return profile
}

// ProfileSetting is a key whose default a profile changes.
type ProfileSetting struct {
	Key          string
	Value        string // the profile's, as a TOML file would have it
	Default      string // of the profile "document"
	OverriddenBy string // what sets the key all the same: "ctxgate.toml:12", or a variable; "" when the profile's value holds
}

func (s ProfileSetting) String() string {
	text := s.Key + " = " + s.Value
	if s.OverriddenBy != "" {
		text += " (not used: set by " + s.OverriddenBy + ")"
	}
	return text
}

// ProfileSettings lists what the profile sets, in the order of the declarations; nothing for "document".
func (l Loaded) ProfileSettings(env Env) []ProfileSetting {
	p := profileDiff{file: l.File, env: env}
	p.compare(reflect.ValueOf(Default()), reflect.ValueOf(DefaultFor(l.Profile)), "")
	return p.found
}

type profileDiff struct {
	file  *File
	env   Env
	found []ProfileSetting
}

func (p *profileDiff) compare(old, next reflect.Value, path string) {
	for _, f := range Fields(old.Type()) {
		a, b, at := f.In(old), f.In(next), childPath(path, f.Key)
		switch {
		case isTable(f.Type):
			p.compare(a, b, at)
		case at != "profile" && !sameValue(a, b):
			p.found = append(p.found, ProfileSetting{Key: at, Value: describeDefault(b), Default: describeDefault(a), OverriddenBy: p.overriding(f, path)})
		}
	}
}

// overriding is what sets a field in spite of the profile.
func (p *profileDiff) overriding(f Field, path string) string {
	for _, name := range f.Variables(path) {
		if _, ok := p.env.Lookup(name); ok {
			return name
		}
	}
	if at := childPath(path, f.Key); p.file.has(at) {
		return p.file.Path + ":" + strconv.Itoa(p.file.Line(at))
	}
	return ""
}

// has reports whether the file sets a key.
func (f *File) has(path string) bool {
	if f == nil {
		return false
	}
	n := f.root
	for _, s := range splitPath(path) {
		if n = n.childAt(s); n == nil {
			return false
		}
	}
	return n.kind != nullKind
}

// describeDefault writes a value as a TOML file has it. Of a table in a list only the name is written.
func describeDefault(v reflect.Value) string {
	switch {
	case v.Type() == durationType || v.Type() == bytesType:
		return strconv.Quote(fmt.Sprint(v.Interface()))
	case v.Kind() == reflect.Slice:
		items := make([]string, v.Len())
		for i := range items {
			items[i] = describeDefault(v.Index(i))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case v.Kind() == reflect.Struct:
		return strconv.Quote(nameOf(v))
	case v.Kind() == reflect.String:
		return strconv.Quote(v.String())
	}
	return fmt.Sprint(v.Interface())
}
