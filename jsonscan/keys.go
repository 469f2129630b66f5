package jsonscan

import (
	"bytes"
	"hash/maphash"
	"math"
)

// keySet holds the keys of one object: a few as slices, many as offsets in a hash table with open
// addressing. A table of strings would take ten times the document if an object has many short keys.
type keySet struct {
	before map[string]struct{} // keys that are not in the document
	n      int
	few    [12][]byte
	table  []uint32 // offsets of keys, plus one; 0 is free
	used   int
}

var keySeed = maphash.MakeSeed()

// insert adds the key at span of data, and says whether it is new. key is its text.
func (k *keySet) insert(data []byte, span Span, key []byte) bool {
	for _, old := range k.few[:k.n] {
		if bytes.Equal(old, key) {
			return false
		}
	}
	if _, there := k.before[string(key)]; there {
		return false
	}
	if k.n < len(k.few) {
		k.few[k.n] = key
		k.n++
		return true
	}
	if span.Start >= math.MaxUint32 {
		return false // no document is that long
	}
	if 2*k.used >= len(k.table) {
		k.growTable(data)
	}
	at, found := k.findSlot(data, key)
	if found {
		return false
	}
	k.table[at] = uint32(span.Start) + 1 //nolint:gosec // it was compared above
	k.used++
	return true
}

// findSlot returns the slot of a key in the table, or the free slot where it belongs.
func (k *keySet) findSlot(data []byte, key []byte) (at int, found bool) {
	mask := len(k.table) - 1
	for at = int(maphash.Bytes(keySeed, key)) & mask; k.table[at] != 0; at = (at + 1) & mask { //nolint:gosec // any number will do
		if bytes.Equal(keyAt(data, int(k.table[at])-1), key) {
			return at, true
		}
	}
	return at, false
}

func (k *keySet) growTable(data []byte) {
	old := k.table
	k.table = make([]uint32, max(64, 4*len(old)))
	for _, slot := range old {
		if slot != 0 {
			at, _ := k.findSlot(data, keyAt(data, int(slot)-1))
			k.table[at] = slot
		}
	}
}

// keyAt is the text of the string whose first byte, after the quote, is at start.
func keyAt(data []byte, start int) []byte {
	end := start
	for data[end] != '"' {
		if data[end] == '\\' {
			end++
		}
		end++
	}
	if raw := data[start:end]; bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return AppendDecoded(nil, data[start:end])
}
