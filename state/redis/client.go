package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ctxgate/ctxgate/state"
)

const (
	refreshEvery = time.Second // how often the topology is read, if no error asks for it earlier
	writerConns  = 4           // connections to a primary that write: while one waits for replicas, the others go on
)

// connect opens the shared client. A failover may be under way, so that it tries for a while.
func connect(ctx context.Context, a address) (rueidis.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, connectFor)
	defer cancel()
	for {
		c, err := rueidis.NewClient(a.sharedOption())
		if err == nil {
			return c, nil
		}
		if isRefused(err) {
			return nil, fmt.Errorf("the Redis server at %s refuses the client: %w", strings.Join(a.hosts, ", "), err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the Redis server at %s cannot be reached: %w", strings.Join(a.hosts, ", "), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

const connectFor = 15 * time.Second

// isRefused reports whether an error will be the same at the next try.
func isRefused(err error) bool {
	var reply *rueidis.RedisError
	if !errors.As(err, &reply) {
		return false
	}
	text := reply.Error()
	return slices.ContainsFunc([]string{"WRONGPASS", "NOAUTH", "NOPERM", "ERR invalid DB", "ERR DB index"}, func(s string) bool {
		return strings.HasPrefix(text, s)
	})
}

// nodeClient is the client of one server or Sentinel. A server that is down is no error yet.
func (d *Driver) nodeClient(addr string, isSentinel bool) (rueidis.Client, error) {
	d.nodesMu.Lock()
	c, ok := d.nodes[addr]
	d.nodesMu.Unlock()
	if ok {
		return c, nil
	}
	option := d.address.nodeOption(addr)
	if isSentinel {
		option = d.address.sentinelOption(addr)
	}
	c, err := rueidis.NewClient(option) // there is one even after an error: its next command dials again
	if c == nil {
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	d.nodesMu.Lock()
	defer d.nodesMu.Unlock()
	if other, ok := d.nodes[addr]; ok || d.nodes == nil {
		go c.Close()
		if ok {
			return other, nil
		}
		return nil, state.ErrClosed
	}
	d.nodes[addr] = c
	return c, nil
}

// closeNodes closes the clients of single servers, all of them or those that are no longer part of the topology.
func (d *Driver) closeNodes(keep []string) {
	d.nodesMu.Lock()
	defer d.nodesMu.Unlock()
	for addr, c := range d.nodes {
		if !slices.Contains(keep, addr) {
			c.Close()
			delete(d.nodes, addr)
		}
	}
	if keep == nil {
		d.nodes = nil
	}
}
