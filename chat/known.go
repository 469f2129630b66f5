package chat

import (
	"hash/maphash"
	"sync"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// known remembers how texts are shortened: a conversation shows them again on every turn. Nothing
// depends on it but time, for what is forgotten is found out again, to the byte. It holds so much
// and no more, in two halves, of which the older is forgotten when the younger is full.
type known struct {
	seeds [2]maphash.Seed

	mu     sync.Mutex
	weight int // of recent
	recent map[mark][]jsonscan.Edit
	before map[mark][]jsonscan.Edit
}

const (
	knownBytes = 16 << 20 // of each half
	entryBytes = 64       // what an entry takes beside its edits
	editBytes  = 48
)

// mark tells texts and the rules for them apart, by two hashes that nobody outside can aim at.
type mark [2]uint64

func newKnown() *known {
	return &known{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, recent: map[mark][]jsonscan.Edit{}}
}

func (k *known) mark(u rule, raw []byte) (m mark) {
	for i, seed := range k.seeds {
		m[i] = maphash.Comparable(seed, ruled{u, len(raw), maphash.Bytes(seed, raw)})
	}
	return m
}

type ruled struct {
	rule rule
	size int
	text uint64
}

// get is how a text is shortened; false when that is not known here.
func (k *known) get(m mark) ([]jsonscan.Edit, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if edits, ok := k.recent[m]; ok {
		return edits, true
	}
	edits, ok := k.before[m]
	if ok {
		k.put(m, edits) // so that what is used stays
	}
	return edits, ok
}

func (k *known) note(m mark, edits []jsonscan.Edit) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.put(m, edits)
}

func (k *known) put(m mark, edits []jsonscan.Edit) {
	weight := entryBytes
	for _, e := range edits {
		weight += editBytes + len(e.Text)
	}
	if weight > knownBytes/4 { // one giant must not push all others out
		return
	}
	if k.weight+weight > knownBytes {
		k.recent, k.before, k.weight = map[mark][]jsonscan.Edit{}, k.recent, 0
	}
	k.recent[m] = edits
	k.weight += weight
}
