package recall

import (
	"context"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"slices"

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
	var buf []byte
	for n := range o.m.Parts {
		packed, err := o.part(ctx, n)
		if err != nil {
			return err
		}
		if buf, err = o.r.codec.dec.DecodeAll(packed, buf[:0]); err != nil {
			return fmt.Errorf("unpacking part %d of %s: %w", n, o.ID, err)
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	return nil
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
