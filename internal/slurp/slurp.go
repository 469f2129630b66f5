// Package slurp reads a whole body into one slice, with a limit and without slack: a scanner
// needs the bytes in a row, and a large body must not be there three times on the way.
package slurp

import (
	"errors"
	"io"
	"runtime"
	"sync"
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
// the bytes are there. A size of -1 is no claim.
func Claimed(r io.Reader, size, limit int64) ([]byte, error) { return Into(nil, r, size, limit) }

// Into is Claimed with room that is there already: it is used if the body fits into it.
func Into(room []byte, r io.Reader, size, limit int64) ([]byte, error) {
	switch {
	case size >= 0 && size <= min(limit, int64(cap(room))):
		n, err := io.ReadFull(r, room[:size])
		return room[:n], err
	case size > trusted && size <= limit:
		return grown(r, size)
	}
	return Sized(r, size, limit)
}

// grown reads a body into a slice that is made larger, up to the claimed size, each time it is full.
func grown(r io.Reader, size int64) ([]byte, error) {
	first, ok := begun.Get().(*[trusted]byte)
	if !ok {
		first = new([trusted]byte)
	}
	defer begun.Put(first)
	body, n := first[:], 0
	for {
		m, err := io.ReadFull(r, body[n:])
		n += m
		if err != nil {
			return nil, err
		}
		if int64(n) == size {
			return body, nil
		}
		body = append(make([]byte, 0, min(size, growth*int64(n))), body...)
		body = body[:cap(body)]
	}
}

// begun are the first parts of large bodies: each is only on the way.
var begun sync.Pool

// Sized reads a body whose size is known; -1 means that it is not.
func Sized(r io.Reader, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, ErrTooLarge
	}
	if size < 0 {
		return unsized(r, limit)
	}
	body := make([]byte, size)
	_, err := io.ReadFull(r, body)
	return body, err
}

// unsized gathers pieces of growing size and joins them once.
func unsized(r io.Reader, limit int64) ([]byte, error) {
	var full [][]byte
	var total int64
	piece := make([]byte, 0, first)
	for {
		n, err := r.Read(piece[len(piece):cap(piece)])
		piece = piece[:len(piece)+n]
		if total += int64(n); total > limit {
			return nil, ErrTooLarge
		}
		if errors.Is(err, io.EOF) {
			return join(full, piece, total), nil
		}
		if err != nil {
			return nil, err
		}
		if len(piece) == cap(piece) {
			full = append(full, piece)
			piece = make([]byte, 0, min(2*cap(piece), largest))
		}
	}
}

func join(full [][]byte, last []byte, total int64) []byte {
	if full == nil {
		return last
	}
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
