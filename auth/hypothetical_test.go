package auth

import (
	"strings"
	"testing"
)

func TestHypothetical(t *testing.T) {
	c, err := Hypothetical(Identity{Subject: "ann", Issuer: "https://idp", Roles: []string{"dev"}, Claims: map[string]any{"org": "acme"}})
	if err != nil || c.Subject() != "ann" || c.Tenant() != DefaultTenant || c.Issuer() != "https://idp" || !c.HasRole("dev") || c.Claims()["org"] != "acme" {
		t.Errorf("%v, %v", c, err)
	}
	if c, err := Hypothetical(Identity{Subject: "ann", Tenant: "acme"}); err != nil || c.Tenant() != "acme" {
		t.Errorf("%v, %v", c, err)
	}
	for _, id := range []Identity{{}, {Subject: "a\n"}, {Subject: "a", Tenant: strings.Repeat("a", 257)}} {
		if c, err := Hypothetical(id); err == nil || c != (Caller{}) {
			t.Errorf("%v was accepted", id)
		}
	}
}
