package replicas

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// Every replica is restarted, then every replica is upgraded, one after the other, under 200 calls a second through HAProxy: no call fails, whatever
// was kept by any of them is read back from any other, byte for byte, while both versions run and afterwards.
func TestRollingRestartAndUpgrade(t *testing.T) {
	s := startSite(t, oldBinary)
	l := startLoad(t, "http://"+s.balancer)
	began := time.Now()
	roll := func(binary string) {
		for _, r := range s.replicas {
			if err := r.running.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			s.waitStatus(t, r.name, "DOWN") // by its health checks, while it still serves
			if r.running.HasExited() {
				t.Errorf("replica %s ended before HAProxy knew that it drains", r.name)
			}
			if code, err := r.running.ExitCode(time.Minute); err != nil || code != 0 {
				t.Fatalf("replica %s ended with %d, %v\n%s", r.name, code, err, r.running.Tail(4000))
			}
			r.start(t, binary)
			s.waitStatus(t, r.name, "UP")
		}
	}
	roll(oldBinary)
	restarted := time.Since(began)
	roll(newBinary)
	l.finish()
	l.recoverAll(t)
	t.Logf("restarted in %v, upgraded in %v: %d short results, %d kept, %d passed whole, %d read back, %d more afterwards; %d ticks without a free slot, %d sessions started again, %d streams opened again",
		restarted.Round(time.Millisecond), (time.Since(began) - restarted).Round(time.Millisecond), l.short.Load(), l.kept.Load(), l.whole.Load(), l.readBack.Load(), len(l.ids), l.skipped.Load(), l.renewed.Load(), l.streamEnds.Load())
	for i, f := range l.failures {
		if i == 20 {
			break
		}
		t.Error(f)
	}
	if len(l.failures) > 0 {
		t.Errorf("%d calls failed", len(l.failures))
	}
	if l.kept.Load() == 0 || l.readBack.Load() == 0 || l.streamEnds.Load() == 0 {
		t.Error("nothing was kept, read back or streamed")
	}
}

// A reload that one replica is asked for happens at all of them.
func TestReloadOfOneReachesAll(t *testing.T) {
	s := startSite(t, newBinary)
	if err := s.replicas[1].running.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for _, r := range s.replicas {
		wait.For(t, "replica "+r.name+" reloads", func() bool { return strings.Contains(r.running.Output(), "configuration reloaded") })
	}
}
