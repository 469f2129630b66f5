package hub

import "sync"

// shownLists are the lists as one client knows them, by the hashes of their content. The client is told
// that a list changed when it would get another one now, and not merely because a list was read again.
type shownLists struct {
	mu     sync.Mutex
	hashes [kinds]string // "" for a list that nobody knows to have been shown
}

// set notes that the client was given a list.
func (s *shownLists) set(k kind, c *catalog) {
	s.mu.Lock()
	s.hashes[k] = c.hashes[k]
	s.mu.Unlock()
}

// setAll notes what the lists were when the client came.
func (s *shownLists) setAll(c *catalog) {
	s.mu.Lock()
	s.hashes = c.hashes
	s.mu.Unlock()
}

// update says whether a list is not the one that the client knows, and takes it as known from now on. The
// templates are told of together with the resources.
func (s *shownLists) update(k kind, c *catalog) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range kinds {
		if listing[one].changed == listing[k].changed && s.hashes[one] != c.hashes[one] {
			s.hashes[one], changed = c.hashes[one], true
		}
	}
	return changed
}

// listed is the catalog that answers a list, and notes what a session was given. One that changes at that
// moment is given as it is now: who tells of the change may have seen the session as it was before.
func (h *Hub) listed(req *request, k kind, c *catalog) *catalog {
	if req.held == nil {
		return c
	}
	req.held.lists.set(k, c)
	if now := h.shelves.door(h.shelves.of(req), req.only); now.hashes[k] != c.hashes[k] {
		req.held.lists.set(k, now)
		return now
	}
	return c
}

// door is the catalog of a class at /mcp or, where a server is named, at that server's door, as it is now.
func (s *shelves) door(c *class, server string) *catalog {
	if server == "" {
		return s.fresh(c)
	}
	return s.singleNow(c, s.hub.plan.Load(), server)
}

// isServed says whether a client of the class was given a list.
func (s *shelves) isServed(c *class) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.served
}
