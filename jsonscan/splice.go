package jsonscan

import "io"

// Edit replaces a span of a document.
type Edit struct {
	Span
	Text []byte
}

// SplicedLen is the length of data after the edits.
func SplicedLen(data []byte, edits []Edit) int {
	n := len(data)
	for _, e := range edits {
		n += len(e.Text) - e.Len()
	}
	return n
}

// Splice writes data with the edits applied, without building the result in memory. Edits are in
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

// AppendSpliced appends data with the edits applied to dst.
func AppendSpliced(dst, data []byte, edits []Edit) []byte {
	at := 0
	for _, e := range edits {
		dst = append(dst, data[at:e.Start]...)
		dst = append(dst, e.Text...)
		at = e.End
	}
	return append(dst, data[at:]...)
}

// SpliceReader reads data with the edits applied, without building the result in memory.
type SpliceReader struct {
	data  []byte
	at    int
	edits []Edit
	text  []byte // the unread rest of the edit before at
}

// NewSpliceReader makes a reader of data with the edits, which are in order and do not overlap.
func NewSpliceReader(data []byte, edits []Edit) *SpliceReader {
	return &SpliceReader{data: data, edits: edits}
}

// Read implements [io.Reader].
func (s *SpliceReader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(s.text) > 0 {
			k := copy(p[n:], s.text)
			s.text = s.text[k:]
			n += k
			continue
		}
		end := len(s.data)
		if len(s.edits) > 0 {
			end = s.edits[0].Start
		}
		k := copy(p[n:], s.data[s.at:end])
		s.at += k
		n += k
		switch {
		case s.at < end:
			return n, nil
		case len(s.edits) == 0:
			if n == 0 {
				return 0, io.EOF
			}
			return n, nil
		}
		s.text, s.at, s.edits = s.edits[0].Text, s.edits[0].End, s.edits[1:]
	}
	return n, nil
}
