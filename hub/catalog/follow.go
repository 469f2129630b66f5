package catalog

import "github.com/ctxgate/ctxgate/upstream"

// Most servers offer the same to all clients. A class whose clients use a server's shared connection follows the class
// without capabilities: it has the lists that were read for that one.

// plainOffer is what a server offers to the class without capabilities; nil if that is not known to the cache, or if the server
// sees other credentials for this class. The lock is held.
func (c *Cache) plainOffer(class *Class, o *cachedOffer) *cachedOffer {
	plain := c.classes[""]
	if o.remote.HasOwnCredential(class.caller) || plain == nil || plain.offers[o.remote.ID()] == nil || plain.offers[o.remote.ID()].remote != o.remote {
		return nil
	}
	return plain.offers[o.remote.ID()]
}

// chooseSource decides where a class has a server's lists from, and reads them if it does not follow the class without
// capabilities; the lock is held.
func (c *Cache) chooseSource(class *Class, o *cachedOffer) {
	plain := c.plainOffer(class, o)
	o.follows = class.name != "" && plain != nil && o.remote.SharesLists(class.caller)
	if !o.follows {
		c.startReading(class, o)
	}
}

// followPlain gives a class what a server offers to the class without capabilities, until its own lists are read; the lock
// is held. A client does not wait for a connection to be opened for it alone.
func (c *Cache) followPlain(class *Class, o, plain *cachedOffer) {
	o.offer.memory.Release()
	o.offer = plain.offer
	o.offer.memory = nil // the other class holds it
	c.markStale(class, o.remote.ID())
	if o.remote.SharesLists(class.caller) || o.remote.NeedsOwnConn(class.caller) {
		o.markReady()
	}
}

// updateFollowers gives what a server offers to the class without capabilities to the others that follow it, or that have
// not read their own yet; the lock is held.
func (c *Cache) updateFollowers(plain *cachedOffer) {
	for _, class := range c.classes {
		o := class.offers[plain.remote.ID()]
		if class.name != "" && o != nil && o.remote == plain.remote && !o.remote.HasOwnCredential(class.caller) && (o.follows || o.readAt.IsZero()) {
			c.followPlain(class, o, plain)
		}
	}
}

// ServerAsks reads the lists of a server anew for the classes that have connections of their own from now on: it has sent
// a request to a client.
func (c *Cache) ServerAsks(r *upstream.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, class := range c.classes {
		if o := class.offers[r.ID()]; o != nil && o.remote == r && o.follows && !r.SharesLists(class.caller) {
			o.follows = false
			if !class.isIdle() {
				c.startReading(class, o)
			}
		}
	}
}

// IsKnown reports whether the lists of a server have been read.
func (c *Cache) IsKnown(r *upstream.Server) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, class := range c.classes {
		if o := class.offers[r.ID()]; o != nil && o.remote == r && (o.offer.known || !o.readAt.IsZero()) {
			return true
		}
	}
	return false
}

// Counts returns how many items of each kind a server offers to clients without capabilities.
func (c *Cache) Counts(server string) (counts [kindCount]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if class := c.classes[""]; class != nil && class.offers[server] != nil {
		for k, items := range class.offers[server].offer.items {
			for _, it := range items {
				if it.Hold == nil {
					counts[k]++
				}
			}
		}
	}
	return counts
}
