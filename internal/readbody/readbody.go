// Package readbody reads a whole body into one slice of its exact size, up to a limit. Scanners need
// the bytes in one piece, and a large body must not be in memory three times while it is read.
package readbody

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
	trustedSize  = 1 << 20 // a declared size up to here is allocated at once
	firstPiece   = 16 << 10
	maxPiece     = 4 << 20
	growthFactor = 4
	gcSize       = 16 << 20 // from here on a body is worth a garbage collection
)

// ReadUntrusted reads a body whose declared size is a client's: a large size allocates no memory
// before the bytes arrive. A size of -1 is unknown. The memory of the body is reserved in scope, which
// may be nil; after an error nothing stays reserved.
func ReadUntrusted(r io.Reader, size, limit int64, scope *membudget.Scope) ([]byte, error) {
	if size > trustedSize && size <= limit {
		return readGrowing(r, size, scope)
	}
	return ReadSized(r, size, limit, scope)
}

// readGrowing reads into a slice that grows, up to the declared size, each time it is full.
func readGrowing(r io.Reader, size int64, scope *membudget.Scope) ([]byte, error) {
	if err := scope.Reserve(trustedSize); err != nil {
		return nil, err
	}
	first, ok := firstBuffers.Get().(*[trustedSize]byte)
	if !ok {
		first = new([trustedSize]byte)
	}
	defer firstBuffers.Put(first)
	body, n := first[:], 0
	for {
		m, err := io.ReadFull(r, body[n:])
		n += m
		if err == nil && int64(n) == size {
			return body, nil
		}
		next := min(size, growthFactor*int64(n))
		if err == nil {
			err = scope.Reserve(next)
		}
		if err != nil {
			scope.Free(int64(len(body)))
			return nil, err
		}
		old := int64(len(body))
		body = append(make([]byte, 0, next), body...)[:next]
		scope.Free(old)
	}
}

// firstBuffers holds the first buffers of readGrowing, which it never returns: the size is larger.
var firstBuffers sync.Pool

// ReadSized reads a body whose declared size can be trusted; -1 means that it is unknown.
func ReadSized(r io.Reader, size, limit int64, scope *membudget.Scope) ([]byte, error) {
	if size > limit {
		return nil, ErrTooLarge
	}
	if size < 0 {
		return readPieces(r, limit, scope)
	}
	if err := scope.Reserve(size); err != nil {
		return nil, err
	}
	body := make([]byte, size)
	_, err := io.ReadFull(r, body)
	if err != nil {
		scope.Free(size)
	}
	return body, err
}

// readPieces reads pieces of growing size and joins them once.
func readPieces(r io.Reader, limit int64, scope *membudget.Scope) (_ []byte, err error) {
	var full [][]byte
	var total int64
	charge := membudget.Charge{Scope: scope}
	defer func() {
		if err != nil {
			charge.ShrinkTo(0)
		}
	}()
	if err := charge.Reserve(firstPiece); err != nil {
		return nil, err
	}
	piece := make([]byte, 0, firstPiece)
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
			next := min(2*cap(piece), maxPiece)
			if err := charge.Reserve(int64(next)); err != nil {
				return nil, err
			}
			full = append(full, piece)
			piece = make([]byte, 0, next)
		}
	}
	if full == nil {
		return piece, nil
	}
	if err := charge.Reserve(total); err != nil {
		return nil, err
	}
	body := make([]byte, 0, total)
	for _, p := range full {
		body = append(body, p...)
	}
	body = append(body, piece...)
	if total >= gcSize {
		// The pieces are as large as the body. Without this, the collector would run only after as
		// much was allocated again; now it costs a few milliseconds.
		clear(full)
		runtime.GC()
	}
	charge.ShrinkTo(total)
	return body, nil
}
