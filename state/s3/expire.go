package s3

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// removeEvery is how often a gateway looks for expired segments; each time it waits up to as long again.
	removeEvery = 10 * time.Minute

	// removeMargin is how long an expired segment stays: the clocks of gateways differ, and a value that has just been
	// found may still be read.
	removeMargin = 2 * time.Hour
)

// startRemoval removes expired segments in the background until the driver is closed.
func (d *Driver) startRemoval() {
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.ops.Add(1)
	go func() {
		defer d.ops.Done()
		for {
			timer := time.NewTimer(removeEvery + rand.N(removeEvery))
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			if _, err := d.removeExpired(ctx, d.now()); err != nil {
				d.warn(ctx, "expired originals could not be removed from the bucket; this is tried again", err)
			}
		}
	}()
}

// removeExpired deletes the segments that have expired, whole folders of an hour, and returns how many.
func (d *Driver) removeExpired(ctx context.Context, now time.Time) (int, error) {
	var folders []string
	err := d.bucket.List(ctx, segmentsPrefix, false, func(name string, _ int64) error {
		if hour, ok := parseHourFolder(name); ok && time.Unix(hour*3600, 0).Add(removeMargin).Before(now) {
			folders = append(folders, name)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	removed := 0
	for _, folder := range folders {
		err := d.bucket.List(ctx, folder, true, func(name string, _ int64) error {
			removed++
			return d.bucket.Remove(ctx, name)
		})
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}
