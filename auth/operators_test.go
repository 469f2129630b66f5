package auth

import (
	"net/http"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// The operator's listener accepts its own token and callers with the role admin, and nobody else.
func TestOperators(t *testing.T) {
	main := New(Config{Tokens: []Token{
		{Name: "root", Token: secret.Literal("token-of-the-operator"), Roles: []string{"admin"}},
		{Name: "ann", Token: secret.Literal("token-of-a-developer"), Roles: []string{"dev"}},
	}})
	for token, want := range map[string]string{
		"the-admin-token": "token", "token-of-the-operator": "root", "token-of-a-developer": "", "": "", "wrong": "",
	} {
		r, _ := http.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		who, err := main.Operators(secret.Literal("the-admin-token")).Authenticate(r)
		switch {
		case want == "" && (fault.KindOf(err) != fault.Unauthorized || who != (Caller{})):
			t.Errorf("%q: %v, %v", token, who, err)
		case want != "" && (err != nil || who.Subject() != want):
			t.Errorf("%q: %v, %v", token, who, err)
		}
	}
	r, _ := http.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer anything")
	if _, err := New(Config{}).Operators(secret.Literal("the-admin-token")).Authenticate(r); fault.KindOf(err) != fault.Unauthorized {
		t.Errorf("an anonymous caller of the main listener is an operator: %v", err)
	}
	if who, err := main.Authenticate(r); err == nil {
		t.Errorf("%v", who)
	}
}
