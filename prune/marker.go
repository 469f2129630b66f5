package prune

import (
	"slices"
	"strconv"
)

// Reason is why a block was left out, in the words of the contract's language.
const Reason = "hors focus"

// Marker is the one line that stands for a block in the text, as the contract spells it (P4).
func (b Block) Marker(id string) string { return string(b.appendMarker(nil, id)) }

func (b Block) appendMarker(dst []byte, id string) []byte {
	dst = append(append(dst, "⟦PRUNÉ: prune_id="...), id...)
	dst = strconv.AppendInt(append(dst, " lignes "...), int64(b.First), 10)
	dst = strconv.AppendInt(append(dst, '-'), int64(b.Last), 10)
	dst = strconv.AppendInt(append(dst, " ("...), int64(b.Lines()), 10)
	return append(dst, ") raison="+Reason+"⟧"...)
}

// markerBytes is how long a marker is, with its line break. All ids have the same length.
func markerBytes(b Block) int {
	return len("⟦PRUNÉ: prune_id= lignes - () raison="+Reason+"⟧\n") + idBytes + digits(b.First) + digits(b.Last) + digits(b.Lines())
}

// maxMarker is the most that markerBytes gives, for lines of any number.
const maxMarker = 160

// idBytes is how long the id of an original is: "prn_" and 26 letters.
const idBytes = 30

func digits(n int) int {
	d := 1
	for ; n >= 10; n /= 10 {
		d++
	}
	return d
}

// Style is how a cut text is written.
type Style struct {
	ID      string // of the original
	Number  bool   // kept lines begin with their number: "12│ "
	Markers bool   // a line stands for every block that was left out
}

// Append writes the text without blocks.
func (d *Doc) Append(dst []byte, cut []Block, s Style) []byte {
	dst = slices.Grow(dst, d.written(cut, s))
	before, at := len(dst), 1
	for _, b := range cut {
		dst = d.appendLines(dst, at, b.First-1, s)
		if s.Markers {
			dst = append(b.appendMarker(dst, s.ID), '\n')
		}
		at = b.Last + 1
	}
	dst = d.appendLines(dst, at, d.Len(), s)
	if len(dst) > before { // lines are parted, not ended, by line breaks
		dst = dst[:len(dst)-1]
	}
	return dst
}

// written is how much Append writes, or a little more.
func (d *Doc) written(cut []Block, s Style) int {
	size := len(d.lines.text) + 1
	if s.Number {
		size += d.Len() * (digits(d.Len()) + len("│ "))
	}
	for _, b := range cut {
		size -= d.bytes(b)
		if s.Markers {
			size += markerBytes(b)
		}
	}
	return max(size, 0)
}

func (d *Doc) appendLines(dst []byte, first, last int, s Style) []byte {
	if first > last {
		return dst
	}
	if !s.Number {
		return append(append(dst, d.Text(first, last)...), '\n')
	}
	for n := first; n <= last; n++ {
		dst = strconv.AppendInt(dst, int64(n), 10)
		dst = append(append(append(dst, "│ "...), d.lines.at(n-1)...), '\n')
	}
	return dst
}
