package hub

import "time"

// Sweep does what sweepRegularly does, as if it were a later time.
func (h *Hub) Sweep(now time.Time) {
	h.legacy.Sweep(now)
	h.catalog.Refresh()
}

// Counts returns how many sessions, classes of clients and pending calls there are.
func (h *Hub) Counts() (sessions, classes, pending int) {
	sessions, pending = h.legacy.(interface{ Counts() (int, int) }).Counts()
	return sessions, h.catalog.ClassCount(), pending
}
