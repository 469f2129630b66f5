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

// ErrFull is returned for a message while the peer does not read fast enough.
var ErrFull = errors.New("the peer does not read: too much is queued for it")

// ErrClosed is returned for a message after Close.
var ErrClosed = errors.New("closed for messages")

// batchBytes is how much of several small messages is written at once. It is not part of the limits.
const batchBytes = 16 << 10

// Limits bound the queue, the message being written included.
type Limits struct {
	MaxMessages int   // 64 if zero
	MaxBytes    int64 // 1 MiB if zero; a larger message may still go alone
}

// Writer writes messages from one goroutine, so that a peer that stops reading does not block senders. Its methods are
// safe for concurrent use.
type Writer struct {
	out     *bufio.Writer // used by the goroutine only
	limits  Limits
	framing func() Framing
	closeFn func() error
	ended   chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex
	wake    *sync.Cond // the goroutine
	queue   []message
	count   int   // messages queued and being written
	bytes   int64 // of those messages
	closing bool
	stopped bool  // the goroutine writes nothing more
	err     error // of the write that failed, if one did
}

type message struct {
	parts   [][]byte
	size    int64
	flushed chan struct{} // of a Flush, which is no message: closed when everything before it is written
}

// NewWriter returns a Writer that owns w. It calls framing before each message, since a peer may show its framing only
// after the first.
func NewWriter(w io.WriteCloser, limits Limits, framing func() Framing) *Writer {
	if limits.MaxMessages == 0 {
		limits.MaxMessages = 64
	}
	if limits.MaxBytes == 0 {
		limits.MaxBytes = 1 << 20
	}
	wr := &Writer{
		out: bufio.NewWriterSize(w, batchBytes), limits: limits, framing: framing,
		closeFn: sync.OnceValue(w.Close), ended: make(chan struct{}),
	}
	wr.wake = sync.NewCond(&wr.mu)
	go wr.writeQueue()
	return wr
}

// Send queues one message, given in parts, and returns at once. Nothing is copied: the caller must change neither the
// slice nor its parts afterwards.
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
	w.enqueue(m)
	return nil
}

func (w *Writer) enqueue(m message) {
	w.queue = append(w.queue, m)
	w.wake.Signal()
}

// Flush waits until everything that was sent so far is written.
func (w *Writer) Flush(ctx context.Context) error {
	flushed := make(chan struct{})
	w.mu.Lock()
	if w.stopped || w.count == 0 {
		defer w.mu.Unlock()
		return w.err
	}
	w.enqueue(message{flushed: flushed})
	w.mu.Unlock()
	select {
	case <-flushed:
		return w.writeError()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close accepts no more messages, waits at most timeout until the queue is written, and closes the underlying writer. It
// returns os.ErrDeadlineExceeded if the queue was not written in time.
func (w *Writer) Close(timeout time.Duration) error {
	w.mu.Lock()
	w.closing = true
	w.wake.Signal()
	w.mu.Unlock()

	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-w.ended:
		return errors.Join(w.writeError(), w.closeFn())
	case <-timer.C:
		// This also ends a write that hangs, and with it the goroutine.
		return errors.Join(os.ErrDeadlineExceeded, w.closeFn())
	}
}

func (w *Writer) writeError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// writeQueue is the Writer's goroutine.
func (w *Writer) writeQueue() {
	defer close(w.ended)
	for {
		m, isLast, ok := w.dequeue()
		if !ok {
			return
		}
		err := w.writeMessage(m)
		if err == nil && (isLast || m.flushed != nil) {
			err = w.out.Flush()
		}
		w.release(m, err)
		if err != nil {
			return
		}
	}
}

// dequeue waits for a message. isLast says that the queue is empty then, so that the batch is to be flushed.
func (w *Writer) dequeue() (m message, isLast, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.queue) == 0 && !w.closing {
		w.wake.Wait()
	}
	if len(w.queue) == 0 {
		w.stopped = true
		return message{}, false, false
	}
	m = w.queue[0]
	w.queue[0] = message{}
	if w.queue = w.queue[1:]; len(w.queue) == 0 {
		w.queue = nil
	}
	return m, w.queue == nil, true
}

// release frees the queue space of a message. After an error nothing more is written: the peer may have half a message, and
// would take the next one for its other half.
func (w *Writer) release(m message, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	waiting := []message{m}
	if err != nil {
		waiting = append(waiting, w.queue...)
		w.err, w.stopped, w.queue = err, true, nil
	}
	for _, m := range waiting {
		if m.flushed != nil {
			close(m.flushed)
			continue
		}
		w.count--
		w.bytes -= m.size
	}
}

func (w *Writer) writeMessage(m message) error {
	if m.flushed != nil {
		return nil
	}
	writePart, end := w.writeOneLine, "\n"
	if w.framing() == ContentLength {
		head := append(w.out.AvailableBuffer(), "Content-Length: "...)
		head = append(strconv.AppendInt(head, m.size, 10), "\r\n\r\n"...)
		if _, err := w.out.Write(head); err != nil {
			return err
		}
		writePart, end = w.writeRaw, ""
	}
	for _, p := range m.parts {
		if err := writePart(p); err != nil {
			return err
		}
	}
	_, err := w.out.WriteString(end)
	return err
}

func (w *Writer) writeRaw(p []byte) error {
	_, err := w.out.Write(p)
	return err
}

// writeOneLine writes p without line ends. Where JSON allows a raw line end it is white space, so a space means the same.
func (w *Writer) writeOneLine(p []byte) error {
	if bytes.IndexByte(p, '\n') < 0 && bytes.IndexByte(p, '\r') < 0 {
		return w.writeRaw(p)
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
		if err := w.writeRaw(piece); err != nil {
			return err
		}
		p = p[len(piece):]
	}
	return nil
}
