package catalog

import "time"

// notifyChanged reports the lists of a class that changed.
func (c *Cache) notifyChanged(class *Class) {
	c.mu.Lock()
	changed := class.unnotified
	class.unnotified, class.notifyScheduled, class.notifiedAt = [kindCount]bool{}, false, time.Now()
	c.mu.Unlock()
	changed[Resources] = changed[Resources] || changed[Templates]
	for _, k := range []Kind{Tools, Prompts, Resources} {
		if changed[k] {
			c.deps.Changed(class, k)
		}
	}
}

// NotifyAll reports all lists of all classes whose clients got a list: each client is notified if its own list differs.
func (c *Cache) NotifyAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, class := range c.classes {
		if !class.served {
			continue
		}
		for k := range kindCount {
			class.unnotified[k] = true
		}
		c.scheduleNotify(class)
	}
}

// scheduleNotify reports the changed lists of a class soon; the lock is held.
func (c *Cache) scheduleNotify(class *Class) {
	if class.unnotified != ([kindCount]bool{}) && !class.notifyScheduled {
		class.notifyScheduled = true
		time.AfterFunc(notifyInterval-time.Since(class.notifiedAt), func() { c.notifyChanged(class) })
	}
}
