package sse

import (
	"io"
	"strconv"
	"strings"
	"time"
)

var (
	nextLine = []byte("\ndata: ")
	lastLine = []byte("\n\n")
)

// AppendEvent appends the event to dst. Each line of Data becomes a data line of its own. A name
// or an id that holds a line end, or an id that holds NUL, cannot be written in this format and is
// left out: a shortened id would resume a stream in the wrong place.
func AppendEvent(dst []byte, e Event) []byte {
	dst = appendHead(dst, e.Name, e.ID, e.HasID)
	if e.Retry > 0 {
		ms := int64(e.Retry / time.Millisecond)
		if e.Retry%time.Millisecond != 0 {
			ms++ // never sooner than asked
		}
		dst = append(strconv.AppendInt(append(dst, "retry: "...), ms, 10), '\n')
	}
	if e.Data != nil {
		dst = append(dst, "data: "...)
		lines := lineSplitter{p: e.Data}
		for line, more := lines.next(); more; line, more = lines.next() {
			dst = append(append(dst, line...), nextLine...)
		}
		dst = append(append(dst, lines.rest()...), '\n')
	}
	return append(dst, '\n')
}

func appendHead(dst []byte, name, id string, hasID bool) []byte {
	if name != "" && !strings.ContainsAny(name, "\r\n") {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	if hasID && !strings.ContainsAny(id, "\r\n\x00") {
		dst = append(append(append(dst, "id: "...), id...), '\n')
	}
	return dst
}

// WriteData writes one event whose data is the parts, one after another: a JSON message, say,
// with some of its bytes replaced. Line ends in it, which in JSON can only be white space,
// become line ends between data lines, so that the receiver has the same JSON. No copy of the
// parts is made. An empty id is no id.
func WriteData(w io.Writer, name, id string, parts ...[]byte) error {
	head := append(appendHead(nil, name, id, id != ""), "data: "...)
	if _, err := w.Write(head); err != nil {
		return err
	}
	var lines lineSplitter
	for _, part := range parts {
		if err := writeLines(w, &lines, part); err != nil {
			return err
		}
	}
	_, err := w.Write(lastLine)
	return err
}

func writeLines(w io.Writer, lines *lineSplitter, part []byte) error {
	*lines = lineSplitter{p: part, cr: lines.cr}
	for line, more := lines.next(); more; line, more = lines.next() {
		if _, err := w.Write(line); err != nil {
			return err
		}
		if _, err := w.Write(nextLine); err != nil {
			return err
		}
	}
	rest := lines.rest()
	if len(rest) == 0 {
		return nil
	}
	_, err := w.Write(rest)
	return err
}

// Comment writes a comment, which a receiver passes over: a sign of life on a quiet stream. Only
// the text's first line is written.
func Comment(w io.Writer, text string) error {
	line := ":"
	if i := strings.IndexAny(text, "\r\n"); i >= 0 {
		text = text[:i]
	}
	if text != "" {
		line = ": " + text
	}
	_, err := io.WriteString(w, line+"\n\n")
	return err
}

// lineSplitter cuts p at LF, CR and CRLF, also where a CRLF is split between two p's.
type lineSplitter struct {
	p    []byte
	at   int
	ends Scanner // only finds the line ends
	cr   bool    // the last line ended in CR
}

// next is the next line, without its end, when p holds that end.
func (s *lineSplitter) next() (line []byte, more bool) {
	if s.cr && s.at < len(s.p) {
		if s.p[s.at] == '\n' {
			s.at++
		}
		s.cr = false
	}
	stop := s.ends.lineEnd(s.p, s.at)
	if stop == len(s.p) {
		return nil, false
	}
	line = s.p[s.at:stop]
	s.cr = s.p[stop] == '\r'
	s.at = stop + 1
	return line, true
}

// rest is what follows the last line end.
func (s *lineSplitter) rest() []byte { return s.p[s.at:] }
