package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/admin"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/prunerd"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/upstream"
)

// Config is the whole configuration: each part is the Config of the package that uses it.
type Config struct {
	// Whose choices hold where the documents and today's agents want different things: "document"
	// (the user's documents to the letter) or "agents". They differ in two places today. Old tool
	// results that masking would not make shorter: with "document" they are masked too where the
	// window moves at every turn, with "agents" they stay. What keep_errors takes for an error: with
	// "document" any text that contains one of its words, with "agents" not text that only mentions
	// an error, as source code does. Default "document".
	Profile string `key:"profile" oneof:"document,agents"`

	// The main listener and the limits of HTTP.
	Front front.Config `key:",inline"`

	// What is logged, and how.
	Log Log `key:",inline"`

	// How much memory may be held for callers.
	Memory membudget.Config `key:",inline"`

	// Who may call.
	Auth auth.Config `key:",inline"`

	// How often a client may call.
	Limit limit.Config `key:",inline"`

	// Where the secret, the admin token and the SQLite file are kept. Default empty: the user's
	// data directory ($XDG_DATA_HOME/ctxgate, else ~/.local/share/ctxgate).
	DataDir string `key:"data_dir" reload:"restart"`

	// The root of ids, sealed tokens and stored text: at least 32 bytes, the same on all
	// replicas. Default: the variable CTXGATE_SECRET; without it one is made at the first start
	// and kept in the file secret of the data directory.
	Secret secret.Text `key:"secret" reload:"restart"`

	// The servers behind the gateway.
	Upstream upstream.Config `key:",inline"`

	// What the MCP door does with what passes it.
	Hub hub.Config `key:",inline"`

	// Whether and how originals are kept. A change takes effect at the next start.
	Recall recall.Config `key:"recall" reload:"restart"`

	// Where originals are kept. A change takes effect at the next start.
	State state.Config `key:"state" reload:"restart"`

	// The line pruner.
	Pruner prunerd.Config `key:"mcp_pruner"`

	// The operator's listener.
	Admin admin.Config `key:"admin"`

	// The LLM providers, and what is done with conversations.
	Chat chat.Config `key:",inline"`
}

// Log is what is logged, and how.
type Log struct {
	// The least severe messages that are logged. Default "INFO".
	Level string `key:"log_level" oneof:"DEBUG,INFO,WARN,ERROR"`

	// Log one JSON object a line instead of text. Logs go to stderr. Default false.
	Structured bool `key:"structured_logging"`
}

// The profiles.
const (
	profileDocument = "document"
	profileAgents   = "agents"
)

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Profile:  profileDocument,
		Front:    front.Default(),
		Log:      Log{Level: "INFO"},
		Upstream: upstream.Default(),
		Hub:      hub.Default(),
		Recall:   recall.Default(),
		State:    state.Default(),
		Pruner:   prunerd.Default(),
		Admin:    admin.Default(),
		Chat:     chat.Default(),
	}
}

// Env is the process environment, as os.Environ has it.
type Env []string

// Lookup is a variable's value: the first where it is set twice, as everywhere in Go.
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
	Warnings []string // worth a line in the log, not worth refusing

	secretFiles []string
}

// Load reads a file (none for an empty path), lays the environment over it and checks
// everything that can be checked without the secrets. All problems come at once. The variables named
// in used are read elsewhere: they are not warned of.
func Load(path string, env Env, used ...string) (Loaded, Problems) {
	out := Loaded{Config: Default()}
	var problems Problems
	if path != "" {
		out.File, problems = ReadFile(path)
		problems = append(problems, out.File.Decode(&out.Config)...)
	}
	fromEnv, warnings := ApplyEnv(&out.Config, env, append(used, "CTXGATE_CONFIG")...)
	problems = append(problems, fromEnv...)
	warnings = append(warnings, out.settlePruner(env)...)
	out.Chat.Observation.Schema1.Agents = out.Profile == profileAgents
	for _, w := range warnings {
		out.Warnings = append(out.Warnings, w.String())
	}
	unread := problems
	for _, p := range out.File.Problems("", out.validate()...) {
		if !unread.explain(p) {
			problems = append(problems, p)
		}
	}
	if out.DataDir == "" {
		out.DataDir, _ = dataDir(env)
	}
	out.secretFiles = out.Config.secretFiles()
	problems.Sort()
	return out, problems
}

func (c Config) validate() []error {
	problems := slices.Concat(c.Front.Validate(), c.Memory.Validate(), c.Upstream.Validate(), c.Hub.Validate(), c.Chat.Validate())
	for _, part := range []struct {
		prefix string
		errs   []error
	}{{"recall", c.Recall.Validate()}, {"state", c.State.Validate()}, {"mcp_pruner", c.Pruner.Validate()}, {"admin", c.Admin.Validate()}} {
		for _, err := range part.errs {
			problems = append(problems, fmt.Errorf("%s.%w", part.prefix, err))
		}
	}
	return problems
}

// CheckExposed refuses a main listener beyond loopback that asks for no credential, unless anonymous says
// that this is meant. It is asked where that listener is opened: other commands have none.
func (c Config) CheckExposed() error { return c.Front.CheckExposed(c.Auth.Token.IsSet()) }

// CheckExposed is [Config.CheckExposed] with the line of the file.
func (l Loaded) CheckExposed() Problems { return l.File.Problems("", l.Config.CheckExposed()) }

// Resolve follows every reference to a secret. The two that can be made at the first start are
// left empty when nobody set them.
func (l *Loaded) Resolve(env Env) Problems {
	clearUnset(&l.Secret, "CTXGATE_SECRET", env)
	clearUnset(&l.Admin.Token, "CTXGATE_ADMIN_TOKEN", env)
	eachReference(reflect.ValueOf(&l.Config).Elem(), func(path string, r referred) {
		for _, file := range r.Files() {
			if lax := secret.Lax(file); lax != "" {
				l.Warnings = append(l.Warnings, path+": "+lax)
			}
		}
	})
	problems := l.File.Locate(ResolveSecrets(&l.Config, env.Lookup))
	if len(problems) == 0 { // URLs are whole now
		problems = l.File.Problems("", l.validate()...)
	}
	if s := l.Secret.Reveal(); s != "" && len(s) < recall.MinSecret {
		problems = append(problems, l.File.Problems("", fmt.Errorf("secret: must have at least %d bytes", recall.MinSecret))...)
	}
	if l.DataDir == "" {
		problems = append(problems, l.File.Problems("", errors.New("data_dir: there is no home directory to put one into; say where"))...)
	}
	problems.Sort()
	return problems
}

// clearUnset makes a reference to the secret's own variable no reference when that is not set.
func clearUnset(s *secret.Text, name string, env Env) {
	if v, _ := env.Lookup(name); v == "" && s.Source() == "env:"+name {
		*s = secret.Text{}
	}
}

// ErrNoFile is returned by Find when there is no config file anywhere.
var ErrNoFile = errors.New("no config file")

// Find says which file to load: the named one, else $CTXGATE_CONFIG, else ./ctxgate.toml, else
// the one in the user's config directory.
func Find(named string, env Env) (string, error) {
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
	return "", fmt.Errorf("%w: looked for %s; name one with --config or CTXGATE_CONFIG", ErrNoFile, strings.Join(places, " and "))
}
