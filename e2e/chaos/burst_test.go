//go:build linux

package chaos

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"
)

// burst makes n calls, some at a time, each as soon as one before it has ended.
func burst(n, atOnce int, peers []peer, servers []string, shape func(i int, c *call)) calls {
	name := rand.Text()[:6]
	all := make(calls, n)
	var next sync.Mutex
	i := 0
	take := func() int {
		next.Lock()
		defer next.Unlock()
		i++
		return i - 1
	}
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for k := take(); k < n; k = take() {
				c := &call{id: idOf(k), nonce: fmt.Sprintf("%s-%d", name, k), tenant: fmt.Sprintf("t%d", k%7), server: servers[k%len(servers)], tool: "echo"}
				if shape != nil {
					shape(k, c)
				}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				c.make(ctx, peers[k%len(peers)])
				cancel()
				all[k] = c
			}
		})
	}
	workers.Wait()
	return all
}

// one makes a single call of a tool.
func one(p peer, server, tool, more string, limit time.Duration) *call {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := &call{id: fmt.Sprint(time.Now().UnixNano()), nonce: rand.Text()[:10], tenant: "t", server: server, tool: tool, more: more}
	c.make(ctx, p)
	return c
}
