package s3

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

const (
	maxOwnerBytes  = 100      // the owner is in the object's name
	maxObjectBytes = 16 << 20 // of an archived item
)

var errLongOwner = fault.New(fault.BadParams, "the name of an owner is too long for the bucket")

// archive makes an item that is pending an object of its own, and then marks it as archived. Whoever finds it pending does
// so: the process that put it may have been killed. It returns what the other driver has then; [state.ErrUnknown] if the item was
// removed or replaced meanwhile.
func (d *Driver) archive(ctx context.Context, raw []byte, now time.Time) ([]byte, error) {
	p, err := decodePending(raw[len(magic)+1:])
	if err != nil {
		return nil, err
	}
	name := p.objectName()
	if err := d.bucket.Put(ctx, name, p.encodeObject()); err != nil {
		return nil, err
	}
	done := p.item
	done.Value = encodeArchived(p.item.Value)
	cond := state.Condition{Group: done.Group, Key: done.Key, Value: raw}
	// The lease of a live group is longer than this one.
	held, err := d.base.PutIf(ctx, cond, []state.Item{done}, state.Lease{LastUsed: now, Expires: now.Add(time.Millisecond)})
	if err != nil {
		return nil, err
	}
	if !held {
		return d.afterRace(ctx, name, p, now)
	}
	d.archived.Put(done.Group+"\x00"+done.Key, struct{}{}, 1)
	return done.Value, d.removeVersions(ctx, p, name)
}

// afterRace handles an item that another process has archived, replaced or removed meanwhile.
func (d *Driver) afterRace(ctx context.Context, name string, p pendingItem, now time.Time) ([]byte, error) {
	raw, err := d.base.Get(ctx, p.item.Group, p.item.Key, now)
	if err == nil && string(raw) == string(encodeArchived(p.item.Value)) {
		return raw, nil
	}
	if err != nil && !errors.Is(err, state.ErrUnknown) {
		return nil, err
	}
	if err := d.bucket.Remove(ctx, name); err != nil {
		return nil, err
	}
	return encodeArchived(p.item.Value), nil // it was stored, and is no more
}

// objectName has the owner, so that a list tells whose objects there are, and a hash of the value: an upload of an
// earlier value that comes late replaces nothing.
func (p pendingItem) objectName() string {
	return keyFolder(p.item.Group, p.item.Key) + "x" + hex.EncodeToString([]byte(p.item.Owner)) + "/" + hashName(string(p.item.Value))
}

func groupFolder(group string) string    { return archivePrefix + hashName(group) + "/" }
func keyFolder(group, key string) string { return groupFolder(group) + hashName(key) + "/" }

// ownerOf reads the owner out of the name of an object.
func ownerOf(name string) (string, bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 5 || !strings.HasPrefix(parts[3], "x") {
		return "", false
	}
	owner, err := hex.DecodeString(parts[3][1:])
	return string(owner), err == nil
}

// removeVersions removes the objects of earlier values of a key.
func (d *Driver) removeVersions(ctx context.Context, p pendingItem, keep string) error {
	return d.removeObjects(ctx, keyFolder(p.item.Group, p.item.Key), func(name string) bool { return name != keep })
}

// removeArchived removes the objects of a group.
func (d *Driver) removeArchived(ctx context.Context, group string) error {
	return d.removeObjects(ctx, groupFolder(group), func(string) bool { return true })
}

// removeArchivedOf removes the objects of the owners whose names begin with prefix, except those of keep.
func (d *Driver) removeArchivedOf(ctx context.Context, prefix, keep string) error {
	return d.removeObjects(ctx, archivePrefix, func(name string) bool {
		owner, ok := ownerOf(name)
		return ok && strings.HasPrefix(owner, prefix) && owner != keep
	})
}

func (d *Driver) removeObjects(ctx context.Context, folder string, isGone func(name string) bool) error {
	return d.bucket.List(ctx, folder, true, func(name string, _ int64) error {
		if !isGone(name) {
			return nil
		}
		return d.bucket.Remove(ctx, name)
	})
}
