package limit

import (
	"sync"

	"github.com/ctxgate/ctxgate/internal/membudget"
)

// Slots bounds how much is in flight at once, in all, for one tenant and for one caller. The zero Slots is ready
// for use.
type Slots struct {
	mu       sync.Mutex
	inFlight int
	byCaller map[string]int // without callers that have nothing in flight
	byTenant map[string]int // the same of tenants
	tenants  membudget.Tenants
}

// Acquire takes one of total slots for a caller, who may have three quarters of them. Where there are several tenants,
// all callers of one may have half. release gives the slot back; it is nil when there is none.
func (s *Slots) Acquire(caller string, total int) (release func()) {
	tenant := membudget.TenantOf(caller)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight >= total || s.byCaller[caller] >= max(1, total-total/4) {
		return nil
	}
	if s.tenants.AreSeveral(tenant) && s.byTenant[tenant] >= max(1, total/2) {
		return nil
	}
	if s.byCaller == nil {
		s.byCaller, s.byTenant = map[string]int{}, map[string]int{}
	}
	s.inFlight++
	s.byCaller[caller]++
	s.byTenant[tenant]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight--
		removeOne(s.byCaller, caller)
		removeOne(s.byTenant, tenant)
	})
}

func removeOne(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
