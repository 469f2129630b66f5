package membudget

import (
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
)

func TestTenantOf(t *testing.T) {
	for name, want := range map[string]string{"acme\x00\x00ann@host": "acme", "a/b\x00i\x00s@h": "a/b", "unauthenticated@host": "", "": "", "server x": ""} {
		if got := TenantOf(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	var seen Tenants
	for i, tenant := range []string{"", "a", "a", "", "b", "a"} {
		if got := seen.AreSeveral(tenant); got != (i >= 4) {
			t.Errorf("step %d: %t", i, got)
		}
	}
}

// Where there are several tenants, all callers of one have the share of one caller together. A single tenant has what
// its callers may have.
func TestTenantsHaveShares(t *testing.T) {
	for name, several := range map[string]bool{"one tenant": false, "two tenants": true} {
		b := New(512 * mib)
		other := "not authenticated"
		if several {
			other = "b\x00\x00one"
			b.Scope("b\x00\x00two").Release() // seen once is enough
		}
		var held []*Scope
		reserve := func(caller string, n int64) error {
			s := b.Scope(caller)
			held = append(held, s)
			return s.Reserve(n)
		}
		if err := reserve("a\x00\x00one", 200*mib); err != nil {
			t.Fatal(err)
		}
		err := reserve("a\x00\x00two", 100*mib)
		if (err != nil) != several || several && (fault.KindOf(err) != fault.Full || !strings.Contains(fault.PublicOf(err), "tenant")) {
			t.Errorf("%s: large: %v", name, err)
		}
		if err := reserve(other, 80*mib); err != nil {
			t.Errorf("%s: another caller: %v", name, err)
		}
		for _, s := range held {
			s.Release()
		}
		refused := 0
		for i := range 750 {
			if reserve([]string{"a\x00\x00one", "a\x00\x00two"}[i%2], 250<<10) != nil {
				refused++
			}
		}
		if (refused > 0) != several { // 750 × 250 KiB are more than a quarter, and less than two
			t.Errorf("%s: %d small ones refused", name, refused)
		}
		for i := range 100 {
			if err := reserve(other, 250<<10); err != nil {
				t.Errorf("%s: small, another caller, %d: %v", name, i, err)
			}
		}
		for _, s := range held {
			s.Release()
		}
		if st := b.Stats(); st.Held != 0 || len(b.tenants) != 0 || len(b.callers) != 0 {
			t.Errorf("%s: %+v, %d tenants", name, st, len(b.tenants))
		}
	}
}

// A scope is moved to another tenant only within that one's share, and within its own tenant always.
func TestSharesOfTenantsWhenScopesMove(t *testing.T) {
	b := New(512 * mib)
	full := b.Scope("a\x00\x00one")
	if err := full.Reserve(250 * mib); err != nil {
		t.Fatal(err)
	}
	other := b.Scope("b\x00\x00one")
	if err := other.Reserve(100 * mib); err != nil {
		t.Fatal(err)
	}
	if err := other.SetCaller("a\x00\x00two"); fault.KindOf(err) != fault.Full {
		t.Errorf("to a tenant with its share: %v", err)
	}
	if err := full.SetCaller("a\x00\x00two"); err != nil {
		t.Errorf("within a tenant: %v", err)
	}
	to := b.Scope("a\x00\x00three")
	if err := other.MoveTo(to, 50*mib); fault.KindOf(err) != fault.Full {
		t.Errorf("bytes to a tenant with its share: %v", err)
	}
	if err := full.MoveTo(to, 50*mib); err != nil {
		t.Errorf("bytes within a tenant: %v", err)
	}
	back := b.Scope("b\x00\x00two")
	if err := to.MoveTo(back, 20*mib); err != nil {
		t.Errorf("bytes to a tenant with room: %v", err)
	}
	for _, s := range []*Scope{full, other, to, back} {
		s.Release()
	}
	if len(b.tenants) != 0 || b.Stats().Held != 0 {
		t.Errorf("%d tenants, %+v", len(b.tenants), b.Stats())
	}
}
