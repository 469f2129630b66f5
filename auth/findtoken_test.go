package auth

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

// A8, the body form: the token is found in the first part of a message, wherever a reader might see it, and nothing else is.
func TestFindToken(t *testing.T) {
	a := New(Config{Token: secret.Parse("s3cret")})
	long := strings.Repeat("x", maxToken)
	for head, ok := range map[string]bool{
		`{"authToken":"s3cret","method":"x"`:        true,
		`{"params":{"authToken" : "s3cret"`:         true,
		"{\"authToken\"\n:\t\"s3cret\"":             true,
		`{"authToken":"s3cre\u0074"`:                true,
		`{"authToken":"wrong","authToken":"s3cret"`: true, // the final check after parsing refuses two
		`{"authToken","authToken":"s3cret"`:         true,
		``:                                          false,
		`{"method":"x"`:                             false,
		`"s3cret"`:                                  false,
		`{"authToken":"s3cret`:                      false, // not complete
		`{"authToken":s3cret"`:                      false,
		`{"authToken":xs3cret"`:                     false,
		`{"authToken":`:                             false,
		`{"authToken":"s3cret\"`:                    false,
		`{"authToken" "s3cret"`:                     false,
		`{"authToken":"wrong"`:                      false,
		`{"authtoken":"s3cret"`:                     false,
		`{"authToken":"` + long + `"`:               false,
	} {
		who, err := a.FindToken(t.Context(), []byte(head))
		if (err == nil) != ok || !ok && (fault.KindOf(err) != fault.Unauthorized || who != (Caller{})) || ok && who.Tenant() != DefaultTenant {
			t.Errorf("%.60s: %v, %v", head, who, err)
		}
	}
}

// A hypothetical caller has a subject, and the default tenant where none is named.
func TestHypothetical(t *testing.T) {
	c, err := Hypothetical(Identity{Subject: "ann", Issuer: "https://id.example", Roles: []string{"dev"}, Claims: map[string]any{"org": "acme"}})
	if err != nil || c.Tenant() != DefaultTenant || c.Subject() != "ann" || c.Issuer() != "https://id.example" || !c.HasRole("dev") || c.HasRole("admin") || c.Claims()["org"] != "acme" {
		t.Errorf("%v, %v", c, err)
	}
	if c, err = Hypothetical(Identity{Subject: "ann", Tenant: "acme"}); err != nil || c.Tenant() != "acme" {
		t.Errorf("%v, %v", c, err)
	}
	if c, err = Hypothetical(Identity{Tenant: "acme"}); err == nil || c != (Caller{}) {
		t.Errorf("a caller without a subject: %v", c)
	}
}
