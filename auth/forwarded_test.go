package auth

import (
	"context"
	"reflect"
	"testing"

	"github.com/ctxgate/ctxgate/internal/secret"
)

// A caller that another replica authenticated is the same caller, with all that access rules and servers see of it.
func TestForwardedCaller(t *testing.T) {
	s := newIssuer(t, jwk(rsaKey(), "k1"))
	a := s.open(s.config())
	withToken, err := a.AuthenticateToken(context.Background(), s.token(nil))
	if err != nil {
		t.Fatal(err)
	}
	static, err := New(Config{Token: secret.Literal("t")}).AuthenticateToken(context.Background(), "t")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Caller{withToken, static, anonymous, local} {
		raw, err := EncodeCaller(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeCaller(raw)
		if err != nil {
			t.Fatal(err)
		}
		want, have := *c.id, *got.id
		if got.AccessToken().Reveal() != c.AccessToken().Reveal() || !have.expires.Equal(want.expires) || len(have.claims) != len(want.claims) {
			t.Errorf("got %+v, want %+v", have, want)
		}
		for k, v := range want.claims {
			if !reflect.DeepEqual(have.claims[k], v) {
				t.Errorf("claim %s is %v, want %v", k, have.claims[k], v)
			}
		}
		want.accessToken, have.accessToken, want.expires, want.claims, have.claims = nil, nil, have.expires, nil, nil
		if !reflect.DeepEqual(want, have) {
			t.Errorf("got %+v, want %+v", have, want)
		}
	}
	if err := a.Revalidate(withToken); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "{}", "x", `{"tenant":"a"}`, `{"subject":"a"}`, `{"tenant":"a","subject":"b","proof":"AA=="}`} {
		if _, err := DecodeCaller([]byte(bad)); err == nil {
			t.Errorf("%q is a caller", bad)
		}
	}
}
