package auth

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// A8, the header form: wrong, missing, doubled and malformed credentials are all refused.
func TestAuthenticate(t *testing.T) {
	g := New(Config{Token: secret.Parse("s3cret")})
	for _, tt := range []struct {
		headers []string
		ok      bool
	}{
		{[]string{"Bearer s3cret"}, true},
		{[]string{"bearer  s3cret"}, true},
		{nil, false},
		{[]string{""}, false},
		{[]string{"Bearer"}, false},
		{[]string{"Bearer "}, false},
		{[]string{"Bearer s3cre"}, false},
		{[]string{"Bearer s3cret2"}, false},
		{[]string{"Basic s3cret"}, false},
		{[]string{"s3cret"}, false},
		{[]string{"Bearer s3cret", "Bearer s3cret"}, false},
		{[]string{"Bearer other", "Bearer s3cret"}, false},
	} {
		r, _ := http.NewRequest(http.MethodPost, "/", nil)
		for _, h := range tt.headers {
			r.Header.Add("Authorization", h)
		}
		who, err := g.Authenticate(r)
		if (err == nil) != tt.ok || !tt.ok && (fault.KindOf(err) != fault.Unauthorized || who != (Caller{})) {
			t.Errorf("%q: %v, %v", tt.headers, who, err)
		}
	}
}

func TestNoTokenRequired(t *testing.T) {
	r, _ := http.NewRequest(http.MethodPost, "/", nil)
	who, err := New(Config{}).Authenticate(r)
	if err != nil || who.Tenant() != DefaultTenant || who.Subject() != "anonymous" {
		t.Errorf("%v, %v", who, err)
	}
}

// T23: a context without a caller, or with the zero Caller, is refused.
func TestCallerFromFailsClosed(t *testing.T) {
	for _, ctx := range []context.Context{context.Background(), WithCaller(context.Background(), Caller{})} {
		if _, err := CallerFrom(ctx); fault.KindOf(err) != fault.Unauthorized {
			t.Errorf("got %v", err)
		}
	}
	want := newCaller(identity{tenant: "t", subject: "s"})
	if got, err := CallerFrom(WithCaller(context.Background(), want)); err != nil || got != want {
		t.Errorf("%v, %v", got, err)
	}
}

// A caller's access token does not print with the caller.
func TestAccessTokenDoesNotPrint(t *testing.T) {
	token := secret.Literal("inbound-token")
	c := newCaller(identity{tenant: "t", subject: "s", accessToken: &token})
	if LocalCaller().AccessToken().IsSet() || c.AccessToken().Reveal() != "inbound-token" {
		t.Error("the token is lost")
	}
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", c, *c.id, *c.id), fmt.Sprint(c.AccessToken())} {
		if strings.Contains(text, "inbound-token") {
			t.Errorf("printed: %s", text)
		}
	}
}
