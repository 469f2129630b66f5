package auth

import "fmt"

// Identity describes a caller that has not called: to explain what it might do.
type Identity struct {
	Subject, Tenant, Issuer string // Tenant: DefaultTenant if empty
	Roles                   []string
	Claims                  map[string]any
}

// Hypothetical makes a caller without a credential, for `ctxgate check --as` and for tests. No request can get one.
func Hypothetical(id Identity) (Caller, error) {
	if id.Tenant == "" {
		id.Tenant = DefaultTenant
	}
	for what, name := range map[string]string{"subject": id.Subject, "tenant": id.Tenant} {
		if err := checkName(name); err != nil {
			return Caller{}, fmt.Errorf("the %s %w", what, err)
		}
	}
	return newCaller(identity{
		tenant: id.Tenant, subject: id.Subject, issuer: id.Issuer, credential: "hypothetical", roles: id.Roles, claims: id.Claims,
	}), nil
}
