package changes

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// store is a shared store whose signals and commands can be lost.
type store struct {
	state.Shared
	deaf, down atomic.Bool
	adds       atomic.Int64
}

func (s *store) Publish(ctx context.Context, topic string, payload []byte) error {
	if s.deaf.Load() {
		return nil
	}
	return s.Shared.Publish(ctx, topic, payload)
}

func (s *store) Add(ctx context.Context, key string, delta int64, lifetime time.Duration) (int64, error) {
	s.adds.Add(1)
	if s.down.Load() {
		return 0, errors.New("down")
	}
	return s.Shared.Add(ctx, key, delta, lifetime)
}

// replicas runs n feeds over one store; each change that one learns of is sent to its channel.
func replicas(t *testing.T, n int, topics ...string) (*store, []*Feed, []chan string) {
	t.Helper()
	driver := memory.New()
	s := &store{Shared: driver}
	ctx, stop := context.WithCancel(context.Background())
	feeds, heard := make([]*Feed, n), make([]chan string, n)
	for i := range n {
		heard[i] = make(chan string, 1000)
		feeds[i] = New(s, func() []string { return topics }, func(topic, detail string) { heard[i] <- topic + "=" + detail })
		go feeds[i].Run(ctx)
	}
	t.Cleanup(func() {
		stop()
		_ = driver.Close()
		synctest.Wait()
	})
	time.Sleep(time.Second) // of the bubble: everybody has subscribed
	synctest.Wait()
	return s, feeds, heard
}

func drain(c chan string) (all []string) {
	for {
		select {
		case s := <-c:
			all = append(all, s)
		default:
			return all
		}
	}
}

func TestOthersLearnOfAChangeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, feeds, heard := replicas(t, 3, "config", "lists a")
		feeds[0].Announce("lists a", "hash")
		synctest.Wait()
		for i, want := range []string{"", "lists a=hash", "lists a=hash"} {
			got := drain(heard[i])
			if want == "" && len(got) != 0 || want != "" && (len(got) != 1 || got[0] != want) {
				t.Errorf("replica %d heard %q, want %q", i, got, want)
			}
		}
		time.Sleep(5 * checkInterval)
		for i := range heard {
			if got := drain(heard[i]); len(got) != 0 {
				t.Errorf("replica %d heard %q again", i, got)
			}
		}
	})
}

func TestLostSignalsAreFoundByVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, feeds, heard := replicas(t, 2, "config", "lists a", "lists b")
		s.deaf.Store(true)
		feeds[0].Announce("config", "")
		feeds[0].Announce("lists b", "x")
		time.Sleep(checkInterval + time.Second)
		got := drain(heard[1])
		if len(got) != 2 || got[0] != "config=" || got[1] != "lists b=" {
			t.Errorf("heard %q", got)
		}
		if own := drain(heard[0]); len(own) != 0 {
			t.Errorf("its own changes: %q", own)
		}
		// While nothing changes, a check is one command.
		before := s.adds.Load()
		time.Sleep(10 * checkInterval)
		if n := s.adds.Load() - before; n > 22+6 { // of two replicas; each sees a new total once
			t.Errorf("%d commands in ten checks", n)
		}
	})
}

func TestChangesWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, feeds, heard := replicas(t, 2, "config")
		s.down.Store(true)
		for range 1000 {
			feeds[0].Announce("config", "")
		}
		time.Sleep(time.Minute)
		s.down.Store(false)
		time.Sleep(2 * checkInterval)
		if got := drain(heard[1]); len(got) != 1 || got[0] != "config=" {
			t.Errorf("heard %q", got)
		}
	})
}

// Announcements from all sides at once: nobody misses the last one, and topics that are not known take no memory.
func TestConcurrentAnnouncements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, feeds, heard := replicas(t, 4, "a", "b")
		for n := range 500 {
			feeds[n%4].Announce([]string{"a", "b"}[n%2], strconv.Itoa(n))
			feeds[n%4].receive([]byte(`{"topic":"unknown ` + strconv.Itoa(n) + `","version":1}`))
		}
		time.Sleep(3 * checkInterval)
		synctest.Wait() // the feeds are idle
		for i := range heard {
			if len(drain(heard[i])) == 0 {
				t.Errorf("replica %d heard nothing", i)
			}
			if n := len(feeds[i].seen); n != 2 {
				t.Errorf("replica %d knows %d topics", i, n)
			}
		}
	})
}
