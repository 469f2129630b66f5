package memory

// SharedSize is how many entries the driver stores beside its items.
func (d *Driver) SharedSize() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.shared.entries)
}
