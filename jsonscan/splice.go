package jsonscan

import "io"

// Edit replaces a span of a document.
type Edit struct {
	Span
	Text []byte
}

// SplicedLen is how long data is with the edits made.
func SplicedLen(data []byte, edits []Edit) int {
	n := len(data)
	for _, e := range edits {
		n += len(e.Text) - e.Len()
	}
	return n
}

// Splice writes data with the edits made, without building the result in memory. Edits are in
// order and do not overlap.
func Splice(w io.Writer, data []byte, edits []Edit) error {
	at := 0
	for _, e := range edits {
		if _, err := w.Write(data[at:e.Start]); err != nil {
			return err
		}
		if _, err := w.Write(e.Text); err != nil {
			return err
		}
		at = e.End
	}
	_, err := w.Write(data[at:])
	return err
}

// AppendSpliced appends data with the edits made to dst.
func AppendSpliced(dst, data []byte, edits []Edit) []byte {
	at := 0
	for _, e := range edits {
		dst = append(dst, data[at:e.Start]...)
		dst = append(dst, e.Text...)
		at = e.End
	}
	return append(dst, data[at:]...)
}
