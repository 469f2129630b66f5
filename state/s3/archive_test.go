package s3

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/testkit/s3server"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

func secretItem(owner, key, value string) state.Item {
	return state.Item{Key: key, Group: key, Value: []byte(value), Owner: owner, Pinned: true, Archived: true}
}

func mustRead(t *testing.T, d state.Driver, key, want string) {
	t.Helper()
	if got, err := d.Get(t.Context(), key, key, time.Now()); err != nil || string(got) != want {
		t.Fatalf("Get(%s) = %q, %v; want %q", key, got, err, want)
	}
}

func mustNotHave(t *testing.T, d state.Driver, key string) {
	t.Helper()
	if got, err := d.Get(t.Context(), key, key, time.Now()); !errors.Is(err, state.ErrUnknown) {
		t.Fatalf("Get(%s) = %q, %v; want none", key, got, err)
	}
}

// rebuiltDriver is a driver over an index that was rebuilt from nothing.
func rebuiltDriver(t *testing.T, opts Options) *Driver {
	t.Helper()
	base := memory.New()
	if _, err := Rebuild(t.Context(), base, opts); err != nil {
		t.Fatal(err)
	}
	return openQuick(t, base, opts)
}

// The last value of an archived item is there after a rebuild; one that lost a race or was dropped is not.
func TestArchivedItems(t *testing.T) {
	opts, lease := testOptions(t), realLease()
	d := openQuick(t, memory.New(), opts)
	mustPut(t, d, lease, secretItem("", "k", "first"))
	mustPut(t, d, lease, secretItem("", "k", "second"))
	if held, err := d.PutIf(t.Context(), state.Condition{Group: "k", Key: "k"}, []state.Item{secretItem("", "k", "third")}, lease); held || err != nil {
		t.Fatalf("PutIf = %v, %v", held, err)
	}
	for _, value := range []string{"first", "second"} { // conditions and expectations are about values, not about how they are stored
		held, err := openQuick(t, d.base, opts).PutIf(t.Context(), state.Condition{Group: "k", Key: "k", Value: []byte(value)}, []state.Item{blob("under it")}, lease)
		if err != nil || held != (value == "second") {
			t.Fatalf("PutIf(%s) = %v, %v", value, held, err)
		}
	}
	mustPut(t, d, lease, secretItem("x/1", "of x", "1"), secretItem("x/1", "of x, too", "2"))
	mustPut(t, d, lease, secretItem("y", "of y", "3"))
	mustPut(t, d, lease, secretItem("", "dropped", "4"))
	if err := d.Drop(t.Context(), "dropped"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.DropOwners(t.Context(), "x/", ""); err != nil {
		t.Fatal(err)
	}
	if names := d.names(t, archivePrefix); len(names) != 2 {
		t.Errorf("the bucket has %q", names)
	}
	after := rebuiltDriver(t, opts)
	for _, d := range []*Driver{d, after} {
		mustRead(t, d, "k", "second")
		mustRead(t, d, "of y", "3")
		mustNotHave(t, d, "of x")
		mustNotHave(t, d, "of x, too")
		mustNotHave(t, d, "dropped")
	}
	if stat, err := after.Stat(t.Context()); err != nil || stat.Pinned == 0 {
		t.Errorf("after the rebuild: %+v, %v", stat, err)
	}
}

// A gateway that was killed before a secret is in the bucket: whoever finds the secret finishes the work first.
func TestArchivingIsFinishedByReaders(t *testing.T) {
	opts, lease := testOptions(t), realLease()
	d := openQuick(t, memory.New(), opts)
	testServer.Proxy.Set(s3server.Fault{Refuse: 1})
	defer testServer.Proxy.Set(s3server.Fault{})
	if err := d.Put(t.Context(), []state.Item{secretItem("", "k", "secret")}, lease); fault.KindOf(err) != fault.Unavailable {
		t.Fatalf("Put = %v", err)
	}
	if _, err := d.Get(t.Context(), "k", "k", lease.LastUsed); fault.KindOf(err) != fault.Unavailable {
		t.Fatalf("Get = %v: a secret is used that a rebuild would not find", err)
	}
	testServer.Proxy.Set(s3server.Fault{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() { _, _ = d.Get(t.Context(), "k", "k", lease.LastUsed) })
	}
	readers.Wait()
	mustRead(t, d, "k", "secret")
	mustRead(t, rebuiltDriver(t, opts), "k", "secret")
}

// A rebuild beside a gateway restores what is missing and replaces nothing, and of several values finds the last.
func TestRebuild(t *testing.T) {
	opts, lease := testOptions(t), realLease()
	d := openQuick(t, memory.New(), opts)
	for i := range 5 {
		mustPut(t, d, lease, state.Item{Key: "often", Group: "often", Value: fmt.Append(nil, "value ", i), Blob: true})
	}
	mustPut(t, d, lease, blob("a"), blob("b"))
	after := rebuiltDriver(t, opts)
	mustRead(t, after, "often", "value 4")
	mustGet(t, after, "a", time.Now())
	// The gateway goes on with a new index, and a second rebuild comes late.
	live := openQuick(t, memory.New(), opts)
	mustPut(t, live, lease, state.Item{Key: "often", Group: "often", Value: []byte("small, in the index")})
	mustPut(t, live, lease, state.Item{Key: "b", Group: "b", Value: []byte("new"), Blob: true})
	for range 2 {
		if rebuilt, err := Rebuild(t.Context(), live.base, opts); err != nil || rebuilt.Values != 8 {
			t.Fatalf("Rebuild = %+v, %v", rebuilt, err)
		}
		mustRead(t, live, "often", "small, in the index")
		mustRead(t, live, "b", "new")
		mustGet(t, live, "a", time.Now())
	}
	// What is restored lives as long as its segment: nobody knows how often it was used.
	mustGet(t, live, "a", lease.Expires.Add(time.Hour))
	// Expired segments are not restored.
	opts.Now = func() time.Time { return lease.Expires.Add(week) }
	if rebuilt, err := Rebuild(t.Context(), memory.New(), opts); err != nil || rebuilt.Values != 0 {
		t.Errorf("Rebuild of what has expired = %+v, %v", rebuilt, err)
	}
}

// Gateways store while the index is rebuilt again and again.
func TestRebuildWhileStoring(t *testing.T) {
	opts := testOptions(t)
	d := openQuick(t, memory.New(), opts)
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 25 {
				value := fmt.Sprint("value ", i)
				mustPut(t, d, realLease(), state.Item{Key: fmt.Sprint(w), Group: fmt.Sprint(w), Value: []byte(value), Blob: true})
				mustRead(t, d, fmt.Sprint(w), value)
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for isDone := false; !isDone; {
		select {
		case <-done:
			isDone = true
		default:
		}
		if _, err := Rebuild(t.Context(), d.base, opts); err != nil {
			t.Fatal(err)
		}
	}
	for w := range 4 {
		mustRead(t, d, fmt.Sprint(w), "value 24")
		mustRead(t, rebuiltDriver(t, opts), fmt.Sprint(w), "value 24")
	}
}
