package upstream

import (
	"testing"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// sample is an entry that says something everywhere.
func sample() Server {
	s := Server{
		ID: "a", Command: []string{"sh", "-c", "exec x y"}, URL: "http://h/mcp", RPC: "http://h",
		Env:     map[string]secret.Text{"A": secret.Literal("1"), "B": secret.Literal("2")},
		Headers: map[string]secret.Text{"Authorization": secret.Literal("Bearer t")},
	}
	s.SetDefaults()
	s.OAuth.ClientID, s.OAuth.ClientSecret, s.OAuth.Scopes = "id", secret.Literal("s"), []string{"read", "write"}
	return s
}

// A15: a reload keeps the servers whose entries say what they said, and no other: a secret that has
// changed, which prints as nothing, makes another server. How its tools are named does not.
func TestSame(t *testing.T) {
	for name, tt := range map[string]struct {
		mend func(*Config, *Server)
		same bool
	}{
		"unchanged":        {func(*Config, *Server) {}, true},
		"prefix":           {func(_ *Config, s *Server) { s.Prefix = "never" }, true},
		"other servers":    {func(c *Config, _ *Server) { c.Servers = []Server{{ID: "b"}} }, true},
		"id":               {func(_ *Config, s *Server) { s.ID = "b" }, false},
		"command":          {func(_ *Config, s *Server) { s.Command = []string{"sh", "-c", "exec y"} }, false},
		"command split":    {func(_ *Config, s *Server) { s.Command = []string{"sh", "-c", "exec", "x y"} }, false},
		"command joined":   {func(_ *Config, s *Server) { s.Command = []string{"sh -c", "exec x y"} }, false},
		"env value":        {func(_ *Config, s *Server) { s.Env["A"] = secret.Literal("2") }, false},
		"env name":         {func(_ *Config, s *Server) { s.Env["C"] = secret.Literal("3") }, false},
		"env gone":         {func(_ *Config, s *Server) { delete(s.Env, "A") }, false},
		"env none":         {func(_ *Config, s *Server) { s.Env = nil }, false},
		"env in one":       {func(_ *Config, s *Server) { s.Env = map[string]secret.Text{"A": secret.Literal("1 B:2")} }, false},
		"header value":     {func(_ *Config, s *Server) { s.Headers["Authorization"] = secret.Literal("Bearer u") }, false},
		"url":              {func(_ *Config, s *Server) { s.URL += "/" }, false},
		"rpc":              {func(_ *Config, s *Server) { s.RPC += "/" }, false},
		"transport":        {func(_ *Config, s *Server) { s.Transport = "sse" }, false},
		"shared":           {func(_ *Config, s *Server) { s.Shared = true }, false},
		"startup timeout":  {func(_ *Config, s *Server) { s.StartupTimeout++ }, false},
		"shutdown grace":   {func(_ *Config, s *Server) { s.ShutdownGrace++ }, false},
		"client secret":    {func(_ *Config, s *Server) { s.OAuth.ClientSecret = secret.Literal("t") }, false},
		"scopes":           {func(_ *Config, s *Server) { s.OAuth.Scopes = []string{"read write"} }, false},
		"response timeout": {func(c *Config, _ *Server) { c.ResponseTimeout++ }, false},
		"probes":           {func(c *Config, _ *Server) { c.HealthcheckInterval = 0 }, false},
		"reply size":       {func(c *Config, _ *Server) { c.MaxReplyBytes++ }, false},
		"lanes":            {func(c *Config, _ *Server) { c.MaxLanes++ }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRemote(sample(), Default(), Deps{})
			cfg, entry := Default(), sample()
			tt.mend(&cfg, &entry)
			want(t, "same", r.Same(entry, cfg), tt.same)
		})
	}
}
