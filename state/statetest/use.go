package statetest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

// concurrent runs writers that read back what was acknowledged, beside sweeps, touches and drops of
// other groups; in the end the totals are exact.
func concurrent(d *driver) {
	const writers, puts = 8, 25
	var wg sync.WaitGroup
	var want []state.Item
	for w := range writers {
		for p := range puts {
			group := fmt.Sprintf("%d/%d", w, p)
			want = append(want, item(group+"/a", group, strings.Repeat("a", p*100)), item(group+"/b", group, group))
		}
	}
	for w := range writers {
		wg.Go(func() {
			for p := range puts {
				i := (w*puts + p) * 2
				d.oneWriter(want[i:i+2], fmt.Sprintf("brief %d", w))
			}
		})
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() { d.oneReader(want, stop) })
	}
	wg.Wait()
	close(stop)
	readers.Wait()
	d.holds(want...)
	for _, i := range want {
		d.has(50, i.Key, string(i.Value))
	}
}

func (d *driver) oneWriter(items []state.Item, brief string) {
	check := func(what string, err error) {
		if err != nil {
			d.Errorf("%s: %v", what, err)
		}
	}
	check("Put", d.Put(d.ctx, items, lease(5, 1000)))
	for _, i := range items {
		got, err := d.get(i.Key, at(50))
		if err != nil || !bytes.Equal(got, i.Value) {
			d.Errorf("acknowledged %q reads back as %.20q, %v", i.Key, got, err)
		}
	}
	if found, err := d.Touch(d.ctx, items[0].Group, lease(6, 1001)); err != nil || !found {
		d.Errorf("Touch(%q) = %v, %v", items[0].Group, found, err)
	}
	check("Put", d.Put(d.ctx, []state.Item{item(brief, brief, "x")}, lease(5, 1000)))
	check("Drop", d.Drop(d.ctx, brief))
	if d.Sweeper != nil {
		_, err := d.Sweep(d.ctx, state.SweepRequest{Now: at(50), SpareAfter: at(4), MaxBytes: 0})
		check("Sweep", err)
	}
}

func (d *driver) oneReader(items []state.Item, stop chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		i := items[n*7%len(items)]
		got, err := d.get(i.Key, at(50))
		if err == nil && !bytes.Equal(got, i.Value) || err != nil && fault.KindOf(err) != fault.UnknownHandle {
			d.Errorf("Get(%q) = %.20q, %v", i.Key, got, err)
		}
		if _, err := d.Stat(d.ctx); err != nil {
			d.Errorf("Stat: %v", err)
		}
		if d.isApart {
			time.Sleep(time.Millisecond) // the server, which is another process, needs the processor, too
		}
	}
}

// concurrentOverwrite runs many writers on the same few keys with values of all sizes: whichever is
// last, value and totals agree.
func concurrentOverwrite(d *driver) {
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for p := range 20 {
				value := strings.Repeat(string(rune('a'+w)), w*50+p)
				key := fmt.Sprint("k", p%3)
				if err := d.Put(d.ctx, []state.Item{item(key, fmt.Sprint("g", p%3), value)}, lease(0, 100)); err != nil {
					d.Errorf("Put: %v", err)
				}
			}
		})
	}
	wg.Wait()
	var values int64
	for p := range 3 {
		got, err := d.get(fmt.Sprint("k", p), at(1))
		if err != nil || len(got) > 0 && bytes.Count(got, got[:1]) != len(got) {
			d.Errorf("k%d holds a mixture: %q, %v", p, got, err)
		}
		values += int64(len(got))
	}
	stat, err := d.Stat(d.ctx)
	if want := values + 3*int64(len("k0g0")); err != nil || !d.sameBytes(stat.Bytes, want) || stat.Items != 3 {
		d.Errorf("Stat = %+v, %v; want 3 items, %d bytes", stat, err, want)
	}
}

// each calls every operation that takes a context.
func (d *driver) each(ctx context.Context, check func(name string, err error)) {
	check("Put", d.Put(ctx, []state.Item{item("new", "new", "x")}, lease(0, 100)))
	_, err := d.PutIf(ctx, state.Condition{Key: "new"}, []state.Item{item("new", "new", "x")}, lease(0, 100))
	check("PutIf", err)
	_, err = d.Get(ctx, "g", "a", at(0))
	check("Get", err)
	_, err = d.List(ctx, state.ListRequest{Limit: 1})
	check("List", err)
	_, err = d.Touch(ctx, "g", lease(50, 500))
	check("Touch", err)
	check("Drop", d.Drop(ctx, "g"))
	if d.Sweeper != nil {
		_, err = d.Sweep(ctx, state.SweepRequest{Now: at(1000), SpareAfter: at(1000)})
		check("Sweep", err)
	}
	_, err = d.DropOwners(ctx, "", "x")
	check("DropOwners", err)
	_, err = d.Owners(ctx, "")
	check("Owners", err)
	_, err = d.Stat(ctx)
	check("Stat", err)
	_, err = d.Epoch(ctx)
	check("Epoch", err)
}

func endedContext(d *driver) {
	a := item("a", "g", "1")
	d.put(lease(0, 100), a)
	canceled, cancel := context.WithCancel(d.ctx)
	cancel()
	late, cancel := context.WithDeadline(d.ctx, time.Now().Add(-time.Second))
	defer cancel()
	d.each(canceled, func(_ string, err error) { d.mustBe(err, context.Canceled) })
	d.each(late, func(_ string, err error) { d.mustBe(err, context.DeadlineExceeded) })
	d.holds(a) // and nothing happened
	d.has(99, "a", "1")
	d.hasNot(100, "a")
}

func closes(d *driver) {
	d.put(lease(0, 100), item("a", "g", "1"))
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for p := 0; ; p++ {
				key := fmt.Sprint(w, "/", p)
				err := d.Put(d.ctx, []state.Item{item(key, key, "x")}, lease(0, 100))
				if err == nil {
					continue
				}
				if fault.KindOf(err) != fault.Unavailable {
					d.Errorf("Put while closing: %v", err)
				}
				return
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	for range 2 {
		if err := d.Close(); err != nil {
			d.Errorf("Close: %v", err)
		}
	}
	wg.Wait()
	d.each(d.ctx, func(name string, err error) {
		if fault.KindOf(err) != fault.Unavailable {
			d.Errorf("%s after Close: %v", name, err)
		}
	})
}
