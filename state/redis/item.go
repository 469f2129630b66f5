package redis

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/ctxgate/ctxgate/state"
)

// expiryMargin is how much longer than its lease a group is there if nobody sweeps. The lease decides what can be read.
const expiryMargin = time.Hour

// groupMeta is the lease of a group, as lua/index.lua writes it.
type groupMeta struct {
	seen, expires int64
	isPinned      bool
	bytes         int64
	owner         string
}

func parseMeta(text string) (groupMeta, error) {
	f := strings.SplitN(text, " ", 7)
	if len(f) != 7 {
		return groupMeta{}, fmt.Errorf("the lease %.40q cannot be read", text)
	}
	m := groupMeta{isPinned: f[2] == "1", owner: f[6]}
	for _, n := range []struct {
		into *int64
		text string
	}{{&m.seen, f[0]}, {&m.expires, f[1]}, {&m.bytes, f[4]}} {
		var err error
		if *n.into, err = strconv.ParseInt(n.text, 10, 64); err != nil {
			return groupMeta{}, fmt.Errorf("the lease %.40q cannot be read: %w", text, err)
		}
	}
	return m, nil
}

// Put implements [state.Driver].
func (d *Driver) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	defer d.end()
	_, err := d.putGroups(ctx, d.newPuts(items, lease))
	return err
}

// PutIf implements [state.Driver].
func (d *Driver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	if err := d.begin(ctx); err != nil {
		return false, err
	}
	defer d.end()
	var own, others []*command // in the group of the condition, and not
	for _, c := range d.newPuts(items, lease) {
		if c.group == cond.Group {
			copy(c.args[argCondition:], conditionArgs(cond.Key, cond.Value))
			own = append(own, c)
		} else {
			c.args[argCheckFence] = "1"
			others = append(others, c)
		}
	}
	if len(others) > 0 {
		if ok, _, err := d.holds(ctx, cond, lease.LastUsed); !ok || err != nil {
			return false, err
		}
		if ok, err := d.putGroups(ctx, others); !ok || err != nil {
			return false, err
		}
	}
	if len(own) > 0 { // last, so that the condition holds after the others are stored
		return d.putGroups(ctx, own)
	}
	ok, isMarked, err := d.holds(ctx, cond, lease.LastUsed)
	if ok && isMarked && err == nil {
		// Replicas may not have what the condition is about. They have it after they have a later write.
		ok, err = d.touchGroup(ctx, cond.Group, state.Lease{LastUsed: lease.LastUsed, Expires: lease.LastUsed})
	}
	return ok, err
}

// The places of some arguments of lua/put.lua.
const (
	argCheckFence = 9
	argCondition  = 10
	argOvers      = 13
)

// newPuts makes a command for each group.
func (d *Driver) newPuts(items []state.Item, lease state.Lease) []*command {
	var commands []*command
	byGroup := map[string]*command{}
	overs := map[*command][]string{}
	for _, item := range items {
		c := byGroup[item.Group]
		if c == nil {
			p, token := partitionOf(item.Group), d.newToken()
			base := d.base(p)
			c = &command{
				partition: p, script: putScript, group: item.Group, token: token,
				keys: []string{base + "g:" + item.Group, base + "t", base + "x", base + "o", base + "l:" + item.Owner},
				args: []string{base, item.Group, millis(lease.LastUsed), millis(lease.Expires), keepMillis(lease), item.Owner, "0", fenceText(item.Fence), token, "0", "0", "", "", "0"},
			}
			byGroup[item.Group] = c
			commands = append(commands, c)
		}
		c.args[5] = item.Owner
		if item.Pinned {
			c.args[6] = "1"
		}
		if f := fenceText(item.Fence); f > c.args[7] {
			c.args[7] = f
		}
		c.args = append(c.args, item.Key, rueidis.BinaryString(item.Value))
		if item.Over != nil {
			overs[c] = append(overs[c], conditionArgs(item.Key, item.Over.Value)...)
		}
	}
	for c, over := range overs {
		c.args[argOvers] = strconv.Itoa(len(over) / 3)
		c.args = slices.Insert(c.args, argOvers+1, over...)
	}
	return commands
}

// conditionArgs are a condition of lua/put.lua: that a key has a value or, for nil, that there is none.
func conditionArgs(key string, value []byte) []string {
	kind := "2"
	if value == nil {
		kind = "1"
	}
	return []string{kind, key, rueidis.BinaryString(value)}
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

func keepMillis(lease state.Lease) string {
	return strconv.FormatInt((lease.Expires.Sub(lease.LastUsed) + expiryMargin).Milliseconds(), 10)
}

// fenceText is a number whose text has the order of the number, because a script has no integers of 64 bits.
func fenceText(fence uint64) string { return fmt.Sprintf("%016x", fence) }

// putGroups runs put commands, and reports whether all of them stored something.
func (d *Driver) putGroups(ctx context.Context, commands []*command) (bool, error) {
	if len(commands) == 0 {
		return true, nil
	}
	started := time.Now()
	err := d.write(ctx, commands)
	stored, conflict := true, error(nil)
	for _, c := range commands {
		var reply []rueidis.RedisMessage
		if err == nil {
			reply, err = c.reply.ToArray()
		}
		if err != nil {
			d.totals.forgetPartition(c.partition)
			continue
		}
		switch n, _ := reply[0].AsInt64(); n {
		case 0:
			stored = false
			continue
		case 2:
			conflict = state.ErrConflict
			continue
		}
		d.totals.notePut(c.partition, c.args[5], started, reply[1:])
	}
	err = cmp.Or(err, conflict)
	return stored && err == nil, err
}

// Get implements [state.Driver].
func (d *Driver) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	defer d.end()
	value, _, err := d.readItem(ctx, group, key, now)
	return value, err
}

// readItem also reports whether the group is marked.
func (d *Driver) readItem(ctx context.Context, group, key string, now time.Time) (value []byte, isMarked bool, err error) {
	reply, err := d.client.Do(ctx, d.client.B().Hmget().Key(d.groupKey(group)).Field("m", "u", "k"+key).Build()).ToArray()
	if err != nil {
		return nil, false, d.asFault(ctx, err)
	}
	if reply[0].IsNil() || reply[2].IsNil() {
		return nil, false, state.ErrUnknown
	}
	text, err := reply[0].ToString()
	if err != nil {
		return nil, false, d.asFault(ctx, err)
	}
	m, err := parseMeta(text)
	if err != nil {
		return nil, false, d.asFault(ctx, err)
	}
	if m.expires <= now.UnixMilli() {
		return nil, false, state.ErrUnknown
	}
	value, err = reply[2].AsBytes()
	return value, !reply[1].IsNil(), d.asFault(ctx, err)
}

// holds reports whether a condition holds now, and whether its group is marked.
func (d *Driver) holds(ctx context.Context, cond state.Condition, now time.Time) (ok, isMarked bool, err error) {
	value, isMarked, err := d.readItem(ctx, cond.Group, cond.Key, now)
	if errors.Is(err, state.ErrUnknown) {
		return cond.Value == nil, false, nil
	}
	return err == nil && cond.Value != nil && bytes.Equal(value, cond.Value), isMarked, err
}

// Touch implements [state.Driver]. A group whose lease is long enough, and that replicas have, is only read.
func (d *Driver) Touch(ctx context.Context, group string, lease state.Lease) (bool, error) {
	if err := d.begin(ctx); err != nil {
		return false, err
	}
	defer d.end()
	reply, err := d.client.Do(ctx, d.client.B().Hmget().Key(d.groupKey(group)).Field("m", "u").Build()).ToArray()
	if err != nil {
		return false, d.asFault(ctx, err)
	}
	text, err := reply[0].ToString()
	if err != nil {
		return false, nil // there is none
	}
	m, err := parseMeta(text)
	if err != nil {
		return false, d.asFault(ctx, err)
	}
	seen, expires, granularity := lease.LastUsed.UnixMilli(), lease.Expires.UnixMilli(), lease.Granularity.Milliseconds()
	if m.expires <= seen {
		return false, nil
	}
	if reply[1].IsNil() && seen-m.seen < granularity && expires-m.expires < granularity {
		return true, nil
	}
	return d.touchGroup(ctx, group, lease)
}

// touchGroup extends a lease with a write that replicas have when it returns.
func (d *Driver) touchGroup(ctx context.Context, group string, lease state.Lease) (bool, error) {
	p, token := partitionOf(group), d.newToken()
	base := d.base(p)
	c := &command{
		partition: p, script: touchScript, group: group, token: token, keys: []string{base + "g:" + group, base + "t", base + "x", base + "o"},
		args: []string{base, group, millis(lease.LastUsed), millis(lease.Expires), keepMillis(lease), token},
	}
	if err := d.write(ctx, []*command{c}); err != nil {
		return false, err
	}
	reply, err := c.reply.ToArray()
	if err != nil {
		return false, d.asFault(ctx, err)
	}
	n, err := reply[0].AsInt64()
	return n == 1, d.asFault(ctx, err)
}

// Drop implements [state.Driver].
func (d *Driver) Drop(ctx context.Context, group string) error {
	if err := d.begin(ctx); err != nil {
		return err
	}
	defer d.end()
	n, err := d.client.Do(ctx, d.client.B().Exists().Key(d.groupKey(group)).Build()).AsInt64()
	if err != nil || n == 0 {
		return d.asFault(ctx, err)
	}
	_, err = d.removeGroups(ctx, []removal{{partition: partitionOf(group), groups: []string{group}, mode: "drop", budget: -1, isNewEpoch: true}})
	return err
}
