package sse

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
)

// ErrTooLarge is returned for an event over the limit.
var ErrTooLarge = errors.New("the event is over the limit")

const (
	readSize      = 16 << 10 // what one read asks for
	maxEmptyReads = 100      // reads in a row that may bring nothing
)

// Reader reads events from a stream. It is not safe for concurrent use.
type Reader struct {
	src      io.Reader
	maxEvent int64
	err      error // what ended the stream

	scanner Scanner
	buf     []byte
	unread  []byte // of buf
	text    chunks // the value of a field that is not data
	readErr error  // what the last read failed with, after it had brought bytes

	memory  *membudget.Scope
	charged int64 // what memory holds for the last event
}

// NewReader reads events from r whose name, id and data are maxEvent bytes together at most.
// Comments and unknown fields are skipped and do not count.
func NewReader(r io.Reader, maxEvent int64) *Reader { return &Reader{src: r, maxEvent: maxEvent} }

// Charge takes the memory of the events' data from a scope. The caller of Next gives back what
// Charged says. It is called before the first Next.
func (r *Reader) Charge(to *membudget.Scope) { r.memory = to }

// Charged is what the scope holds for the event that Next returned last.
func (r *Reader) Charged() int64 { return r.charged }

// Next waits for the next event that says something. Beyond the standard, which gives only
// events with a data field to the page, that is also one with nothing but an id or a time to
// wait: MCP servers begin a stream with it, so that it can be resumed before its first message.
// The event belongs to the caller. An error is final.
func (r *Reader) Next() (Event, error) {
	for r.err == nil {
		e, err := r.readEvent()
		if err != nil {
			r.err = err
			break
		}
		if e.Data != nil || e.HasID || e.Retry != 0 {
			return e, nil
		}
	}
	return Event{}, r.err
}

// readEvent reads up to an empty line.
func (r *Reader) readEvent() (e Event, err error) {
	data := chunks{charge: membudget.Charge{Scope: r.memory}}
	defer func() {
		if err != nil || e.Data == nil {
			data.charge.ShrinkTo(0)
		}
		r.charged = data.charge.Bytes
	}()
	hasFields, isNew := false, true
	for {
		if len(r.unread) == 0 {
			if err := r.fill(); err != nil {
				return e, r.endOf(err, hasFields)
			}
		}
		token, value, n := r.scanner.Next(r.unread)
		r.unread = r.unread[n:]
		switch token {
		case NeedMore:
			continue
		case EndEvent:
			if e.Data != nil {
				e.Data = data.join()
			}
			return e, data.refused
		case Value, EndField:
		}
		hasFields = true
		isData := r.scanner.Field() == DataField
		if isData && isNew {
			if e.Data != nil {
				data.write([]byte("\n"))
			}
			e.Data = []byte{} // its bytes are in data until the event is whole
		}
		if data.size+r.text.size+int64(len(e.Name)+len(e.ID)+len(value)) > r.maxEvent {
			return e, ErrTooLarge
		}
		switch isNew = token == EndField; {
		case isData:
			if data.write(value); data.refused != nil {
				return e, data.refused
			}
		case isNew:
			e.setField(r.scanner.Field(), r.text.takeString())
		default:
			r.text.write(value)
		}
	}
}

func (e *Event) setField(f Field, value string) {
	switch f {
	case NameField:
		e.Name = value
	case IDField:
		if strings.IndexByte(value, 0) < 0 {
			e.ID, e.HasID = value, true
		}
	case RetryField:
		if d, ok := milliseconds(value); ok {
			e.Retry = d
		}
	case OtherField, DataField:
	}
}

// endOf is the error of a stream that ended: between events, or inside one.
func (r *Reader) endOf(err error, hasFields bool) error {
	var refused *fault.Error
	switch {
	case errors.As(err, &refused):
		return err
	case errors.Is(err, io.EOF) && !hasFields && !r.scanner.InLine():
		return io.EOF
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read event stream: %w", err)
}

// fill reads at least one byte, or returns an error.
func (r *Reader) fill() error {
	if r.buf == nil {
		r.buf = make([]byte, readSize)
	}
	for range maxEmptyReads {
		if r.readErr != nil {
			return r.readErr
		}
		var n int
		n, r.readErr = r.src.Read(r.buf)
		if n > 0 {
			r.unread = r.buf[:n]
			return nil
		}
	}
	return io.ErrNoProgress
}

// milliseconds reads digits. More of them than a duration can hold are the longest one.
func milliseconds(s string) (time.Duration, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	const most = int64(math.MaxInt64 / time.Millisecond)
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > most {
		n = most
	}
	return time.Duration(n) * time.Millisecond, true
}
