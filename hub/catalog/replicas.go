package catalog

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// Replicas of a gateway read a server's lists each for itself. The one that first finds them changed, because the server
// said so or because they were old, tells the others.

// noteHash notes the hash of lists that were just read for a class. It returns the hash if the other replicas
// should be told: the lists are not those of a single caller, they differ from those that were read before, and no other replica
// said so. The lock is held.
func (o *cachedOffer) noteHash(class *Class, read serverOffer) (announce string) {
	before, told := o.hash, o.told
	o.hash, o.told = read.hashLists(), false
	if o.readAt.IsZero() || before == o.hash || told || class.isOwn {
		return ""
	}
	return o.hash
}

// hashLists hashes what a server listed, in its order.
func (o serverOffer) hashLists() string {
	h := sha256.New()
	for k := range kindCount {
		_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(o.items[k]))))
		for _, it := range o.items[k] {
			raw := it.Raw
			if it.listed != nil {
				raw = it.listed
			}
			_, _ = h.Write(binary.AppendUvarint(nil, uint64(len(raw))))
			_, _ = h.Write(raw)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// ReadChanged reads a server's lists, because another replica found that they changed: to those with this hash, or to any if it
// is "". Lists of single callers are not read again: they have their TTL.
func (c *Cache) ReadChanged(server, hash string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, class := range c.classes {
		o := class.offers[server]
		if class.isOwn || o == nil || o.follows || o.readAt.IsZero() || hash != "" && o.hash == hash {
			continue
		}
		o.told = true
		c.startReading(class, o)
	}
}
