package redisserver

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// TestFailover: in every mode a node that is killed is replaced, if there is another, and comes back.
func TestFailover(t *testing.T) {
	for _, mode := range []Mode{Single, Sentinel, Cluster} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			s := Shared(t, mode)
			before, err := s.Primary()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := before.Do("PING"); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			before.Kill()
			if mode != Single {
				wait.For(t, "another primary", func() bool {
					primaries, err := s.Primaries()
					return err == nil && !slices.Contains(primaries, before) && s.check() != nil && len(primaries) == map[Mode]int{Sentinel: 1, Cluster: 3}[mode]
				})
				t.Logf("replaced after %s", time.Since(start))
			}
			if err := s.Rejoin(before); err != nil {
				t.Fatal(err)
			}
			if err := s.WaitHealthy(); err != nil {
				t.Fatal(err)
			}
			t.Logf("healthy after %s", time.Since(start))
		})
	}
}

// TestAccess: a password, an ACL user and TLS, for clients, replication and Sentinels alike.
func TestAccess(t *testing.T) {
	for _, tt := range []struct {
		mode Mode
		o    Options
	}{
		{Single, Options{Password: "secret", MaxMemory: "16mb"}},
		{Sentinel, Options{User: "gate", Password: "secret", TLS: true, SentinelAuth: true}},
		{Cluster, Options{User: "gate", Password: "secret"}},
	} {
		t.Run(fmt.Sprint(tt.mode), func(t *testing.T) {
			t.Parallel()
			s := Start(t, tt.mode, tt.o)
			t.Log(s.URL())
			p, err := s.Primary()
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Pause(); err != nil {
				t.Fatal(err)
			}
			if err := p.Resume(); err != nil {
				t.Fatal(err)
			}
			if reply, err := p.Do("CONFIG", "GET", "appendfsync"); err != nil || fmt.Sprint(reply) != "[appendfsync always]" {
				t.Errorf("%v, %v", reply, err)
			}
			if err := s.FlushAll(); err != nil {
				t.Error(err)
			}
		})
	}
}
