//go:build linux

package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/syncdisk"
)

// disks are those of the nodes of a deployment.
type disks []*syncdisk.Disk

func mountDisks(t *testing.T, count int) disks {
	t.Helper()
	var out disks
	for range count {
		out = append(out, syncdisk.Mount(t))
	}
	return out
}

// options has each node's data on its own disk.
func (d disks) options(fsync string) redisserver.Options {
	return redisserver.Options{AppendFsync: fsync, Dir: func(i int) string { return filepath.Join(d[i].Path, "data") }}
}

// cutPower ends all nodes at once and takes back what was not synced.
func (d disks) cutPower(t *testing.T, s *redisserver.Server) {
	t.Helper()
	for _, n := range s.Nodes {
		n.Kill()
	}
	for i, disk := range d {
		lost, err := disk.CutPower()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s lost %d bytes", s.Nodes[i].Name, lost)
	}
}

func restartAll(t *testing.T, nodes []*redisserver.Node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.Restart(); err != nil {
			t.Fatal(err)
		}
	}
}

// powerCuts runs a load while the power of all nodes is cut, and every other time, if there are replicas, the primary's
// disk does not come back.
func powerCuts(t *testing.T, mode redisserver.Mode, fsync, durability string, cuts, perCut int) *keeping {
	t.Helper()
	count := map[redisserver.Mode]int{redisserver.Single: 1, redisserver.Sentinel: 3}[mode]
	d := mountDisks(t, count)
	s := redisserver.Start(t, mode, d.options(fsync))
	k := startKeeping(t, redisState(s, durability), keepingRate(), 0)
	for i := range cuts {
		k.waitKept(t, perCut)
		p, err := s.Primary()
		if err != nil {
			t.Fatal(err)
		}
		replicas := s.ReplicasOf(p)
		d.cutPower(t, s)
		if i%2 == 0 && mode == redisserver.Sentinel {
			restartAll(t, replicas)
			waitReplaced(t, s, p)
			if err := os.RemoveAll(p.Dir()); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(p.Dir(), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := s.Rejoin(p); err != nil {
				t.Fatal(err)
			}
		} else {
			restartAll(t, s.Nodes)
		}
		if err := s.WaitHealthy(); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// TestR12PowerCut: a disk that loses what was not synced loses nothing that was acknowledged.
func TestR12PowerCut(t *testing.T) {
	modes := []redisserver.Mode{redisserver.Single}
	if isLongFailovers {
		modes = append(modes, redisserver.Sentinel)
	}
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			runsTogether(t)
			cuts, perCut := 1, 100
			if isLongFailovers {
				cuts, perCut = 10, 1000
			}
			k := powerCuts(t, mode, "always", "wait-all", cuts, perCut)
			k.waitKept(t, perCut)
			k.finish(t, "R12", fmt.Sprintf("%s, power cut %d times", mode, cuts), 0)
		})
	}
}

// TestR12PowerCutWithoutSync: the same test finds the losses of a store that does not sync.
func TestR12PowerCutWithoutSync(t *testing.T) {
	runsTogether(t)
	cuts := 1
	if isLongFailovers {
		cuts = 3
	}
	k := powerCuts(t, redisserver.Single, "no", "none", cuts, 100)
	k.finish(t, "R12", fmt.Sprintf("without fsync, power cut %d times", cuts), 1)
}
