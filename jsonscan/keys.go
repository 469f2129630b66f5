package jsonscan

import (
	"bytes"
	"hash/maphash"
	"math"
)

// keySet holds the keys of one object: a few in place, many as the places where they stand, in a
// hash table with open addressing. A table of strings would be ten times the document where an
// object has many short keys.
type keySet struct {
	before map[string]struct{} // keys that stand elsewhere
	n      int
	few    [12][]byte
	table  []uint32 // where keys stand, plus one; 0 is free
	used   int
}

var keySeed = maphash.MakeSeed()

// add notes the key that stands at span of data, and says whether it is new. key is its text.
func (k *keySet) add(data []byte, span Span, key []byte) bool {
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
		k.grow(data)
	}
	at, found := k.find(data, key)
	if found {
		return false
	}
	k.table[at] = uint32(span.Start) + 1 //nolint:gosec // it was compared above
	k.used++
	return true
}

// find is where a key is in the table, or where it would be.
func (k *keySet) find(data []byte, key []byte) (at int, found bool) {
	mask := len(k.table) - 1
	for at = int(maphash.Bytes(keySeed, key)) & mask; k.table[at] != 0; at = (at + 1) & mask { //nolint:gosec // any number will do
		if bytes.Equal(keyAt(data, int(k.table[at])-1), key) {
			return at, true
		}
	}
	return at, false
}

func (k *keySet) grow(data []byte) {
	old := k.table
	k.table = make([]uint32, max(64, 4*len(old)))
	for _, place := range old {
		if place != 0 {
			at, _ := k.find(data, keyAt(data, int(place)-1))
			k.table[at] = place
		}
	}
}

// keyAt is the text of the string whose first byte, behind the quote, is at start.
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
	return AppendText(nil, data[start:end])
}
