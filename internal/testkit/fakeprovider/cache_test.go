package fakeprovider

import (
	"strings"
	"testing"
	"time"
)

// parsePrompt reads blocks "name:tokens"; ! marks a breakpoint of five minutes, !! of an hour. Equal names
// and sizes give equal texts.
func parsePrompt(line string) prompt {
	var p prompt
	for _, word := range strings.Fields(line) {
		var b block
		body := strings.TrimRight(word, "!")
		switch len(word) - len(body) {
		case 1:
			b.breakpointTTL = shortTTL
		case 2:
			b.breakpointTTL = longTTL
		}
		name, size, _ := strings.Cut(body, ":")
		n := 0
		for _, d := range size {
			n = 10*n + int(d-'0')
		}
		b.text = strings.Repeat(name, n*BytesPerToken)[:n*BytesPerToken]
		p = append(p, b)
	}
	return p
}

type cacheRequest struct {
	after  time.Duration
	prompt string
	want   cacheUse
}

func checkCache(t *testing.T, name string, steps []cacheRequest, charge func(*cache, prompt, time.Time) cacheUse) {
	t.Run(name, func(t *testing.T) {
		c, now := newCache(), epoch
		for i, s := range steps {
			now = now.Add(s.after)
			if got := charge(c, parsePrompt(s.prompt), now); got != s.want {
				t.Errorf("request %d: %+v, want %+v", i, got, s.want)
			}
		}
	})
}

func TestAutomaticCache(t *testing.T) {
	const minute = time.Minute
	for name, steps := range map[string][]cacheRequest{
		"short prompts are not cached": {
			{0, "a:1023", cacheUse{uncached: 1023}}, {0, "a:1023", cacheUse{uncached: 1023}},
		},
		"from 1024 on": {
			{0, "a:1024", cacheUse{cacheWritten: 1024}}, {0, "a:1024", cacheUse{cacheRead: 1024}},
		},
		"in steps of 128": {
			{0, "a:1300", cacheUse{cacheWritten: 1280, uncached: 20}}, {0, "a:1300", cacheUse{cacheRead: 1280, uncached: 20}},
			{0, "a:1300 b:300", cacheUse{cacheRead: 1280, cacheWritten: 256, uncached: 64}},
			{0, "a:1300 b:300", cacheUse{cacheRead: 1536, uncached: 64}},
		},
		"the longest common prefix, wherever blocks end": {
			{0, "a:3000", cacheUse{cacheWritten: 2944, uncached: 56}},
			{0, "a:2000 b:1000", cacheUse{cacheRead: 1920, cacheWritten: 1024, uncached: 56}},
			{0, "a:500 b:2500", cacheUse{cacheWritten: 2944, uncached: 56}},
			{0, "a:1500 c:10", cacheUse{cacheRead: 1408, uncached: 102}},
		},
		"five minutes unused": {
			{0, "a:2048", cacheUse{cacheWritten: 2048}}, {4 * minute, "a:2048", cacheUse{cacheRead: 2048}},
			{4 * minute, "a:2048", cacheUse{cacheRead: 2048}}, {5 * minute, "a:2048", cacheUse{cacheWritten: 2048}},
		},
		"a shorter request keeps only its own part alive": {
			{0, "a:4096", cacheUse{cacheWritten: 4096}}, {4 * minute, "a:2048", cacheUse{cacheRead: 2048}},
			{4 * minute, "a:4096", cacheUse{cacheRead: 2048, cacheWritten: 2048}},
		},
	} {
		checkCache(t, name, steps, func(c *cache, p prompt, now time.Time) cacheUse {
			return c.chargeAutomatic("m", p, now, 5*time.Minute, 1024, 128)
		})
	}
}

func TestBreakpointCache(t *testing.T) {
	const minute = time.Minute
	for name, steps := range map[string][]cacheRequest{
		"nothing without a breakpoint": {
			{0, "a:3000", cacheUse{uncached: 3000}}, {0, "a:3000", cacheUse{uncached: 3000}},
		},
		"written and read": {
			{0, "a:2000! b:100", cacheUse{cacheWritten: 2000, uncached: 100}}, {0, "a:2000! c:100", cacheUse{cacheRead: 2000, uncached: 100}},
		},
		"too short": {
			{0, "a:1000! b:500", cacheUse{uncached: 1500}}, {0, "a:1000 b:24!", cacheUse{cacheWritten: 1024}},
			{0, "a:1000! b:24!", cacheUse{cacheRead: 1024}},
		},
		"only at breakpoints": {
			{0, "a:2000 b:2000! ", cacheUse{cacheWritten: 4000}}, {0, "a:2000! c:10", cacheUse{cacheWritten: 2000, uncached: 10}},
			{0, "a:2000 c:2000!", cacheUse{cacheRead: 2000, cacheWritten: 2000}},
		},
		"a rolling conversation": {
			{0, "s:2000! u:100!", cacheUse{cacheWritten: 2100}},
			{0, "s:2000! u:100! a:50 r:500!", cacheUse{cacheRead: 2100, cacheWritten: 550}},
			{0, "s:2000! u:100 a:50 r:500! b:50 q:700!", cacheUse{cacheRead: 2650, cacheWritten: 750}},
			// A changed result: read up to the last entry before it, written from there.
			{0, "s:2000! u:100 a:50 x:20 b:50 q:700! c:50 v:300!", cacheUse{cacheRead: 2100, cacheWritten: 1170}},
		},
		"twenty blocks back": {
			{0, "s:2000!", cacheUse{cacheWritten: 2000}},
			{0, "s:2000 a:1 b:1 c:1 d:1 e:1 f:1 g:1 h:1 i:1 j:1 k:1 l:1 m:1 n:1 o:1 p:1 q:1 r:1 t:1!", cacheUse{cacheRead: 2000, cacheWritten: 19}},
			{0, "s:2000 b:1 b:1 c:1 d:1 e:1 f:1 g:1 h:1 i:1 j:1 k:1 l:1 m:1 n:1 o:1 p:1 q:1 r:1 t:1 u:1!", cacheUse{cacheWritten: 2020}},
			{0, "s:2000! c:1 b:1 c:1 d:1 e:1 f:1 g:1 h:1 i:1 j:1 k:1 l:1 m:1 n:1 o:1 p:1 q:1 r:1 t:1 u:1!", cacheUse{cacheRead: 2000, cacheWritten: 20}},
		},
		"reading renews": {
			{0, "a:2000!", cacheUse{cacheWritten: 2000}}, {4 * minute, "a:2000!", cacheUse{cacheRead: 2000}},
			{4 * minute, "a:2000!", cacheUse{cacheRead: 2000}}, {5 * minute, "a:2000!", cacheUse{cacheWritten: 2000}},
		},
		"an hour": {
			{0, "a:2000!! b:1000!", cacheUse{cacheWritten1h: 2000, cacheWritten: 1000}},
			{50 * minute, "a:2000!! b:1000!", cacheUse{cacheRead: 2000, cacheWritten: 1000}},
			{50 * minute, "a:2000!! b:1000!", cacheUse{cacheRead: 2000, cacheWritten: 1000}},
			{61 * minute, "a:2000!! b:1000!", cacheUse{cacheWritten1h: 2000, cacheWritten: 1000}},
		},
	} {
		checkCache(t, name, steps, func(c *cache, p prompt, now time.Time) cacheUse { return c.chargeBreakpoints("m", p, now, 1024) })
	}
}

func TestEndsCache(t *testing.T) {
	const minute = time.Minute
	for name, steps := range map[string][]cacheRequest{
		"each request reads the one before": {
			{0, "a:2000 b:100", cacheUse{cacheWritten: 2100}}, {0, "a:2000 b:100 c:200", cacheUse{cacheRead: 2100, cacheWritten: 200}},
			{0, "a:2000 b:100 c:200 d:300", cacheUse{cacheRead: 2300, cacheWritten: 300}},
		},
		"after an edit, the last end before it": {
			{0, "a:2000 b:100", cacheUse{cacheWritten: 2100}}, {0, "a:2000 b:100 c:900 d:900", cacheUse{cacheRead: 2100, cacheWritten: 1800}},
			{0, "a:2000 b:100 c:900 x:10 e:50", cacheUse{cacheRead: 2100, cacheWritten: 960}}, // not up to c
		},
		"short prompts are not cached": {
			{0, "a:1000", cacheUse{uncached: 1000}}, {0, "a:1000 b:100", cacheUse{cacheWritten: 1100}},
		},
		"half an hour": {
			{0, "a:2000", cacheUse{cacheWritten: 2000}}, {29 * minute, "a:2000", cacheUse{cacheRead: 2000}}, {31 * minute, "a:2000", cacheUse{cacheWritten: 2000}},
		},
	} {
		checkCache(t, name, steps, func(c *cache, p prompt, now time.Time) cacheUse {
			return c.chargeEnds("m", p, now, 30*time.Minute, 1024)
		})
	}
}

// Models and accounts have separate caches.
func TestCacheScope(t *testing.T) {
	c, p := newCache(), parsePrompt("a:2000!")
	c.chargeBreakpoints("m", p, epoch, 1024)
	if h := c.chargeBreakpoints("n", p, epoch, 1024); h.cacheRead != 0 {
		t.Errorf("%+v", h)
	}
	if h := c.chargeAutomatic("n", p, epoch, time.Hour, 1024, 128); h.cacheRead != 0 {
		t.Errorf("%+v", h)
	}
}

func TestBillCost(t *testing.T) {
	l := Bill{{Uncached: 100, CacheWrite: 1000, Output: 10}, {Uncached: 50, CacheRead: 1000, CacheWrite1h: 100, Output: 20}}
	if got := l.Total(); got.Input() != 2250 || got.Output != 30 {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		prices Prices
		want   float64
	}{
		{Prices{Write: 1.25, Read: 0.1}, 150 + 1250 + 200 + 100},
		{Prices{Write: 1, Read: 1, Write1h: 1}, 2250},
		{Prices{Write: 1, Read: 1, Write1h: 1, StepAbove: 1100, StepFactor: 3}, 1100 + 3*1150},
		{Prices{Write: 1, Read: 0.5, Write1h: 1, Output: 5}, 150 + 1000 + 100 + 500 + 150},
	} {
		if got := l.Cost(c.prices); got != c.want {
			t.Errorf("%+v: %v, want %v", c.prices, got, c.want)
		}
	}
}
