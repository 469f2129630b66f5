package hub

import (
	"errors"
	"fmt"
	"time"

	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
)

// Config is what the door does with what passes it.
type Config struct {
	// How deep a message may be nested. Default 128; at most 1024.
	MaxDepth int `key:"max_depth" min:"8" max:"1024"`

	// The most things a page of a list holds. Default 1000.
	PageSize int `key:"page_size" min:"1"`

	// The longest a list waits for servers that are starting for the first time; a duration.
	// Those that are not there by then come with a later list, and clients are told. Default 10s.
	ListWait unit.Duration `key:"list_wait"`

	// How long a session of an older client lives; a duration. Default 24h. Zero is refused.
	SessionTTL unit.Duration `key:"session_ttl"`

	// The most sessions of older clients that are held at once, and the most streams of newer
	// ones. One caller (a token at an address) may have half of them. Where there are too many, the
	// session that was used longest ago is let go, unless it is in use (a request, an open stream, a
	// subscription); its id stays good, but what waited for it, its log level and which servers it has
	// called are forgotten. Default 10000.
	MaxSessions int `key:"max_sessions" min:"1"`

	// The longest a server may wait for a client's answer to its question; a duration. Default
	// 10m. Zero is refused.
	AskTimeout unit.Duration `key:"ask_timeout"`

	// Which servers get which notifications of clients. What no entry names goes to all.
	Notifications []Route `key:"notifications"`

	// How aggregated names are made.
	Naming Naming `key:"naming"`

	// How long strings of results are cut.
	Masking recall.Policy `key:"masking"`

	// Other rules for some servers and tools. The first one that fits a call holds.
	Policies []Policy `key:"policies"`
}

// Naming says how tools, prompts and resources of many servers share one name space.
type Naming struct {
	// What stands between a server's id and a name. Default "::".
	Separator string `key:"separator"`

	// When names carry their server's id: "always", "auto" (only where two would collide) or
	// "never". Default "always".
	Prefix string `key:"prefix" oneof:"always,auto,never"`
}

// Route sends a kind of notification to some servers only.
type Route struct {
	// The notifications it is for: a method, with * for any run of characters.
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
		Naming:      Naming{Separator: "::", Prefix: "always"},
		Masking:     recall.DefaultPolicy(),
	}
}

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
	if c.Naming.Separator == "" {
		problems = append(problems, errors.New("naming.separator: must not be empty"))
	}
	for _, err := range c.Masking.Validate() {
		problems = append(problems, fmt.Errorf("masking.%w", err))
	}
	for i, p := range c.Policies {
		for _, err := range p.validate(c.Masking) {
			problems = append(problems, fmt.Errorf("policies[%d].%w", i, err))
		}
	}
	return problems
}
