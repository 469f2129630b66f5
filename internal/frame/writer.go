package frame

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// ErrFull is returned for a message that the peer is not reading fast enough for.
var ErrFull = errors.New("the peer does not read: too much is queued for it")

// ErrClosed is returned for a message after Close.
var ErrClosed = errors.New("closed for messages")

// shared is how much small messages are gathered to when several are waiting, beside the limits.
const shared = 16 << 10

// Limits bound what waits for a peer, the message being written included.
type Limits struct {
	MaxMessages int   // 64 if zero
	MaxBytes    int64 // 1 MiB if zero; a larger message may still go alone
}

// Writer sends messages from one goroutine, so that a peer that stops reading blocks nobody. Its
// methods are safe for concurrent use.
type Writer struct {
	out     *bufio.Writer // the goroutine's
	limits  Limits
	framing func() Framing
	close   func() error
	ended   chan struct{} // closed when the goroutine is gone

	mu      sync.Mutex
	work    *sync.Cond
	queue   []message
	count   int   // messages queued and being written
	bytes   int64 // theirs
	closing bool
	over    bool  // the goroutine takes nothing more
	err     error // of the write that failed
}

type message struct {
	parts [][]byte
	size  int64
	mark  chan struct{} // no message but a place in the queue: closed when all before it is out
}

// NewWriter writes to w, which is the Writer's from now on. It asks framing before each message,
// since a peer may only show how it speaks after the first.
func NewWriter(w io.WriteCloser, limits Limits, framing func() Framing) *Writer {
	if limits.MaxMessages == 0 {
		limits.MaxMessages = 64
	}
	if limits.MaxBytes == 0 {
		limits.MaxBytes = 1 << 20
	}
	wr := &Writer{
		out: bufio.NewWriterSize(w, shared), limits: limits, framing: framing,
		close: sync.OnceValue(w.Close), ended: make(chan struct{}),
	}
	wr.work = sync.NewCond(&wr.mu)
	go wr.run()
	return wr
}

// Send queues one message, given in parts, and returns at once. Nothing is copied: neither the
// slice of parts nor their bytes may change from now on.
func (w *Writer) Send(parts ...[]byte) error {
	m := message{parts: parts}
	for _, p := range parts {
		m.size += int64(len(p))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return w.err
	case w.closing:
		return ErrClosed
	case m.size == 0:
		return nil
	case w.count >= w.limits.MaxMessages, w.count > 0 && w.bytes+m.size > w.limits.MaxBytes:
		return ErrFull
	}
	w.count++
	w.bytes += m.size
	w.push(m)
	return nil
}

func (w *Writer) push(m message) {
	w.queue = append(w.queue, m)
	w.work.Signal()
}

// Flush waits until everything that was sent so far is written.
func (w *Writer) Flush(ctx context.Context) error {
	mark := make(chan struct{})
	w.mu.Lock()
	if w.over || w.count == 0 {
		defer w.mu.Unlock()
		return w.err
	}
	w.push(message{mark: mark})
	w.mu.Unlock()
	select {
	case <-mark:
		return w.failure()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close takes no more messages, gives those that are queued so long to be written, and closes
// what is under the Writer. It returns os.ErrDeadlineExceeded when time was up first.
func (w *Writer) Close(timeout time.Duration) error {
	w.mu.Lock()
	w.closing = true
	w.work.Signal()
	w.mu.Unlock()

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-w.ended:
		return errors.Join(w.failure(), w.close())
	case <-timer.C:
		// This also ends a write that hangs, and with it the goroutine.
		return errors.Join(os.ErrDeadlineExceeded, w.close())
	}
}

func (w *Writer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

func (w *Writer) run() {
	defer close(w.ended)
	for {
		m, last, ok := w.take()
		if !ok {
			return
		}
		err := w.write(m)
		if err == nil && (last || m.mark != nil) {
			err = w.out.Flush()
		}
		w.done(m, err)
		if err != nil {
			return
		}
	}
}

// take waits for a message. Last says that none is behind it, so that what is buffered goes out.
func (w *Writer) take() (m message, last, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.closing {
		w.work.Wait()
	}
	if len(w.queue) == 0 {
		w.over = true
		return message{}, false, false
	}
	m = w.queue[0]
	w.queue[0] = message{}
	if w.queue = w.queue[1:]; len(w.queue) == 0 {
		w.queue = nil
	}
	return m, w.queue == nil, true
}

// done gives the room back. After an error nothing more can be written: half a message may be
// out, and the peer would take the next for its other half.
func (w *Writer) done(m message, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := []message{m}
	if err != nil {
		waiting = append(waiting, w.queue...)
		w.err, w.over, w.queue = err, true, nil
	}
	for _, m := range waiting {
		if m.mark != nil {
			close(m.mark)
			continue
		}
		w.count--
		w.bytes -= m.size
	}
}

func (w *Writer) write(m message) error {
	if m.mark != nil {
		return nil
	}
	put, end := w.flat, "\n"
	if w.framing() == ContentLength {
		head := append(w.out.AvailableBuffer(), "Content-Length: "...)
		head = append(strconv.AppendInt(head, m.size, 10), "\r\n\r\n"...)
		if _, err := w.out.Write(head); err != nil {
			return err
		}
		put, end = w.raw, ""
	}
	for _, p := range m.parts {
		if err := put(p); err != nil {
			return err
		}
	}
	_, err := w.out.WriteString(end)
	return err
}

func (w *Writer) raw(p []byte) error {
	_, err := w.out.Write(p)
	return err
}

// flat writes p on one line. A raw line end is white space wherever JSON allows it at all, so a
// space says the same.
func (w *Writer) flat(p []byte) error {
	if bytes.IndexByte(p, '\n') < 0 && bytes.IndexByte(p, '\r') < 0 {
		return w.raw(p)
	}
	for len(p) > 0 {
		if w.out.Available() == 0 {
			if err := w.out.Flush(); err != nil {
				return err
			}
		}
		piece := append(w.out.AvailableBuffer(), p[:min(len(p), w.out.Available())]...)
		for i, c := range piece {
			if c == '\n' || c == '\r' {
				piece[i] = ' '
			}
		}
		if err := w.raw(piece); err != nil {
			return err
		}
		p = p[len(piece):]
	}
	return nil
}
