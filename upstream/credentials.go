package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/oauth"
	"github.com/ctxgate/ctxgate/upstream/wire"
)

// A server of the table may see other credentials for other callers: headers, variables or tokens of their tenant, or their
// own. For each set of credentials there is a Server of its own behind the one of the table, with its own connections, children
// and sessions; it is made when the first caller needs it and closed when it has been idle. So nothing that is shared within a
// Server is shared between callers with different credentials.

// credential says which credentials a server sees. The zero one is what its entry alone says: the same for all callers.
type credential struct {
	principal oauth.Principal // whose they are; without a subject, all callers' of a tenant
	rule      int             // the entry of credentials_for that decides, from 1; 0 for none
}

// defaultTenant is the tenant whose authorization the server of the table itself uses.
const defaultTenant = "default"

// needsCredential reports whether no caller uses what the entry alone says.
func (e *ServerConfig) needsCredential() bool {
	return e.Credentials == "caller" || e.TokenExchange.IsSet() || len(e.CredentialsFor) > 0
}

// mayAuthorize reports whether the server may ask for an OAuth authorization.
func (e *ServerConfig) mayAuthorize() bool {
	return e.URL != "" && !e.OAuth.Disabled && !hasAuthorization(e.Headers)
}

func hasAuthorization(headers map[string]secret.Text) bool {
	for name := range headers {
		if strings.EqualFold(name, "Authorization") {
			return true
		}
	}
	return false
}

// credentialOf says which credentials the server sees for a principal. It fails if there are none for it.
func (e *ServerConfig) credentialOf(who oauth.Principal) (credential, error) {
	if !e.needsCredential() {
		if who.Tenant == "" || who.Tenant == defaultTenant || !e.mayAuthorize() {
			return credential{}, nil
		}
		return credential{principal: oauth.Principal{Tenant: who.Tenant}}, nil
	}
	if who.Subject == "" { // the gateway itself
		return credential{}, errNoCredential(e.ID)
	}
	c := credential{principal: who}
	if len(e.CredentialsFor) == 0 {
		return c, nil
	}
	i := slices.IndexFunc(e.CredentialsFor, func(r CredentialRule) bool { return r.matches(who) })
	if i < 0 {
		return credential{}, errNoCredential(e.ID)
	}
	c.rule = i + 1
	if e.CredentialsFor[i].Subject == "*" && e.Credentials != "caller" && !e.TokenExchange.IsSet() {
		c.principal = oauth.Principal{Tenant: who.Tenant}
	}
	return c, nil
}

func errNoCredential(server string) error {
	return fault.New(fault.Forbidden, fmt.Sprintf("the gateway has no credentials of this caller for server %q", server))
}

func (r CredentialRule) matches(who oauth.Principal) bool {
	if r.Tenant != "*" && r.Tenant != who.Tenant || r.Subject != "*" && r.Subject != who.Subject {
		return false
	}
	return r.Issuer == "*" || r.Issuer == who.Issuer || r.Issuer == "" && r.Subject == "*"
}

// withCredential is the entry as it is for a credential.
func (e ServerConfig) withCredential(c credential) ServerConfig {
	if c.rule > 0 {
		rule := e.CredentialsFor[c.rule-1]
		e.Headers, e.Env = merged(e.Headers, rule.Headers, true), merged(e.Env, rule.Env, false)
	}
	return e
}

// merged is one map over another. The names of headers have no case.
func merged(under, over map[string]secret.Text, isHeader bool) map[string]secret.Text {
	out := maps.Clone(under)
	if out == nil {
		out = map[string]secret.Text{}
	}
	maps.DeleteFunc(out, func(name string, _ secret.Text) bool {
		for other := range over {
			if other == name || isHeader && strings.EqualFold(other, name) {
				return true
			}
		}
		return false
	})
	maps.Copy(out, over)
	return out
}

func (e ServerConfig) validateCredentials() []error {
	var problems []error
	if e.Credentials == "caller" && len(e.CredentialsFor) == 0 && !e.TokenExchange.IsSet() && !e.mayAuthorize() {
		problems = append(problems, errors.New("credentials: a caller can authorize only a server with a url, with oauth not off and without an Authorization header"))
	}
	for _, err := range e.TokenExchange.Validate() {
		problems = append(problems, fmt.Errorf("token_exchange.%w", err))
	}
	if e.TokenExchange.IsSet() && (e.URL == "" || hasAuthorization(e.Headers)) {
		problems = append(problems, errors.New("token_exchange: needs a url, and no Authorization header beside it"))
	}
	for i, r := range e.CredentialsFor {
		at := fmt.Sprintf("credentials_for[%d]", i)
		switch {
		case r.Tenant == "" || r.Subject == "":
			problems = append(problems, fmt.Errorf(`%s: tenant and subject are names, or "*"`, at))
		case len(r.Headers) > 0 && len(e.Command) > 0:
			problems = append(problems, fmt.Errorf("%s.headers: a server with a command has env", at))
		case len(r.Env) > 0 && len(e.Command) == 0:
			problems = append(problems, fmt.Errorf("%s.env: only a server with a command has an environment", at))
		case e.TokenExchange.IsSet() && hasAuthorization(r.Headers):
			problems = append(problems, fmt.Errorf("%s.headers: token_exchange sets Authorization", at))
		}
	}
	return problems
}

// HasOwnCredential reports whether the server sees other credentials for a caller than the entry alone says, or the caller has
// none. What the server offers to others is nothing to it then.
func (s *Server) HasOwnCredential(caller Caller) bool {
	c, err := s.entry.credentialOf(caller.Principal)
	return err != nil || c != credential{}
}

// CredentialKey names the credentials that the server sees for a caller: "" for those that the entry alone says.
func (s *Server) CredentialKey(caller Caller) string {
	switch c, err := s.entry.credentialOf(caller.Principal); {
	case err != nil:
		return "none"
	case c == credential{}:
		return ""
	default:
		return strconv.Itoa(c.rule) + c.principal.Key()
	}
}

// IsPerTenant reports whether the server sees the same credentials for all callers of a tenant, and other ones for those of
// another tenant.
func (s *Server) IsPerTenant() bool { return !s.entry.needsCredential() && s.entry.mayAuthorize() }

// IsPerCaller reports whether the server has no connection without a caller.
func (s *Server) IsPerCaller() bool { return s.entry.needsCredential() }

// forCaller returns the server with the caller's credentials, which is made if it has to be, and a function to call when a
// connection of it is acquired.
func (s *Server) forCaller(ctx context.Context, caller Caller) (*Server, func(), error) {
	c, err := s.entry.credentialOf(caller.Principal)
	if err != nil || s.root != nil || c == (credential{}) {
		return s, func() {}, err
	}
	s.mu.Lock()
	v := s.byCredential[c]
	if v == nil {
		if v, err = s.addCredential(c); err != nil {
			s.mu.Unlock()
			return nil, nil, err
		}
	}
	s.userCounts[v]++
	s.mu.Unlock()
	release := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.userCounts[v]--; s.userCounts[v] == 0 {
			delete(s.userCounts, v)
		}
	}
	if s.deps.Exchange != nil && s.entry.TokenExchange.IsSet() {
		if err := s.deps.Exchange(ctx, v.oauthServer(), caller.AccessToken); err != nil {
			release()
			return nil, nil, err
		}
	}
	return v, release, nil
}

// addCredential makes the server for a credential; the lock is held.
func (s *Server) addCredential(c credential) (*Server, error) {
	if s.closed || s.started == nil {
		return nil, errClosed
	}
	ofTenant := func(v *Server) bool { return v.credential.principal.Tenant == c.principal.Tenant }
	own := 0
	for _, v := range s.byCredential {
		if ofTenant(v) {
			own++
		}
	}
	// One that is closed to make room still counts for a moment, so one makes room for one.
	switch share := (s.cfg.MaxCredentialConns + 1) / 2; {
	case own >= share:
		if !s.evictCredential(ofTenant) {
			return nil, fault.New(fault.Full, fmt.Sprintf(
				"the callers of this tenant have %d connections with credentials of their own to this server in use, which is its share; see max_credential_connections = %d", share, s.cfg.MaxCredentialConns))
		}
	case int(s.credentialConns.Load()) >= s.cfg.MaxCredentialConns:
		if !s.evictCredential(func(*Server) bool { return true }) {
			return nil, fault.New(fault.Full, fmt.Sprintf(
				"too many callers have a connection with credentials of their own to this server in use; see max_credential_connections = %d", s.cfg.MaxCredentialConns))
		}
	}
	d := s.deps
	d.KnownFacts = s.facts()
	v := NewServer(s.entry.withCredential(c), s.cfg, d)
	v.root, v.credential = s, c
	s.byCredential[c] = v
	s.started(v)
	return v, nil
}

// evictCredential closes the server for a credential that was idle longest, of those that may be closed; the lock is held.
func (s *Server) evictCredential(may func(*Server) bool) bool {
	var oldest *Server
	var lastUsed time.Time
	for _, v := range s.byCredential {
		if s.userCounts[v] > 0 || !may(v) {
			continue
		}
		if used, idle := v.lastIdle(-1); idle && (oldest == nil || used.Before(lastUsed)) {
			oldest, lastUsed = v, used
		}
	}
	if oldest == nil {
		return false
	}
	s.removeCredential(oldest)
	return true
}

// closeIdleCredentials closes those that have been idle for longer than d; the lock is held.
func (s *Server) closeIdleCredentials(d time.Duration) {
	for _, v := range s.byCredential {
		if _, idle := v.lastIdle(d); idle && s.userCounts[v] == 0 {
			s.removeCredential(v)
		}
	}
}

func (s *Server) removeCredential(v *Server) {
	delete(s.byCredential, v.credential)
	go v.Close()
}

// lastIdle returns when any connection was used last, and whether all have been idle for longer than d.
func (s *Server) lastIdle(d time.Duration) (last time.Time, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle = true
	for _, m := range append(slices.Collect(maps.Values(s.conns)), s.shared) {
		if m == nil {
			continue
		}
		used, isIdle := m.idleSince(d)
		idle = idle && isIdle
		if used.After(last) {
			last = used
		}
	}
	return last, idle
}

// lookupCredential is the server with a caller's credentials, if it is there; the server itself where all callers have the same.
func (s *Server) lookupCredential(caller Caller) *Server {
	c, err := s.entry.credentialOf(caller.Principal)
	switch {
	case err != nil:
		return nil
	case s.root != nil || c == credential{}:
		return s
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byCredential[c]
}

// eachCredential calls f for the servers with credentials of their own.
func (s *Server) eachCredential(f func(*Server)) {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.byCredential))
	s.mu.Unlock()
	for _, v := range all {
		f(v)
	}
}

// SharedConnOf is the connection that all callers with the same credentials as this one share; nil if there is none.
func (s *Server) SharedConnOf(caller Caller) *ManagedConn {
	if v := s.lookupCredential(caller); v != nil {
		return v.SharedConn()
	}
	return nil
}

// AcquireShared returns that connection, which is made if it has to be, and a function to release it.
func (s *Server) AcquireShared(ctx context.Context, caller Caller) (*ManagedConn, func(), error) {
	v, done, err := s.forCaller(ctx, caller)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	m := v.SharedConn()
	if m == nil {
		return nil, nil, fault.New(fault.Unavailable, "the server is not started")
	}
	return m, m.acquire(), nil
}

// RPCClientOf is the client of a server with an rpc URL for messages that are relayed as they came; nil for any other server.
func (s *Server) RPCClientOf(ctx context.Context, caller Caller) (*wire.RPCClient, error) {
	if s.rpcClient == nil {
		return nil, nil
	}
	v, done, err := s.forCaller(ctx, caller)
	if err != nil {
		return nil, err
	}
	done()
	return v.rpcClient, nil
}

// makeCredentialRoom makes room for one more connection of a server that carries a credential; the lock is held.
func (s *Server) makeCredentialRoom() error {
	if s.root == nil || int(s.root.credentialConns.Load()) < s.cfg.MaxCredentialConns || s.evictOldest(s.isEvictable) {
		return nil
	}
	return fault.New(fault.Full, fmt.Sprintf("too many connections with credentials of their own to this server are in use; see max_credential_connections = %d", s.cfg.MaxCredentialConns))
}

// tableServer is the server of the table.
func (s *Server) tableServer() *Server { return cmp.Or(s.root, s) }

// oauthServer is the server as its tokens are stored; nil if it is sent none.
func (s *Server) oauthServer() *oauth.Server {
	if !s.entry.mayAuthorize() {
		return nil
	}
	o := oauth.NewServer(s.entry.ID, s.entry.URL.Reveal(), s.entry.OAuth)
	if s.credential != (credential{}) {
		o = o.For(s.credential.principal)
	}
	if s.entry.TokenExchange.IsSet() {
		o = o.WithExchange(s.entry.TokenExchange)
	}
	return o
}

// IsFor reports whether a connection carries the credentials that the server sees for a caller.
func (m *ManagedConn) IsFor(caller Caller) bool {
	c, err := m.server.tableServer().entry.credentialOf(caller.Principal)
	return err == nil && c == m.server.credential
}

// NeedsToken reports whether the server gets a token that is exchanged for the caller's own.
func (s *Server) NeedsToken() bool { return s.entry.TokenExchange.IsSet() }

// PrepareFor gets that token, if there is none yet, for what is done for the caller later. A failure is that of the later call.
func (s *Server) PrepareFor(ctx context.Context, caller Caller) {
	if _, done, err := s.forCaller(ctx, caller); err == nil {
		done()
	}
}
