package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/toolcalls"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// countingDriver counts what recall asks of a store.
type countingDriver struct {
	state.Driver
	puts, items, bytes, small, gets atomic.Int64
}

func (d *countingDriver) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	d.countPut(items)
	return d.Driver.Put(ctx, items, lease)
}

func (d *countingDriver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	d.countPut(items)
	return d.Driver.PutIf(ctx, cond, items, lease)
}

func (d *countingDriver) countPut(items []state.Item) {
	d.puts.Add(1)
	d.items.Add(int64(len(items)))
	for _, i := range items {
		d.bytes.Add(i.Size())
		if i.Blob {
			d.small.Add(int64(len(i.Key) + len(i.Group)))
		} else {
			d.small.Add(i.Size())
		}
	}
}

func (d *countingDriver) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	d.gets.Add(1)
	return d.Driver.Get(ctx, group, key, now)
}

// countStoreWork counts what keeping and reading back takes: texts of two sizes tell the share of the text from the rest.
func countStoreWork(ctx context.Context, c *Costs) error {
	driver := &countingDriver{Driver: memory.New()}
	store := state.New(driver, state.Default(), time.Now)
	defer func() { _ = store.Close() }()
	r, err := recall.New(store, bytes.Repeat([]byte("s"), recall.MinSecretBytes), recall.Default())
	if err != nil {
		return err
	}
	text := toolcalls.Text()
	const count = 64
	var id string
	keep := func(size int) error {
		for i := range count {
			at := i * (len(text) - size) / count
			body, err := json.Marshal(text[at : at+size])
			if err != nil {
				return err
			}
			strs, _, err := jsonscan.New(body, 0).LongStrings(nil, 4000)
			if err != nil {
				return err
			}
			s := r.Shrink(ctx, recall.ShrinkRequest{Tenant: "t", Body: body, Strings: strs}, recall.DefaultPolicy())
			if s.Recoverable != 1 {
				return fmt.Errorf("a text of %d bytes was not kept: %w", size, s.Err)
			}
			id = s.IDs[0]
		}
		return nil
	}
	if err := keep(5000); err != nil { // the tenant's keys are made once
		return err
	}
	const small, large = 8 << 10, 64 << 10
	beginSmall := driver.small.Load()
	beginPuts, beginItems, begin := driver.puts.Load(), driver.items.Load(), driver.bytes.Load()
	if err := keep(small); err != nil {
		return err
	}
	c.KeptPuts = float64(driver.puts.Load()-beginPuts) / count
	c.KeptItems = float64(driver.items.Load()-beginItems) / count
	c.SmallBytes = float64(driver.small.Load()-beginSmall) / count
	middle := driver.bytes.Load()
	if err := keep(large); err != nil {
		return err
	}
	a, b := float64(middle-begin)/count, float64(driver.bytes.Load()-middle)/count
	c.StoredShare = (b - a) / (large - small)
	c.ItemBytes = a - small*c.StoredShare
	gets := driver.gets.Load()
	if _, err := r.RecoverText(ctx, "t", recall.ReadRequest{ID: id}, func(recall.Origin) bool { return true }, 0); err != nil {
		return err
	}
	c.ReadGets = float64(driver.gets.Load() - gets)
	return nil
}
