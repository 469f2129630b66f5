package upstream

import (
	"testing"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// fullEntry is an entry with all fields set.
func fullEntry() ServerConfig {
	s := ServerConfig{
		ID: "a", Command: []string{"sh", "-c", "exec x y"}, URL: "http://h/mcp", RPC: "http://h",
		Env:     map[string]secret.Text{"A": secret.Literal("1"), "B": secret.Literal("2")},
		Headers: map[string]secret.Text{"Authorization": secret.Literal("Bearer t")},
	}
	s.SetDefaults()
	s.OAuth.ClientID, s.OAuth.ClientSecret, s.OAuth.Scopes = "id", secret.Literal("s"), []string{"read", "write"}
	return s
}

// A15: a reload keeps exactly the servers whose entries are unchanged. A changed secret, which does not print, makes another
// server; a changed prefix does not.
func TestIsSameConfig(t *testing.T) {
	for name, tt := range map[string]struct {
		options func(*Config, *ServerConfig)
		same    bool
	}{
		"unchanged":        {func(*Config, *ServerConfig) {}, true},
		"prefix":           {func(_ *Config, s *ServerConfig) { s.Prefix = "never" }, true},
		"other servers":    {func(c *Config, _ *ServerConfig) { c.Servers = []ServerConfig{{ID: "b"}} }, true},
		"id":               {func(_ *Config, s *ServerConfig) { s.ID = "b" }, false},
		"command":          {func(_ *Config, s *ServerConfig) { s.Command = []string{"sh", "-c", "exec y"} }, false},
		"command split":    {func(_ *Config, s *ServerConfig) { s.Command = []string{"sh", "-c", "exec", "x y"} }, false},
		"command joined":   {func(_ *Config, s *ServerConfig) { s.Command = []string{"sh -c", "exec x y"} }, false},
		"env value":        {func(_ *Config, s *ServerConfig) { s.Env["A"] = secret.Literal("2") }, false},
		"env name":         {func(_ *Config, s *ServerConfig) { s.Env["C"] = secret.Literal("3") }, false},
		"env gone":         {func(_ *Config, s *ServerConfig) { delete(s.Env, "A") }, false},
		"env none":         {func(_ *Config, s *ServerConfig) { s.Env = nil }, false},
		"env in one":       {func(_ *Config, s *ServerConfig) { s.Env = map[string]secret.Text{"A": secret.Literal("1 B:2")} }, false},
		"header value":     {func(_ *Config, s *ServerConfig) { s.Headers["Authorization"] = secret.Literal("Bearer u") }, false},
		"url":              {func(_ *Config, s *ServerConfig) { s.URL += "/" }, false},
		"rpc":              {func(_ *Config, s *ServerConfig) { s.RPC += "/" }, false},
		"transport":        {func(_ *Config, s *ServerConfig) { s.Transport = "sse" }, false},
		"shared":           {func(_ *Config, s *ServerConfig) { s.Shared = new(bool) }, false},
		"startup timeout":  {func(_ *Config, s *ServerConfig) { s.StartupTimeout++ }, false},
		"shutdown grace":   {func(_ *Config, s *ServerConfig) { s.ShutdownGrace++ }, false},
		"client secret":    {func(_ *Config, s *ServerConfig) { s.OAuth.ClientSecret = secret.Literal("t") }, false},
		"scopes":           {func(_ *Config, s *ServerConfig) { s.OAuth.Scopes = []string{"read write"} }, false},
		"response timeout": {func(c *Config, _ *ServerConfig) { c.ResponseTimeout++ }, false},
		"probes":           {func(c *Config, _ *ServerConfig) { c.HealthcheckInterval = 0 }, false},
		"reply size":       {func(c *Config, _ *ServerConfig) { c.MaxReplyBytes++ }, false},
		"max client conns": {func(c *Config, _ *ServerConfig) { c.MaxClientConns++ }, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := NewServer(fullEntry(), Default(), Deps{})
			cfg, entry := Default(), fullEntry()
			tt.options(&cfg, &entry)
			checkEqual(t, "same", server.IsSameConfig(entry, cfg), tt.same)
		})
	}
}
