package frame

import (
	"bytes"
	"errors"
	"io"
	"math"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/internal/membudget"
)

// maxJunk is how much of a line that is not a message is reported.
const maxJunk = 256

var byteOrderMark = []byte("\xef\xbb\xbf")

// Reader reads the messages of a stream. Next is for one goroutine; Framing is for any.
type Reader struct {
	buffer
	limit     int64
	onJunk    func(line []byte)
	framing   atomic.Uint32
	isDecided bool // the framing is known, from the first line that was not junk
	headers   headerBlock
	skipBytes int64 // what remains of an oversized message; -1 is up to the end of the line
	memory    *membudget.Scope
	charged   int64 // what memory holds for the last message
}

// NewReader reads messages of at most maxFrame bytes from r. onJunk gets lines that are not messages (banners, logs), the
// first 256 bytes of each, valid during the call; it may be nil.
func NewReader(r io.Reader, maxFrame int64, onJunk func(line []byte)) *Reader {
	if onJunk == nil {
		onJunk = func([]byte) {}
	}
	return &Reader{buffer: buffer{from: r, buf: make([]byte, readAhead)}, limit: maxFrame, onJunk: onJunk}
}

// ChargeTo charges messages that are longer than the read-ahead buffer to a scope. The caller of Next frees ChargedBytes.
// It is called before the first Next.
func (r *Reader) ChargeTo(scope *membudget.Scope) { r.memory = scope }

// ChargedBytes is what the scope holds for the message that Next returned last.
func (r *Reader) ChargedBytes() int64 { return r.charged }

// SetLimit changes the size of the largest message, between two calls of Next.
func (r *Reader) SetLimit(maxFrame int64) { r.limit = maxFrame }

// Framing is the framing that the peer uses; Newline until it has sent something else.
func (r *Reader) Framing() Framing { return Framing(r.framing.Load()) }

// Next returns the next message, in a buffer of its own. A message over the limit is returned as *TooLargeError when it
// ends, or after four times the limit; the next call continues after it. Any other error is the stream's and permanent.
func (r *Reader) Next() ([]byte, error) {
	r.charged = 0
	for {
		if err := r.skipOversized(); err != nil {
			return nil, err
		}
		c, err := r.firstByte()
		if err != nil {
			return nil, err
		}
		switch c {
		case '\n':
			if n, ok := r.endHeaders(); ok {
				return r.readBody(n)
			}
		case '{', '[':
			// In Content-Length framing too: a peer may forget a header.
			r.isDecided = true
			r.headers = headerBlock{}
			text, err := r.readLine(r.limit)
			if big, ok := errors.AsType[*TooLargeError](err); ok {
				r.findTrailingHeader(big.Tail)
				return nil, err
			}
			return r.findTrailingHeader(text), err
		default:
			if err := r.readOther(); err != nil {
				return nil, err
			}
		}
	}
}

// firstByte skips blanks, and a byte order mark at the start of a line, and returns the byte that tells what the line is.
// Only the end of a blank line is consumed.
func (r *Reader) firstByte() (byte, error) {
	for atStart := true; ; atStart = false {
		if r.start == r.end {
			if err := r.fill(); err != nil {
				return 0, err
			}
		}
		switch c := r.buf[r.start]; {
		case c == ' ' || c == '\t' || c == '\r':
			r.skip(1)
		case c == '\n':
			r.skip(1)
			return c, nil
		case c == byteOrderMark[0] && atStart && r.hasByteOrderMark():
			r.skip(len(byteOrderMark))
		default:
			return c, nil
		}
	}
}

func (r *Reader) hasByteOrderMark() bool {
	for len(r.window()) < len(byteOrderMark) && bytes.HasPrefix(byteOrderMark, r.window()) {
		if r.fill() != nil {
			return false
		}
	}
	return bytes.HasPrefix(r.window(), byteOrderMark)
}

// findTrailingHeader looks for a header at the end of a line, in Content-Length framing, where it and every message after
// it would otherwise be lost. It returns what comes before the header.
func (r *Reader) findTrailingHeader(line []byte) []byte {
	if r.Framing() == ContentLength && r.skipBytes == 0 {
		line, r.headers = cutTrailingHeader(line)
	}
	return line
}

// readOther reads a line that is not a message: a header, or junk.
func (r *Reader) readOther() error {
	line, err := r.readLine(maxHeaderBytes)
	end := line
	if big, ok := errors.AsType[*TooLargeError](err); ok {
		line, end = big.Head, big.Tail
	} else if err != nil {
		return err
	} else if (!r.isDecided || r.Framing() == ContentLength) && r.headers.addLine(line) {
		return nil
	}
	r.headers = headerBlock{}
	r.findTrailingHeader(end)
	r.onJunk(line[:min(maxJunk, len(line))])
	return nil
}

// endHeaders is called at a blank line: if it ends a block of headers, n bytes of message follow.
func (r *Reader) endHeaders() (n int64, ok bool) {
	b := r.headers
	r.headers = headerBlock{}
	if !b.hasLength {
		return 0, false
	}
	r.isDecided = true
	r.framing.Store(uint32(ContentLength))
	return b.length, b.length > 0
}

// readBody reads exactly n bytes.
func (r *Reader) readBody(n int64) ([]byte, error) {
	if n > r.limit || n > readAhead {
		return r.readLong(n, r.limit)
	}
	for int64(len(r.window())) < n {
		if err := r.fill(); err != nil {
			return nil, r.unexpectedEnd(err)
		}
	}
	text := bytes.Clone(r.window()[:n])
	r.skip(int(n))
	return text, nil
}

// unexpectedEnd is the error for a stream that ends inside a body.
func (r *Reader) unexpectedEnd(err error) error {
	r.skip(len(r.window()))
	if errors.Is(err, io.EOF) {
		r.err = io.ErrUnexpectedEOF
	}
	return r.err
}

// readLine reads the rest of the line, without its end, into a buffer of its own.
func (r *Reader) readLine(limit int64) ([]byte, error) {
	for seen := 0; ; {
		w := r.window()
		if i := bytes.IndexByte(w[seen:], '\n'); i >= 0 && int64(seen+i) <= limit {
			r.skip(seen + i + 1)
			return bytes.Clone(trimEnd(w[:seen+i])), nil
		} else if seen = len(w); i >= 0 || r.isFull() || int64(seen) > limit {
			return r.readLong(-1, limit)
		}
		if err := r.fill(); errors.Is(err, io.EOF) {
			text := bytes.Clone(trimEnd(r.window()))
			r.skip(len(r.window()))
			return text, nil
		} else if err != nil {
			return nil, err
		}
	}
}

// readLong reads a message that does not fit the buffer or the limit: n bytes, or with -1 the rest of the line.
func (r *Reader) readLong(n, limit int64) ([]byte, error) {
	s := spool{limit: limit, charge: membudget.Charge{Scope: r.memory}}
	defer func() { r.charged = s.charge.Bytes }()
	if n > limit {
		s.dropPieces() // it is known to be too large before the first byte
	} else if n >= 0 {
		s.limit = n // no piece need be larger
	}
	// The sender may never end an oversized message: it is reported after maxSkip bytes, and the rest is skipped.
	maxSkip := int64(math.MaxInt64)
	if limit <= math.MaxInt64/skipFactor {
		maxSkip = skipFactor * max(limit, 1)
	}
	for {
		part, after, ended := r.nextPart(n, s.size)
		if room := maxSkip - s.size; int64(len(part)) >= room {
			part, after, ended = part[:room], 0, false
		}
		s.addBytes(part)
		r.skip(len(part) + after)
		switch {
		case ended && n < 0:
			text, err := s.join(s.size)
			return trimEnd(text), err
		case ended:
			return s.join(n)
		case s.size == maxSkip:
			if r.skipBytes = -1; n >= 0 {
				r.skipBytes = n - s.size
			}
			return s.join(max(n, s.size))
		}
		err := r.fill()
		switch { // the stream may end inside the message; a line may well end there
		case err == nil:
		case s.isOver:
			return s.join(max(n, s.size))
		case n >= 0:
			return nil, r.unexpectedEnd(err)
		case errors.Is(err, io.EOF):
			text, err := s.join(s.size)
			return trimEnd(text), err
		default:
			return nil, err
		}
	}
}

// nextPart is what the window holds of a message of which got bytes were read, and how many bytes separate it from the
// next.
func (r *Reader) nextPart(n, got int64) (part []byte, after int, ended bool) {
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

// skipOversized skips what remains of an oversized message that was already reported.
func (r *Reader) skipOversized() error {
	for r.skipBytes != 0 {
		w := r.window()
		if i := bytes.IndexByte(w, '\n'); r.skipBytes < 0 && i >= 0 {
			r.skip(i + 1)
			r.skipBytes = 0
			return nil
		}
		n := len(w)
		if r.skipBytes > 0 {
			n = int(min(int64(n), r.skipBytes))
			r.skipBytes -= int64(n)
		}
		r.skip(n)
		if r.skipBytes == 0 {
			return nil
		}
		if err := r.fill(); err != nil {
			return err
		}
	}
	return nil
}

func trimEnd(line []byte) []byte { return bytes.TrimRight(line, " \t\r") }
