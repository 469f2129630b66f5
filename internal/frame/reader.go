package frame

import (
	"bytes"
	"errors"
	"io"
	"math"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/internal/membudget"
)

// maxJunk is how much of a line that is no message is worth showing.
const maxJunk = 256

var bom = []byte("\xef\xbb\xbf")

// Reader gives the messages of a stream. Next is for one goroutine; Framing is for any.
type Reader struct {
	source
	limit   int64
	junk    func(line []byte)
	framing atomic.Uint32
	settled bool  // the framing was decided, by the first thing that was no junk
	block   block // of headers, being read
	rest    int64 // of an oversized message, still to be skipped; -1 is up to the line's end
	memory  *membudget.Scope
	charged int64 // what memory holds for the last message
}

// NewReader reads messages of at most maxFrame bytes from r. Lines that are none (banners,
// logs) go to junk, the first 256 bytes of each, valid during the call; junk may be nil.
func NewReader(r io.Reader, maxFrame int64, junk func(line []byte)) *Reader {
	if junk == nil {
		junk = func([]byte) {}
	}
	return &Reader{source: source{from: r, buf: make([]byte, ahead)}, limit: maxFrame, junk: junk}
}

// Charge takes the memory of messages that are longer than the read-ahead buffer from a scope. The
// caller of Next gives back what Charged says. It is called before the first Next.
func (r *Reader) Charge(to *membudget.Scope) { r.memory = to }

// Charged is what the scope holds for the message that Next gave last.
func (r *Reader) Charged() int64 { return r.charged }

// SetLimit changes the size of the largest message. It is for who calls Next, between two calls.
func (r *Reader) SetLimit(maxFrame int64) { r.limit = maxFrame }

// Framing is what the peer was found to speak; Newline until it has said otherwise.
func (r *Reader) Framing() Framing { return Framing(r.framing.Load()) }

// Next gives the next message, as bytes that are the caller's own. One over the limit comes as
// *TooLarge once it is over, or once four times the limit went by; the next call goes on after
// it. Any other error is the stream's, and stays.
func (r *Reader) Next() ([]byte, error) {
	r.charged = 0
	for {
		if err := r.skipRest(); err != nil {
			return nil, err
		}
		c, err := r.first()
		if err != nil {
			return nil, err
		}
		switch c {
		case '\n':
			if n, ok := r.endBlock(); ok {
				return r.body(n)
			}
		case '{', '[':
			return r.message()
		default:
			if err := r.other(); err != nil {
				return nil, err
			}
		}
	}
}

// first passes over blanks, and a byte order mark at a line's start, to the first byte that says
// what the line is. Only the end of a blank line is taken; any other byte is left to be read.
func (r *Reader) first() (byte, error) {
	for atStart := true; ; atStart = false {
		if r.start == r.end {
			if err := r.more(); err != nil {
				return 0, err
			}
		}
		switch c := r.buf[r.start]; {
		case c == ' ' || c == '\t' || c == '\r':
			r.take(1)
		case c == '\n':
			r.take(1)
			return c, nil
		case c == bom[0] && atStart && r.hasBOM():
			r.take(len(bom))
		default:
			return c, nil
		}
	}
}

func (r *Reader) hasBOM() bool {
	for len(r.window()) < len(bom) && bytes.HasPrefix(bom, r.window()) {
		if r.more() != nil {
			return false
		}
	}
	return bytes.HasPrefix(r.window(), bom)
}

// message is a line that begins like JSON. In Content-Length framing too: a peer that forgets a
// header is better understood than lost.
func (r *Reader) message() ([]byte, error) {
	r.settled = true
	r.block = block{}
	text, err := r.line(r.limit)
	if big, ok := errors.AsType[*TooLarge](err); ok {
		r.recount(big.Tail)
		return nil, err
	}
	return r.recount(text), err
}

// recount looks for a header at the end of a line that was none, in the framing where it would
// otherwise be lost, and every message after it. What comes before the header is returned.
func (r *Reader) recount(line []byte) []byte {
	if r.Framing() == ContentLength && r.rest == 0 {
		line, r.block = glued(line)
	}
	return line
}

// other is a line that is no message: a header, or junk.
func (r *Reader) other() error {
	line, err := r.line(maxHeader)
	end := line
	if big, ok := errors.AsType[*TooLarge](err); ok {
		line, end = big.Head, big.Tail
	} else if err != nil {
		return err
	} else if (!r.settled || r.Framing() == ContentLength) && r.block.add(line) {
		return nil
	}
	r.block = block{}
	r.recount(end)
	r.junk(line[:min(maxJunk, len(line))])
	return nil
}

// endBlock is at a blank line: if it ends a block of headers, n bytes of message follow.
func (r *Reader) endBlock() (n int64, ok bool) {
	b := r.block
	r.block = block{}
	if !b.known {
		return 0, false
	}
	r.settled = true
	r.framing.Store(uint32(ContentLength))
	return b.length, b.length > 0
}

// body is exactly n bytes.
func (r *Reader) body(n int64) ([]byte, error) {
	if n > r.limit || n > ahead {
		return r.spooled(n, r.limit)
	}
	for int64(len(r.window())) < n {
		if err := r.more(); err != nil {
			return nil, r.broken(err)
		}
	}
	text := bytes.Clone(r.window()[:n])
	r.take(int(n))
	return text, nil
}

// broken is the end of the stream inside a counted message.
func (r *Reader) broken(err error) error {
	r.take(len(r.window()))
	if errors.Is(err, io.EOF) {
		r.err = io.ErrUnexpectedEOF
	}
	return r.err
}

// line is the rest of the line, without its end. It is its own copy.
func (r *Reader) line(limit int64) ([]byte, error) {
	for seen := 0; ; {
		w := r.window()
		if i := bytes.IndexByte(w[seen:], '\n'); i >= 0 && int64(seen+i) <= limit {
			r.take(seen + i + 1)
			return bytes.Clone(trimEnd(w[:seen+i])), nil
		} else if seen = len(w); i >= 0 || r.full() || int64(seen) > limit {
			return r.spooled(-1, limit)
		}
		if err := r.more(); errors.Is(err, io.EOF) {
			text := bytes.Clone(trimEnd(r.window()))
			r.take(len(r.window()))
			return text, nil
		} else if err != nil {
			return nil, err
		}
	}
}

// spooled is what does not fit the buffer or the limit: n bytes, or with -1 the rest of the line.
func (r *Reader) spooled(n, limit int64) ([]byte, error) {
	s := spool{limit: limit, charge: membudget.Charge{Scope: r.memory}}
	defer func() { r.charged = s.charge.Bytes }()
	if n > limit {
		s.drop() // so much is known before the first byte
	} else if n >= 0 {
		s.limit = n // no piece need be larger
	}
	for enough := patience(limit); ; {
		part, after, ended := r.part(n, s.size)
		if room := enough - s.size; int64(len(part)) >= room {
			part, after, ended = part[:room], 0, false
		}
		s.add(part)
		r.take(len(part) + after)
		switch {
		case ended && n < 0:
			text, err := s.text()
			return trimEnd(text), err
		case ended:
			return s.counted(n)
		case s.size == enough:
			if r.rest = -1; n >= 0 {
				r.rest = n - s.size
			}
			return s.counted(max(n, s.size))
		}
		if err := r.more(); err != nil {
			return r.cutShort(&s, n, err)
		}
	}
}

// part is what the window holds of a message of which got bytes were taken, and what stands
// between it and the next.
func (r *Reader) part(n, got int64) (part []byte, after int, ended bool) {
	w := r.window()
	if n >= 0 {
		part = w[:min(int64(len(w)), n-got)]
		return part, 0, got+int64(len(part)) == n
	}
	if i := bytes.IndexByte(w, '\n'); i >= 0 {
		return w[:i], 1, true
	}
	return w, 0, false
}

// cutShort is the end of the stream inside a long message. A line may well end there.
func (r *Reader) cutShort(s *spool, n int64, err error) ([]byte, error) {
	switch {
	case s.over:
		return s.counted(max(n, s.size))
	case n >= 0:
		return nil, r.broken(err)
	case errors.Is(err, io.EOF):
		text, err := s.text()
		return trimEnd(text), err
	}
	return nil, err
}

// patience bounds the wait for the end of an oversized message: its sender may never end it.
func patience(limit int64) int64 {
	if limit > math.MaxInt64/impatience {
		return math.MaxInt64
	}
	return impatience * max(limit, 1)
}

// skipRest passes over what remains of an oversized message that was already said.
func (r *Reader) skipRest() error {
	for r.rest != 0 {
		w := r.window()
		if i := bytes.IndexByte(w, '\n'); r.rest < 0 && i >= 0 {
			r.take(i + 1)
			r.rest = 0
			return nil
		}
		n := len(w)
		if r.rest > 0 {
			n = int(min(int64(n), r.rest))
			r.rest -= int64(n)
		}
		r.take(n)
		if r.rest == 0 {
			return nil
		}
		if err := r.more(); err != nil {
			return err
		}
	}
	return nil
}

func trimEnd(line []byte) []byte { return bytes.TrimRight(line, " \t\r") }
