package limit

import "sync"

// Slots bounds how much is under way at once, in all and for one caller. The zero Slots is ready
// for use.
type Slots struct {
	mu      sync.Mutex
	busy    int
	callers map[string]int // those that have something under way
}

// Acquire takes one of most slots for a caller, who may have three quarters of them. The function
// it returns gives the slot back; it is nil where there is none.
func (s *Slots) Acquire(caller string, most int) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy >= most || s.callers[caller] >= max(1, most-most/4) {
		return nil
	}
	if s.callers == nil {
		s.callers = map[string]int{}
	}
	s.busy++
	s.callers[caller]++
	return sync.OnceFunc(func() { s.release(caller) })
}

func (s *Slots) release(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	if s.callers[caller]--; s.callers[caller] == 0 {
		delete(s.callers, caller)
	}
}
