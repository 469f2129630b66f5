// Package redis is the [state.Driver] over Redis or Valkey: a single server, a primary with replicas under Sentinel, or a
// Cluster. Replicas of the gateway share it.
//
// Path through the files: redis.go opens the driver, url.go reads the URL, client.go has the connections, topology.go which
// servers there are.
package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// Config says which store to open, and when a write is acknowledged.
type Config struct {
	URL        string
	Durability string // "wait-all", "server" or "none"
}

// Driver stores items in Redis. Make one with [Open].
type Driver struct {
	address address
	prefix  string         // begins all keys
	client  rueidis.Client // finds its way to the right server by itself

	nodesMu sync.Mutex
	nodes   map[string]rueidis.Client // by address; nil after Close

	topology atomic.Pointer[topology]
	refresh  chan struct{} // holds one token while the topology is to be read again
	stop     context.CancelFunc
	done     sync.WaitGroup
	closed   atomic.Bool
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
	d := &Driver{address: a, prefix: a.prefix, client: client, nodes: map[string]rueidis.Client{}, refresh: make(chan struct{}, 1)}
	if err := d.readTopologyAgain(ctx); err != nil {
		d.closeNodes(nil)
		client.Close()
		return nil, err
	}
	runCtx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.done.Go(func() { d.followTopology(runCtx) })
	return d, nil
}

// followTopology reads the topology every second, and earlier after errors.
func (d *Driver) followTopology(ctx context.Context) {
	tick := time.NewTicker(refreshEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-d.refresh:
		case <-ctx.Done():
			return
		}
		_ = d.readTopologyAgain(ctx) // the last one stays in use
	}
}

func (d *Driver) readTopologyAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	t, err := d.readTopology(ctx)
	if err != nil {
		return err
	}
	if !t.equal(d.topology.Load()) {
		d.topology.Store(t)
		d.closeNodes(append(t.nodes(), d.address.hosts...))
	}
	return nil
}

// Close closes all connections.
func (d *Driver) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	d.stop()
	d.done.Wait()
	d.closeNodes(nil)
	d.client.Close()
	return nil
}
