package auth

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// maxRoles bounds the roles of a caller.
const maxRoles = 1000

// identityOf reads who the caller is. A claim that is there and cannot be used refuses the token: somebody meant
// something by it.
func (v *verifier) identityOf(claims map[string]any) (identity, error) {
	id := identity{issuer: v.cfg.Issuer, credential: "oidc", tenant: cmp.Or(v.cfg.Tenant, DefaultTenant)}
	var err error
	if v.cfg.TenantClaim != "" {
		if id.tenant, err = nameClaim(claims, v.cfg.TenantClaim); err != nil {
			return identity{}, err
		}
	}
	if id.subject, err = v.subjectOf(claims); err != nil {
		return identity{}, err
	}
	if v.cfg.RolesClaim != "" {
		id.roles, err = rolesOf(claims, v.cfg.RolesClaim)
	}
	return id, err
}

// subjectOf is the subject, or the client itself if the token is its own: what sub is at most providers (RFC 9068, 2.2).
func (v *verifier) subjectOf(claims map[string]any) (string, error) {
	if _, ok := findClaim(claims, v.cfg.SubjectClaim); ok || v.cfg.SubjectClaim != defaultSubjectClaim {
		return nameClaim(claims, v.cfg.SubjectClaim)
	}
	for _, name := range []string{"client_id", "azp"} {
		if _, ok := findClaim(claims, name); ok {
			return nameClaim(claims, name)
		}
	}
	return "", errors.New("it has no sub, client_id or azp")
}

// findClaim finds a claim by its name or, if none has it, by a path of names.
func findClaim(claims map[string]any, name string) (any, bool) {
	if value, ok := claims[name]; ok {
		return value, true
	}
	outer, inner, ok := strings.Cut(name, ".")
	if !ok {
		return nil, false
	}
	within, _ := claims[outer].(map[string]any)
	return findClaim(within, inner)
}

// nameClaim is a claim that holds the name of somebody.
func nameClaim(claims map[string]any, claim string) (string, error) {
	value, _ := findClaim(claims, claim)
	name, _ := value.(string)
	if err := checkName(name); err != nil {
		return "", fmt.Errorf("the claim %s %w", claim, err)
	}
	return name, nil
}

// rolesOf reads a list of texts, or one text with spaces.
func rolesOf(claims map[string]any, claim string) ([]string, error) {
	value, ok := findClaim(claims, claim)
	if !ok {
		return nil, nil
	}
	var roles []string
	switch value := value.(type) {
	case string:
		roles = strings.Fields(value)
	case []any:
		for _, role := range value {
			name, _ := role.(string)
			roles = append(roles, name)
		}
	default:
		return nil, fmt.Errorf("the claim %s is no list of texts", claim)
	}
	if len(roles) > maxRoles {
		return nil, fmt.Errorf("the claim %s lists more than %d roles", claim, maxRoles)
	}
	for _, role := range roles {
		if err := checkName(role); err != nil {
			return nil, fmt.Errorf("a role in the claim %s %w", claim, err)
		}
	}
	return roles, nil
}

// scopesOf are the scopes of a token: scope is a text with spaces (RFC 9068), scp a list at some providers.
func scopesOf(claims map[string]any) []string {
	for _, claim := range []string{"scope", "scp"} {
		if scopes, err := rolesOf(claims, claim); err == nil && scopes != nil {
			return scopes
		}
	}
	return nil
}
