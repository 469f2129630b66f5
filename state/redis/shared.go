package redis

import (
	"context"
	"crypto/sha256"
	_ "embed" // of the scripts
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/ctxgate/ctxgate/state"
)

var _ state.Shared = (*Driver)(nil)

//go:embed lua/take.lua
var takeText string

// The scripts of what replicas share. Each works on the keys of one slot.
var (
	takeScript = rueidis.NewLuaScript(takeText)

	addScript = rueidis.NewLuaScript(`local sum = redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return sum`)

	holdScript = rueidis.NewLuaScript(`local value = redis.call('GET', KEYS[1])
if value and value ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`)

	releaseScript = rueidis.NewLuaScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1`)

	// The members are in a sorted set; the score is the millisecond until which one is.
	joinScript = rueidis.NewLuaScript(`local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', tonumber(last[2])))
return redis.call('ZRANGE', KEYS[1], 0, -1)`)
)

// execute runs a script.
func (d *Driver) execute(ctx context.Context, script *rueidis.Lua, keys []string, args ...string) (rueidis.RedisMessage, error) {
	if err := ctx.Err(); err != nil {
		return rueidis.RedisMessage{}, err
	}
	reply, err := script.Exec(ctx, d.client, keys, args).ToMessage()
	return reply, asClosed(err)
}

// asClosed is the error of a driver that is closed, if that is why an operation failed.
func asClosed(err error) error {
	if errors.Is(err, rueidis.ErrClosing) {
		return state.ErrClosed
	}
	return err
}

// milliseconds is a lifetime as commands want it.
func milliseconds(lifetime time.Duration) string {
	return strconv.FormatInt(max(1, lifetime.Milliseconds()), 10)
}

// Take implements [state.Counters]. In a Cluster the rates of a group are in one slot, those of several groups are taken one
// group after the other.
func (d *Driver) Take(ctx context.Context, rates []state.Rate) (state.Taken, error) {
	if d.client.Mode() != rueidis.ClientModeCluster || !slices.ContainsFunc(rates, func(r state.Rate) bool { return r.Group != rates[0].Group }) {
		return d.takeOnce(ctx, rates, "")
	}
	all := state.Taken{OK: true, Extra: make([]int64, len(rates))}
	var taken []state.Rate // to be given back if another group refuses
	isDone := make([]bool, len(rates))
	for first := range rates {
		if isDone[first] {
			continue
		}
		var group []state.Rate
		var indexes []int
		for i, r := range rates {
			if r.Group == rates[first].Group {
				isDone[i] = true
				group, indexes = append(group, r), append(indexes, i)
			}
		}
		got, err := d.takeOnce(ctx, group, "")
		if err != nil || !got.OK {
			if giveErr := d.giveBack(taken); giveErr != nil {
				err = errors.Join(err, giveErr)
			}
			got.Limit = indexes[got.Limit]
			return got, err
		}
		for j, i := range indexes {
			all.Extra[i] = got.Extra[j]
			r := rates[i]
			r.Spent, r.Cost, r.Extra = -(r.Cost + got.Extra[j]), 0, 0
			taken = append(taken, r)
		}
	}
	return all, nil
}

// giveBack gives back what was taken, whether or not the caller still waits.
func (d *Driver) giveBack(rates []state.Rate) error {
	if len(rates) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
	defer cancel()
	_, err := d.Take(ctx, rates)
	return err
}

// takeOnce takes from rates that are in one slot. Only tests give it a time, in microseconds.
func (d *Driver) takeOnce(ctx context.Context, rates []state.Rate, now string) (state.Taken, error) {
	keys, args := make([]string, 0, len(rates)), make([]string, 0, 1+10*len(rates))
	args = append(args, now)
	for _, r := range rates {
		keys = append(keys, d.rateKey(r))
		every := int64((r.Every + time.Microsecond - 1) / time.Microsecond)
		sign, spent := int64(1), r.Spent
		if spent < 0 {
			sign, spent = -1, -spent
		} else if spent == 0 {
			sign = 0
		}
		burst, cost, used := r.Refill(r.Burst), r.Refill(r.Cost), r.Refill(min(spent, r.Burst))
		for _, n := range []int64{r.Calls, every, burst.Micros, burst.Part, cost.Micros, cost.Part, used.Micros, used.Part, sign, min(r.Extra, state.MaxExtra)} {
			args = append(args, strconv.FormatInt(n, 10))
		}
	}
	reply, err := d.execute(ctx, takeScript, keys, args...)
	if err != nil {
		return state.Taken{}, fmt.Errorf("counting calls in Redis: %w", err)
	}
	numbers, err := reply.AsIntSlice()
	if err != nil || len(numbers) < 3 || numbers[0] == 1 && len(numbers) != 3+len(rates) || numbers[1] >= int64(max(1, len(rates))) {
		return state.Taken{}, fmt.Errorf("counting calls in Redis: the script answered %v (%w)", numbers, errors.Join(err, errReply))
	}
	if numbers[0] != 1 {
		return state.Taken{Limit: int(numbers[1]), Retry: time.Duration(numbers[2]) * time.Microsecond}, nil
	}
	return state.Taken{OK: true, Extra: numbers[3:]}, nil
}

var errReply = errors.New("an answer of another form was expected")

// rateKey is the key of a rate. Rates of one group are in one slot.
func (d *Driver) rateKey(r state.Rate) string {
	sum := sha256.Sum256([]byte(r.Group)) // so that no brace of the name matters
	return d.prefix + "rate:{" + base64.RawURLEncoding.EncodeToString(sum[:9]) + "}" + r.Key
}

// Add implements [state.Counters].
func (d *Driver) Add(ctx context.Context, key string, delta int64, lifetime time.Duration) (int64, error) {
	reply, err := d.execute(ctx, addScript, []string{d.prefix + "sum:" + key}, strconv.FormatInt(delta, 10), milliseconds(lifetime))
	if err != nil {
		return 0, fmt.Errorf("adding to a sum in Redis: %w", err)
	}
	return reply.AsInt64()
}

func (d *Driver) leaseKey(key string) string { return d.prefix + "lease:" + key }

// Hold implements [state.Leases].
func (d *Driver) Hold(ctx context.Context, key string, value []byte, lifetime time.Duration) (bool, error) {
	reply, err := d.execute(ctx, holdScript, []string{d.leaseKey(key)}, string(value), milliseconds(lifetime))
	if err != nil {
		return false, fmt.Errorf("holding a lease in Redis: %w", err)
	}
	held, err := reply.AsInt64()
	return held == 1, err
}

// Held implements [state.Leases].
func (d *Driver) Held(ctx context.Context, key string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	value, err := d.client.Do(ctx, d.client.B().Get().Key(d.leaseKey(key)).Build()).ToString()
	switch {
	case rueidis.IsRedisNil(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading a lease in Redis: %w", asClosed(err))
	}
	return []byte(value), nil
}

// Release implements [state.Leases].
func (d *Driver) Release(ctx context.Context, key string, value []byte) error {
	if _, err := d.execute(ctx, releaseScript, []string{d.leaseKey(key)}, string(value)); err != nil {
		return fmt.Errorf("releasing a lease in Redis: %w", err)
	}
	return nil
}

// Join implements [state.Leases].
func (d *Driver) Join(ctx context.Context, set, member string, lifetime time.Duration) ([]string, error) {
	reply, err := d.execute(ctx, joinScript, []string{d.prefix + "set:" + set}, member, milliseconds(lifetime))
	if err != nil {
		return nil, fmt.Errorf("joining a set in Redis: %w", err)
	}
	members, err := reply.AsStrSlice()
	slices.Sort(members)
	return members, err
}

// Leave implements [state.Leases].
func (d *Driver) Leave(ctx context.Context, set, member string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.client.Do(ctx, d.client.B().Zrem().Key(d.prefix+"set:"+set).Member(member).Build()).Error(); err != nil {
		return fmt.Errorf("leaving a set in Redis: %w", asClosed(err))
	}
	return nil
}

func (d *Driver) channel(topic string) string { return d.prefix + "signal:" + topic }

// Publish implements [state.Signals]. Signals are few, so that they are not sharded: older servers know no other ones, and
// a subscriber gets them at any node.
func (d *Driver) Publish(ctx context.Context, topic string, payload []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := d.client.Do(ctx, d.client.B().Publish().Channel(d.channel(topic)).Message(string(payload)).Build()).Error(); err != nil {
		return fmt.Errorf("publishing to Redis: %w", asClosed(err))
	}
	return nil
}

const (
	signalQueue    = 128                    // signals that wait for a subscriber; if it is full, it is told that it missed some
	subscribeAgain = 100 * time.Millisecond // after a connection was lost
)

// Subscribe implements [state.Signals].
func (d *Driver) Subscribe(ctx context.Context, topic string, f func(payload []byte)) {
	ctx, cancel := context.WithCancel(ctx)
	queue, wake := make(chan []byte, signalQueue), make(chan struct{}, 1)
	var missed atomic.Bool
	noteMissed := func() {
		missed.Store(true)
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	// The connection is that of other commands: its reader never waits for f.
	go func() {
		for {
			var payload []byte
			select {
			case payload = <-queue:
			case <-wake:
			case <-ctx.Done():
				return
			}
			if missed.Swap(false) {
				f(nil)
			}
			if payload != nil {
				f(payload)
			}
		}
	}()
	go func() {
		defer cancel()
		hooked := rueidis.WithOnSubscriptionHook(ctx, func(s rueidis.PubSubSubscription) {
			if s.Kind == "subscribe" {
				noteMissed()
			}
		})
		for ctx.Err() == nil {
			err := d.client.Receive(hooked, d.client.B().Subscribe().Channel(d.channel(topic)).Build(), func(m rueidis.PubSubMessage) {
				select {
				case queue <- []byte(m.Message):
				default:
					noteMissed()
				}
			})
			if errors.Is(err, rueidis.ErrClosing) {
				return
			}
			select {
			case <-time.After(subscribeAgain):
			case <-ctx.Done():
			}
		}
	}()
}
