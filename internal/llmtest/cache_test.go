package llmtest

import (
	"strings"
	"testing"
	"time"
)

// prompts are written as blocks "name:tokens", with a breakpoint where ! (5 minutes) or !! (an hour)
// follows. The same name and size is the same text.
func written(line string) prompt {
	var p prompt
	for _, word := range strings.Fields(line) {
		var b block
		body := strings.TrimRight(word, "!")
		switch len(word) - len(body) {
		case 1:
			b.mark = shortLife
		case 2:
			b.mark = longLife
		}
		name, size, _ := strings.Cut(body, ":")
		n := 0
		for _, d := range size {
			n = 10*n + int(d-'0')
		}
		b.text = strings.Repeat(name, n*bytesPerToken)[:n*bytesPerToken]
		p = append(p, b)
	}
	return p
}

type asked struct {
	after  time.Duration
	prompt string
	want   hit
}

func checkCache(t *testing.T, name string, steps []asked, charge func(*cache, prompt, time.Time) hit) {
	t.Run(name, func(t *testing.T) {
		c, now := newCache(), epoch
		for i, s := range steps {
			now = now.Add(s.after)
			if got := charge(c, written(s.prompt), now); got != s.want {
				t.Errorf("request %d: %+v, want %+v", i, got, s.want)
			}
		}
	})
}

func TestAutomaticCache(t *testing.T) {
	const minute = time.Minute
	for name, steps := range map[string][]asked{
		"short prompts are not cached": {
			{0, "a:1023", hit{fresh: 1023}}, {0, "a:1023", hit{fresh: 1023}},
		},
		"from 1024 on": {
			{0, "a:1024", hit{created: 1024}}, {0, "a:1024", hit{cached: 1024}},
		},
		"in steps of 128": {
			{0, "a:1300", hit{created: 1280, fresh: 20}}, {0, "a:1300", hit{cached: 1280, fresh: 20}},
			{0, "a:1300 b:300", hit{cached: 1280, created: 256, fresh: 64}},
			{0, "a:1300 b:300", hit{cached: 1536, fresh: 64}},
		},
		"the longest common prefix, wherever blocks end": {
			{0, "a:3000", hit{created: 2944, fresh: 56}},
			{0, "a:2000 b:1000", hit{cached: 1920, created: 1024, fresh: 56}},
			{0, "a:500 b:2500", hit{created: 2944, fresh: 56}},
			{0, "a:1500 c:10", hit{cached: 1408, fresh: 102}},
		},
		"five minutes unused": {
			{0, "a:2048", hit{created: 2048}}, {4 * minute, "a:2048", hit{cached: 2048}},
			{4 * minute, "a:2048", hit{cached: 2048}}, {5 * minute, "a:2048", hit{created: 2048}},
		},
		"a shorter request keeps only its own part alive": {
			{0, "a:4096", hit{created: 4096}}, {4 * minute, "a:2048", hit{cached: 2048}},
			{4 * minute, "a:4096", hit{cached: 2048, created: 2048}},
		},
	} {
		checkCache(t, name, steps, func(c *cache, p prompt, now time.Time) hit {
			return c.automatic("m", p, now, 5*time.Minute, 1024)
		})
	}
}

func TestMarkedCache(t *testing.T) {
	const minute = time.Minute
	for name, steps := range map[string][]asked{
		"nothing without a breakpoint": {
			{0, "a:3000", hit{fresh: 3000}}, {0, "a:3000", hit{fresh: 3000}},
		},
		"written and read": {
			{0, "a:2000! b:100", hit{created: 2000, fresh: 100}}, {0, "a:2000! c:100", hit{cached: 2000, fresh: 100}},
		},
		"too short": {
			{0, "a:1000! b:500", hit{fresh: 1500}}, {0, "a:1000 b:24!", hit{created: 1024}},
			{0, "a:1000! b:24!", hit{cached: 1024}},
		},
		"only at breakpoints": {
			{0, "a:2000 b:2000! ", hit{created: 4000}}, {0, "a:2000! c:10", hit{created: 2000, fresh: 10}},
			{0, "a:2000 c:2000!", hit{cached: 2000, created: 2000}},
		},
		"a rolling conversation": {
			{0, "s:2000! u:100!", hit{created: 2100}},
			{0, "s:2000! u:100! a:50 r:500!", hit{cached: 2100, created: 550}},
			{0, "s:2000! u:100 a:50 r:500! b:50 q:700!", hit{cached: 2650, created: 750}},
			// A changed result: read up to the last entry before it, written from there.
			{0, "s:2000! u:100 a:50 x:20 b:50 q:700! c:50 v:300!", hit{cached: 2100, created: 1170}},
		},
		"twenty blocks back": {
			{0, "s:2000!", hit{created: 2000}},
			{0, "s:2000 a:1 b:1 c:1 d:1 e:1 f:1 g:1 h:1 i:1 j:1 k:1 l:1 m:1 n:1 o:1 p:1 q:1 r:1 t:1!", hit{cached: 2000, created: 19}},
			{0, "s:2000 b:1 b:1 c:1 d:1 e:1 f:1 g:1 h:1 i:1 j:1 k:1 l:1 m:1 n:1 o:1 p:1 q:1 r:1 t:1 u:1!", hit{created: 2020}},
			{0, "s:2000! c:1 b:1 c:1 d:1 e:1 f:1 g:1 h:1 i:1 j:1 k:1 l:1 m:1 n:1 o:1 p:1 q:1 r:1 t:1 u:1!", hit{cached: 2000, created: 20}},
		},
		"reading renews": {
			{0, "a:2000!", hit{created: 2000}}, {4 * minute, "a:2000!", hit{cached: 2000}},
			{4 * minute, "a:2000!", hit{cached: 2000}}, {5 * minute, "a:2000!", hit{created: 2000}},
		},
		"an hour": {
			{0, "a:2000!! b:1000!", hit{createdLong: 2000, created: 1000}},
			{50 * minute, "a:2000!! b:1000!", hit{cached: 2000, created: 1000}},
			{50 * minute, "a:2000!! b:1000!", hit{cached: 2000, created: 1000}},
			{61 * minute, "a:2000!! b:1000!", hit{createdLong: 2000, created: 1000}},
		},
	} {
		checkCache(t, name, steps, func(c *cache, p prompt, now time.Time) hit { return c.marked("m", p, now, 1024) })
	}
}

// Another model, or another account, has another cache.
func TestCacheScope(t *testing.T) {
	c, p := newCache(), written("a:2000!")
	c.marked("m", p, epoch, 1024)
	if h := c.marked("n", p, epoch, 1024); h.cached != 0 {
		t.Errorf("%+v", h)
	}
	if h := c.automatic("n", p, epoch, time.Hour, 1024); h.cached != 0 {
		t.Errorf("%+v", h)
	}
}

func TestLedger(t *testing.T) {
	l := Ledger{{Fresh: 100, Created: 1000, Output: 10}, {Fresh: 50, Cached: 1000, CreatedLong: 100, Output: 20}}
	if got := l.Total(); got.Input() != 2250 || got.Output != 30 {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		prices Prices
		want   float64
	}{
		{Prices{Write: 1.25, Read: 0.1}, 150 + 1250 + 200 + 100},
		{Prices{Write: 1, Read: 1, Long: 1}, 2250},
		{Prices{Write: 1, Read: 0.5, Long: 1, Output: 5}, 150 + 1000 + 100 + 500 + 150},
	} {
		if got := l.Cost(c.prices); got != c.want {
			t.Errorf("%+v: %v, want %v", c.prices, got, c.want)
		}
	}
}
