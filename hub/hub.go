// Package hub is the MCP door. It has one route today, the gateway to a named server:
// POST /api/mcp-gateway/{server}/rpc takes one JSON-RPC message and gives one back, with every
// long string of the result cut to fit and kept to be read back.
//
// Path through the files: hub.go builds the table of servers and the routes, relay.go ★ is the
// straight line of one call, policy.go says how a tool's strings are cut, errors.go is what a
// failure looks like on this wire.
//
// Invariants: a request is read once, strictly, and forwarded as the bytes that came; of a reply
// only the strings that were cut, and an id that the server spelled differently, change.
// Every failure is a JSON-RPC error that carries the request's id.
package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/upstream"
)

// Config is what the door does with what passes it.
type Config struct {
	// How deep a message may be nested. Default 128; at most 1024.
	MaxDepth int `key:"max_depth" min:"8" max:"1024"`

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

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		MaxDepth: 128,
		Naming:   Naming{Separator: "::", Prefix: "always"},
		Masking:  recall.DefaultPolicy(),
	}
}

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	if c.MaxDepth < 8 || c.MaxDepth > jsonscan.MaxDepth {
		problems = append(problems, fmt.Errorf("max_depth: must be between 8 and %d", jsonscan.MaxDepth))
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

// caller is a server that can be called.
type caller interface {
	Call(ctx context.Context, body []byte) ([]byte, error)
	Notify(ctx context.Context, body []byte) error
}

// Hub is the door and the servers behind it.
type Hub struct {
	cfg     Config
	http    front.HTTP
	rules   rules
	servers map[string]caller
	recall  *recall.Recall
	meter   *meter.Meter
}

// Deps is what a Hub is made of.
type Deps struct {
	HTTP      front.HTTP
	Upstream  upstream.Config
	Transport http.RoundTripper
	Recall    *recall.Recall
	Meter     *meter.Meter
}

// New builds the door from a valid configuration.
func New(cfg Config, d Deps) *Hub {
	h := &Hub{
		cfg: cfg, http: d.HTTP, rules: compile(cfg), servers: map[string]caller{},
		recall: d.Recall, meter: d.Meter,
	}
	for _, s := range d.Upstream.Servers {
		d.Meter.Server(s.ID)
		if s.RPC == "" {
			h.servers[s.ID] = notYet{}
			continue
		}
		h.servers[s.ID] = upstream.NewRPC(s, d.Upstream, d.Transport)
	}
	return h
}

// Routes mounts the door.
func (h *Hub) Routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/mcp-gateway/{server}/rpc", h.serveRPC)
	mux.HandleFunc("/api/mcp-gateway/{server}/rpc", notPOST)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		Refuse(w, r, fault.New(fault.NotFound, "there is nothing at this path"))
	})
}

// notYet stands for the kinds of server that this version cannot reach.
type notYet struct{}

var errNotYet = fault.New(fault.Unavailable, "this version reaches only servers with an rpc address")

func (notYet) Call(context.Context, []byte) ([]byte, error) { return nil, errNotYet }
func (notYet) Notify(context.Context, []byte) error         { return errNotYet }
