package recall

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/fault"
)

// Original is a kept text, ready to be read.
type Original struct {
	ID           string
	Bytes, Chars int64
	Origins      []Origin // where it came from; who may not call any of them may not read it

	r    *Recall
	keys tenantKeys
	aead cipher.AEAD
	m    *manifest
}

// Access says whether its reader may call, today, what a text came from.
type Access func(Origin) bool

// errOrigin is why an original is unknown to somebody who may call nothing it came from.
var errOrigin = errors.New("the reader may call nothing that it came from")

// Open finds the original of an id, for the tenant it was kept for, wherever it came from: for an
// operator. Anything that keeps it from being found, but for the store itself failing, is
// [ErrUnknown].
func (r *Recall) Open(ctx context.Context, tenant, id string) (*Original, error) {
	return r.OpenFor(ctx, tenant, id, func(Origin) bool { return true })
}

// OpenFor is Open for a reader who may call, of its origins, at least one. To any other it is as
// unknown as an id that never was.
func (r *Recall) OpenFor(ctx context.Context, tenant, id string, may Access) (*Original, error) {
	id, err := ParseID(id)
	if err != nil {
		return nil, err
	}
	k := r.keysOf(tenant)
	aead, err := k.aead(id)
	if err != nil {
		return nil, err
	}
	m, err := r.manifest(ctx, k, id, aead)
	if err != nil {
		return nil, notFound(err)
	}
	if !slices.ContainsFunc(m.Origins, may) {
		return nil, unknown(errOrigin)
	}
	// Shown again, it lives on. A store that cannot note that can still be read.
	_, _ = r.store.Touch(ctx, k.group(id))
	return &Original{ID: id, Bytes: m.Bytes, Chars: m.Chars, Origins: m.Origins, r: r, keys: k, aead: aead, m: m}, nil
}

// WriteText writes the whole text, a part at a time. An error before the first byte was written
// leaves w untouched.
func (o *Original) WriteText(ctx context.Context, w io.Writer) error {
	return o.blocks(ctx, func(block []byte) error {
		_, err := w.Write(block)
		return err
	})
}

// blocks gives the text in blocks of about a part, none of which splits a character. Each is only
// valid until the next. An error of each ends it.
func (o *Original) blocks(ctx context.Context, each func(block []byte) error) error {
	var buf []byte
	for n := range o.m.Parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		packed, err := o.part(ctx, n)
		if err != nil {
			return err
		}
		if buf, err = o.r.codec.dec.DecodeAll(packed, buf); err != nil {
			return fmt.Errorf("unpacking part %d of %s: %w", n, o.ID, err)
		}
		end := len(buf)
		if n+1 < o.m.Parts {
			end = wholeText(buf)
		}
		if err := each(buf[:end]); err != nil {
			return err
		}
		buf = append(buf[:0], buf[end:]...)
	}
	return nil
}

// wholeText is how much of a text is left when a last character that has not all its bytes is not
// counted.
func wholeText(text []byte) int {
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax); i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return i
			}
			break
		}
	}
	return len(text)
}

func (o *Original) part(ctx context.Context, n int) ([]byte, error) {
	if o.m.Parts == 1 {
		return o.m.inline, nil
	}
	sealed, err := o.r.store.Get(ctx, o.keys.part(o.ID, n))
	if err != nil {
		return nil, notFound(err)
	}
	return unseal(o.aead, o.ID, n, sealed)
}

// notFound gives everything that means "not there" one face.
func notFound(err error) error {
	if fault.KindOf(err) == fault.Unknown || errors.Is(err, errManifest) {
		return unknown(err)
	}
	return err
}
