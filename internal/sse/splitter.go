package sse

import "bytes"

// Splitter cuts an event stream that comes in pieces into events, and changes no byte of it. The zero
// Splitter, with a limit, is at the beginning of a stream.
type Splitter struct {
	MaxEvent int // the most bytes of an event that has not ended

	scanner Scanner
	pending []byte // of an event that has not ended
	cr      bool   // the last event ended in a CR at the end of a piece
}

// Write reads a piece of the stream and calls event with the bytes of each event that ends in it, which
// are valid during the call. lateLF is called for an LF that belongs to the end of the last event, but
// came in a later piece. The error is [ErrTooLarge].
func (s *Splitter) Write(piece []byte, event func(raw []byte), lateLF func()) error {
	start := 0
	if s.cr && len(piece) > 0 {
		if s.cr = false; piece[0] == '\n' {
			lateLF()
			s.scanner.cr = false
			start = 1
		}
	}
	for at := start; at < len(piece); {
		token, _, n := s.scanner.Next(piece[at:])
		if at += n; token != EndEvent {
			continue
		}
		if s.scanner.cr && at < len(piece) && piece[at] == '\n' {
			at++
			s.scanner.cr = false
		}
		s.cr = s.scanner.cr && at == len(piece)
		raw := piece[start:at]
		if len(s.pending) > 0 {
			s.pending = append(s.pending, raw...)
			raw = s.pending
		}
		event(raw)
		s.pending, start = s.pending[:0], at
	}
	s.pending = append(s.pending, piece[start:]...)
	if len(s.pending) > s.MaxEvent {
		return ErrTooLarge
	}
	return nil
}

// Reset begins another stream, and returns what has come of an event that did not end.
func (s *Splitter) Reset() []byte {
	rest := s.pending
	*s = Splitter{MaxEvent: s.MaxEvent}
	return rest
}

// RawEvent is an event as it came: all its bytes, to the end of the empty line, and its data.
type RawEvent struct {
	Raw  []byte
	Data []byte // nil: it has none
	at   int    // where the data stands in Raw, -1 where it is spread over several lines
}

// ParseRaw finds the data of an event. Only the first of a stream may begin with a byte order mark.
func ParseRaw(raw []byte, first bool) RawEvent {
	e := RawEvent{Raw: raw}
	var s Scanner
	if !first {
		s.mark = afterMark
	}
	isNew := true // the next token begins a field
	for at := 0; at < len(raw); {
		token, value, n := s.Next(raw[at:])
		at += n
		if isNew && s.Field() == DataField && (token == Value || token == EndField) {
			if e.Data == nil {
				e.at = at - len(value)
				if token == EndField {
					e.at--
				}
				e.Data = raw[e.at : e.at+len(value) : e.at+len(value)]
			} else {
				e.Data, e.at = append(append(e.Data, '\n'), value...), -1
			}
		}
		isNew = token != Value
	}
	return e
}

// AppendWith appends the event with other data, in which line ends can only be white space.
func (e *RawEvent) AppendWith(dst, data []byte) []byte {
	if len(e.Data) > 0 && e.at >= 0 {
		dst = append(append(dst, e.Raw[:e.at]...), data...)
		return append(dst, e.Raw[e.at+len(e.Data):]...)
	}
	for rest := e.Raw; len(rest) > 0; {
		end := bytes.IndexAny(rest, "\r\n")
		if end < 0 {
			end = len(rest)
		}
		name, _, _ := bytes.Cut(rest[:end], []byte(":"))
		if end > 0 && fieldOf(name) != DataField {
			dst = append(append(dst, rest[:end]...), '\n')
		}
		rest = rest[min(end+1, len(rest)):]
	}
	for line := range bytes.SplitSeq(data, []byte{'\n'}) {
		dst = append(append(append(dst, "data: "...), line...), '\n')
	}
	return append(dst, '\n')
}
