package sse

import (
	"bytes"
	"errors"
	"io"
)

const (
	windowSize = 16 << 10       // what one read asks for
	longest    = len("retry: ") // no field that means something has a longer beginning
	patience   = 100            // reads that may bring nothing
)

var byteOrderMark = []byte("\xEF\xBB\xBF")

// window is the part of the stream that has been read and not yet used.
type window struct {
	src     io.Reader
	pending error // what the last read failed with, after it had brought bytes

	buf     []byte
	at, end int // buf[at:end] is not yet used
	ends    breaks
	begun   bool // the byte order mark has been looked for
	cr      bool // the last line ended in CR: an LF right after it belongs to that end
}

// head waits for the next line, or for as much of it as tells its field. It passes nothing.
func (w *window) head() (line []byte, whole bool, _ error) {
	for {
		if w.cr && w.at < w.end {
			if w.buf[w.at] == '\n' {
				w.at++
			}
			w.cr = false
		}
		stop, whole := w.lineEnd()
		if whole || stop-w.at >= longest {
			line = w.buf[w.at:stop]
			if w.begun || !bytes.HasPrefix(line, byteOrderMark) {
				w.begun = true
				return line, whole, nil
			}
			w.begun = true
			w.at += len(byteOrderMark)
			continue
		}
		if err := w.fill(); err != nil {
			return nil, false, w.ended(err)
		}
	}
}

// ended is the error of a stream that ended: between lines, or inside one.
func (w *window) ended(err error) error {
	if errors.Is(err, io.EOF) && w.at < w.end {
		return io.ErrUnexpectedEOF
	}
	return err
}

// rest appends the rest of the line to g and passes its end. It stops with ErrTooLarge before g
// holds more than a read over the limit.
func (w *window) rest(g *gather, limit int64) error {
	stop, whole := w.lineEnd()
	if g.n+int64(stop-w.at) > limit {
		return ErrTooLarge
	}
	g.write(w.buf[w.at:stop])
	w.at = stop
	if g.refused != nil {
		return g.refused
	}
	if !whole {
		return w.far(g, limit)
	}
	w.passEnd()
	return nil
}

// text is rest as a string; a short one, which most are, is not gathered first.
func (w *window) text(limit int64) (string, error) {
	if stop, whole := w.lineEnd(); whole && int64(stop-w.at) <= limit {
		text := string(w.buf[w.at:stop])
		w.at = stop
		w.passEnd()
		return text, nil
	}
	var g gather
	if err := w.rest(&g, limit); err != nil {
		return "", err
	}
	return string(g.take()), nil
}

// far reads the rest of a line that is longer than the window straight to where it will stay.
// What it reads of the next line goes back to the window, which is why no read is longer.
func (w *window) far(g *gather, limit int64) error {
	for {
		space := g.space(windowSize)
		if g.refused != nil {
			return g.refused
		}
		n, err := w.read(space)
		if errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		var ends breaks
		stop := ends.next(space[:n], 0)
		whole := stop >= 0
		if !whole {
			stop = n
		}
		g.commit(stop)
		if g.n > limit {
			return ErrTooLarge
		}
		if whole {
			w.at, w.end, w.ends = 0, copy(w.buf, space[stop:n]), breaks{}
			w.passEnd()
			return nil
		}
	}
}

// skip passes the rest of the line, of any length, and its end.
func (w *window) skip() error {
	for {
		stop, whole := w.lineEnd()
		if whole {
			w.at = stop
			w.passEnd()
			return nil
		}
		w.at = stop - min(1, stop-w.at) // one byte stays, to tell a line cut short
		if err := w.fill(); err != nil {
			return w.ended(err)
		}
	}
}

// lineEnd is the offset of the next CR or LF, or the end of what is there when whole is false.
func (w *window) lineEnd() (stop int, whole bool) {
	if stop = w.ends.next(w.buf[:w.end], w.at); stop >= 0 {
		return stop, true
	}
	return w.end, false
}

// passEnd passes the CR or LF at hand. A CR does not wait for its LF, which may be a keep-alive
// away.
func (w *window) passEnd() {
	w.cr = w.buf[w.at] == '\r'
	w.at++
}

// fill reads more behind the few bytes that are not yet used.
func (w *window) fill() error {
	if w.buf == nil {
		w.buf = make([]byte, windowSize)
	}
	w.end = copy(w.buf, w.buf[w.at:w.end])
	w.at, w.ends = 0, breaks{}
	n, err := w.read(w.buf[w.end:])
	w.end += n
	return err
}

// read brings at least one byte, or an error.
func (w *window) read(p []byte) (int, error) {
	for range patience {
		if w.pending != nil {
			return 0, w.pending
		}
		var n int
		n, w.pending = w.src.Read(p)
		if n > 0 {
			return n, nil
		}
	}
	return 0, io.ErrNoProgress
}
