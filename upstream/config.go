package upstream

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/internal/glob"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/oauth"
)

// Config is the table of servers and what holds for all of them.
type Config struct {
	// How often each server is probed; a duration. Default 30s. 0 turns probes off.
	HealthcheckInterval unit.Duration `key:"healthcheck_interval"`

	// How long a probe may take; a duration. Default 5s.
	HealthcheckTimeout unit.Duration `key:"healthcheck_timeout"`

	// How long a server may take to answer a call; a duration. Default 30s. Must be positive.
	ResponseTimeout unit.Duration `key:"response_timeout"`

	// The largest reply a server may send; a size. A larger reply makes the call fail. Default 128MiB.
	// Must be positive.
	MaxReplyBytes unit.Bytes `key:"max_reply_bytes"`

	// How long a server's lists are cached if the server does not say; a duration. When a server notifies
	// of a change, its lists are read again at once. Default 5m.
	ListTTL unit.Duration `key:"list_ttl"`

	// The largest size of one server's lists (tools, prompts, resources, templates) together; a size.
	// Larger lists are left out. Default 8MiB. Must be positive.
	MaxListBytes unit.Bytes `key:"max_list_bytes"`

	// How long a connection or child process that serves a single client stays open while that client does
	// not use it; a duration. Until then no other client can take its slot. Default 10m. Must be positive.
	IdleTimeout unit.Duration `key:"client_idle_timeout"`

	// The most connections or child processes of one server that each serve a single client. One caller (a
	// token at an address) may have half of them. When all are in use, further clients are rejected until
	// one has been idle for client_idle_timeout. Default 64.
	MaxClientConns int `key:"max_client_connections" min:"1"`

	// The most connections or child processes of one server that carry credentials of their own, of tenants or of callers (see
	// servers.credentials). One tenant may have half of them. When there are more, the one that was idle longest is closed;
	// when all are in use, further callers are rejected. Default 256.
	MaxCredentialConns int `key:"max_credential_connections" min:"1"`

	// The MCP servers. Each has an id and one of command, url and rpc.
	Servers []ServerConfig `key:"servers"`
}

// ServerConfig is one entry of the server table.
type ServerConfig struct {
	// The server's name in paths and in tool names: letters, digits, dot, dash and underscore, at most 64
	// characters.
	ID string `key:"id"`

	// The command of a server on stdin and stdout, with its arguments. ctxgate starts it as a child
	// process and restarts it when it exits. "${env:NAME}" and "${file:PATH}" in it are replaced. A
	// program with a slash in its name is relative to the config file, any other is searched in PATH. "~",
	// "$HOME" and "${HOME}" are replaced at the start of the program and of each argument, and at the
	// start of the value in --option=value, if a slash, a colon (not after "~") or the end follows; relative
	// paths in arguments are the program's business: see cwd.
	Command []string `key:"command"`

	// Environment variables for the child process, in addition to a small safe set of the gateway's own;
	// "env:NAME", "file:PATH" and "…${NAME}…" work, and "~/…" and "$HOME/…" at the start.
	Env map[string]secret.Text `key:"env" literal:"ok"`

	// The directory in which the child process runs. "~", "$HOME" and a path relative to the config file
	// work. Default empty: the gateway's own.
	Cwd string `key:"cwd"`

	// How long the child process may take to start; a duration. Default 20s.
	StartupTimeout unit.Duration `key:"startup_timeout"`

	// How long the first start may take if the command fetches the server before it runs it: npx, bunx,
	// pnpm dlx, uvx, pipx run, docker run and the like, also behind env, cmd /c or sh -c. Once the
	// server has been up, startup_timeout holds. A duration; default 5m, at most 1h; 0 means that
	// startup_timeout holds from the beginning.
	InstallTimeout unit.Duration `key:"install_timeout" min:"0s" max:"1h"`

	// How long the child process may take to stop before it is killed; a duration. Default 3s.
	ShutdownGrace unit.Duration `key:"shutdown_grace"`

	// The URL of an MCP server over HTTP. Write a key in it as a reference:
	// "https://host/mcp?key=env:NAME", "https://host/${NAME}/mcp", "…?key=file:PATH", or "env:NAME" for
	// the whole URL; values in the path or query are escaped.
	URL secret.URL `key:"url"`

	// The transport of a server with a url: "http" (Streamable HTTP) or "sse" (the older HTTP+SSE).
	// Default "http".
	Transport string `key:"transport" oneof:"http,sse"`

	// Headers sent with every request to a url or rpc server; "env:NAME", "file:PATH", "Bearer env:NAME"
	// and "Bearer ${NAME}" work. Credentials must be written as such references.
	Headers map[string]secret.Text `key:"headers" literal:"ok"`

	// Whose credentials the server sees. "shared": headers and env are everybody's, and an OAuth authorization, which an operator
	// gives, is used for all callers of a tenant; each tenant has its own. "caller": every caller authorizes the gateway with its own
	// account; the reply to its first call has the address to open. Callers never share a connection that carries credentials of
	// one of them. Default "shared".
	Credentials string `key:"credentials" oneof:"shared,caller"`

	// Headers and variables that differ by tenant or caller. The first entry that matches decides, and what it says goes over
	// headers and env. A caller that no entry matches may not use the server: add a last entry without keys for everybody else.
	CredentialsFor []CredentialRule `key:"credentials_for"`

	// Exchange the access token of the caller, which its identity provider issued for this gateway, for one that the server accepts
	// (RFC 8693). The caller's own token is never sent to a server. Callers without such a token may not use the server.
	TokenExchange oauth.Exchange `key:"token_exchange"`

	// OAuth for a server with a url that requires it. For whom one authorization is used: see credentials.
	OAuth oauth.Config `key:"oauth"`

	// The base URL of a server with plain JSON-RPC over HTTP: requests are POSTed to <rpc>/rpc. References
	// work as in url.
	RPC secret.URL `key:"rpc"`

	// Who uses the server's child process. true: all clients share one, and the server cannot send requests to
	// clients (sampling, elicitation, roots). false: every client session has its own, for servers that keep what one
	// client works on, such as a browser's page. Not set: all clients share one until the server sends a
	// request to a client; from then on the clients that can answer such requests have their own. For servers
	// that are known to drive a browser (Playwright, Puppeteer, Chrome DevTools) the default is false.
	Shared *bool `key:"shared"`

	// On how many replicas of the gateway the server's child process runs: "all", or "one", for a server that must not run
	// twice because it keeps state or a lock. The other replicas send their calls to the one that runs it, and when
	// that stops, another starts it; a replica that cannot reach the store stops it. "one" needs replicas.listen where
	// the store is shared, implies shared = true, and cannot be combined with credentials of tenants or callers.
	// Without replicas it means nothing. Default "all".
	Replicas string `key:"replicas" oneof:"all,one"`

	// Keep the entry, but do not start or offer the server. Its references to secrets need not resolve.
	// Default false.
	Disabled bool `key:"disabled"`

	// The tools that are offered, by the server's own names, with * for any characters. Other tools are
	// neither listed nor called. Default empty: all.
	EnabledTools []string `key:"enabled_tools"`

	// The tools that are not offered, written as in enabled_tools. A tool that both lists match is not
	// offered.
	DisabledTools []string `key:"disabled_tools"`

	// Overrides response_timeout for this server; a duration. Default 0: response_timeout.
	ResponseTimeout unit.Duration `key:"response_timeout" min:"0s"`

	// Fault is why the server cannot be started, such as a missing secret; "" if it can. It is not a key.
	Fault string

	// Overrides naming.prefix for this server. Default empty: naming.prefix.
	Prefix string `key:"prefix" oneof:"always,auto,never"`
}

// CredentialRule is what the server gets for some of the callers.
type CredentialRule struct {
	// The tenant of the callers; "*" for any. Default "*".
	Tenant string `key:"tenant"`

	// The subject of the callers; "*" for any. Default "*".
	Subject string `key:"subject"`

	// Who vouches for the subject: the issuer of the identity provider; "*" for anybody. Default empty: this configuration does (its
	// tokens, keys and certificates) or, where subject is "*", anybody.
	Issuer string `key:"issuer"`

	// Headers for a server with a url or rpc, as in headers.
	Headers map[string]secret.Text `key:"headers" literal:"ok"`

	// Environment variables for a server with a command, as in env.
	Env map[string]secret.Text `key:"env" literal:"ok"`
}

// SetDefaults sets the defaults of an entry.
func (r *CredentialRule) SetDefaults() { r.Tenant, r.Subject = "*", "*" }

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		HealthcheckInterval: unit.Duration(30 * time.Second),
		HealthcheckTimeout:  unit.Duration(5 * time.Second),
		ResponseTimeout:     unit.Duration(30 * time.Second),
		MaxReplyBytes:       128 << 20,
		ListTTL:             unit.Duration(5 * time.Minute),
		MaxListBytes:        8 << 20,
		IdleTimeout:         unit.Duration(10 * time.Minute),
		MaxClientConns:      64,
		MaxCredentialConns:  256,
	}
}

// SetDefaults sets the defaults of an entry.
func (s *ServerConfig) SetDefaults() {
	s.StartupTimeout = unit.Duration(20 * time.Second)
	s.InstallTimeout = unit.Duration(5 * time.Minute)
	s.ShutdownGrace = unit.Duration(3 * time.Second)
	s.Transport = "http"
	s.Credentials = "shared"
	s.Replicas = "all"
}

// Validate lists every problem; each text starts with its key.
func (c Config) Validate() []error {
	var problems []error
	for _, setting := range []struct {
		key        string
		isPositive bool
	}{
		{"response_timeout", c.ResponseTimeout > 0},
		{"max_reply_bytes", c.MaxReplyBytes > 0},
		{"max_list_bytes", c.MaxListBytes > 0},
		{"healthcheck_timeout", c.HealthcheckTimeout > 0 || c.HealthcheckInterval <= 0},
		{"client_idle_timeout", c.IdleTimeout > 0},
		{"max_client_connections", c.MaxClientConns > 0},
		{"max_credential_connections", c.MaxCredentialConns > 0},
	} {
		if !setting.isPositive {
			problems = append(problems, fmt.Errorf("%s: must be positive", setting.key))
		}
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

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (s ServerConfig) validate() []error {
	var problems []error
	if !validID.MatchString(s.ID) {
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
		sample := u.value.Sample() // empty if the whole URL is a reference
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
	problems = append(problems, s.validateCredentials()...)
	if s.Cwd != "" && (len(s.Command) == 0 || !filepath.IsAbs(s.Cwd)) {
		problems = append(problems, errors.New("cwd: must be an absolute path, of a server with a command"))
	}
	if s.RunsOnOne() {
		switch {
		case len(s.Command) == 0:
			problems = append(problems, errors.New("replicas: only a server with a command runs here"))
		case s.Shared != nil && !*s.Shared:
			problems = append(problems, errors.New(`replicas: "one" means one process for all clients: remove shared = false`))
		case s.needsCredential() || len(s.CredentialsFor) > 0:
			problems = append(problems, errors.New(`replicas: "one" means one process, which cannot have credentials of several tenants or callers`))
		}
	}
	if kinds != 1 {
		problems = append(problems, errors.New("id: one of command, url and rpc is needed, and only one"))
	}
	return problems
}

// RunsOnOne reports whether the server runs on one replica only.
func (s ServerConfig) RunsOnOne() bool { return s.Replicas == "one" }

// responseTimeout is how long the server may take to answer a call.
func (s ServerConfig) responseTimeout(common Config) time.Duration {
	return cmp.Or(s.ResponseTimeout, common.ResponseTimeout).D()
}

// OffersTool reports whether enabled_tools and disabled_tools let clients see and call a tool.
func (s ServerConfig) OffersTool(name string) bool {
	matches := func(pattern string) bool { return glob.New(pattern).Match(name) }
	return (len(s.EnabledTools) == 0 || slices.ContainsFunc(s.EnabledTools, matches)) && !slices.ContainsFunc(s.DisabledTools, matches)
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
