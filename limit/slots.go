package limit

import "sync"

// Slots bounds how much is in flight at once, in all, for one tenant and for one caller. The zero Slots is ready
// for use.
type Slots struct {
	mu       sync.Mutex
	inFlight int
	byCaller map[string]int // without callers that have nothing in flight
}

// Acquire takes one of total slots for a caller, who may have three quarters of them. release gives
// the slot back; it is nil when there is none.
func (s *Slots) Acquire(caller string, total int) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inFlight >= total || s.byCaller[caller] >= max(1, total-total/4) {
		return nil
	}
	if s.byCaller == nil {
		s.byCaller = map[string]int{}
	}
	s.inFlight++
	s.byCaller[caller]++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.inFlight--
		if s.byCaller[caller]--; s.byCaller[caller] == 0 {
			delete(s.byCaller, caller)
		}
	})
}
