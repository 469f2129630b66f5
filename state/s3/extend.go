package s3

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/ctxgate/ctxgate/state"
)

// extendLife copies the values of a group whose segments end before a new lease does. It leaves out keys that are about to
// be put. It returns [state.ErrUnknown] if a value is not in the bucket any more.
func (d *Driver) extendLife(ctx context.Context, group string, except map[string]bool, lease state.Lease) error {
	needed := lease.Expires.UnixMilli()
	if ends, ok := d.liveUntil.Get(group); ok && ends*time.Hour.Milliseconds() >= needed {
		return nil
	}
	keys, err := d.groupKeys(ctx, group, lease.LastUsed)
	if err != nil {
		return err
	}
	first := int64(0) // the hour at which the first segment ends
	for _, key := range keys {
		if except[key] {
			continue
		}
		ends, err := d.extendValue(ctx, group, key, lease)
		if err != nil {
			return err
		}
		if ends > 0 && (first == 0 || ends < first) {
			first = ends
		}
	}
	if first > 0 {
		d.liveUntil.Put(group, first, 1)
	}
	return nil
}

// extendValue copies one value if need be, and returns when its segment ends; 0 if it is not in a segment.
func (d *Driver) extendValue(ctx context.Context, group, key string, lease state.Lease) (int64, error) {
	for {
		raw, err := d.base.Get(ctx, group, key, lease.LastUsed)
		if errors.Is(err, state.ErrUnknown) {
			return 0, nil // it was removed meanwhile
		}
		if err != nil {
			return 0, err
		}
		if !isOurs(raw) || storedKind(raw) != kindPointer {
			return 0, nil
		}
		p, err := decodePointer(raw)
		if err != nil {
			return 0, err
		}
		if !p.ends().Before(lease.Expires) {
			return p.endHour, nil
		}
		value, err := d.read(ctx, p)
		if err != nil {
			return 0, err
		}
		item := state.Item{Key: key, Group: group, Value: value, Owner: p.owner, Fence: p.fence, Blob: true}
		copied, err := d.packer.upload(ctx, []entry{{Item: item, lastUsed: lease.LastUsed, expires: lease.Expires}})
		if err != nil {
			return 0, err
		}
		item.Value = copied[0].encodeValue()
		held, err := d.base.PutIf(ctx, state.Condition{Group: group, Key: key, Value: bytes.Clone(raw)}, []state.Item{item}, lease)
		if err != nil {
			return 0, err
		}
		if held {
			return copied[0].endHour, nil
		}
		// Another process has just done the same, or put another value.
	}
}

// groupKeys lists the keys of a group.
func (d *Driver) groupKeys(ctx context.Context, group string, now time.Time) ([]string, error) {
	if lister, ok := d.base.(state.GroupLister); ok {
		return lister.GroupKeys(ctx, group, now)
	}
	const page = 1000
	var keys []string
	for after := ""; ; {
		entries, err := d.base.List(ctx, state.ListRequest{Groups: group, After: after, Limit: page, Now: now})
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Group == group {
				keys = append(keys, e.Key)
			}
		}
		if len(entries) < page {
			return keys, nil
		}
		after = entries[len(entries)-1].Key
	}
}
