package sse

import (
	"bytes"
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

// Reader takes events from a stream. It is not safe for concurrent use.
type Reader struct {
	w   window
	max int64
	err error // what ended the stream

	memory  *membudget.Scope
	charged int64 // what memory holds for the last event
}

// NewReader reads events from r whose name, id and data are maxEvent bytes together at most.
// Comments and unknown fields are passed unread and do not count.
func NewReader(r io.Reader, maxEvent int64) *Reader {
	return &Reader{w: window{src: r}, max: maxEvent}
}

// Charge takes the memory of the events' data from a scope. The caller of Next gives back what
// Charged says. It is called before the first Next.
func (r *Reader) Charge(to *membudget.Scope) { r.memory = to }

// Charged is what the scope holds for the event that Next gave last.
func (r *Reader) Charged() int64 { return r.charged }

// Next waits for the next event that says something. Beyond the standard, which gives only
// events with a data field to the page, that is also one with nothing but an id or a time to
// wait: MCP servers begin a stream with it, so that it can be resumed before its first message.
// The event belongs to the caller. An error is final.
func (r *Reader) Next() (Event, error) {
	for r.err == nil {
		e, err := r.block()
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

type field uint8

const (
	other field = iota
	blank       // no field: the empty line that ends an event
	nameField
	dataField
	idField
	retryField
)

// block reads lines up to an empty one.
func (r *Reader) block() (e Event, err error) {
	data := gather{charge: membudget.Charge{Scope: r.memory}}
	defer func() {
		if err != nil || e.Data == nil {
			data.charge.Keep(0)
		}
		r.charged = data.charge.Bytes
	}()
	for begun := false; ; begun = true {
		f, err := r.field()
		if err == nil && f == blank {
			if e.Data != nil {
				e.Data = data.take()
			}
			return e, data.refused
		}
		if err == nil {
			err = r.value(f, &e, &data)
		}
		if errors.Is(err, io.EOF) && !begun {
			return e, io.EOF
		}
		if err != nil {
			return e, cut(err)
		}
	}
}

// cut is the error of a stream that ended inside an event.
func cut(err error) error {
	var refused *fault.Error
	switch {
	case errors.Is(err, ErrTooLarge), errors.As(err, &refused):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read event stream: %w", err)
}

// field passes lines that mean nothing, then the beginning of one that does: its name, the
// colon, and the space after it.
func (r *Reader) field() (field, error) {
	for {
		line, whole, err := r.w.head()
		if err != nil {
			return other, err
		}
		if len(line) == 0 {
			r.w.passEnd()
			return blank, nil
		}
		name, value, colon := bytes.Cut(line, []byte(":"))
		f := fieldOf(name)
		if f == other || !colon && !whole {
			if err := r.w.skip(); err != nil {
				return other, err
			}
			continue
		}
		r.w.at += len(name)
		if colon {
			r.w.at++
		}
		if len(value) > 0 && value[0] == ' ' {
			r.w.at++
		}
		return f, nil
	}
}

func fieldOf(name []byte) field {
	switch string(name) {
	case "event":
		return nameField
	case "data":
		return dataField
	case "id":
		return idField
	case "retry":
		return retryField
	}
	return other
}

// value reads a field's value into the event.
func (r *Reader) value(f field, e *Event, data *gather) error {
	if f == dataField {
		if e.Data != nil {
			data.write([]byte("\n"))
		}
		e.Data = []byte{} // its bytes are in data until the event is whole
		return r.w.rest(data, r.max-int64(len(e.Name)+len(e.ID)))
	}
	text, err := r.w.text(r.max - data.n - int64(len(e.Name)+len(e.ID)))
	if err != nil {
		return err
	}
	switch f {
	case nameField:
		e.Name = text
	case idField:
		if strings.IndexByte(text, 0) < 0 {
			e.ID, e.HasID = text, true
		}
	case retryField:
		if d, ok := milliseconds(text); ok {
			e.Retry = d
		}
	}
	return nil
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
