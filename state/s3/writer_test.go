package s3

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/testkit/s3server"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
	"github.com/ctxgate/ctxgate/state/sqlite"
)

// envLong chooses the long form of the tests that kill.
const envLong = "CTXGATE_S3_LONG"

func rounds(short, long int) int {
	if os.Getenv(envLong) != "" {
		return long
	}
	return short
}

// The test binary is also a gateway that stores originals until it is killed, and prints each key once it is acknowledged.
const writerArg = "writer"

func runWriter(args []string) int {
	endpoint, prefix, dir, name := args[0], args[1], args[2], args[3]
	base, err := sqlite.Open(context.Background(), filepath.Join(dir, "index.db"))
	if err == nil {
		err = writeForever(base, Options{Config: testConfig(endpoint, prefix), CacheDir: filepath.Join(dir, "cache")}, name)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

func writeForever(base state.Driver, opts Options, name string) error {
	d, err := open(base, opts)
	if err != nil {
		return err
	}
	d.packer.pace = quickPace
	failed := make(chan error)
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				key := fmt.Sprint(name, "/", w, "/", i)
				if err := d.Put(context.Background(), []state.Item{blob(key)}, realLease()); err != nil {
					failed <- err
				}
				fmt.Println(key)
			}
		}()
	}
	return <-failed
}

func realLease() state.Lease {
	now := time.Now().Truncate(time.Millisecond)
	return state.Lease{LastUsed: now, Expires: now.Add(7 * 24 * time.Hour)}
}

func blob(key string) state.Item {
	return state.Item{Key: key, Group: key, Value: valueOf(key), Owner: "owner", Blob: true}
}

func valueOf(key string) []byte { return []byte(strings.Repeat(key+" ", 100)) }

// mustHave reads all keys back and fails for each that is lost.
func mustHave(t *testing.T, d state.Driver, keys []string) {
	t.Helper()
	lost := 0
	var mu sync.Mutex
	var wg sync.WaitGroup
	queue := make(chan string)
	for range 16 {
		wg.Go(func() {
			for key := range queue {
				got, err := d.Get(t.Context(), key, key, time.Now())
				if err != nil || !bytes.Equal(got, valueOf(key)) {
					mu.Lock()
					if lost++; lost < 5 {
						t.Errorf("acknowledged %s reads back as %.20q, %v", key, got, err)
					}
					mu.Unlock()
				}
			}
		})
	}
	for _, key := range keys {
		queue <- key
	}
	close(queue)
	wg.Wait()
	if lost > 0 {
		t.Fatalf("%d of %d acknowledged originals are lost", lost, len(keys))
	}
}

// A gateway is killed with SIGKILL in the moment in which the bucket has a segment and the index has no pointers yet: nothing that it acknowledged is
// lost, with its index and with one that was rebuilt from nothing.
func TestGatewayKilledBetweenPutAndIndex(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, prefix, kills := t.TempDir(), t.Name()+"/"+filepath.Base(t.TempDir()), rounds(3, 50)
	var acknowledged []string
	for round := range kills {
		cmd := exec.Command(self, writerArg, testServer.Proxy.URL, prefix, dir, fmt.Sprint("round", round))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		for count := 0; ; count++ {
			line, err := lines.ReadString('\n')
			if err != nil {
				break // a line that is not whole was not acknowledged
			}
			acknowledged = append(acknowledged, strings.TrimSuffix(line, "\n"))
			if count == 20 {
				var once sync.Once
				testServer.Proxy.Set(s3server.Fault{After: func() { once.Do(func() { _ = cmd.Process.Kill() }) }})
			}
		}
		_ = cmd.Wait() // it was killed
		testServer.Proxy.Set(s3server.Fault{})
	}
	opts := Options{Config: testConfig(testServer.Proxy.URL, prefix)}
	opts.Config.CacheBytes = 0
	base, err := sqlite.Open(t.Context(), filepath.Join(dir, "index.db"))
	if err != nil {
		t.Fatal(err)
	}
	mustHave(t, openQuick(t, base, opts), acknowledged)
	mustRebuild(t, opts, acknowledged)
	t.Logf("%d kills, %d originals acknowledged, 0 lost", kills, len(acknowledged))
}

// mustRebuild makes an index from what is in the bucket.
func mustRebuild(t *testing.T, opts Options, acknowledged []string) {
	t.Helper()
	empty := memory.New()
	rebuilt, err := Rebuild(t.Context(), empty, opts)
	if err != nil || rebuilt.Restored < len(acknowledged) {
		t.Fatalf("Rebuild = %+v, %v; %d were acknowledged", rebuilt, err, len(acknowledged))
	}
	mustHave(t, openQuick(t, empty, opts), acknowledged)
}

// The server is killed with SIGKILL, is slow, refuses requests and drops connections after it has answered, while originals
// are stored: nothing that was acknowledged is lost.
func TestServerKilledSlowAndRefusing(t *testing.T) {
	server := s3server.Start(t)
	base, opts := memory.New(), testOptions(t)
	opts.Config.Endpoint = server.Proxy.URL
	opts.Config.CacheBytes = 0
	d := openQuick(t, base, opts)
	var mu sync.Mutex
	var acknowledged []string
	var failed atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprint(w, "/", i)
				putCtx, cancel := context.WithTimeout(ctx, 2*time.Second)
				err := d.Put(putCtx, []state.Item{blob(key)}, realLease())
				cancel()
				if err != nil {
					failed.Add(1)
					time.Sleep(5 * time.Millisecond)
					continue
				}
				mu.Lock()
				acknowledged = append(acknowledged, key)
				mu.Unlock()
			}
		})
	}
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(acknowledged)
	}
	kills := rounds(2, 20)
	for range kills {
		for _, f := range []s3server.Fault{{}, {Delay: 100 * time.Millisecond}, {Refuse: 0.5}, {Drop: 0.3}} {
			server.Proxy.Set(f)
			before := count()
			wait.For(t, "originals are stored", func() bool { return count() > before+10 })
		}
		server.Proxy.Set(s3server.Fault{})
		time.Sleep(rand.N(20 * time.Millisecond)) // in the middle of something
		server.Kill()
		before := failed.Load()
		wait.For(t, "puts fail", func() bool { return failed.Load() > before })
		if err := server.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	before := count()
	wait.For(t, "originals are stored", func() bool { return count() > before+10 })
	stop()
	writers.Wait()
	mustHave(t, d, acknowledged)
	mustRebuild(t, opts, acknowledged)
	t.Logf("%d kills, %d originals acknowledged, %d puts failed, 0 lost", kills, len(acknowledged), failed.Load())
}

// At 100 originals a second there are at most 20 PUTs for 1,000 of them.
func TestPutsPerOriginal(t *testing.T) {
	opts := testOptions(t)
	d, err := open(memory.New(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	originals := rounds(300, 3000)
	before, start := testServer.Proxy.Count("PUT"), time.Now()
	var wg sync.WaitGroup
	var slowest atomic.Int64
	for i := range originals {
		time.Sleep(time.Until(start.Add(time.Duration(i) * 10 * time.Millisecond)))
		wg.Go(func() {
			start := time.Now()
			if err := d.Put(t.Context(), []state.Item{blob(fmt.Sprint(i))}, realLease()); err != nil {
				t.Errorf("Put: %v", err)
			}
			for took := int64(time.Since(start)); ; {
				last := slowest.Load()
				if took <= last || slowest.CompareAndSwap(last, took) {
					break
				}
			}
		})
	}
	wg.Wait()
	puts, took := testServer.Proxy.Count("PUT")-before, time.Since(start)
	t.Logf("%d originals in %s: %d PUTs, %.1f for 1,000; the slowest took %s", originals, took.Round(time.Millisecond), puts, float64(puts)*1000/float64(originals), time.Duration(slowest.Load()).Round(time.Millisecond))
	// A busy machine stores fewer in a second. The first segment waits for nothing, the last not for others.
	if limit := max(float64(originals)*20/1000, took.Seconds()/defaultPace.spacing.Seconds()) + 2; float64(puts) > limit {
		t.Errorf("%d PUTs, want at most %.0f", puts, limit)
	}
}

// Reading back is one request, and takes at most twice as long as that request alone.
func TestReadBack(t *testing.T) {
	opts := testOptions(t)
	opts.Config.CacheBytes = 0
	d := openQuick(t, memory.New(), opts)
	const originals = 200
	for from := 0; from < originals; from += 50 {
		var wg sync.WaitGroup
		for i := from; i < from+50; i++ {
			wg.Go(func() {
				if err := d.Put(t.Context(), []state.Item{blob(fmt.Sprint(i))}, realLease()); err != nil {
					t.Errorf("Put: %v", err)
				}
			})
		}
		wg.Wait()
	}
	before := testServer.Proxy.Count("GET")
	for i := range originals {
		mustHave(t, d, []string{fmt.Sprint(i)})
	}
	if n := testServer.Proxy.Count("GET") - before; n != originals {
		t.Errorf("%d originals were read with %d requests", originals, n)
	}
	if os.Getenv(envLong) == "" {
		return // times are compared where nothing else runs
	}
	var ratio float64
	for range 3 {
		whole, bare := readTimes(t, d, originals, 10)
		ratio = float64(percentile(whole, 0.99)) / float64(percentile(bare, 0.99))
		t.Logf("reading back: p50 %s, p99 %s; one range GET: p50 %s, p99 %s", percentile(whole, 0.5), percentile(whole, 0.99), percentile(bare, 0.5), percentile(bare, 0.99))
		if ratio <= 2 {
			return
		}
	}
	t.Errorf("p99 of reading back is %.2f times that of a range GET", ratio)
}

// Readers of one value at the same time make one request.
func TestReadsCoalesce(t *testing.T) {
	opts := testOptions(t)
	opts.Config.CacheBytes = 0
	d := openQuick(t, memory.New(), opts)
	if err := d.Put(t.Context(), []state.Item{blob("a")}, realLease()); err != nil {
		t.Fatal(err)
	}
	testServer.Proxy.Set(s3server.Fault{Delay: 300 * time.Millisecond})
	defer testServer.Proxy.Set(s3server.Fault{})
	before := testServer.Proxy.Count("GET")
	var wg sync.WaitGroup
	values := make([][]byte, 8)
	for i := range values {
		wg.Go(func() { values[i], _ = d.Get(t.Context(), "a", "a", time.Now()) })
	}
	wg.Wait()
	for i, value := range values {
		if !bytes.Equal(value, valueOf("a")) {
			t.Fatalf("reader %d got %.20q", i, value)
		}
		clear(value) // its own copy
	}
	if n := testServer.Proxy.Count("GET") - before; n > 2 { // a reader that a busy machine held up comes late
		t.Errorf("8 readers made %d requests", n)
	}
}

// A caller whose time is over leaves; the segment that nobody waits for is not uploaded.
func TestPutGivesUp(t *testing.T) {
	d := openQuick(t, memory.New(), testOptions(t))
	testServer.Proxy.Set(s3server.Fault{Refuse: 1})
	defer testServer.Proxy.Set(s3server.Fault{})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.Put(ctx, []state.Item{blob("a")}, realLease()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Put = %v", err)
	}
	if _, err := d.Get(t.Context(), "a", "a", time.Now()); fault.KindOf(err) != fault.UnknownHandle {
		t.Errorf("Get = %v", err)
	}
	if !d.packer.memory.TryAcquire(maxPendingBytes) {
		wait.For(t, "the memory is free again", func() bool { return d.packer.memory.TryAcquire(maxPendingBytes) })
	}
}
