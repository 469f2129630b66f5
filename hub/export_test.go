package hub

import "time"

// Tidy does at once what is done every half minute, as if it were later.
func (h *Hub) Tidy(now time.Time) {
	h.sessions.sweep(now)
	h.lot.sweep(now)
	h.shelves.refresh()
}

// Held are how many sessions, classes of clients and parked calls there are.
func (h *Hub) Held() (sessions, classes, parked int) {
	h.sessions.mu.Lock()
	defer h.sessions.mu.Unlock()
	h.shelves.mu.Lock()
	defer h.shelves.mu.Unlock()
	h.lot.mu.Lock()
	defer h.lot.mu.Unlock()
	return len(h.sessions.held), len(h.shelves.classes), len(h.lot.calls)
}
