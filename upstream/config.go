package upstream

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/grant"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// Config is the table of servers and what holds for all of them.
type Config struct {
	// How often each server is probed; a duration. Default 30s. 0 turns probes off.
	HealthcheckInterval unit.Duration `key:"healthcheck_interval"`

	// The longest a probe may take; a duration. Default 5s.
	HealthcheckTimeout unit.Duration `key:"healthcheck_timeout"`

	// The longest a server may take to answer a call; a duration. Default 30s. Zero is refused.
	ResponseTimeout unit.Duration `key:"response_timeout"`

	// The largest reply a server may send; a size. A larger one is an error of that call.
	// Default 128MiB. Zero is refused.
	MaxReplyBytes unit.Bytes `key:"max_reply_bytes"`

	// How long a server's lists are believed before they are read again, where the server does
	// not say; a duration. A server that tells of changes is read again at once. Default 5m.
	ListTTL unit.Duration `key:"list_ttl"`

	// The most bytes that the lists of one server (tools, prompts, resources, templates) may have
	// together; a size. A server with more is served without them. Default 8MiB. Zero is refused.
	MaxListBytes unit.Bytes `key:"max_list_bytes"`

	// How long a connection or a program that serves one client alone is kept when that client
	// does not use it; a duration. Within it, no other client takes its place. Default 10m. Zero
	// is refused.
	IdleTimeout unit.Duration `key:"client_idle_timeout"`

	// The most connections or programs of one server that serve one client alone. One caller (a
	// token at an address) may have half of them. A client for which there is none left is refused
	// until another has not used its own for client_idle_timeout. Default 64.
	MaxLanes int `key:"max_client_connections" min:"1"`

	// The servers behind the gateway. Each has an id and one of command, url and rpc.
	Servers []Server `key:"servers"`
}

// Server is one entry of the server table.
type Server struct {
	// The name in paths and in tool names: letters, digits, dot, dash and underscore, at most 64.
	ID string `key:"id"`

	// A program that speaks MCP on stdin and stdout, with its arguments.
	Command []string `key:"command"`

	// Environment variables for the program, besides a small safe set of the gateway's own;
	// "env:NAME", "file:PATH" and "…${NAME}…" work.
	Env map[string]secret.Text `key:"env" literal:"ok"`

	// The longest the program may take to start; a duration. Default 20s.
	StartupTimeout unit.Duration `key:"startup_timeout"`

	// How long the program may take to stop before it is killed; a duration. Default 3s.
	ShutdownGrace unit.Duration `key:"shutdown_grace"`

	// The URL of a server that speaks MCP over HTTP. A key in it is written as a reference:
	// "https://host/mcp?key=env:NAME", "https://host/${NAME}/mcp", "…?key=file:PATH", or "env:NAME" for
	// all of it; what stands in its path or query is escaped.
	URL secret.URL `key:"url"`

	// How a server with a url speaks: "http" (Streamable HTTP) or "sse" (the older HTTP+SSE).
	// Default "http".
	Transport string `key:"transport" oneof:"http,sse"`

	// Headers sent with every request to a url or rpc server; "env:NAME", "file:PATH",
	// "Bearer env:NAME" and "Bearer ${NAME}" work, and a credential must be written so.
	Headers map[string]secret.Text `key:"headers" literal:"ok"`

	// How a server with a url is authorized that wants OAuth. What one user has granted is used
	// for every client of the gateway.
	OAuth grant.Config `key:"oauth"`

	// The base URL of a server that speaks plain JSON-RPC: requests are POSTed to <rpc>/rpc.
	// References work as in url.
	RPC secret.URL `key:"rpc"`

	// Never start a program or a session for one client alone: all clients share one, and the
	// server cannot ask its clients anything (sampling, elicitation, roots). Default false.
	Shared bool `key:"shared"`

	// Overrides naming.prefix for this server. Default empty: as naming says.
	Prefix string `key:"prefix" oneof:"always,auto,never"`
}

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		HealthcheckInterval: unit.Duration(30 * time.Second),
		HealthcheckTimeout:  unit.Duration(5 * time.Second),
		ResponseTimeout:     unit.Duration(30 * time.Second),
		MaxReplyBytes:       128 << 20,
		ListTTL:             unit.Duration(5 * time.Minute),
		MaxListBytes:        8 << 20,
		IdleTimeout:         unit.Duration(10 * time.Minute),
		MaxLanes:            64,
	}
}

// SetDefaults fills what an entry does not say.
func (s *Server) SetDefaults() {
	s.StartupTimeout = unit.Duration(20 * time.Second)
	s.ShutdownGrace = unit.Duration(3 * time.Second)
	s.Transport = "http"
}

// Validate lists every problem; each text begins with the key it is about.
func (c Config) Validate() []error {
	var problems []error
	if c.ResponseTimeout <= 0 {
		problems = append(problems, errors.New("response_timeout: must be positive"))
	}
	if c.MaxReplyBytes <= 0 {
		problems = append(problems, errors.New("max_reply_bytes: must be positive"))
	}
	if c.MaxListBytes <= 0 {
		problems = append(problems, errors.New("max_list_bytes: must be positive"))
	}
	if c.HealthcheckInterval > 0 && c.HealthcheckTimeout <= 0 {
		problems = append(problems, errors.New("healthcheck_timeout: must be positive"))
	}
	if c.IdleTimeout <= 0 {
		problems = append(problems, errors.New("client_idle_timeout: must be positive"))
	}
	if c.MaxLanes <= 0 {
		problems = append(problems, errors.New("max_client_connections: must be positive"))
	}
	seen := map[string]int{}
	for i, s := range c.Servers {
		at := fmt.Sprintf("servers[%d]", i)
		if first, dup := seen[s.ID]; dup && s.ID != "" {
			problems = append(problems, fmt.Errorf("%s.id: %q is the id of servers[%d] too", at, s.ID, first))
		}
		seen[s.ID] = i
		for _, err := range s.validate() {
			problems = append(problems, fmt.Errorf("%s.%w", at, err))
		}
	}
	return problems
}

var goodID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (s Server) validate() []error {
	var problems []error
	if !goodID.MatchString(s.ID) {
		problems = append(problems, fmt.Errorf("id: %q must be 1 to 64 letters, digits, dots, dashes or underscores", s.ID))
	}
	kinds := 0
	if len(s.Command) > 0 {
		kinds++
		if s.Command[0] == "" {
			problems = append(problems, errors.New("command: the program's name is empty"))
		}
	}
	for _, u := range []struct {
		key   string
		value secret.URL
	}{{"url", s.URL}, {"rpc", s.RPC}} {
		if u.value == "" {
			continue
		}
		kinds++
		sample := u.value.Sample() // which says nothing of a URL that is a reference as a whole
		if err := checkURL(sample); err != nil && sample != "" {
			problems = append(problems, fmt.Errorf("%s: %w", u.key, err))
		} else if u.key == "rpc" && strings.Contains(sample, "?") {
			problems = append(problems, errors.New("rpc: a query has no meaning here: /rpc is put after it"))
		}
	}
	if s.URL == "" && s.OAuth.IsSet() {
		problems = append(problems, errors.New("oauth: only a server with a url can be authorized"))
	}
	for _, err := range s.OAuth.Validate() {
		problems = append(problems, fmt.Errorf("oauth.%w", err))
	}
	if kinds != 1 {
		problems = append(problems, errors.New("id: one of command, url and rpc is needed, and only one"))
	}
	return problems
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "":
		return errors.New("is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("scheme %q is not http or https", u.Scheme)
	case u.User != nil:
		return errors.New("credentials do not belong in a URL: use headers")
	case strings.Contains(s, "#"):
		return errors.New("a fragment has no meaning here")
	}
	return nil
}
