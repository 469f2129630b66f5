package chat

import (
	"hash/maphash"

	"github.com/ctxgate/ctxgate/internal/lately"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// known remembers how texts are shortened: a conversation shows them again on every turn. Nothing
// depends on it but time, for what is forgotten is found out again, to the byte.
type known struct {
	marker lately.Marker
	how    *lately.Map[lately.Mark, []jsonscan.Edit]
}

const (
	knownBytes = 16 << 20 // of each half
	entryBytes = 64       // what an entry takes beside its edits
	editBytes  = 48
)

func newKnown() *known {
	return &known{marker: lately.NewMarker(), how: lately.NewMap[lately.Mark, []jsonscan.Edit](knownBytes)}
}

// mark tells texts and the rules for them apart.
func (k *known) mark(u rule, raw []byte) lately.Mark {
	return k.marker.Mark(func(h *maphash.Hash) {
		maphash.WriteComparable(h, u)
		_, _ = h.Write(raw)
	})
}

// get is how a text is shortened; false when that is not known here.
func (k *known) get(m lately.Mark) ([]jsonscan.Edit, bool) { return k.how.Get(m) }

func (k *known) note(m lately.Mark, edits []jsonscan.Edit) {
	weight := entryBytes
	for _, e := range edits {
		weight += editBytes + len(e.Text)
	}
	k.how.Put(m, edits, weight)
}
