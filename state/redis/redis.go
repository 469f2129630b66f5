// Package redis is the [state.Driver] over Redis or Valkey: a single server, a primary with replicas under Sentinel, or a
// Cluster. Replicas of the gateway share it.
//
// Path through the files: redis.go opens the driver, url.go reads the URL, client.go has the connections, topology.go which
// servers there are, durability.go whether they lose nothing; item.go reads and writes items, writer.go makes writes durable,
// total.go has the sums, sweep.go removes, list.go lists; shared.go is what replicas share beside the items. The folder lua has the scripts, partition.go the names of keys.
//
// Invariants:
//   - With durability "wait-all" a write is acknowledged when the primary and all its replicas have synced it to their disks:
//     those that Sentinel or the Cluster knows, also those that are down, and those that are connected. Whichever of them
//     becomes the primary has it.
//   - A group is one hash, and all its keys are in one slot: a script changes the group, its indexes and the totals at once.
//   - A group whose last write replicas may not have yet is marked. Before anything relies on it, it is written again.
//   - Only primaries are read.
//
// A replica that is missing, or a server that may lose what it acknowledged, makes every write fail at once with
// [fault.Unavailable]; reads go on. [Driver.Status] says so.
package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

// Config says which store to open, and when a write is acknowledged.
type Config struct {
	URL        string
	Durability string // "wait-all", which is the default, "server" or "none"
}

// Driver stores items in Redis. Make one with [Open].
type Driver struct {
	address address
	prefix  string         // begins all keys
	client  rueidis.Client // finds its way to the right server by itself
	bases   [partitionCount]string
	waitAll bool

	nodesMu sync.Mutex
	nodes   map[string]rueidis.Client // by address; nil after Close
	checks  map[string]nodeCheck      // by address; of the goroutine that follows the topology alone

	topologyMu sync.Mutex // held while a topology is put in use
	topology   atomic.Pointer[topology]
	writersMu  sync.RWMutex
	writers    map[string]*writer // by the address of the primary
	unsafe     atomic.Pointer[fault.Error]

	totals   totalCache
	list     listSnapshot
	refresh  chan struct{} // holds one token while the topology is to be read again
	stop     context.CancelFunc
	done     sync.WaitGroup
	inFlight sync.RWMutex // held for reading by operations
	isClosed bool
}

// Open connects to the store.
func Open(ctx context.Context, cfg Config) (*Driver, error) {
	a, err := parseURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("state.url: %w", err)
	}
	client, err := connect(ctx, a)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		address: a, prefix: a.prefix, client: client, bases: makeBases(a.prefix),
		waitAll: cfg.Durability == "" || cfg.Durability == "wait-all",
		nodes:   map[string]rueidis.Client{}, checks: map[string]nodeCheck{}, writers: map[string]*writer{}, refresh: make(chan struct{}, 1),
	}
	runCtx, stop := context.WithCancel(context.Background())
	d.stop = stop
	if err = d.followOnce(ctx); err == nil {
		if unsafe := d.unsafe.Load(); unsafe != nil {
			err = unsafe
		}
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	d.done.Go(func() { d.followTopology(runCtx) })
	return d, nil
}

// followTopology reads the topology every second, and earlier after errors.
func (d *Driver) followTopology(ctx context.Context) {
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	for failed := false; ; {
		select {
		case <-tick.C:
		case <-d.refresh:
		case <-ctx.Done():
			return
		}
		err := d.followOnce(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			slog.WarnContext(ctx, "the Redis servers do not say which of them is the primary; the last one stays in use", "error", err)
		}
		failed = err != nil
		select { // errors of many operations at once are one reason
		case <-time.After(refreshEvery / 10):
		case <-ctx.Done():
			return
		}
	}
}

// followOnce reads the topology, and checks that no replica is missing and that every server syncs its writes to disk.
func (d *Driver) followOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	if err := d.readTopologyAgain(ctx); err != nil {
		return err
	}
	if d.waitAll {
		d.checkNodes(ctx)
		d.probeReplicas(ctx)
	}
	d.flushAcked(ctx)
	return nil
}

func (d *Driver) readTopologyAgain(ctx context.Context) error {
	t, err := d.readTopology(ctx)
	if err != nil {
		return err
	}
	d.topologyMu.Lock()
	defer d.topologyMu.Unlock()
	if t.equal(d.topology.Load()) {
		return nil
	}
	t.setFirsts()
	d.setWriters(t)
	d.topology.Store(t)
	d.closeNodes(append(t.nodes(), d.address.hosts...))
	return nil
}

// setWriters starts a writer for each new primary, and stops those of servers that are none any more.
func (d *Driver) setWriters(t *topology) {
	d.writersMu.Lock()
	defer d.writersMu.Unlock()
	old := d.writers
	d.writers = map[string]*writer{}
	for _, p := range t.primaries {
		w, ok := old[p.addr]
		if !ok {
			c, err := d.nodeClient(p.addr, false)
			if err != nil {
				continue
			}
			w = newWriter(p.addr, c, &d.bases, d.waitAll, d.refreshSoon)
		}
		w.required.Store(int64(p.required()))
		delete(old, p.addr)
		d.writers[p.addr] = w
	}
	for _, w := range old {
		d.done.Go(w.stopAndWait) // it may be in a pipeline that nobody answers
	}
}

// refreshSoon has the topology read again.
func (d *Driver) refreshSoon() {
	select {
	case d.refresh <- struct{}{}:
	default:
	}
}

// begin must be called by every operation, and end after it if there was no error.
func (d *Driver) begin(ctx context.Context) error {
	d.inFlight.RLock()
	if d.isClosed {
		d.inFlight.RUnlock()
		return state.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		d.inFlight.RUnlock()
		return err
	}
	return nil
}

func (d *Driver) end() { d.inFlight.RUnlock() }

// Close implements [state.Driver].
func (d *Driver) Close() error {
	d.inFlight.Lock()
	defer d.inFlight.Unlock()
	if d.isClosed {
		return nil
	}
	d.isClosed = true
	d.stop()
	d.done.Wait()
	for _, w := range d.writers {
		w.stopAndWait()
	}
	d.closeNodes(nil)
	d.client.Close()
	return nil
}

const maxTries = 4 // of commands that a server sends elsewhere

// write runs commands on the primaries of their partitions, all at once, and returns when all are durable. What a command
// itself answered is in it.
func (d *Driver) write(ctx context.Context, commands []*command) error {
	if unsafe := d.unsafe.Load(); unsafe != nil {
		return unsafe
	}
	for try := 1; ; try++ {
		err := d.writeOnce(ctx, commands)
		if err != nil && !errors.Is(err, errMoved) {
			return d.asFault(ctx, err)
		}
		var again []*command
		for _, c := range commands {
			if c.err == nil && err == nil {
				continue
			}
			if c.err != nil && !isElsewhere(c.err) {
				return d.asFault(ctx, c.err)
			}
			again = append(again, c)
		}
		if len(again) == 0 {
			return nil
		}
		if err == nil {
			err = again[0].err
		}
		if try == maxTries || ctx.Err() != nil {
			return d.asFault(ctx, err)
		}
		// A failover, or a slot on its way to another server.
		if err := d.readTopologyAgain(ctx); err != nil {
			return d.asFault(ctx, err)
		}
		commands = again
		select {
		case <-time.After(time.Duration(10<<try) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *Driver) writeOnce(ctx context.Context, commands []*command) error {
	t := d.topology.Load()
	byWriter := map[*writer][]*command{}
	for _, c := range commands {
		p, err := t.primaryOf(partitionSlots[c.partition])
		if err != nil {
			return err
		}
		d.writersMu.RLock()
		w := d.writers[p.addr]
		d.writersMu.RUnlock()
		if w == nil {
			return errMoved
		}
		byWriter[w] = append(byWriter[w], c)
	}
	results := make(chan error, len(byWriter))
	for w, part := range byWriter {
		if len(byWriter) == 1 {
			return w.submit(ctx, part)
		}
		go func() { results <- w.submit(ctx, part) }()
	}
	var errs []error
	for range byWriter {
		errs = append(errs, <-results)
	}
	return errors.Join(errs...)
}

// isReply reports whether an error is a server's answer that begins with one of the words.
func isReply(err error, words ...string) bool {
	var reply *rueidis.RedisError
	if !errors.As(err, &reply) {
		return false
	}
	text := reply.Error()
	for _, w := range words {
		if strings.HasPrefix(text, w) {
			return true
		}
	}
	return false
}

// isElsewhere reports whether a server answered that another has the key, or will have it soon.
func isElsewhere(err error) bool {
	return isReply(err, "MOVED", "ASK", "TRYAGAIN", "READONLY", "CLUSTERDOWN", "NOSCRIPT")
}

// asFault makes a fault of an error, and has the topology read again.
func (d *Driver) asFault(ctx context.Context, err error) error {
	var known *fault.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case ctx.Err() != nil:
		return ctx.Err()
	case isReply(err, "OOM"):
		return fault.Wrap(fault.Full, "the store is full: Redis has used up its maxmemory", err)
	case isReply(err, "NOPERM"):
		return fault.Wrap(fault.Unavailable, "the store refuses a command: the Redis user needs more rights", err)
	}
	d.refreshSoon()
	return fault.Wrap(fault.Unavailable, "the store cannot be reached", err)
}

// newToken marks a write until replicas have it; "" if nobody waits for them.
func (d *Driver) newToken() string {
	if !d.waitAll {
		return ""
	}
	return fmt.Sprintf("%016x", rand.Uint64())
}
