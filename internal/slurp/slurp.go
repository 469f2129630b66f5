// Package slurp reads a whole body into one slice, with a limit and without slack: a scanner
// needs the bytes in a row, and a large body must not be there three times on the way.
package slurp

import (
	"errors"
	"io"
	"runtime"
	"sync"

	"github.com/ctxgate/ctxgate/internal/membudget"
)

// ErrTooLarge is returned for a body over the limit.
var ErrTooLarge = errors.New("the body is over the limit")

const (
	trusted = 1 << 20 // a claimed size up to here is taken at its word
	first   = 16 << 10
	largest = 4 << 20
	growth  = 4
	large   = 16 << 20 // from here on a body is worth a collection of its own
)

// Claimed reads a body whose size somebody unknown claims: a large claim buys no memory before
// the bytes are there. A size of -1 is no claim. What the body takes is charged to the scope,
// which may be nil; on an error nothing stays charged.
func Claimed(r io.Reader, size, limit int64, to *membudget.Scope) ([]byte, error) {
	return Into(nil, r, size, limit, to)
}

// Into is Claimed with room that is there already: it is used if the body fits into it.
func Into(room []byte, r io.Reader, size, limit int64, to *membudget.Scope) ([]byte, error) {
	switch {
	case size >= 0 && size <= min(limit, int64(cap(room))):
		return filled(room[:size], r, to)
	case size > trusted && size <= limit:
		return grown(r, size, to)
	}
	return Sized(r, size, limit, to)
}

// filled reads as many bytes as the slice has.
func filled(body []byte, r io.Reader, to *membudget.Scope) ([]byte, error) {
	n, err := io.ReadFull(r, body)
	if err != nil {
		return body[:n], err
	}
	return body, to.Take(int64(n))
}

// grown reads a body into a slice that is made larger, up to the claimed size, each time it is full.
func grown(r io.Reader, size int64, to *membudget.Scope) ([]byte, error) {
	if err := to.Take(trusted); err != nil {
		return nil, err
	}
	first, ok := begun.Get().(*[trusted]byte)
	if !ok {
		first = new([trusted]byte)
	}
	defer begun.Put(first)
	body, n := first[:], 0
	for {
		m, err := io.ReadFull(r, body[n:])
		n += m
		if err == nil && int64(n) == size {
			return body, nil
		}
		next := min(size, growth*int64(n))
		if err == nil {
			err = to.Take(next)
		}
		if err != nil {
			to.Give(int64(len(body)))
			return nil, err
		}
		old := int64(len(body))
		body = append(make([]byte, 0, next), body...)[:next]
		to.Give(old)
	}
}

// begun are the first parts of large bodies: each is only on the way.
var begun sync.Pool

// Sized reads a body whose size is known; -1 means that it is not.
func Sized(r io.Reader, size, limit int64, to *membudget.Scope) ([]byte, error) {
	if size > limit {
		return nil, ErrTooLarge
	}
	if size < 0 {
		return unsized(r, limit, to)
	}
	if err := to.Take(size); err != nil {
		return nil, err
	}
	body := make([]byte, size)
	_, err := io.ReadFull(r, body)
	if err != nil {
		to.Give(size)
	}
	return body, err
}

// unsized gathers pieces of growing size and joins them once.
func unsized(r io.Reader, limit int64, to *membudget.Scope) (_ []byte, err error) {
	var full [][]byte
	var total int64
	charge := membudget.Charge{Scope: to}
	defer func() {
		if err != nil {
			charge.Keep(0)
		}
	}()
	if err := charge.Take(first); err != nil {
		return nil, err
	}
	piece := make([]byte, 0, first)
	for {
		n, err := r.Read(piece[len(piece):cap(piece)])
		piece = piece[:len(piece)+n]
		if total += int64(n); total > limit {
			return nil, ErrTooLarge
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(piece) == cap(piece) {
			next := min(2*cap(piece), largest)
			if err := charge.Take(int64(next)); err != nil {
				return nil, err
			}
			full = append(full, piece)
			piece = make([]byte, 0, next)
		}
	}
	if full == nil {
		return piece, nil
	}
	if err := charge.Take(total); err != nil {
		return nil, err
	}
	body := join(full, piece, total)
	charge.Keep(total)
	return body, nil
}

func join(full [][]byte, last []byte, total int64) []byte {
	body := make([]byte, 0, total)
	for _, p := range full {
		body = append(body, p...)
	}
	body = append(body, last...)
	if total >= large {
		// The pieces are as large as the body. Left to itself, the collector would come only
		// after as much again; now costs it a few milliseconds.
		clear(full)
		runtime.GC()
	}
	return body
}
