package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

// checkEvery is how often the settings of a server are read again; it may have been restarted with others.
const checkEvery = 30 * time.Second

// nodeCheck is what was found out about the settings of a server.
type nodeCheck struct {
	at      time.Time
	problem *fault.Error
}

// Status is what an operator must know about the store.
type Status struct {
	Primaries       int
	ReplicasMissing int    // that must be back before anything is acknowledged
	Problem         string // why nothing is acknowledged, "" if nothing is wrong
}

// Status says whether writes are acknowledged.
func (d *Driver) Status() Status {
	s := Status{Primaries: len(d.topology.Load().primaries)}
	d.writersMu.RLock()
	defer d.writersMu.RUnlock()
	for _, w := range d.writers {
		s.ReplicasMissing += int(w.missing.Load())
		if blocked := w.blocked.Load(); blocked != nil {
			s.Problem = blocked.Public
		}
	}
	if unsafe := d.unsafe.Load(); unsafe != nil {
		s.Problem = unsafe.Public
	}
	return s
}

// checkNodes reads the settings of all servers that have not been asked for a while. One that is down is asked when it is back.
func (d *Driver) checkNodes(ctx context.Context) {
	var problem *fault.Error
	nodes := d.topology.Load().nodes()
	checks := make(map[string]nodeCheck, len(nodes))
	for _, addr := range nodes {
		check, ok := d.checks[addr]
		if !ok || time.Since(check.at) > checkEvery || check.problem != nil {
			found, err := d.checkNode(ctx, addr)
			if err != nil {
				continue // it is missing; its absence blocks writes, and it is asked again
			}
			check = nodeCheck{time.Now(), found}
		}
		checks[addr] = check
		if check.problem != nil {
			problem = check.problem
		}
	}
	d.checks = checks
	if old := d.unsafe.Swap(problem); problem != nil && old == nil {
		slog.ErrorContext(ctx, "nothing is kept in the store", "error", problem)
	}
}

// checkNode says what is wrong with the settings of a server.
func (d *Driver) checkNode(ctx context.Context, addr string) (*fault.Error, error) {
	c, err := d.nodeClient(addr, false)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{}
	for _, name := range []string{"appendonly", "appendfsync", "maxmemory-policy"} {
		got, err := c.Do(ctx, c.B().ConfigGet().Parameter(name).Build()).AsStrMap()
		if isReply(err, "NOPERM", "ERR unknown command", "ERR unknown subcommand") {
			slog.WarnContext(ctx, `the Redis server does not show its settings, so that it is not known whether it loses what it acknowledged; for a service with a durable log set state.durability = "server"`, "server", addr)
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the settings of %s: %w", addr, err)
		}
		settings[name] = got[name]
	}
	switch {
	case settings["appendonly"] != "yes" || settings["appendfsync"] != "always":
		return fault.New(fault.Unavailable, fmt.Sprintf(
			`the Redis server %s may lose what it acknowledged (appendonly %s, appendfsync %s): set "appendonly yes" and "appendfsync always" there, or state.durability to "server" if its log is durable, or to "none"`,
			addr, settings["appendonly"], settings["appendfsync"])), nil
	case settings["maxmemory-policy"] != "noeviction":
		return fault.New(fault.Unavailable, fmt.Sprintf(
			`the Redis server %s removes keys by itself (maxmemory-policy %s): set "maxmemory-policy noeviction" there`, addr, settings["maxmemory-policy"])), nil
	}
	return nil, nil
}

// probeReplicas looks whether all replicas are there.
func (d *Driver) probeReplicas(ctx context.Context) {
	d.writersMu.RLock()
	writers := make([]*writer, 0, len(d.writers))
	for _, w := range d.writers {
		writers = append(writers, w)
	}
	d.writersMu.RUnlock()
	firsts := d.topology.Load().firsts
	var wg sync.WaitGroup
	for _, w := range writers {
		if p, ok := firsts[w.addr]; ok {
			wg.Go(func() {
				before := w.blocked.Load()
				err := w.probe(ctx, d.base(p)+"probe")
				if err != nil && !errors.Is(err, errMoved) && ctx.Err() == nil {
					slog.DebugContext(ctx, "a primary does not say which replicas it has", "error", err)
				}
				if after := w.blocked.Load(); after != nil && before == nil {
					slog.WarnContext(ctx, "replicas of the store are missing, so that nothing is kept and texts are sent whole", "primary", w.addr, "missing", w.missing.Load())
				} else if after == nil && before != nil {
					slog.InfoContext(ctx, "all replicas of the store are back", "primary", w.addr)
				}
			})
		}
	}
	wg.Wait()
}

// flushAcked removes marks that no write took along.
func (d *Driver) flushAcked(ctx context.Context) {
	d.writersMu.RLock()
	defer d.writersMu.RUnlock()
	for _, w := range d.writers {
		if w.blocked.Load() == nil && w.hasAcked() {
			for _, c := range w.takeAcked() {
				if err := w.client.Do(ctx, c.build(w.client.B())).Error(); err != nil {
					slog.DebugContext(ctx, "marks of writes were not removed", "error", err)
				}
			}
		}
	}
}
