package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/secret"
)

const (
	annOld = "ann's first token, random"
	annNew = "ann's second token, random"
	bobs   = "bob's token, random too"
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// twoTenants has two callers in two tenants; ann's token is being replaced.
func twoTenants() Config {
	return Config{Token: secret.Literal("the token of before"), Tokens: []Token{
		{Name: "ann", Token: secret.Literal(annOld), Tenant: "acme", Roles: []string{"dev"}, Expires: "2026-12-01"},
		{Name: "ann", Token: secret.Literal(annNew), Tenant: "acme", Roles: []string{"dev"}},
		{Name: "bob", SHA256: strings.ToUpper(hashOf(bobs)), Subject: "robert", Expires: "2026-12-01T12:00:00Z"},
	}}
}

// S15, T22: a token identifies its caller; a part of one, a longer one or its hash identifies nobody.
func TestTokens(t *testing.T) {
	now := time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC)
	a := New(twoTenants())
	a.now = func() time.Time { return now }
	check := func(token, tenant, subject, credential string, roles ...string) {
		t.Helper()
		who, err := a.AuthenticateToken(context.Background(), token)
		if tenant == "" {
			if fault.KindOf(err) != fault.Unauthorized || who != (Caller{}) {
				t.Errorf("%q: %v, %v", token, who, err)
			}
			return
		}
		if err != nil || who.Tenant() != tenant || who.Subject() != subject || who.Credential() != credential || who.Issuer() != "" || !slices.Equal(who.Roles(), roles) {
			t.Errorf("%q: %+v, %v", token, who.id, err)
		}
		if err == nil && a.Revalidate(who) != nil {
			t.Errorf("%q is not valid a second time", token)
		}
	}
	check("the token of before", "default", "token", "auth_token")
	check(annOld, "acme", "ann", "ann", "dev")
	check(annNew, "acme", "ann", "ann", "dev")
	check(bobs, "default", "robert", "bob")
	for _, bad := range []string{"", annOld[:20], annOld + " ", hashOf(annOld), hashOf(bobs), strings.ToUpper(annOld), strings.Repeat("x", 1<<20)} {
		check(bad, "", "", "")
	}

	old, _ := a.AuthenticateToken(context.Background(), annOld)
	bob, _ := a.AuthenticateToken(context.Background(), bobs)
	if !old.Expires().Equal(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)) || !old.HasRole("dev") || old.HasRole("ops") {
		t.Errorf("%+v", old.id)
	}
	now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	check(annOld, "", "", "")
	check(annNew, "acme", "ann", "ann", "dev")
	check(bobs, "default", "robert", "bob")
	if a.Revalidate(old) == nil || a.Revalidate(bob) != nil {
		t.Error("an expired token is valid, or one that is not expired is not")
	}
	now = now.Add(12 * time.Hour)
	check(bobs, "", "", "")
}

// With any credential configured, a request without one is refused.
func TestNeverAnonymous(t *testing.T) {
	r, _ := http.NewRequest(http.MethodPost, "/", nil)
	for name, cfg := range map[string]Config{
		"auth_token": {Token: secret.Literal("x")}, "tokens": {Tokens: []Token{{Name: "a", SHA256: hashOf("x")}}}, "not resolved": {Tokens: []Token{{Name: "a", Token: secret.Parse("env:A")}}},
	} {
		a := New(cfg)
		if !cfg.IsRequired() || !a.IsRequired() {
			t.Errorf("%s: no credential is required", name)
		}
		if who, err := a.Authenticate(r); fault.KindOf(err) != fault.Unauthorized || who != (Caller{}) {
			t.Errorf("%s: %v, %v", name, who, err)
		}
		if a.Revalidate(anonymous) == nil || a.Revalidate(local) == nil {
			t.Errorf("%s: a caller without a credential is still valid", name)
		}
	}
	if _, err := New(Config{Tokens: []Token{{Name: "a", Token: secret.Parse("env:A")}}}).AuthenticateToken(context.Background(), ""); err == nil {
		t.Error("an empty token is accepted for one that is not resolved")
	}
}

// After a reload, a caller is who its token says now, or nobody.
func TestRevalidateAfterReload(t *testing.T) {
	who, err := New(twoTenants()).AuthenticateToken(context.Background(), annNew)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*Token)
		ok     bool
	}{
		"unchanged":     {func(*Token) {}, true},
		"by its hash":   {func(k *Token) { k.Token, k.SHA256 = secret.Text{}, hashOf(annNew) }, true},
		"renamed":       {func(k *Token) { k.Name, k.Subject = "ann-2", "ann" }, true},
		"replaced":      {func(k *Token) { k.Token = secret.Literal("another token, as random") }, false},
		"other tenant":  {func(k *Token) { k.Tenant = "umbrella" }, false},
		"other subject": {func(k *Token) { k.Subject = "anna" }, false},
		"other roles":   {func(k *Token) { k.Roles = nil }, false},
		"expired":       {func(k *Token) { k.Expires = "2001-01-01" }, false},
	} {
		cfg := twoTenants()
		tt.change(&cfg.Tokens[1])
		if err := New(cfg).Revalidate(who); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if New(Config{}).Revalidate(who) != nil {
		t.Error("where no credential is required, a caller is refused")
	}
}

func TestValidateTokens(t *testing.T) {
	good := Token{Name: "ann", Token: secret.Literal(annOld)}
	with := func(change func(*Token)) Config {
		c := good
		change(&c)
		return Config{Tokens: []Token{c}}
	}
	for want, cfg := range map[string]Config{
		"":                                   {Tokens: []Token{good}},
		"  ":                                 twoTenants(),
		" ":                                  {Token: secret.Parse("env:X"), Tokens: []Token{{Name: "a", Token: secret.Parse("env:X")}, {Name: "b", Token: secret.Parse("env:X")}}},
		"tokens[0].name: must be 1":          with(func(k *Token) { k.Name = "" }),
		"tokens[0].name: must":               with(func(k *Token) { k.Name = "a\nb" }),
		"tokens[0].tenant: must be":          with(func(k *Token) { k.Tenant = strings.Repeat("x", 257) }),
		"tokens[0].subject: must be":         with(func(k *Token) { k.Subject = "\x00" }),
		"tokens[0].roles[1]: must be":        with(func(k *Token) { k.Roles = []string{"ok", "\xff"} }),
		"tokens[0].token: set either":        with(func(k *Token) { k.Token = secret.Text{} }),
		"tokens[0].token: set":               with(func(k *Token) { k.SHA256 = hashOf("x") }),
		"tokens[0].sha256: must be 64 ":      with(func(k *Token) { k.Token, k.SHA256 = secret.Text{}, hashOf("x")[:62] }),
		"tokens[0].sha256: must be":          with(func(k *Token) { k.Token, k.SHA256 = secret.Text{}, "g"+hashOf("x")[1:] }),
		"tokens[0].token: is one that":       with(func(k *Token) { k.Token = secret.Literal("Secret-API-Key") }),
		"auth_token: is one that":            {Token: secret.Literal("changeme")},
		"tokens[0].expires: \"soon\" is not": with(func(k *Token) { k.Expires = "soon" }),
		"tokens[1].name: tokens[0] has the same name": {Tokens: []Token{good, {Name: "ann", Tenant: "other", Token: secret.Literal(annNew)}}},
		"tokens[1].name: tokens[0]":                   {Tokens: []Token{good, {Name: "ann", Roles: []string{"x"}, Token: secret.Literal(annNew)}}},
		"tokens[1].name: ":                            {Tokens: []Token{good, {Name: "ann", Subject: "x", Token: secret.Literal(annNew)}}},
		"tokens[0]: has the same token as auth_token": {Token: secret.Literal(annOld), Tokens: []Token{good}},
		"tokens[1]: has the same token as tokens[0]":  {Tokens: []Token{good, {Name: "x", SHA256: hashOf(annOld)}}},
	} {
		errs := cfg.Validate()
		if strings.TrimSpace(want) == "" {
			if len(errs) > 0 {
				t.Errorf("%q: %v", want, errs)
			}
		} else if len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want) {
			t.Errorf("%q: %v", want, errs)
		}
	}
	long := Config{Tokens: []Token{{Name: strings.Repeat("n", 256), Token: secret.Literal(annOld), Tenant: "Ünïcode & spaces"}}}
	if errs := long.Validate(); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestWarnings(t *testing.T) {
	short := Config{Tokens: []Token{
		{Name: "a", Token: secret.Literal(strings.Repeat("x", 15))}, {Name: "b", Token: secret.Literal(strings.Repeat("x", 16))}, {Name: "c", SHA256: hashOf("x")},
	}}
	if got := short.Warnings(); len(got) != 1 || !strings.HasPrefix(got[0], "tokens[0].token: has less than 16 bytes") {
		t.Error(got)
	}
}
