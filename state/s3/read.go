package s3

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

const readTimeout = 30 * time.Second

// read returns the value that a pointer points to: from the disk cache, or else by a range GET. Readers of the same value
// at the same time share it.
func (d *Driver) read(ctx context.Context, p pointer) ([]byte, error) {
	name := p.cacheName()
	if value, ok := d.cache.Get(name); ok {
		if checksum(value) == p.sum {
			return value, nil
		}
		d.cache.Remove(name)
	}
	done := d.reads.DoChan(name, func() (any, error) {
		// It goes on when the first reader leaves: others may wait for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
		defer cancel()
		value, err := d.fetch(ctx, p)
		if err == nil {
			d.cache.Put(name, value)
		}
		return value, err
	})
	select {
	case result := <-done:
		if result.Err != nil {
			return nil, result.Err
		}
		value, _ := result.Val.([]byte)
		if result.Shared {
			value = bytes.Clone(value)
		}
		return value, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fetch reads a value from the bucket, a second time if the bytes are not those that were put.
func (d *Driver) fetch(ctx context.Context, p pointer) ([]byte, error) {
	for range 2 {
		value, err := d.bucket.GetRange(ctx, segmentName(p.endHour, p.segment), p.offset, p.length)
		if errors.Is(err, errNoObject) {
			d.lost.Add(1)
			return nil, state.ErrUnknown
		}
		if err != nil {
			return nil, err
		}
		if len(value) == p.length && checksum(value) == p.sum {
			return value, nil
		}
	}
	return nil, fault.New(fault.BadReply, "the bucket has other bytes than were stored")
}
