package redis

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/statetest"
)

func TestMain(m *testing.M) { os.Exit(redisserver.Main(m)) }

func TestTopology(t *testing.T) {
	for _, c := range []struct {
		mode      redisserver.Mode
		primaries int
		replicas  int
	}{{redisserver.Single, 1, 0}, {redisserver.Sentinel, 1, 2}, {redisserver.Cluster, 3, 1}} {
		s := redisserver.Shared(t, c.mode)
		d, err := Open(t.Context(), Config{URL: s.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		// A node of a Cluster learns from the others which replicas there are.
		wait.For(t, "the topology of "+string(c.mode), func() bool {
			got := d.topology.Load()
			return len(got.primaries) == c.primaries && !slices.ContainsFunc(got.primaries, func(p primary) bool { return p.required() != c.replicas })
		})
	}
}

// A failed primary that was replaced counts as a missing replica until it is back or forgotten.
func TestClusterNodes(t *testing.T) {
	const text = `a 10.0.0.1:1@11 master,fail - 1 1 1 disconnected
b 10.0.0.2:1@11,name myself,master - 0 1 7 connected 0-99 101
c 10.0.0.3:1@11 master - 0 1 2 connected 100 102-16383 [93-<-b]
d :1@11 slave,fail c 0 1 2 connected
`
	got, err := parseClusterNodes(text, "10.0.0.9:7")
	if err != nil {
		t.Fatal(err)
	}
	b, c := got.primaries[0], got.primaries[1]
	if b.addr != "10.0.0.2:1" || b.required() != 1 || c.required() != 1 || !slices.Equal(c.replicas, []string{"10.0.0.9:1"}) {
		t.Errorf("%+v", got.primaries)
	}
	for slot, want := range map[int]string{0: b.addr, 99: b.addr, 100: c.addr, 101: b.addr, 16383: c.addr} {
		if p, err := got.primaryOf(slot); err != nil || p.addr != want {
			t.Errorf("slot %d: %v, %v", slot, p, err)
		}
	}
	got, err = parseClusterNodes(strings.Replace(text, "a 10", "# 10", 1)[strings.Index(text, "\n"):], "h:7")
	if err != nil || got.primaries[0].required() != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestURL(t *testing.T) {
	for text, want := range map[string]string{
		"redis://h":                               "h:6379",
		"rediss://u:p%40@h:1/2":                   "h:1",
		"redis://a:1,b,[::1]:3":                   "a:1 b:6379 [::1]:3",
		"valkey+sentinel://:p/w?@a,b:1/name?db=1": "a:26379 b:1",
		"redis://a:1?addr=b:2&master_set=m":       "a:1 b:2",
	} {
		if a, err := parseURL(text); err != nil || strings.Join(a.hosts, " ") != want {
			t.Errorf("%s: %v, %v", text, a.hosts, err)
		}
	}
	a, _ := parseURL("rediss+sentinel://u:p%40/?@a,b:1/name?db=1&prefix=x&sentinel_password=q")
	if a.user != "u" || a.password != "p@/?" || a.master != "name" || a.db != 1 || a.prefix != "x" || a.tls == nil || a.sentinelPassword != "q" {
		t.Errorf("%+v", a)
	}
	for _, bad := range []string{"", "http://h", "redis://", "redis://a,,b", "redis://h/x", "redis://a,b/1", "redis+sentinel://h", "redis://h?x=1", "redis://h?tls_ca=x", "rediss://h?tls_ca=/none"} {
		if err := CheckURL("redis" + strings.TrimPrefix(bad, "redis")); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if err := CheckURL("redis://u:hunter2@h/x?y"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// The suite runs on one set of servers, each test under a prefix of its own.
func TestDriver(t *testing.T) {
	for _, mode := range []redisserver.Mode{redisserver.Single, redisserver.Sentinel, redisserver.Cluster} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			s := redisserver.Shared(t, mode)
			statetest.Test(t, func(t *testing.T) state.Driver { return mustOpen(t, s, "wait-all") })
		})
	}
}

var lastPrefix atomic.Int64

func mustOpen(t testing.TB, s *redisserver.Server, durability string) *Driver {
	t.Helper()
	return mustOpenAt(t, s, durability, fmt.Sprintf("%s/%d:", t.Name(), lastPrefix.Add(1)))
}

func mustOpenAt(t testing.TB, s *redisserver.Server, durability, prefix string) *Driver {
	t.Helper()
	link := s.URL()
	if strings.Contains(link, "?") {
		link += "&"
	} else {
		link += "?"
	}
	d, err := Open(t.Context(), Config{URL: link + "prefix=" + url.QueryEscape(prefix), Durability: durability})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}
