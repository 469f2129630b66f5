package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

const slotCount = 16384

// topology is which servers take writes, and how many copies of a write there have to be.
type topology struct {
	primaries []primary
	slots     []uint16 // of a Cluster: the index of each slot's primary, or noPrimary; nil for one primary

	firsts map[string]int // the first partition of each primary, by address
	epochs []int          // the same partitions, in order
}

const noPrimary = 1<<16 - 1

// primary is a server that takes writes.
type primary struct {
	addr     string
	replicas []string // all that are known, also those that are down
	missing  int      // replicas that are known to be gone, and whose address is not theirs any more
}

// required is how many replicas must have a write before it is durable.
func (p primary) required() int { return len(p.replicas) + p.missing }

var errNoPrimary = errors.New("no primary is known for a part of the keys")

// primaryOf is the primary of a slot.
func (t *topology) primaryOf(slot int) (primary, error) {
	if t.slots == nil {
		return t.primaries[0], nil
	}
	if i := t.slots[slot]; i != noPrimary {
		return t.primaries[i], nil
	}
	return primary{}, errNoPrimary
}

// setFirsts finds the first partition of each primary.
func (t *topology) setFirsts() {
	t.firsts = map[string]int{}
	for p, slot := range partitionSlots {
		at, err := t.primaryOf(slot)
		if _, ok := t.firsts[at.addr]; err == nil && !ok {
			t.firsts[at.addr] = p
			t.epochs = append(t.epochs, p)
		}
	}
}

// equal reports whether two topologies are the same.
func (t *topology) equal(other *topology) bool {
	return other != nil && slices.Equal(t.slots, other.slots) && slices.EqualFunc(t.primaries, other.primaries, func(a, b primary) bool {
		return a.addr == b.addr && a.missing == b.missing && slices.Equal(a.replicas, b.replicas)
	})
}

// nodes are the addresses of all servers.
func (t *topology) nodes() []string {
	var all []string
	for _, p := range t.primaries {
		all = append(append(all, p.addr), p.replicas...)
	}
	return all
}

// readTopology asks the servers for the topology.
func (d *Driver) readTopology(ctx context.Context) (*topology, error) {
	switch d.client.Mode() {
	case rueidis.ClientModeSentinel:
		return d.askSentinels(ctx)
	case rueidis.ClientModeCluster:
		return d.askCluster(ctx)
	}
	// Nobody knows the replicas of a single server that are down. Those that are connected are counted after every WAIT.
	return &topology{primaries: []primary{{addr: d.address.hosts[0]}}}, nil
}

// askSentinels asks all Sentinels: one that was cut off may still name an old primary. The view of most counts; of the
// replicas all that any of those knows.
func (d *Driver) askSentinels(ctx context.Context) (*topology, error) {
	type view struct {
		primary  string
		replicas []string
		err      error
	}
	views := make(chan view, len(d.address.hosts))
	for _, host := range d.address.hosts {
		go func() {
			var v view
			v.primary, v.replicas, v.err = d.askSentinel(ctx, host)
			views <- v
		}()
	}
	votes, replicas := map[string]int{}, map[string]map[string]bool{}
	var errs []error
	for range d.address.hosts {
		v := <-views
		if v.err != nil {
			errs = append(errs, v.err)
			continue
		}
		votes[v.primary]++
		if replicas[v.primary] == nil {
			replicas[v.primary] = map[string]bool{}
		}
		for _, r := range v.replicas {
			replicas[v.primary][r] = true
		}
	}
	best := ""
	for addr, n := range votes {
		if n > votes[best] || n == votes[best] && addr < best {
			best = addr
		}
	}
	if best == "" {
		return nil, fmt.Errorf("no Sentinel names a primary: %w", errors.Join(errs...))
	}
	delete(replicas[best], best)
	return &topology{primaries: []primary{{addr: best, replicas: slices.Sorted(maps.Keys(replicas[best]))}}}, nil
}

func (d *Driver) askSentinel(ctx context.Context, host string) (addr string, replicas []string, err error) {
	c, err := d.nodeClient(host, true)
	if err != nil {
		return "", nil, err
	}
	answers := c.DoMulti(ctx,
		c.B().Arbitrary("SENTINEL", "GET-MASTER-ADDR-BY-NAME", d.address.master).Build(),
		c.B().Arbitrary("SENTINEL", "REPLICAS", d.address.master).Build())
	at, err := answers[0].AsStrSlice()
	if err != nil || len(at) != 2 {
		return "", nil, fmt.Errorf("the Sentinel %s does not know the primary %q: %w", host, d.address.master, errors.Join(err, errNoPrimary))
	}
	list, err := answers[1].ToArray()
	if err != nil {
		return "", nil, fmt.Errorf("asking the Sentinel %s for replicas: %w", host, err)
	}
	for _, entry := range list {
		fields, err := entry.AsStrMap()
		if err != nil {
			return "", nil, fmt.Errorf("reading the replicas that the Sentinel %s knows: %w", host, err)
		}
		replicas = append(replicas, net.JoinHostPort(fields["ip"], fields["port"]))
	}
	return net.JoinHostPort(at[0], at[1]), replicas, nil
}

// askCluster asks the nodes of a Cluster, one after the other until one answers: those that are known, then those of the URL.
func (d *Driver) askCluster(ctx context.Context) (*topology, error) {
	var hosts []string
	if t := d.topology.Load(); t != nil {
		hosts = t.nodes()
	}
	var errs []error
	for _, host := range append(hosts, d.address.hosts...) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := d.nodeClient(host, false)
		if err == nil {
			var text string
			if text, err = c.Do(ctx, c.B().ClusterNodes().Build()).ToString(); err == nil {
				var t *topology
				if t, err = parseClusterNodes(text, host); err == nil {
					return t, nil
				}
			}
		}
		errs = append(errs, fmt.Errorf("%s: %w", host, err))
	}
	return nil, fmt.Errorf("no node of the Cluster answers: %w", errors.Join(errs...))
}

// parseClusterNodes reads the answer to CLUSTER NODES of a host.
func parseClusterNodes(text, host string) (*topology, error) {
	t := &topology{slots: slices.Repeat([]uint16{noPrimary}, slotCount)}
	byID, replicasOf := map[string]int{}, map[string][]string{}
	lost := 0 // primaries without slots: as a rule another has taken them over, and they are about to be its replicas
	// The client leaves the format of a RESP3 verbatim string in front, where it would change the first node's id.
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		addr, flags := clusterAddr(f[1], host), strings.Split(f[2], ",")
		switch {
		case slices.Contains(flags, "handshake") || slices.Contains(flags, "noaddr") && !slices.Contains(flags, "fail"):
		case slices.Contains(flags, "slave"):
			replicasOf[f[3]] = append(replicasOf[f[3]], addr)
		case len(f) > 8:
			byID[f[0]] = len(t.primaries)
			for _, part := range f[8:] {
				if err := t.assignSlots(part, len(t.primaries)); err != nil {
					return nil, err
				}
			}
			t.primaries = append(t.primaries, primary{addr: addr})
		default: // also one that is back and does not know yet whose replica it is
			lost++
		}
	}
	most := 0
	for id, i := range byID {
		slices.Sort(replicasOf[id])
		t.primaries[i].replicas = replicasOf[id]
		most = max(most, len(replicasOf[id]))
	}
	if len(t.primaries) == 0 {
		return nil, errNoPrimary
	}
	// The node that failed counts as a replica of the primary that took over, which then has one less than the others.
	if lost > 0 {
		for i, p := range t.primaries {
			t.primaries[i].missing = min(max(most, 1)-len(p.replicas), lost)
		}
	}
	return t, nil
}

// clusterAddr is the address in ip:port@busport[,hostname]; a node that does not know its own has an empty ip.
func clusterAddr(text, host string) string {
	text, _, _ = strings.Cut(text, "@")
	if i := strings.LastIndexByte(text, ':'); i == 0 {
		h, _, _ := net.SplitHostPort(host)
		return net.JoinHostPort(h, text[1:])
	} else if i > 0 {
		return net.JoinHostPort(text[:i], text[i+1:])
	}
	return text
}

// assignSlots reads 5, 5-10 or, of a slot that is moving, [5->-id].
func (t *topology) assignSlots(part string, index int) error {
	if strings.HasPrefix(part, "[") {
		return nil
	}
	first, last, isRange := strings.Cut(part, "-")
	from, err := strconv.Atoi(first)
	to := from
	if err == nil && isRange {
		to, err = strconv.Atoi(last)
	}
	if err != nil || from < 0 || to >= slotCount || from > to {
		return fmt.Errorf("the Cluster names the slots %q", part)
	}
	for slot := from; slot <= to; slot++ {
		t.slots[slot] = uint16(index)
	}
	return nil
}
