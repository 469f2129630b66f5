package hub

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ctxgate/ctxgate/clients"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
)

// Config configures the MCP endpoint.
type Config struct {
	// How deep a JSON message may be nested. Default 128; at most 1024.
	MaxDepth int `key:"max_depth" min:"8" max:"1024"`

	// The most items on a page of a list. Default 1000.
	PageSize int `key:"page_size" min:"1"`

	// How long a list waits for servers that are starting for the first time; a duration. Servers that are
	// not up by then appear in a later list, and clients are notified. Default 10s.
	ListWait unit.Duration `key:"list_wait"`

	// How long the session of a legacy client (revisions up to 2025-11-25) is valid; a duration. Default
	// 24h. Must be positive.
	SessionTTL unit.Duration `key:"session_ttl"`

	// The most sessions of legacy clients, and the most streams of modern clients, at once. One caller (a
	// token at an address) may have half of them; where there are several tenants, all callers of one
	// together. Beyond the limit, the least recently used session that
	// is not in use (by a request, an open stream or a subscription) is evicted. Its id stays valid, but
	// its queued messages, its log level and the list of servers it has called are lost. Default 10000.
	MaxSessions int `key:"max_sessions" min:"1"`

	// How long a server may wait for a client's answer to its request; a duration. Default 10m. Must be
	// positive.
	AskTimeout unit.Duration `key:"ask_timeout"`

	// Which servers get which notifications of clients. A notification that no entry matches goes to all
	// servers.
	Notifications []NotificationRoute `key:"notifications"`

	// How the names of aggregated tools, prompts and resources are made.
	Naming catalog.Naming `key:"naming"`

	// Keep to what the calling client would cut by itself, for good: a tool result is cut, recoverably, just
	// below that limit, long descriptions of tools and long instructions end with a marker that names how
	// to read the rest, and long names of tools are shortened. The client is the one that its entry names
	// (ctxgate stdio --client, ?client= in a URL), else the one that its clientInfo names; docs/clients.md
	// lists the limits. Default false: only limits in [clients] apply; with profile = "agents", true.
	FitClients bool `key:"fit_clients"`

	// The most characters (UTF-16 code units) of the instructions that a client gets: those of all servers,
	// joined in the order of the configuration. Each server has an equal share, and what it does not need is
	// for the others; what is cut is stored, and a marker names how to read it. A client that cuts earlier
	// has its own limit. Default 16384; 0 for no limit.
	MaxInstructionsChars int `key:"max_instructions_chars" min:"0"`

	// Limits of single clients, by their ids (claude-code, codex, cursor, ..., or an id of your own), in
	// place of the known ones: [clients.codex] with max_result_bytes = 40000.
	Clients map[string]clients.Override `key:"clients"`

	// How long strings in results are cut.
	Masking recall.Policy `key:"masking"`

	// Exceptions for some servers and tools. The first entry that matches a call applies.
	Policies []Policy `key:"policies"`
}

// NotificationRoute sends a kind of notification to some servers only.
type NotificationRoute struct {
	// The notifications that the entry is for: a method, with * for any characters.
	Method string `key:"method"`

	// The ids of the servers that get them.
	Servers []string `key:"servers"`
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		MaxDepth:    128,
		PageSize:    1000,
		ListWait:    unit.Duration(10 * time.Second),
		SessionTTL:  unit.Duration(24 * time.Hour),
		MaxSessions: 10_000,
		AskTimeout:  unit.Duration(10 * time.Minute),

		MaxInstructionsChars: 16 << 10,

		Naming:  catalog.Naming{Separator: "::", Prefix: "always"},
		Masking: recall.DefaultPolicy(),
	}
}

// MaxSessionsPerCaller is how many sessions, or streams, one caller may have.
func (c Config) MaxSessionsPerCaller() int { return (c.MaxSessions + 1) / 2 }

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	if c.MaxDepth < 8 || c.MaxDepth > jsonscan.MaxDepth {
		problems = append(problems, fmt.Errorf("max_depth: must be between 8 and %d", jsonscan.MaxDepth))
	}
	if c.PageSize < 1 {
		problems = append(problems, errors.New("page_size: must be positive"))
	}
	if c.MaxSessions < 1 {
		problems = append(problems, errors.New("max_sessions: must be positive"))
	}
	if c.SessionTTL <= 0 {
		problems = append(problems, errors.New("session_ttl: must be positive"))
	}
	if c.AskTimeout <= 0 {
		problems = append(problems, errors.New("ask_timeout: must be positive"))
	}
	if c.MaxInstructionsChars < 0 {
		problems = append(problems, errors.New("max_instructions_chars: must not be negative"))
	}
	if c.Naming.Separator == "" {
		problems = append(problems, errors.New("naming.separator: must not be empty"))
	}
	for _, id := range slices.Sorted(maps.Keys(c.Clients)) {
		for _, err := range c.Clients[id].Validate() {
			problems = append(problems, fmt.Errorf("clients.%s.%w", id, err))
		}
	}
	for _, err := range c.Masking.Validate() {
		problems = append(problems, fmt.Errorf("masking.%w", err))
	}
	for i, p := range c.Policies {
		for _, err := range p.validateOver(c.Masking) {
			problems = append(problems, fmt.Errorf("policies[%d].%w", i, err))
		}
	}
	return problems
}
