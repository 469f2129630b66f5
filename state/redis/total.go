package redis

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/ctxgate/ctxgate/state"
)

const (
	totalsFresh     = time.Second // how long totals are used without looking what other processes wrote
	maxCachedOwners = 1 << 12
)

// totalCache has the totals of partitions as of the last write of this process, whose answer has them, or the last read.
type totalCache struct {
	mu         sync.Mutex
	partitions [partitionCount]partitionTotal
	owners     map[string]*ownerTotal
}

// partitionTotal are the totals of a partition.
type partitionTotal struct {
	version int64     // of the partition
	at      time.Time // when they were noted; zero for none
	read    time.Time // when they were read last; others may have written since
	stat    state.Stat
}

// ownerTotal are the bytes of an owner in each partition.
type ownerTotal struct {
	read     time.Time
	bytes    [partitionCount]int64
	versions [partitionCount]int64
}

// note takes totals over, unless later ones are known. A version that went back was counted anew, as after FLUSHALL.
func (t *partitionTotal) note(version int64, started time.Time, stat state.Stat) {
	if version >= t.version || started.After(t.at) {
		t.version, t.at, t.stat = version, time.Now(), stat
	}
}

// notePut takes over what a put answered: version, items, bytes, pinned bytes, bytes of the owner, whether the owner is the same.
func (t *totalCache) notePut(partition int, owner string, started time.Time, reply []rueidis.RedisMessage) {
	n := readInts(reply)
	if len(n) < 6 {
		t.forgetPartition(partition)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partitions[partition].note(n[0], started, state.Stat{Items: n[1], Bytes: n[2], Pinned: n[3]})
	o := t.owners[owner]
	switch {
	case n[5] == 0:
		t.owners = nil // another owner lost a group
	case o == nil:
		for i := range len(owner) { // what is known of a shorter name may be a list that lacks this one
			delete(t.owners, owner[:i])
		}
	case n[0] >= o.versions[partition]:
		o.bytes[partition], o.versions[partition] = n[4], n[0]
	}
}

// noteRemoved takes over what a removal answered.
func (t *totalCache) noteRemoved(partition int, started time.Time, version int64, stat state.Stat) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partitions[partition].note(version, started, stat)
	t.owners = nil
}

// forgetPartition is for when it is not known what happened.
func (t *totalCache) forgetPartition(partition int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partitions[partition] = partitionTotal{}
	t.owners = nil
}

func readInts(reply []rueidis.RedisMessage) []int64 {
	numbers := make([]int64, len(reply))
	for i := range reply {
		n, err := reply[i].AsInt64()
		if err != nil && !reply[i].IsNil() {
			return nil
		}
		numbers[i] = n
	}
	return numbers
}

// Stat implements [state.Driver]. What this process wrote counts at once, what others wrote within a second.
func (d *Driver) Stat(ctx context.Context) (state.Stat, error) {
	if err := d.begin(ctx); err != nil {
		return state.Stat{}, err
	}
	defer d.end()
	return d.readStat(ctx)
}

func (d *Driver) readStat(ctx context.Context) (state.Stat, error) {
	t := &d.totals
	started := time.Now()
	var stale []int
	t.mu.Lock()
	for p := range t.partitions {
		if t.partitions[p].at.IsZero() || started.Sub(t.partitions[p].read) > totalsFresh {
			stale = append(stale, p)
		}
	}
	t.mu.Unlock()
	var reads []rueidis.Completed
	for _, p := range stale {
		reads = append(reads, d.client.B().Hmget().Key(d.base(p)+"t").Field("v", "n", "b", "p").Build())
	}
	var replies []rueidis.RedisResult
	if len(reads) > 0 {
		replies = d.client.DoMulti(ctx, reads...)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, p := range stale {
		reply, err := replies[i].ToArray()
		if err != nil {
			return state.Stat{}, d.asFault(ctx, err)
		}
		n := readInts(reply)
		t.partitions[p].note(n[0], started, state.Stat{Items: n[1], Bytes: n[2], Pinned: n[3]})
		t.partitions[p].read = started
	}
	var sum state.Stat
	for _, p := range t.partitions {
		sum.Items += p.stat.Items
		sum.Bytes += p.stat.Bytes
		sum.Pinned += p.stat.Pinned
	}
	return sum, nil
}

// Owners implements [state.Driver].
func (d *Driver) Owners(ctx context.Context, prefix string) ([]state.OwnerStat, error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	defer d.end()
	if bytes, ok := d.totals.cachedOwner(prefix); ok {
		return []state.OwnerStat{{Owner: prefix, Bytes: bytes}}, nil
	}
	return d.readOwners(ctx, prefix)
}

// cachedOwner is what an owner has, if it is known that no other name begins with its.
func (t *totalCache) cachedOwner(name string) (int64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.owners[name]
	if o == nil || time.Since(o.read) > totalsFresh {
		return 0, false
	}
	var sum int64
	for _, b := range o.bytes {
		sum += b
	}
	return sum, sum > 0
}

func (d *Driver) readOwners(ctx context.Context, prefix string) ([]state.OwnerStat, error) {
	started := time.Now()
	var reads []rueidis.Completed
	for p := range partitionCount {
		reads = append(reads, d.client.B().Zrangebylex().Key(d.base(p)+"o").Min("["+prefix).Max(lexEnd(prefix)).Build(),
			d.client.B().Hmget().Key(d.base(p)+"t").Field("v", "o"+prefix).Build())
	}
	replies := d.client.DoMulti(ctx, reads...)
	only := &ownerTotal{read: started}
	names, isOnly := make([][]string, partitionCount), true
	for p := range partitionCount {
		var err error
		if names[p], err = replies[2*p].AsStrSlice(); err != nil {
			return nil, d.asFault(ctx, err)
		}
		total, err := replies[2*p+1].ToArray()
		if err != nil {
			return nil, d.asFault(ctx, err)
		}
		n := readInts(total)
		only.versions[p], only.bytes[p] = n[0], n[1]
		isOnly = isOnly && !slices.ContainsFunc(names[p], func(name string) bool { return name != prefix })
	}
	sums := map[string]int64{}
	if isOnly {
		for _, b := range only.bytes {
			sums[prefix] += b
		}
		if sums[prefix] > 0 {
			d.totals.addOwner(prefix, only)
		}
	} else if err := d.sumOwners(ctx, names, sums); err != nil {
		return nil, err
	}
	var owners []state.OwnerStat
	for name, bytes := range sums {
		if bytes > 0 {
			owners = append(owners, state.OwnerStat{Owner: name, Bytes: bytes})
		}
	}
	slices.SortFunc(owners, func(a, b state.OwnerStat) int { return cmp.Compare(a.Owner, b.Owner) })
	return owners, nil
}

func (t *totalCache) addOwner(name string, o *ownerTotal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owners == nil || len(t.owners) >= maxCachedOwners {
		t.owners = map[string]*ownerTotal{}
	}
	t.owners[name] = o
}

// sumOwners reads the bytes of the owners of each partition.
func (d *Driver) sumOwners(ctx context.Context, names [][]string, sums map[string]int64) error {
	var reads []rueidis.Completed
	var asked [][]string
	for p, part := range names {
		if len(part) > 0 {
			fields := make([]string, len(part))
			for i, name := range part {
				fields[i] = "o" + name
			}
			reads, asked = append(reads, d.client.B().Hmget().Key(d.base(p)+"t").Field(fields...).Build()), append(asked, part)
		}
	}
	for i, r := range d.client.DoMulti(ctx, reads...) {
		reply, err := r.ToArray()
		if err != nil {
			return d.asFault(ctx, err)
		}
		for j, bytes := range readInts(reply) {
			sums[asked[i][j]] += bytes
		}
	}
	return nil
}

// lexEnd is the end of the names that begin with a prefix, as ZRANGEBYLEX takes it.
func lexEnd(prefix string) string {
	end := []byte(prefix)
	for len(end) > 0 && end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	if len(end) == 0 {
		return "+"
	}
	end[len(end)-1]++
	return "(" + string(end)
}
