package trajectories

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// The usage in the replies equals the provider's bill, in every shape, streamed or not; a conversation
// that only grows reads all earlier input from the cache.
func TestUsageEqualsBill(t *testing.T) {
	for _, tr := range []Trajectory{Uniform(12, 520), plan{"thoughtful", 9, 0.4, 3, true, 0}.generate(), plan{"talkative", 9, 0.4, 4, false, 2}.generate()} {
		for _, shape := range fakeprovider.AllShapes() {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprint(tr.Name, " ", shape, " ", stream), func(t *testing.T) {
					p := fakeprovider.New(t, fakeprovider.Options{Prices: fakeprovider.Prices{Write: 1.25, Read: 0.1}})
					p.ScriptFunc(tr.Answer)
					got, err := Replayer{URL: p.URL + "/v1", Shape: shape, Stream: stream}.Run(t.Context(), tr)
					if err != nil {
						t.Fatal(err)
					}
					want := p.Bill()
					for i := range want {
						want[i].Seq, got[i].Seq = i, i
					}
					if d := cmp.Diff(want, got); d != "" {
						t.Errorf("bill and usage differ (-bill +usage):\n%s", d)
					}
					checkCacheReads(t, got)
				})
			}
		}
	}
}

// checkCacheReads checks that each request reads from the cache what the previous one wrote.
func checkCacheReads(t *testing.T, l fakeprovider.Bill) {
	t.Helper()
	for i := 1; i < len(l); i++ {
		held := l[i-1].CacheRead + l[i-1].CacheWrite
		if l[i].CacheRead != held {
			t.Errorf("request %d read %d tokens; %d were there", i, l[i].CacheRead, held)
		}
		if l[i].Input() <= l[i-1].Input() {
			t.Errorf("request %d is not longer than the one before", i)
		}
	}
}

// Cost is the same streamed or not, and in every run.
func TestReplayIsDeterministic(t *testing.T) {
	tr := plan{"again", 10, 0.5, 3, false, 4}.generate()
	for _, shape := range fakeprovider.AllShapes() {
		var bills []fakeprovider.Bill
		for _, stream := range []bool{false, true, false} {
			p := fakeprovider.New(t, fakeprovider.Options{})
			p.ScriptFunc(tr.Answer)
			if _, err := (Replayer{URL: p.URL, Shape: shape, Stream: stream}).Run(t.Context(), tr); err != nil {
				t.Fatal(err)
			}
			bills = append(bills, p.Bill())
		}
		if d := cmp.Diff(bills[0], bills[1]); d != "" {
			t.Errorf("%s: streamed differs:\n%s", shape, d)
		}
		if d := cmp.Diff(bills[0], bills[2]); d != "" {
			t.Errorf("%s: second run differs:\n%s", shape, d)
		}
	}
}

// A cache that expired between two turns is written again as a whole.
func TestReplayWithAPause(t *testing.T) {
	tr := Uniform(12, 800)
	for _, shape := range fakeprovider.AllShapes() {
		p := fakeprovider.New(t, fakeprovider.Options{Prices: fakeprovider.Prices{Write: 1.25, Read: 0.1}})
		p.ScriptFunc(tr.Answer)
		pl := Replayer{URL: p.URL, Shape: shape, BeforeTurn: func(turn int) {
			if turn == 8 {
				p.Advance(6 * time.Minute)
			}
		}}
		bill, err := pl.Run(t.Context(), tr)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range bill {
			if cold := i == 0 || i == 8; cold != (e.CacheRead == 0) {
				t.Errorf("%s: request %d read %d tokens from the cache", shape, i, e.CacheRead)
			}
		}
	}
}

// An agent without breakpoints, or with one at the system prompt only, pays for the rest every time.
func TestReplayCacheMarks(t *testing.T) {
	tr := Uniform(10, 600)
	cost := map[CacheMarks]float64{}
	for _, m := range []CacheMarks{MarkRolling, MarkSystemOnly, MarkNone} {
		p := fakeprovider.New(t, fakeprovider.Options{Prices: fakeprovider.Prices{Write: 1.25, Read: 0.1}})
		if _, err := (Replayer{URL: p.URL, Shape: fakeprovider.Messages, CacheMarks: m}).Run(t.Context(), tr); err != nil {
			t.Fatal(err)
		}
		cost[m] = p.Cost()
	}
	if cost[MarkRolling] >= cost[MarkSystemOnly] || cost[MarkSystemOnly] >= cost[MarkNone] {
		t.Errorf("cost rolling %.0f, still %.0f, unmarked %.0f", cost[MarkRolling], cost[MarkSystemOnly], cost[MarkNone])
	}
}

func TestReplayReportsFailures(t *testing.T) {
	tr := Uniform(3, 100)
	for _, shape := range fakeprovider.AllShapes() {
		p := fakeprovider.New(t, fakeprovider.Options{})
		p.Script(fakeprovider.ReplyText("a"), fakeprovider.FailWith(http.StatusTooManyRequests))
		bill, err := (Replayer{URL: p.URL, Shape: shape}).Run(t.Context(), tr)
		var status *StatusError
		if !errors.As(err, &status) || status.Status != http.StatusTooManyRequests || len(bill) != 1 {
			t.Errorf("%s: %v after %d requests", shape, err, len(bill))
		}
		p.Script(fakeprovider.CallTools(fakeprovider.Call{Name: "rm"}))
		if _, err := (Replayer{URL: p.URL, Shape: shape}).Run(t.Context(), tr); err == nil {
			t.Errorf("%s: a call that is not in the trajectory passed", shape)
		}
		p.Script(fakeprovider.CutAfter("some text that is cut off", 2))
		if _, err := (Replayer{URL: p.URL, Shape: shape, Stream: true}).Run(t.Context(), tr); err == nil {
			t.Errorf("%s: a cut stream passed", shape)
		}
	}
}

// The trajectories are many, varied, deterministic, and valid in every shape. Only the first turns of
// each are replayed: the rest is generated the same way.
func TestSyntheticTrajectories(t *testing.T) {
	all := Synthetic()
	if len(all) < 20 {
		t.Fatalf("%d trajectories", len(all))
	}
	var uses, failed, parallel, small, large int
	for _, tr := range all {
		for _, turn := range tr.Turns {
			parallel += btoi(len(turn.ToolUses) > 1)
			for _, u := range turn.ToolUses {
				uses++
				n := fakeprovider.Tokens(u.Result)
				failed += btoi(u.IsError)
				small += btoi(n < 100)
				large += btoi(n > 2000)
			}
		}
	}
	t.Logf("%d uses, %d failed, %d parallel turns, %d small, %d large", uses, failed, parallel, small, large)
	if failed < uses/30 || parallel < 50 || small < uses/20 || large < uses/10 {
		t.Error("the trajectories are not varied enough")
	}
	p := fakeprovider.New(t, fakeprovider.Options{})
	for i, tr := range all {
		tr.Turns = tr.Turns[:min(4, len(tr.Turns))]
		p.ScriptFunc(tr.Answer)
		for _, shape := range fakeprovider.AllShapes() {
			if _, err := (Replayer{URL: p.URL, Shape: shape, Stream: i%2 == 0}).Run(t.Context(), tr); err != nil {
				t.Error(err)
			}
		}
	}
	if a, b := plans()[2].generate(), all[2]; !cmp.Equal(a, b) {
		t.Error("two runs differ")
	}
}

func TestUniformSizes(t *testing.T) {
	for _, tr := range UniformSet() {
		var turns, tokens int
		if _, err := fmt.Sscanf(tr.Name, "%d x %d", &turns, &tokens); err != nil {
			t.Fatal(err)
		}
		if len(tr.Turns) != turns || tr.ResultTokens() != turns*tokens {
			t.Errorf("%s: %d turns, %d tokens of results", tr.Name, len(tr.Turns), tr.ResultTokens())
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
