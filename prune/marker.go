package prune

import (
	"slices"
	"strconv"
)

// Reason is why a block was left out, as the contract words it.
const Reason = "hors focus"

// Marker is the line that replaces a block in the text, in the form of the contract (P4).
func (b Block) Marker(id string) string { return string(b.appendMarker(nil, id)) }

func (b Block) appendMarker(dst []byte, id string) []byte {
	dst = append(append(dst, "⟦PRUNÉ: prune_id="...), id...)
	dst = strconv.AppendInt(append(dst, " lignes "...), int64(b.First), 10)
	dst = strconv.AppendInt(append(dst, '-'), int64(b.Last), 10)
	dst = strconv.AppendInt(append(dst, " ("...), int64(b.LineCount()), 10)
	return append(dst, ") raison="+Reason+"⟧"...)
}

// PlainMarker is the same in English. It is shorter than Marker, so that a block that is longer than that is
// longer than this, too.
func (b Block) PlainMarker(id string) string {
	lines := "lines " + strconv.Itoa(b.First) + "-" + strconv.Itoa(b.Last)
	if b.First == b.Last {
		lines = "line " + strconv.Itoa(b.First)
	}
	return "[" + lines + " left out; call recover_text with prune_id=" + id + "]"
}

// markerBytes is the length of a marker with its line break. All ids have the same length.
func markerBytes(b Block) int {
	return len("⟦PRUNÉ: prune_id= lignes - () raison="+Reason+"⟧\n") + IDLen + digitCount(b.First) + digitCount(b.Last) + digitCount(b.LineCount())
}

// maxMarker bounds markerBytes for any line numbers.
const maxMarker = 160

// IDLen is the length of an original's id: "prn_" and 26 letters.
const IDLen = 30

func digitCount(n int) int {
	d := 1
	for ; n >= 10; n /= 10 {
		d++
	}
	return d
}

// Format is how a pruned text is written.
type Format struct {
	ID          string // of the original
	LineNumbers bool   // kept lines begin with their number: "12│ "
	Markers     bool   // a marker replaces every block
}

// AppendPruned appends the text without the blocks.
func (d *ScoredText) AppendPruned(dst []byte, cut []Block, s Format) []byte {
	dst = slices.Grow(dst, d.estimateSize(cut, s))
	before, at := len(dst), 1
	for _, b := range cut {
		dst = d.appendLines(dst, at, b.First-1, s)
		if s.Markers {
			dst = append(b.appendMarker(dst, s.ID), '\n')
		}
		at = b.Last + 1
	}
	dst = d.appendLines(dst, at, d.LineCount(), s)
	if len(dst) > before { // line breaks separate lines and do not end them
		dst = dst[:len(dst)-1]
	}
	return dst
}

// estimateSize is how much AppendPruned writes, or a little more.
func (d *ScoredText) estimateSize(cut []Block, s Format) int {
	size := len(d.lines.Text) + 1
	if s.LineNumbers {
		size += d.LineCount() * (digitCount(d.LineCount()) + len("│ "))
	}
	for _, b := range cut {
		size -= d.blockBytes(b)
		if s.Markers {
			size += markerBytes(b)
		}
	}
	return max(size, 0)
}

func (d *ScoredText) appendLines(dst []byte, first, last int, s Format) []byte {
	if first > last {
		return dst
	}
	if !s.LineNumbers {
		return append(append(dst, d.Lines(first, last)...), '\n')
	}
	for n := first; n <= last; n++ {
		dst = strconv.AppendInt(dst, int64(n), 10)
		dst = append(append(append(dst, "│ "...), d.lines.At(n-1)...), '\n')
	}
	return dst
}
