package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ctxgate/ctxgate/internal/testkit/cputime"
	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/toolcalls"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/redis"
)

const (
	redisOriginals = 640
	redisWriters   = 16
)

// measureRedis measures what a Redis server does for originals of 8 KiB: processor time, bytes and memory.
func measureRedis(ctx context.Context, c *Costs) (err error) {
	server, err := redisserver.New(redisserver.Single, redisserver.Options{})
	if err != nil {
		return err
	}
	defer server.Close()
	driver, err := redis.Open(ctx, redis.Config{URL: server.URL(), Durability: "wait-all"})
	if err != nil {
		return err
	}
	limits, keeping := state.Default(), recall.Default()
	limits.MaxBytes = 1 << 40
	store := state.New(driver, limits, time.Now)
	defer func() { _ = store.Close() }()
	r, err := recall.New(store, bytes.Repeat([]byte("s"), recall.MinSecretBytes), keeping)
	if err != nil {
		return err
	}
	node := server.Nodes[0]
	text := toolcalls.Text()
	ids := make([]string, redisOriginals)
	shrink := func(ctx context.Context, i, round int) error {
		const size = 8 << 10
		at := i * (len(text) - size) / redisOriginals
		body, err := json.Marshal(fmt.Sprintf("%d %d ", round, i) + text[at:at+size])
		if err != nil {
			return err
		}
		strs, _, err := jsonscan.New(body, 0).LongStrings(nil, maxChars)
		if err != nil {
			return err
		}
		s := r.Shrink(ctx, recall.ShrinkRequest{Tenant: "t", Body: body, Strings: strs}, recall.DefaultPolicy())
		if s.Recoverable != 1 {
			return fmt.Errorf("an original was not kept: %w", s.Err)
		}
		ids[i] = s.IDs[0]
		return nil
	}
	read := func(ctx context.Context, i, _ int) error {
		_, err := r.RecoverText(ctx, "t", recall.ReadRequest{ID: ids[i]}, func(recall.Origin) bool { return true }, 0)
		return err
	}
	if err := forOriginals(ctx, shrink, 0); err != nil { // tables and scripts are made
		return err
	}
	var before, after redisFigures
	if before, err = readRedis(node); err != nil {
		return err
	}
	c.RedisWrite = time.Duration(1 << 62)
	for round := range measureTries {
		took, err := cpuOf(node.PID(), func() error { return forOriginals(ctx, shrink, round+1) })
		if err != nil {
			return err
		}
		c.RedisWrite = min(c.RedisWrite, took/redisOriginals)
	}
	if after, err = readRedis(node); err != nil {
		return err
	}
	const count = measureTries * redisOriginals
	c.RedisBytes = (after.input - before.input) / count
	c.RedisMemory = (after.memory - before.memory) / count
	took, err := cpuOf(node.PID(), func() error {
		for range measureTries {
			if err := forOriginals(ctx, read, 0); err != nil {
				return err
			}
		}
		return nil
	})
	c.RedisRead = took / count
	return err
}

// forOriginals calls f for every original, several at once.
func forOriginals(ctx context.Context, f func(ctx context.Context, i, round int) error, round int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(redisWriters)
	for i := range redisOriginals {
		group.Go(func() error { return f(ctx, i, round) })
	}
	return group.Wait()
}

// cpuOf is the processor time of another process while f runs, corrected for how busy the machine is.
func cpuOf(pid int, f func() error) (time.Duration, error) {
	slow := cputime.Slowness()
	began, _ := process.CPUTime(pid)
	err := f()
	ended, _ := process.CPUTime(pid)
	return time.Duration(float64(ended-began) / min(slow, cputime.Slowness())), err
}

// redisFigures are figures of INFO.
type redisFigures struct{ input, memory float64 }

func readRedis(node *redisserver.Node) (f redisFigures, err error) {
	stats, err := node.Info("stats")
	if err != nil {
		return f, err
	}
	memory, err := node.Info("memory")
	if err != nil {
		return f, err
	}
	if f.input, err = strconv.ParseFloat(stats["total_net_input_bytes"], 64); err != nil {
		return f, err
	}
	f.memory, err = strconv.ParseFloat(memory["used_memory_dataset"], 64)
	return f, err
}
