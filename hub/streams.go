package hub

import (
	"sync"

	"github.com/ctxgate/ctxgate/auth"
)

// streams are the open streams that end only when their client leaves, and who opened each.
type streams struct {
	mu  sync.Mutex
	all map[*stream]auth.Caller
}

// open notes a stream until the function it gives is called. Who opened it may have been let in
// by a configuration that was replaced meanwhile: then it is refused.
func (t *streams) open(h *Hub, s *stream, who auth.Caller) (func(), error) {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[*stream]auth.Caller{}
	}
	t.all[s] = who
	t.mu.Unlock()
	done := func() {
		t.mu.Lock()
		delete(t.all, s)
		t.mu.Unlock()
	}
	// It is noted first: a configuration that comes now finds it there, and one that came before
	// is seen here.
	if err := h.plan.Load().gate.Recheck(who); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// recheck ends the streams that the gate would not let in any more: their token was replaced.
func (t *streams) recheck(gate *auth.Gate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for s, who := range t.all {
		if gate.Recheck(who) != nil {
			s.revoke()
		}
	}
}
