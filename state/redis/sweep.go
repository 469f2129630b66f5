package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/ctxgate/ctxgate/state"
)

const (
	removeStep = 128                   // groups that one script removes
	evictStep  = 64                    // groups of an owner that are looked at in each partition before the oldest are removed
	sweepPause = 10 * time.Millisecond // between steps for which nobody waits, to let other commands through
)

// removal are groups of a partition, and which of them go; see lua/remove.lua.
type removal struct {
	partition  int
	groups     []string
	mode       string
	now, spare time.Time
	budget     int64 // unpinned bytes after which nothing more goes; -1 for no limit
	owner      string
	keep       string
	isNewEpoch bool // change the epoch with it
}

func (d *Driver) newRemoveCommand(r removal) *command {
	base := d.base(r.partition)
	return &command{
		partition: r.partition, script: removeScript, keys: []string{base + "t", base + "x", base + "o"},
		args: append([]string{base, r.mode, millis(r.now), millis(r.spare), strconv.FormatInt(r.budget, 10), r.owner, r.keep}, r.groups...),
	}
}

// removeGroups removes groups of several partitions at once.
func (d *Driver) removeGroups(ctx context.Context, removals []removal) (result state.SweepResult, err error) {
	var commands, epochs []*command
	isChanged := map[int]bool{}
	for _, r := range removals {
		commands = append(commands, d.newRemoveCommand(r))
		if p := d.epochPartitionOf(r.partition); r.isNewEpoch && !isChanged[p] {
			isChanged[p] = true
			epochs = append(epochs, d.newEpochCommand(p))
		}
	}
	started := time.Now()
	// In one pipeline, so that whoever sees groups gone sees the new epoch a moment later.
	err = d.write(ctx, append(commands, epochs...))
	for i, c := range commands {
		var n []int64
		if err == nil {
			var reply []rueidis.RedisMessage
			if reply, err = c.reply.ToArray(); err == nil {
				n = readInts(reply)
			}
		}
		if len(n) < 8 {
			d.totals.forgetPartition(c.partition)
			continue
		}
		result.Groups += int(n[0])
		result.Bytes += n[1]
		d.totals.noteRemoved(c.partition, started, n[4], state.Stat{Items: n[5], Bytes: n[6], Pinned: n[7]})
		if n[3] > 0 && removals[i].mode != "drop" {
			err = d.recount(ctx, c.partition)
		}
	}
	return result, d.asFault(ctx, err)
}

// recount counts a partition again in which groups were indexed that had gone by themselves.
func (d *Driver) recount(ctx context.Context, partition int) error {
	base := d.base(partition)
	defer d.totals.forgetPartition(partition)
	return d.write(ctx, []*command{{partition: partition, script: recountScript, keys: []string{base + "t", base + "x", base + "o"}, args: []string{base}}})
}

// epochPartitionOf is the partition with the epoch of a partition's primary.
func (d *Driver) epochPartitionOf(partition int) int {
	t := d.topology.Load()
	at, err := t.primaryOf(partitionSlots[partition])
	if first, ok := t.firsts[at.addr]; ok && err == nil {
		return first
	}
	return partition // the write fails, too
}

// Sweep implements [state.Sweeper].
func (d *Driver) Sweep(ctx context.Context, sweep state.SweepRequest) (state.SweepResult, error) {
	if err := d.begin(ctx); err != nil {
		return state.SweepResult{}, err
	}
	defer d.end()
	s := &sweeper{Driver: d, SweepRequest: sweep}
	if sweep.OwnerMax > 0 {
		return s.result, s.sweepOwner(ctx)
	}
	err := s.removeExpired(ctx)
	if err == nil {
		err = s.evict(ctx)
	}
	return s.result, err
}

// sweeper is one sweep.
type sweeper struct {
	*Driver
	state.SweepRequest
	result state.SweepResult
}

func (s *sweeper) remove(ctx context.Context, removals ...removal) (state.SweepResult, error) {
	for i := range removals {
		removals[i].now, removals[i].spare = s.Now, s.SpareAfter
	}
	got, err := s.removeGroups(ctx, removals)
	s.result.Groups += got.Groups
	s.result.Bytes += got.Bytes
	if s.Need == 0 && err == nil {
		select {
		case <-time.After(sweepPause):
		case <-ctx.Done():
		}
	}
	return got, err
}

// excess is how many bytes are too many.
func (s *sweeper) excess(ctx context.Context) (int64, error) {
	stat, err := s.readStat(ctx)
	return stat.Bytes + s.Need - s.MaxBytes, err
}

// removeExpired removes all expired groups or, for a waiting Put, no more than it needs.
func (s *sweeper) removeExpired(ctx context.Context) error {
	for {
		var reads []rueidis.Completed
		for p := range partitionCount {
			reads = append(reads, s.client.B().Zrangebyscore().Key(s.base(p)+"x").Min("-inf").Max(millis(s.Now)).Limit(0, removeStep).Build())
		}
		var removals []removal
		for p, reply := range s.client.DoMulti(ctx, reads...) {
			groups, err := reply.AsStrSlice()
			if err != nil {
				return s.asFault(ctx, err)
			}
			if len(groups) > 0 {
				removals = append(removals, removal{partition: p, groups: groups, mode: "expired", budget: -1})
			}
		}
		if len(removals) == 0 {
			return nil
		}
		if s.Need == 0 {
			if got, err := s.remove(ctx, removals...); err != nil || got.Groups == 0 {
				return err
			}
			continue
		}
		before := s.result.Groups
		for _, r := range removals {
			var err error
			if r.budget, err = s.excess(ctx); err != nil || r.budget <= 0 {
				return err
			}
			if _, err := s.remove(ctx, r); err != nil {
				return err
			}
		}
		if s.result.Groups == before {
			return nil
		}
	}
}

// candidate is a group that may go.
type candidate struct {
	group string
	groupMeta
}

// evict removes the least recently used groups of the owners that have most.
func (s *sweeper) evict(ctx context.Context) error {
	for {
		excess, err := s.excess(ctx)
		if err != nil || excess <= 0 {
			return err
		}
		owners, err := s.readOwners(ctx, "")
		if err != nil {
			return err
		}
		victims, err := s.chooseVictims(ctx, owners, excess)
		if err != nil || len(victims) == 0 {
			return err
		}
		before := s.result.Groups
		if err := s.removeVictims(ctx, victims); err != nil || s.result.Groups == before {
			return err // what was chosen was used meanwhile
		}
	}
}

// chooseVictims plays the eviction through: the owner with the most bytes loses its oldest group, again and again, until enough
// bytes would be free, or an owner has no more candidates in memory. One that has less than an equal part loses none, unless it
// is the one that needs the room.
func (s *sweeper) chooseVictims(ctx context.Context, owners []state.OwnerStat, excess int64) ([]candidate, error) {
	var all int64
	left := map[string]int64{}
	for _, o := range owners {
		left[o.Owner] = o.Bytes
		all += o.Bytes
	}
	queues, wasMore := map[string][]candidate{}, map[string]bool{}
	var victims []candidate
	for excess > 0 {
		best, found := "", false
		for name, bytes := range left {
			if name != s.Owner && bytes*int64(len(left)) < all {
				continue
			}
			if _, isLoaded := queues[name]; !isLoaded {
				var err error
				if queues[name], wasMore[name], err = s.oldest(ctx, name); err != nil {
					return nil, err
				}
			}
			if len(queues[name]) == 0 {
				if wasMore[name] {
					return victims, nil // remove these first; then there are more to look at
				}
				continue
			}
			if !found || bytes > left[best] || bytes == left[best] && name < best {
				best, found = name, true
			}
		}
		if !found {
			break
		}
		v := queues[best][0]
		queues[best] = queues[best][1:]
		victims = append(victims, v)
		excess -= v.bytes
		all -= v.bytes
		if left[best] -= v.bytes; left[best] <= 0 {
			delete(left, best)
		}
	}
	return victims, nil
}

// oldest are unpinned groups of an owner that are not spared, the least recently used first, and whether there may be more.
func (s *sweeper) oldest(ctx context.Context, owner string) (list []candidate, isMore bool, err error) {
	var reads []rueidis.Completed
	for p := range partitionCount {
		reads = append(reads, s.client.B().Zrangebyscore().Key(s.base(p)+"l:"+owner).Min("-inf").Max(millis(s.SpareAfter)).Limit(0, evictStep).Build())
	}
	limit := candidate{groupMeta: groupMeta{seen: 1<<63 - 1}}
	for _, reply := range s.client.DoMulti(ctx, reads...) {
		groups, err := reply.AsStrSlice()
		if err != nil {
			return nil, false, s.asFault(ctx, err)
		}
		found, err := s.loadCandidates(ctx, groups)
		if err != nil {
			return nil, false, err
		}
		list = append(list, found...)
		if len(groups) == evictStep { // what follows the last of these is not known
			isMore = true
			if n := len(found); n > 0 && compareCandidates(found[n-1], limit) < 0 {
				limit = found[n-1]
			}
		}
	}
	slices.SortFunc(list, compareCandidates)
	if isMore {
		list = slices.DeleteFunc(list, func(c candidate) bool { return compareCandidates(c, limit) > 0 })
	}
	return list, isMore, nil
}

func compareCandidates(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.seen, b.seen), cmp.Compare(a.group, b.group))
}

// loadCandidates reads the leases of groups. One that has gone by itself is a candidate of no bytes, so that its index goes.
func (s *sweeper) loadCandidates(ctx context.Context, groups []string) ([]candidate, error) {
	if len(groups) == 0 {
		return nil, nil
	}
	var reads []rueidis.Completed
	for _, g := range groups {
		reads = append(reads, s.client.B().Hget().Key(s.groupKey(g)).Field("m").Build())
	}
	var list []candidate
	for i, reply := range s.client.DoMulti(ctx, reads...) {
		text, err := reply.ToString()
		if err != nil && !rueidis.IsRedisNil(err) {
			return nil, s.asFault(ctx, err)
		}
		var m groupMeta
		if err == nil {
			if m, err = parseMeta(text); err != nil {
				return nil, s.asFault(ctx, err)
			}
		}
		list = append(list, candidate{groups[i], m})
	}
	return list, nil
}

// removeVictims removes chosen groups, if they were not used meanwhile.
func (s *sweeper) removeVictims(ctx context.Context, victims []candidate) error {
	type place struct {
		partition int
		owner     string
	}
	recent := s.Now.Add(-state.MaxAckLifetime).UnixMilli()
	groups, isRecent := map[place][]string{}, map[place]bool{}
	var order []place
	for _, v := range victims {
		at := place{partitionOf(v.group), v.owner}
		if groups[at] == nil {
			order = append(order, at)
		}
		groups[at] = append(groups[at], v.group)
		isRecent[at] = isRecent[at] || v.expires > s.Now.UnixMilli() && v.seen > recent
	}
	var removals []removal
	for _, at := range order {
		removals = append(removals, removal{partition: at.partition, groups: groups[at], mode: "evict", budget: -1, owner: at.owner, isNewEpoch: isRecent[at]})
	}
	if len(removals) == 0 {
		return nil
	}
	_, err := s.remove(ctx, removals...)
	return err
}

// sweepOwner brings one owner down to its limit.
func (s *sweeper) sweepOwner(ctx context.Context) error {
	for {
		var owned int64
		owners, err := s.readOwners(ctx, s.Owner)
		if err != nil {
			return err
		}
		for _, o := range owners {
			if o.Owner == s.Owner {
				owned = o.Bytes
			}
		}
		excess := owned + s.Need - s.OwnerMax
		if excess <= 0 {
			return nil
		}
		list, err := s.ownerCandidates(ctx)
		if err != nil {
			return err
		}
		var victims []candidate
		for _, c := range list {
			if excess <= 0 {
				break
			}
			victims = append(victims, c)
			excess -= c.bytes
		}
		before := s.result.Groups
		if err := s.removeVictims(ctx, victims); err != nil || s.result.Groups == before {
			return err
		}
	}
}

// ownerCandidates are the oldest groups of the owner, and those that have expired.
func (s *sweeper) ownerCandidates(ctx context.Context) ([]candidate, error) {
	list, _, err := s.oldest(ctx, s.Owner)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, c := range list {
		known[c.group] = true
	}
	var reads []rueidis.Completed
	for p := range partitionCount {
		reads = append(reads, s.client.B().Zrangebyscore().Key(s.base(p)+"x").Min("-inf").Max(millis(s.Now)).Limit(0, removeStep).Build())
	}
	for _, reply := range s.client.DoMulti(ctx, reads...) {
		groups, err := reply.AsStrSlice()
		if err != nil {
			return nil, s.asFault(ctx, err)
		}
		expired, err := s.loadCandidates(ctx, groups)
		if err != nil {
			return nil, err
		}
		for _, c := range expired {
			if c.owner == s.Owner && !c.isPinned && c.bytes > 0 && !known[c.group] {
				list = append(list, c)
			}
		}
	}
	slices.SortFunc(list, compareCandidates)
	return list, nil
}

// DropOwners implements [state.Driver].
func (d *Driver) DropOwners(ctx context.Context, prefix, keep string) (state.SweepResult, error) {
	if err := d.begin(ctx); err != nil {
		return state.SweepResult{}, err
	}
	defer d.end()
	var result state.SweepResult
	for p := range partitionCount {
		names, err := d.client.Do(ctx, d.client.B().Zrangebylex().Key(d.base(p)+"o").Min("["+prefix).Max(lexEnd(prefix)).Build()).AsStrSlice()
		if err != nil {
			return result, d.asFault(ctx, err)
		}
		for _, name := range names {
			if name == keep {
				continue
			}
			for _, kind := range []string{"l:", "p:"} {
				got, err := d.dropOwned(ctx, removal{partition: p, mode: "owner", budget: -1, owner: prefix, keep: keep, isNewEpoch: true}, kind+name)
				result.Groups += got.Groups
				result.Bytes += got.Bytes
				if err != nil {
					return result, err
				}
			}
		}
	}
	return result, nil
}

// dropOwned removes the groups of an index of a partition.
func (d *Driver) dropOwned(ctx context.Context, r removal, index string) (result state.SweepResult, err error) {
	for {
		groups, err := d.client.Do(ctx, d.client.B().Zrange().Key(d.base(r.partition)+index).Min("0").Max(strconv.Itoa(removeStep-1)).Build()).AsStrSlice()
		if err != nil || len(groups) == 0 {
			return result, d.asFault(ctx, err)
		}
		r.groups = groups
		got, err := d.removeGroups(ctx, []removal{r})
		if err != nil {
			return result, err
		}
		result.Groups += got.Groups
		result.Bytes += got.Bytes
		if got.Groups == 0 {
			return result, fmt.Errorf("%d groups of an owner changed while they were removed", len(groups))
		}
	}
}
