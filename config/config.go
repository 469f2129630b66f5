// Package config loads ctxgate's configuration: one tree of keys, written as TOML, JSON or YAML, over
// defaults and under the environment.
//
// Path through the files, in the order of a load: config.go composes the Config of every package; load.go
// finds the file and runs the steps; file.go reads it in the format of its extension (toml.go, json.go,
// yaml.go) into a tree that knows its lines (node.go); decode.go decodes the tree into the structs, whose
// tags fields.go reads; paths.go makes paths absolute; env.go applies the environment; secrets.go resolves "env:NAME" and "file:PATH".
// suggest.go words the messages about unknown keys, problem.go holds the messages, diff.go compares two
// configurations for a reload.
//
// No step stops at the first mistake: each returns all its [Problems], in the order of the file. No
// message repeats a secret. The package does not read the process environment and changes nothing outside
// the struct it is given.
package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/admin"
	"github.com/ctxgate/ctxgate/audit"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/budget"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/daemon"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/limit"
	"github.com/ctxgate/ctxgate/pins"
	"github.com/ctxgate/ctxgate/prunerd"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/replica"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/redis"
	"github.com/ctxgate/ctxgate/upstream"
)

// Config is the whole configuration. Each part is the Config of the package that uses it.
type Config struct {
	// Which defaults to use where the specification documents and today's agents need different things:
	// "document" (the documents to the letter) or "agents". A profile only changes defaults: what a file
	// or the environment sets wins. Keys whose default differs show both; `ctxgate check -v` lists what
	// the profile set.
	//
	// Two things have no key of their own. Old tool results that masking would not make shorter:
	// "document" masks them too where the window moves at every turn, "agents" leaves them. What
	// keep_errors counts as an error: for "document" any text that contains one of its words, for
	// "agents" not text that only mentions an error, such as source code. Default "document".
	Profile string `key:"profile" oneof:"document,agents"`

	// The main listener and the HTTP limits.
	Front front.Config `key:",inline"`

	// Logging.
	Log Log `key:",inline"`

	// The memory budget for requests.
	Memory membudget.Config `key:",inline"`

	// Who may call.
	Auth auth.Config `key:",inline"`

	// What callers may use.
	Access access.Config `key:"access"`

	// How often a client may call.
	Limit limit.Config `key:",inline"`

	// What tenants may spend on models.
	Budget budget.Config `key:",inline"`

	// The directory of the secret, the admin token and the SQLite file; "~", "$HOME" and a path relative to
	// the config file work. Default empty: the user's data
	// directory ($XDG_DATA_HOME/ctxgate, else ~/.local/share/ctxgate).
	DataDir string `key:"data_dir" reload:"restart"`

	// The secret from which the keys for ids, sealed tokens and stored texts are derived: at least 32
	// bytes, the same on all replicas. Default: the variable CTXGATE_SECRET; without it, a secret is
	// generated at the first start and stored in the file "secret" of the data directory.
	Secret secret.Text `key:"secret" reload:"restart"`

	// Earlier values of secret, at most 8. What was made with them is still read: ids, stored texts, sessions, tokens.
	// Whatever is new is made with secret. To rotate, list the new secret here first on all replicas, then exchange
	// the two, and remove the old one after state.ttl. Default empty.
	OldSecrets []secret.Text `key:"old_secrets" reload:"restart"`

	// The servers behind the gateway.
	Upstream upstream.Config `key:",inline"`

	// The MCP endpoint.
	Hub hub.Config `key:",inline"`

	// Whether and how originals are stored. A change takes effect at the next start.
	Recall recall.Config `key:"recall" reload:"restart"`

	// Where originals are stored. A change takes effect at the next start.
	State state.Config `key:"state" reload:"restart"`

	// The line pruner.
	Pruner prunerd.Config `key:"mcp_pruner"`

	// The log of decisions.
	Audit audit.Config `key:"audit"`

	// The admin listener.
	Admin admin.Config `key:"admin"`

	// The gateway in the background, which all clients of `ctxgate stdio` share.
	Background daemon.Config `key:"background"`

	// How replicas of the gateway reach each other.
	Replicas replica.Config `key:"replicas"`

	// Which definitions of tools may be served.
	Pins pins.Config `key:"pins"`

	// The LLM providers, and how conversations are shortened.
	Chat chat.Config `key:",inline"`
}

// Log configures logging.
type Log struct {
	// The lowest level that is logged. Default "INFO".
	Level string `key:"log_level" oneof:"DEBUG,INFO,WARN,ERROR"`

	// Log one JSON object per line instead of text. Logs go to stderr. Default false.
	Structured bool `key:"structured_logging"`
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Profile:    profileDocument,
		Front:      front.Default(),
		Log:        Log{Level: "INFO"},
		Auth:       auth.Default(),
		Access:     access.Default(),
		Upstream:   upstream.Default(),
		Hub:        hub.Default(),
		Recall:     recall.Default(),
		State:      state.Default(),
		Pruner:     prunerd.Default(),
		Audit:      audit.Default(),
		Admin:      admin.Default(),
		Background: daemon.Default(),
		Pins:       pins.Default(),
		Chat:       chat.Default(),
	}
}

func (c Config) validate() []error {
	problems := slices.Concat(c.Front.Validate(), c.Auth.Validate(), c.Memory.Validate(), c.Limit.Validate(), c.Budget.Validate(), c.Upstream.Validate(), c.Hub.Validate(), c.Chat.Validate())
	for _, part := range []struct {
		prefix string
		errs   []error
	}{{"recall", c.Recall.Validate()}, {"state", c.State.Validate()}, {"mcp_pruner", c.Pruner.Validate()}, {"admin", c.Admin.Validate()}, {"access", c.Access.Validate()}, {"background", c.Background.Validate()}, {"replicas", c.Replicas.Validate()}} {
		for _, err := range part.errs {
			problems = append(problems, fmt.Errorf("%s.%w", part.prefix, err))
		}
	}
	if c.State.Driver == "redis" && c.State.URL.Reveal() != "" { // a reference is checked when the store is opened
		if err := redis.CheckURL(c.State.URL.Reveal()); err != nil {
			problems = append(problems, fmt.Errorf("state.url: %w", err))
		}
	}
	if c.Auth.OIDC.IsEnabled() && c.Auth.OIDC.Audience == "" && c.Front.PublicURL == "" {
		problems = append(problems, errors.New("oidc.audience: is required unless public_url is set: a token for another service would be accepted"))
	}
	return problems
}

// CheckExposed rejects a main listener beyond loopback that requires no credential, unless anonymous
// allows it. Only commands that open this listener call it.
func (c Config) CheckExposed() error { return c.Front.CheckExposed(c.Auth.IsRequired()) }
