package upstream_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/oauth"
	"github.com/ctxgate/ctxgate/upstream"
)

func callerOf(tenant, issuer, subject string) upstream.Caller {
	return upstream.Caller{Client: mcp.Client{Version: mcp.V20260728, Capabilities: []byte("{}")}, Principal: oauth.Principal{Tenant: tenant, Issuer: issuer, Subject: subject}, QuotaKey: tenant + subject}
}

var (
	ann   = callerOf("acme", "", "ann")
	bob   = callerOf("acme", "", "bob")
	carol = callerOf("globex", "", "carol")
)

func texts(pairs ...string) map[string]secret.Text {
	out := map[string]secret.Text{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = secret.Literal(pairs[i+1])
	}
	return out
}

// callAs makes a call for a caller and returns the connection and the result.
func callAs(t *testing.T, s *upstream.Server, caller upstream.Caller, name string) (*upstream.ManagedConn, string) {
	t.Helper()
	conn, release, err := s.Acquire(t.Context(), caller)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	m, err := conn.Call(t.Context(), newCall(t, mcp.ToolsCall, fmt.Sprintf(`{"name":%q}`, name)))
	if err != nil {
		t.Fatal(err)
	}
	return conn, string(m.Result.Of(m.Body))
}

// Each caller's requests carry the headers of the first entry that matches it, over those of the server. Callers of one entry for
// a whole tenant share a connection; no others do. A caller that no entry matches is refused.
func TestHeadersByCaller(t *testing.T) {
	f := newModernServer(t).on(mcp.ToolsCall, respond(`{"resultType":"complete","content":[]}`))
	n := connect(t, upstream.ServerConfig{
		URL: secret.URL(f.URL), Headers: texts("X-Org", "all", "x-team", "all"),
		CredentialsFor: []upstream.CredentialRule{
			{Tenant: "acme", Subject: "ann", Headers: texts("Authorization", "Bearer ann", "X-Team", "a")},
			{Tenant: "acme", Subject: "dan", Issuer: "https://idp", Headers: texts("Authorization", "Bearer dan")},
			{Tenant: "acme", Subject: "*", Headers: texts("Authorization", "Bearer acme")},
			{Tenant: "*", Subject: "*", Issuer: "https://idp", Headers: texts("Authorization", "Bearer idp")},
		},
	}, nil)
	conns := map[string]*upstream.ManagedConn{}
	for _, tt := range []struct {
		caller upstream.Caller
		want   string // the Authorization header; "" for refused
	}{
		{ann, "Bearer ann"},
		{bob, "Bearer acme"},
		{callerOf("acme", "", "eve"), "Bearer acme"},
		{callerOf("acme", "https://idp", "ann"), "Bearer acme"}, // the subject of another issuer is another
		{callerOf("acme", "https://idp", "dan"), "Bearer dan"},
		{callerOf("acme", "", "dan"), "Bearer acme"},
		{callerOf("globex", "https://idp", "x"), "Bearer idp"},
		{callerOf("initech", "https://idp", "x"), "Bearer idp"},
		{carol, ""},
		{upstream.Caller{}, ""},
	} {
		who := fmt.Sprint(tt.caller.Principal)
		if tt.want == "" {
			if _, _, err := n.Acquire(t.Context(), tt.caller); fault.KindOf(err) != fault.Forbidden {
				t.Errorf("%s: %v", who, err)
			}
			if _, ok := n.Lookup(tt.caller); ok || n.SharedConnOf(tt.caller) != nil || !n.HasOwnCredential(tt.caller) {
				t.Errorf("%s has a connection", who)
			}
			continue
		}
		conns[who], _ = callAs(t, n.Server, tt.caller, "x")
		calls := f.requests(mcp.ToolsCall)
		head := calls[len(calls)-1].head
		if got := head.Get("Authorization"); got != tt.want || head.Get("X-Org") != "all" {
			t.Errorf("%s: %q, %v", who, got, head)
		}
		if team := head.Get("X-Team"); (team == "a") != (tt.want == "Bearer ann") || len(head.Values("X-Team")) != 1 {
			t.Errorf("%s: team %v", who, head.Values("X-Team"))
		}
		if there, ok := n.Lookup(tt.caller); !ok || there != conns[who] || !there.IsFor(tt.caller) || there.Server() != n.Server {
			t.Errorf("%s: its connection is not found again", who)
		}
	}
	if conns["{acme  bob}"] != conns["{acme  eve}"] || conns["{acme  bob}"] == conns["{acme  ann}"] || conns["{globex https://idp x}"] == conns["{initech https://idp x}"] {
		t.Error("the wrong callers share a connection")
	}
	if conns["{acme  ann}"].IsFor(bob) || conns["{acme  bob}"].IsFor(ann) || conns["{acme  bob}"].IsFor(carol) {
		t.Error("a connection is another caller's")
	}
	if n.SharedConn() != nil {
		t.Error("there is a connection without a caller")
	}
	for _, h := range f.requests(mcp.ServerDiscover) {
		if h.head.Get("Authorization") == "" {
			t.Error("a handshake without credentials")
		}
	}
	st := n.Status()
	if st.State != upstream.StatePerCaller || st.CredentialConnections != 5 {
		t.Errorf("the status is %s with %d connections", st.State, st.CredentialConnections)
	}
}

// Sessions at a legacy server are apart, too.
func TestSessionsByCaller(t *testing.T) {
	f := newLegacyServer(t).on(mcp.ToolsCall, respond(`{"content":[]}`))
	count := 0
	f.on(mcp.Initialize, func(w http.ResponseWriter, h httpRequest) {
		count++
		startSession(fmt.Sprint("s", count))(w, h)
	})
	n := connect(t, upstream.ServerConfig{URL: secret.URL(f.URL), CredentialsFor: []upstream.CredentialRule{
		{Tenant: "acme", Subject: "ann", Headers: texts("Authorization", "Bearer ann")},
		{Tenant: "acme", Subject: "bob", Headers: texts("Authorization", "Bearer bob")},
	}}, nil)
	for range 3 {
		callAs(t, n.Server, ann, "x")
		callAs(t, n.Server, bob, "x")
	}
	sessions := map[string]string{}
	for _, h := range f.requests(mcp.ToolsCall) {
		who, session := h.head.Get("Authorization"), h.head.Get("Mcp-Session-Id")
		if before := sessions[session]; session == "" || before != "" && before != who {
			t.Errorf("session %q is used by %q and %q", session, before, who)
		}
		sessions[session] = who
	}
	if len(sessions) != 2 {
		t.Errorf("the sessions are %v", sessions)
	}
}

// A child process has the environment of its tenant, and no other.
func TestEnvByTenant(t *testing.T) {
	entry := childEntry()
	entry.Env["COMMON"] = secret.Literal("c")
	entry.CredentialsFor = []upstream.CredentialRule{
		{Tenant: "acme", Subject: "*", Env: texts("API_KEY", "key of acme")},
		{Tenant: "globex", Subject: "*", Env: texts("API_KEY", "key of globex", "COMMON", "g")},
	}
	n := connect(t, entry, nil)
	if _, env := callAs(t, n.Server, ann, "environment"); !strings.Contains(env, `"API_KEY=key of acme"`) || !strings.Contains(env, `"COMMON=c"`) || strings.Contains(env, "globex") {
		t.Errorf("the child of acme has %s", env)
	}
	if _, env := callAs(t, n.Server, carol, "environment"); !strings.Contains(env, `"API_KEY=key of globex"`) || !strings.Contains(env, `"COMMON=g"`) || strings.Contains(env, "acme") {
		t.Errorf("the child of globex has %s", env)
	}
	_, first := callAs(t, n.Server, ann, "pid")
	if _, again := callAs(t, n.Server, bob, "pid"); again != first {
		t.Errorf("callers of one tenant have processes %s and %s", first, again)
	}
	if _, other := callAs(t, n.Server, carol, "pid"); other == first {
		t.Error("two tenants share a process")
	}
}

// Connections with credentials are bounded, for all and for one tenant. Idle ones make room, those in use do not, and what has been
// idle for long is closed.
func TestCredentialConnsAreBounded(t *testing.T) {
	f := newModernServer(t).on(mcp.ToolsCall, respond(`{"resultType":"complete","content":[]}`))
	n := connect(t, upstream.ServerConfig{URL: secret.URL(f.URL), Credentials: "caller", OAuth: oauth.Config{}}, func(c *upstream.Config, _ *upstream.ServerConfig) {
		c.MaxCredentialConns = 4
	})
	var releases []func()
	acquire := func(tenant, subject string) error {
		_, release, err := n.Acquire(t.Context(), callerOf(tenant, "", subject))
		if err == nil {
			releases = append(releases, release)
		}
		return err
	}
	for i, want := range []fault.Kind{0, 0, fault.Full} { // half of four
		if err := acquire("acme", fmt.Sprint(i)); (err != nil) != (want != 0) || err != nil && fault.KindOf(err) != want {
			t.Errorf("acme %d: %v", i, err)
		}
	}
	for i, want := range []fault.Kind{0, 0} {
		if err := acquire(fmt.Sprint("t", i), "x"); (err != nil) != (want != 0) {
			t.Errorf("t%d: %v", i, err)
		}
	}
	if err := acquire("t9", "x"); fault.KindOf(err) != fault.Full {
		t.Errorf("the fifth: %v", err)
	}
	if err := acquire("t0", "x"); err != nil {
		t.Errorf("one that is there: %v", err)
	}
	releases[0]()
	if err := acquire("acme", "9"); err != nil { // in the place of its own that is idle
		t.Errorf("got %v", err)
	}
	for _, release := range releases {
		release()
	}
	for i := range 20 {
		if err := acquire(fmt.Sprint("u", i), "x"); err != nil {
			t.Fatalf("u%d: %v", i, err)
		}
		releases[len(releases)-1]()
	}
	for range 500 {
		if n.Status().CredentialConnections <= 4 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d connections", n.Status().CredentialConnections)
}

// What has been idle for long is closed.
func TestIdleCredentialsAreClosed(t *testing.T) {
	f := newModernServer(t).on(mcp.ToolsCall, respond(`{"resultType":"complete","content":[]}`))
	n := connect(t, upstream.ServerConfig{URL: secret.URL(f.URL), Credentials: "caller"}, func(c *upstream.Config, _ *upstream.ServerConfig) {
		c.IdleTimeout = unit.Duration(50 * time.Millisecond)
	})
	callAs(t, n.Server, ann, "x")
	for range 500 {
		if n.Status().CredentialConnections == 0 && n.SharedConnOf(ann) == nil {
			callAs(t, n.Server, ann, "x")
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("an idle connection was not closed")
}

// Where one authorization serves a tenant, the default tenant uses the server's shared connection and each other tenant its own.
// Without OAuth all tenants share.
func TestTenantsHaveTheirOwnAuthorization(t *testing.T) {
	f := newModernServer(t).on(mcp.ToolsCall, respond(`{"resultType":"complete","content":[]}`))
	local := callerOf("default", "", "local")
	for name, tt := range map[string]struct {
		entry upstream.ServerConfig
		apart bool
	}{
		"OAuth":         {upstream.ServerConfig{}, true},
		"OAuth is off":  {upstream.ServerConfig{OAuth: oauth.Config{Disabled: true}}, false},
		"a fixed token": {upstream.ServerConfig{Headers: texts("authorization", "Bearer x")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			tt.entry.URL = secret.URL(f.URL)
			n := connect(t, tt.entry, nil)
			home, _ := callAs(t, n.Server, local, "x")
			a, _ := callAs(t, n.Server, ann, "x")
			b, _ := callAs(t, n.Server, bob, "x")
			c, _ := callAs(t, n.Server, carol, "x")
			if home != n.SharedConn() || a != b || (a != c) != tt.apart || (a != home) != tt.apart {
				t.Errorf("shared %p, default %p, acme %p %p, globex %p", n.SharedConn(), home, a, b, c)
			}
			if n.HasOwnCredential(ann) != tt.apart || n.HasOwnCredential(local) || n.SharesLists(ann) == tt.apart || n.NeedsOwnConn(ann) != tt.apart || (n.CredentialKey(ann) == "") == tt.apart {
				t.Error("the lists are shared, or not, as the connection is not")
			}
		})
	}
}

// The token of a caller is exchanged before its connection is opened, and is not sent to the server.
func TestExchangeBeforeCall(t *testing.T) {
	f := newModernServer(t).on(mcp.ToolsCall, respond(`{"resultType":"complete","content":[]}`))
	var got []string
	entry := upstream.ServerConfig{URL: secret.URL(f.URL), TokenExchange: oauth.Exchange{TokenURL: "http://127.0.0.1/token", ClientID: "c"}}
	entry.SetDefaults()
	entry.ID, entry.URL = "a", secret.URL(f.URL)
	transport := upstream.NewTransport()
	refuse := fault.New(fault.Unavailable, "no")
	s := upstream.NewServer(entry, upstream.Default(), upstream.Deps{
		Transport: transport, Events: &eventLog{}, ParseLimits: func() (int, int) { return 64, 4000 },
		Exchange: func(_ context.Context, _ *oauth.Server, token secret.Text) error {
			got = append(got, token.Reveal())
			if token.Reveal() == "bad" {
				return refuse
			}
			return nil
		},
	})
	s.Start()
	defer transport.CloseIdleConnections()
	defer s.Close()
	with := ann
	with.AccessToken = secret.Literal("inbound")
	callAs(t, s, with, "x")
	s.PrepareFor(t.Context(), with)
	bad := bob
	bad.AccessToken = secret.Literal("bad")
	if _, _, err := s.Acquire(t.Context(), bad); err != refuse { //nolint:errorlint // it is the same
		t.Errorf("got %v", err)
	}
	if !slices.Equal(got, []string{"inbound", "inbound", "bad"}) || !s.NeedsToken() {
		t.Errorf("exchanged %v", got)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.seen {
		if strings.Contains(fmt.Sprint(h.head, h.body, h.path), "inbound") {
			t.Errorf("the server got the caller's token: %v", h)
		}
	}
}

func TestCredentialConfig(t *testing.T) {
	exchange := oauth.Exchange{TokenURL: "https://as/token", ClientID: "c"}
	for want, entry := range map[string]upstream.ServerConfig{
		"":                         {URL: "https://h", Credentials: "caller"},
		" ":                        {Command: []string{"x"}, Credentials: "caller", CredentialsFor: []upstream.CredentialRule{{Tenant: "*", Subject: "*", Env: texts("A", "b")}}},
		"  ":                       {URL: "https://h", TokenExchange: exchange},
		"credentials: a caller":    {Command: []string{"x"}, Credentials: "caller"},
		"credentials: a caller ":   {URL: "https://h", Credentials: "caller", Headers: texts("AUTHORIZATION", "x")},
		"credentials: a caller  ":  {URL: "https://h", Credentials: "caller", OAuth: oauth.Config{Disabled: true}},
		"token_exchange: needs":    {RPC: "https://h", TokenExchange: exchange},
		"token_exchange: needs ":   {URL: "https://h", Headers: texts("Authorization", "x"), TokenExchange: exchange},
		"token_exchange.client_id": {URL: "https://h", TokenExchange: oauth.Exchange{TokenURL: "https://as"}},
		"credentials_for[0]: tena": {URL: "https://h", CredentialsFor: []upstream.CredentialRule{{Tenant: "*"}}},
		"credentials_for[0]: ten":  {URL: "https://h", CredentialsFor: []upstream.CredentialRule{{Subject: "*"}}},
		"credentials_for[1].heade": {Command: []string{"x"}, CredentialsFor: []upstream.CredentialRule{{Tenant: "*", Subject: "*"}, {Tenant: "*", Subject: "*", Headers: texts("A", "b")}}},
		"credentials_for[0].env: ": {URL: "https://h", CredentialsFor: []upstream.CredentialRule{{Tenant: "*", Subject: "*", Env: texts("A", "b")}}},
		"credentials_for[0].head":  {URL: "https://h", TokenExchange: exchange, CredentialsFor: []upstream.CredentialRule{{Tenant: "*", Subject: "*", Headers: texts("authorization", "b")}}},
	} {
		entry.ID = "a"
		cfg := upstream.Default()
		cfg.Servers = []upstream.ServerConfig{entry}
		got := joinErrors(cfg.Validate())
		if trimmed := strings.TrimSpace(want); (trimmed == "") != (got == "") || !strings.HasPrefix(strings.TrimPrefix(got, "servers[0]."), trimmed) || strings.Contains(got, "\n") {
			t.Errorf("%q: got %s", want, got)
		}
	}
	of := func(key string) upstream.ServerConfig {
		e := upstream.ServerConfig{ID: "a", URL: "https://h", CredentialsFor: []upstream.CredentialRule{{Tenant: "*", Subject: "*", Headers: texts("X", key)}}}
		e.TokenExchange = exchange
		e.TokenExchange.ClientSecret = secret.Literal(key)
		return e
	}
	cfg := upstream.Default()
	server := upstream.NewServer(of("1"), cfg, upstream.Deps{})
	headerOnly := of("1")
	headerOnly.CredentialsFor = of("2").CredentialsFor
	secretOnly := of("2")
	secretOnly.CredentialsFor = of("1").CredentialsFor
	if !server.IsSameConfig(of("1"), cfg) || server.IsSameConfig(headerOnly, cfg) || server.IsSameConfig(secretOnly, cfg) {
		t.Error("other secrets make another server, and the same do not")
	}
}
