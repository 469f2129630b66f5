//go:build linux

package chaos

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// failoversVariable selects the long form, which CTXGATE_CHAOS=full leaves out: it takes half an hour.
const failoversVariable = "CTXGATE_FAILOVERS"

var isLongFailovers = os.Getenv(failoversVariable) == "full"

// runsTogether lets tests that mostly wait run at once, unless they are long and one would slow the other down.
func runsTogether(t *testing.T) {
	t.Helper()
	if !isLongFailovers && !fullRun {
		t.Parallel()
	}
}

// keepingRate is in calls per second.
func keepingRate() int {
	if isLongFailovers || fullRun {
		return 200
	}
	return 50
}

// failover is a way to lose a primary. It returns the nodes that were killed.
type failover struct {
	name string
	run  func(t *testing.T, s *redisserver.Server) []*redisserver.Node
}

var failovers = []failover{
	{"a replica paused, then the primary and another node killed", killTwo},
	{"replicas paused, then the primary killed", killAfterPause},
	{"replicas killed, then the primary; the replicas come back first", killReplicasFirst},
	{"the primary killed", killPrimary},
	{"the primary paused until it is replaced", pausePrimary},
}

// TestR12Failovers: while primaries are lost, two gateways keep results. Each id that was ever shown is read back byte for
// byte by a third gateway, and no call fails.
func TestR12Failovers(t *testing.T) {
	for first, mode := range []redisserver.Mode{redisserver.Sentinel, redisserver.Cluster} {
		t.Run(string(mode), func(t *testing.T) {
			runsTogether(t)
			count, perFailover := 1, 100
			if isLongFailovers {
				count, perFailover = 20, 2500
			}
			s := redisserver.Start(t, mode, redisserver.Options{})
			k := startKeeping(t, redisState(s, "wait-all"), keepingRate(), 0)
			for i := range count {
				k.waitKept(t, perFailover)
				f := failovers[(first+i)%len(failovers)]
				start := time.Now()
				killed := f.run(t, s)
				for j, n := range killed {
					// A former primary that comes back by itself takes itself for one for a while.
					if (i+j)%3 == 2 && isLongFailovers {
						if err := n.Restart(); err != nil {
							t.Fatal(err)
						}
					} else if err := s.Rejoin(n); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.WaitHealthy(); err != nil {
					t.Fatal(err)
				}
				t.Logf("%d: %s; healthy after %s; %s", i+1, f.name, short(time.Since(start)), k.progress())
			}
			k.waitKept(t, perFailover)
			k.finish(t, "R12", fmt.Sprintf("%s, %d failovers", mode, count), 0)
		})
	}
}

// TestR12WithoutDurability: the same test finds the losses of a store that acknowledges before its replicas have the write.
func TestR12WithoutDurability(t *testing.T) {
	runsTogether(t)
	count := 1
	if isLongFailovers {
		count = 5
	}
	s := redisserver.Start(t, redisserver.Sentinel, redisserver.Options{})
	k := startKeeping(t, redisState(s, "none"), keepingRate(), 0)
	for range count {
		k.waitKept(t, 50)
		for _, n := range killReplicasFirst(t, s) {
			if err := s.Rejoin(n); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.WaitHealthy(); err != nil {
			t.Fatal(err)
		}
	}
	k.finish(t, "R12", fmt.Sprintf("durability = none, %d failovers", count), 1)
}

func redisState(s *redisserver.Server, durability string) string {
	return fmt.Sprintf("driver = \"redis\"\nurl = %q\ndurability = %q", s.URL(), durability)
}

// somePrimary is the primary, or one of those of a Cluster, another each time.
func somePrimary(t *testing.T, s *redisserver.Server) *redisserver.Node {
	t.Helper()
	primaries, err := s.Primaries()
	if err != nil {
		t.Fatal(err)
	}
	return primaries[time.Now().UnixNano()/1000%int64(len(primaries))]
}

// waitReplaced waits until a primary is none any more.
func waitReplaced(t *testing.T, s *redisserver.Server, lost *redisserver.Node) {
	t.Helper()
	wait.For(t, "another primary", func() bool {
		primaries, err := s.Primaries()
		return err == nil && !slices.Contains(primaries, lost)
	})
}

func killPrimary(t *testing.T, s *redisserver.Server) []*redisserver.Node {
	t.Helper()
	p := somePrimary(t, s)
	p.Kill()
	waitReplaced(t, s, p)
	return []*redisserver.Node{p}
}

func pauseNodes(t *testing.T, nodes []*redisserver.Node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.Pause(); err != nil {
			t.Fatal(err)
		}
	}
}

func resumeNodes(t *testing.T, nodes []*redisserver.Node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.Resume(); err != nil {
			t.Fatal(err)
		}
	}
}

// killAfterPause kills a primary that has written for a third of a second what its replicas do not have.
func killAfterPause(t *testing.T, s *redisserver.Server) []*redisserver.Node {
	t.Helper()
	p := somePrimary(t, s)
	replicas := s.ReplicasOf(p)
	pauseNodes(t, replicas)
	time.Sleep(300 * time.Millisecond)
	p.Kill()
	resumeNodes(t, replicas)
	waitReplaced(t, s, p)
	return []*redisserver.Node{p}
}

// killReplicasFirst kills the replicas, lets the primary write without them, and kills it, too. Its replicas come back before
// it does. A paused replica would still get what the kernel has received for it.
func killReplicasFirst(t *testing.T, s *redisserver.Server) []*redisserver.Node {
	t.Helper()
	p := somePrimary(t, s)
	replicas := s.ReplicasOf(p)
	for _, n := range replicas {
		n.Kill()
	}
	time.Sleep(300 * time.Millisecond)
	p.Kill()
	restartAll(t, replicas)
	waitReplaced(t, s, p)
	return []*redisserver.Node{p}
}

// killTwo pauses one replica, and then kills the primary and another node at once: the other replica, or one of another
// primary.
func killTwo(t *testing.T, s *redisserver.Server) []*redisserver.Node {
	t.Helper()
	p := somePrimary(t, s)
	replicas := s.ReplicasOf(p)
	pauseNodes(t, replicas[:1])
	time.Sleep(300 * time.Millisecond)
	other := replicas[len(replicas)-1]
	if other == replicas[0] {
		for _, q := range s.Nodes {
			if q != p && q != other && len(s.ReplicasOf(q)) > 0 {
				other = s.ReplicasOf(q)[0]
				break
			}
		}
	}
	p.Kill()
	other.Kill()
	resumeNodes(t, replicas[:1])
	waitReplaced(t, s, p)
	return []*redisserver.Node{p, other}
}

// pausePrimary stops a primary until it is replaced. It goes on with its connections and what it has not sent.
func pausePrimary(t *testing.T, s *redisserver.Server) []*redisserver.Node {
	t.Helper()
	p := somePrimary(t, s)
	pauseNodes(t, []*redisserver.Node{p})
	waitReplaced(t, s, p)
	resumeNodes(t, []*redisserver.Node{p})
	return nil
}
