package llmtest

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What the client reads from usage is what the provider wrote on its bill, in every shape, streamed
// or not; a conversation that only grows reads its whole past from the cache.
func TestReplayAgreesWithTheBill(t *testing.T) {
	for _, tr := range []Trajectory{Uniform(12, 520), plan{"thoughtful", 9, 0.4, 3, true, 0}.grow(), plan{"talkative", 9, 0.4, 4, false, 2}.grow()} {
		for _, shape := range Shapes() {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprint(tr.Name, " ", shape, " ", stream), func(t *testing.T) {
					p := New(t, Options{Prices: Prices{Write: 1.25, Read: 0.1}})
					p.ScriptFunc(tr.Answer)
					got, err := Player{URL: p.URL + "/v1", Shape: shape, Stream: stream}.Play(t.Context(), tr)
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
					growing(t, got)
				})
			}
		}
	}
}

// growing checks that each request read from the cache what the one before had put there.
func growing(t *testing.T, l Ledger) {
	t.Helper()
	for i := 1; i < len(l); i++ {
		held := l[i-1].Cached + l[i-1].Created
		if l[i].Cached != held {
			t.Errorf("request %d read %d tokens; %d were there", i, l[i].Cached, held)
		}
		if l[i].Input() <= l[i-1].Input() {
			t.Errorf("request %d is not longer than the one before", i)
		}
	}
}

// Streaming or not is no matter of cost, and neither is which run it is.
func TestReplayIsDeterministic(t *testing.T) {
	tr := plan{"again", 10, 0.5, 3, false, 4}.grow()
	for _, shape := range Shapes() {
		var bills []Ledger
		for _, stream := range []bool{false, true, false} {
			p := New(t, Options{})
			p.ScriptFunc(tr.Answer)
			if _, err := (Player{URL: p.URL, Shape: shape, Stream: stream}).Play(t.Context(), tr); err != nil {
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

// A cache that ran out between two turns is written anew as a whole.
func TestReplayWithAPause(t *testing.T) {
	tr := Uniform(12, 800)
	for _, shape := range Shapes() {
		p := New(t, Options{Prices: Prices{Write: 1.25, Read: 0.1}})
		p.ScriptFunc(tr.Answer)
		pl := Player{URL: p.URL, Shape: shape, Before: func(turn int) {
			if turn == 8 {
				p.Advance(6 * time.Minute)
			}
		}}
		bill, err := pl.Play(t.Context(), tr)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range bill {
			if cold := i == 0 || i == 8; cold != (e.Cached == 0) {
				t.Errorf("%s: request %d read %d tokens from the cache", shape, i, e.Cached)
			}
		}
	}
}

// An agent that marks nothing, or only its system prompt, pays for the rest every time.
func TestReplayMarks(t *testing.T) {
	tr := Uniform(10, 600)
	cost := map[Marks]float64{}
	for _, m := range []Marks{Rolling, Still, Unmarked} {
		p := New(t, Options{Prices: Prices{Write: 1.25, Read: 0.1}})
		if _, err := (Player{URL: p.URL, Shape: Messages, Marks: m}).Play(t.Context(), tr); err != nil {
			t.Fatal(err)
		}
		cost[m] = p.Cost()
	}
	if cost[Rolling] >= cost[Still] || cost[Still] >= cost[Unmarked] {
		t.Errorf("cost rolling %.0f, still %.0f, unmarked %.0f", cost[Rolling], cost[Still], cost[Unmarked])
	}
}

func TestReplayTellsFailures(t *testing.T) {
	tr := Uniform(3, 100)
	for _, shape := range Shapes() {
		p := New(t, Options{})
		p.Script(Say("a"), Fail(http.StatusTooManyRequests))
		bill, err := Replay(t.Context(), p.URL, shape, tr)
		var status *StatusError
		if !errors.As(err, &status) || status.Status != http.StatusTooManyRequests || len(bill) != 1 {
			t.Errorf("%s: %v after %d requests", shape, err, len(bill))
		}
		p.Script(Use(Call{Name: "rm"}))
		if _, err := Replay(t.Context(), p.URL, shape, tr); err == nil {
			t.Errorf("%s: another call than the trajectory's passed", shape)
		}
		p.Script(Cut("some text that is cut off", 2))
		if _, err := (Player{URL: p.URL, Shape: shape, Stream: true}).Play(t.Context(), tr); err == nil {
			t.Errorf("%s: a cut stream passed", shape)
		}
	}
}

// The trajectories are many, mixed, the same in every run, and valid in every shape. Of each only the
// beginning is played: the rest is of the same making.
func TestRecordedTrajectories(t *testing.T) {
	all := Recorded()
	if len(all) < 20 {
		t.Fatalf("%d trajectories", len(all))
	}
	var uses, failed, wide, small, large int
	for _, tr := range all {
		for _, turn := range tr.Turns {
			wide += btoi(len(turn.Uses) > 1)
			for _, u := range turn.Uses {
				uses++
				n := Tokens(u.Result)
				failed += btoi(u.Failed)
				small += btoi(n < 100)
				large += btoi(n > 2000)
			}
		}
	}
	t.Logf("%d uses, %d failed, %d parallel turns, %d small, %d large", uses, failed, wide, small, large)
	if failed < uses/30 || wide < 50 || small < uses/20 || large < uses/10 {
		t.Error("the mixture is not one")
	}
	p := New(t, Options{})
	for i, tr := range all {
		tr.Turns = tr.Turns[:min(4, len(tr.Turns))]
		p.ScriptFunc(tr.Answer)
		for _, shape := range Shapes() {
			if _, err := (Player{URL: p.URL, Shape: shape, Stream: i%2 == 0}).Play(t.Context(), tr); err != nil {
				t.Error(err)
			}
		}
	}
	if a, b := plans()[2].grow(), all[2]; !cmp.Equal(a, b) {
		t.Error("two runs differ")
	}
}

func TestUniformSizes(t *testing.T) {
	for _, tr := range Uniforms() {
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
