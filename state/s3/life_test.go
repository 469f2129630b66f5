package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/s3server"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/state/redis"
	"github.com/ctxgate/ctxgate/state/statetest"
)

var day0 = time.Date(2026, 1, 1, 10, 30, 0, 0, time.UTC)

const week = 7 * 24 * time.Hour

func leaseAt(now time.Time) state.Lease { return state.Lease{LastUsed: now, Expires: now.Add(week)} }

func mustPut(t *testing.T, d state.Driver, lease state.Lease, items ...state.Item) {
	t.Helper()
	if err := d.Put(t.Context(), items, lease); err != nil {
		t.Fatalf("Put: %v", err)
	}
}

func mustGet(t *testing.T, d state.Driver, key string, now time.Time) {
	t.Helper()
	if got, err := d.Get(t.Context(), key, key, now); err != nil || !bytes.Equal(got, valueOf(key)) {
		t.Fatalf("Get(%s) = %.20q, %v", key, got, err)
	}
}

func mustTouch(t *testing.T, d state.Driver, group string, lease state.Lease, want bool) {
	t.Helper()
	if found, err := d.Touch(t.Context(), group, lease); err != nil || found != want {
		t.Fatalf("Touch(%s) = %v, %v; want %v", group, found, err, want)
	}
}

// names lists what is in the bucket under a prefix.
func (d *Driver) names(t *testing.T, prefix string) (names []string) {
	t.Helper()
	err := d.bucket.List(t.Context(), prefix, true, func(name string, _ int64) error {
		names = append(names, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// storedPointer is what the other driver has under a key.
func (d *Driver) storedPointer(t *testing.T, key string, now time.Time) pointer {
	t.Helper()
	raw, err := d.base.Get(t.Context(), key, key, now)
	if err != nil {
		t.Fatal(err)
	}
	p, err := decodePointer(raw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A value that is used again and again is copied before its segment expires, by any process; expired segments are deleted, no others.
func TestLateUseCopiesTheValue(t *testing.T) {
	base, opts := memory.New(), testOptions(t)
	opts.Config.CacheBytes = 0
	d := openQuick(t, base, opts)
	mustPut(t, d, leaseAt(day0), blob("hot"), state.Item{Key: "part", Group: "hot", Value: []byte("beside it"), Owner: "owner", Blob: true})
	mustPut(t, d, leaseAt(day0), blob("cold"))
	first := d.storedPointer(t, "hot", day0)
	now := day0
	for range 6 { // three weeks
		now = now.Add(week / 2)
		other := openQuick(t, struct{ state.Driver }{base}, opts) // it knows nothing yet
		mustTouch(t, other, "hot", leaseAt(now), true)
		if p := other.storedPointer(t, "hot", now); p.ends().Before(now.Add(week)) || p.owner != "owner" {
			t.Fatalf("the segment ends at %s, of owner %q", p.ends(), p.owner)
		}
		if _, err := other.removeExpired(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		mustGet(t, other, "hot", now)
		if got, err := other.Get(t.Context(), "hot", "part", now); err != nil || string(got) != "beside it" {
			t.Fatalf("Get = %q, %v", got, err)
		}
	}
	if d.storedPointer(t, "hot", now).segment == first.segment {
		t.Error("the value was never copied")
	}
	mustTouch(t, d, "cold", leaseAt(now), false)
	for _, name := range d.names(t, segmentsPrefix) {
		if hour, ok := parseHourFolder(name); !ok || time.Unix(hour*3600, 0).Add(removeMargin).Before(now) {
			t.Errorf("%s has expired", name)
		}
	}
	if n, err := d.removeExpired(t.Context(), now.Add(2*week)); err != nil || n == 0 || len(d.names(t, segmentsPrefix)) != 0 {
		t.Errorf("%d segments were removed in the end, %v", n, err)
	}
	owners, err := base.Owners(t.Context(), "")
	if err != nil || len(owners) != 1 || owners[0].Owner != "owner" {
		t.Errorf("Owners = %v, %v", owners, err)
	}
}

// A put of one item extends the lease of its whole group.
func TestLatePutCopiesWhatIsBesideIt(t *testing.T) {
	d := openQuick(t, memory.New(), testOptions(t))
	part := state.Item{Key: "part", Group: "g", Value: []byte("part"), Blob: true}
	mustPut(t, d, leaseAt(day0), part)
	now := day0.Add(week - time.Hour)
	mustPut(t, d, leaseAt(now), state.Item{Key: "manifest", Group: "g", Value: []byte("manifest"), Blob: true})
	if _, err := d.removeExpired(t.Context(), now.Add(week-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Get(t.Context(), "g", "part", now.Add(week-time.Hour)); err != nil || string(got) != "part" {
		t.Errorf("Get = %q, %v", got, err)
	}
}

// Somebody deleted the segments: their values are unknown, receipts are void, and they can be put again.
func TestLostSegment(t *testing.T) {
	opts := testOptions(t)
	opts.Config.CacheBytes = 0
	d := openQuick(t, memory.New(), opts)
	mustPut(t, d, leaseAt(day0), blob("a"))
	before, err := d.Epoch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range d.names(t, segmentsPrefix) {
		if err := d.bucket.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Get(t.Context(), "a", "a", day0); !errors.Is(err, state.ErrUnknown) {
		t.Errorf("Get = %v", err)
	}
	if after, err := d.Epoch(t.Context()); err != nil || after == before {
		t.Errorf("the epoch is still %d, %v", after, err)
	}
	late := leaseAt(day0.Add(week - time.Hour))
	mustTouch(t, d, "a", late, false)
	again := blob("a")
	again.Over = &state.Expected{} // that is how it looks from outside
	mustPut(t, d, late, again)
	mustGet(t, d, "a", late.LastUsed)
}

// What the disk cache has is checked, and bounded.
func TestDiskCache(t *testing.T) {
	base, opts := memory.New(), testOptions(t)
	d := openQuick(t, base, opts)
	mustPut(t, d, leaseAt(day0), blob("a"))
	reader := openQuick(t, base, opts)
	mustGet(t, reader, "a", day0) // now there is a copy
	before := testServer.Proxy.Count("GET")
	mustGet(t, reader, "a", day0)
	if n := testServer.Proxy.Count("GET") - before; n != 0 {
		t.Errorf("a cached value took %d requests", n)
	}
	file := reader.cache.path(reader.storedPointer(t, "a", day0).cacheName())
	for _, damage := range []string{"", "shorter", strings.Repeat("a ", 500)} {
		if err := os.WriteFile(file, []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		mustGet(t, reader, "a", day0)
		mustGet(t, openQuick(t, base, opts), "a", day0)
	}
	c, err := openCache(filepath.Join(t.TempDir(), "small"), 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		c.Put(fmt.Sprint(i), make([]byte, 900))
		c.Get("0") // in use
		c.Put("large", make([]byte, 2600))
	}
	size := func() (bytes int64) {
		files, err := os.ReadDir(c.dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if info, err := f.Info(); err == nil {
				bytes += info.Size()
			}
		}
		return bytes
	}
	if n := size(); n > 10_000 || n < 9_000 {
		t.Errorf("the cache has %d bytes", n)
	}
	if _, ok := c.Get("0"); !ok {
		t.Error("what was used all the time is gone")
	}
	if c, err = openCache(c.dir, 3_000); err != nil || size() > 3_000 {
		t.Errorf("after a start with a smaller limit: %d bytes, %v", size(), err)
	}
}

// Damaged bytes in the bucket are an error, never a value.
func TestDamagedSegment(t *testing.T) {
	opts := testOptions(t)
	opts.Config.CacheBytes = 0
	d := openQuick(t, memory.New(), opts)
	mustPut(t, d, leaseAt(time.Now()), blob("a"))
	name := d.names(t, segmentsPrefix)[0]
	object, err := d.bucket.Get(t.Context(), name, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	object[3] ^= 1
	if err := d.bucket.Put(t.Context(), name, object); err != nil {
		t.Fatal(err)
	}
	if got, err := d.Get(t.Context(), "a", "a", time.Now()); fault.KindOf(err) != fault.BadReply {
		t.Errorf("Get = %.20q, %v", got, err)
	}
	object[len(object)-40] ^= 1 // in the footer, or its checksum
	if err := d.bucket.Put(t.Context(), name, object); err != nil {
		t.Fatal(err)
	}
	if rebuilt, err := Rebuild(t.Context(), memory.New(), opts); err == nil || rebuilt.Damaged != 1 {
		t.Errorf("Rebuild = %+v, %v", rebuilt, err)
	}
}

// A large value has a segment of its own, and what waits is bounded.
func TestPackerBounds(t *testing.T) {
	d := openQuick(t, memory.New(), testOptions(t))
	d.packer.pace = pace{time.Hour, time.Hour, time.Hour} // only sizes count
	large := state.Item{Key: "large", Group: "large", Value: bytes.Repeat([]byte("x"), segmentBytes+1), Blob: true}
	ctx, cancel := context.WithCancel(t.Context())
	small := make(chan error, 1)
	go func() { small <- d.Put(ctx, []state.Item{blob("small")}, leaseAt(day0)) }()
	mustPut(t, d, leaseAt(day0), large)
	cancel()
	<-small
	testServer.Proxy.Set(s3server.Fault{Delay: time.Second})
	defer testServer.Proxy.Set(s3server.Fault{})
	ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan error, 8)
	for range cap(done) { // together twice as much as may wait
		go func() { done <- d.Put(ctx, []state.Item{large}, leaseAt(day0)) }()
	}
	for range cap(done) {
		if err := <-done; err == nil {
			t.Error("a Put did not wait")
		}
	}
}

func TestOverRedis(t *testing.T) {
	if os.Getenv(envLong) == "" {
		t.Skipf("set %s to run the suite over Redis, too", envLong)
	}
	server := redisserver.Start(t, redisserver.Single, redisserver.Options{})
	statetest.TestApart(t, func(t *testing.T) state.Driver {
		if _, err := server.Nodes[0].Do("FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		base, err := redis.Open(t.Context(), redis.Config{URL: server.URL(), Durability: "none"})
		if err != nil {
			t.Fatal(err)
		}
		return sweeping{openQuick(t, base, testOptions(t)), base}
	})
}
