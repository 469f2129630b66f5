package gate

import (
	"testing"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// A gate requires the credentials of its authenticator, and none only if it has no authenticator.
func TestAuthenticatorIsUsed(t *testing.T) {
	strict := New(Deps{Authenticator: auth.New(auth.Config{Token: secret.Literal("a-token-of-the-config")})})
	if _, err := strict.AuthenticateToken(t.Context(), "wrong"); err == nil || !strict.IsRequired() {
		t.Error("a wrong token is accepted")
	}
	if _, err := strict.AuthenticateToken(t.Context(), "a-token-of-the-config"); err != nil {
		t.Error(err)
	}
	if open := New(Deps{}); open.IsRequired() {
		t.Error("a gate without an authenticator requires a credential")
	}
}

// Where rules tell callers apart, each has its own scope; otherwise all have the empty one.
func TestSubjectScope(t *testing.T) {
	rules, err := access.New(access.Config{Default: "deny"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := auth.Hypothetical(auth.Identity{Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	ruled, open := New(Deps{Rules: rules}), New(Deps{})
	a, b := ruled.SubjectScope(auth.LocalCaller()), ruled.SubjectScope(other)
	if a == "" || b == "" || a == b || a != ruled.SubjectScope(auth.LocalCaller()) {
		t.Errorf("the scopes %q and %q", a, b)
	}
	if got := open.SubjectScope(other); got != "" {
		t.Errorf("without rules: %q", got)
	}
}
