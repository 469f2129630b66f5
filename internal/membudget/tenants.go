package membudget

import "strings"

// TenantOf is the tenant in the name of a caller, which ends at the first NUL; "" for what is the gateway's own.
func TenantOf(caller string) string {
	tenant, _, found := strings.Cut(caller, "\x00")
	if !found {
		return ""
	}
	return tenant
}

// Tenants remembers whether callers of several tenants were seen. Shares of tenants count only then, so that the only
// tenant of a gateway has all of it.
type Tenants struct {
	first   string
	several bool
}

// AreSeveral notes a tenant, and says whether there are several.
func (t *Tenants) AreSeveral(tenant string) bool {
	switch {
	case tenant == "":
	case t.first == "":
		t.first = tenant
	case t.first != tenant:
		t.several = true
	}
	return t.several
}
