package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/llmtest"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

const page = "../../docs/savings.md"

// only leaves a sheet the lines that are wanted.
func (s sheet) only(want func(line) bool) sheet {
	s.lines = slices.DeleteFunc(slices.Clone(s.lines), func(l line) bool { return !want(l) })
	return s
}

// small is the conversation that is quick to play, at a provider's prices.
func small(profiles ...llmtest.Profile) func(line) bool {
	return func(l line) bool {
		return l.name == "58 × 520" && slices.Contains(profiles, l.at)
	}
}

// shown plays some sheets, holds them to their bars and the page to them.
func shown(t *testing.T, sheets ...sheet) bills {
	t.Helper()
	paid, err := play(t.Context(), sheets)
	if err != nil {
		t.Fatal(err)
	}
	text, missed := report(sheets, paid)
	for _, m := range missed {
		t.Error(m)
	}
	_, tables, _, err := split(page)
	if err != nil {
		t.Fatal(err)
	}
	for row := range strings.Lines(text) {
		if strings.HasPrefix(row, "|") && !strings.Contains(string(tables), row) {
			t.Errorf("docs/savings.md does not show %s", row)
		}
	}
	return paid
}

// H+1: auto costs no more than masking nothing, at all prices, and the page shows what it costs. The
// rest of the table is for make cachecost: with the race detector it takes minutes.
func TestHPlus1BarsHold(t *testing.T) {
	all := sheets(false)
	first := small(llmtest.Profiles()[0])
	shown(t, all[0].only(small(llmtest.Profiles()...)), all[2].only(first), all[3].only(first))
}

// H+1: when the provider's cache has died of idleness, masking costs nothing; so it is done where
// clients keep all of their history before a breakpoint too.
func TestHPlus1SweepAfterABreak(t *testing.T) {
	s := sheets(false)[6].only(small(llmtest.Profiles()[0]))
	for _, c := range s.cells(s.lines[0], shown(t, s)) {
		if c.ratio() > .9 {
			t.Errorf("%s costs %.2f", c.name, c.ratio())
		}
	}
}

// H+1: without a discount auto is turn, and so is played as turn.
func TestHPlus1AutoWithoutDiscountIsTurn(t *testing.T) {
	talk := llmtest.Uniform(20, 200)
	var costs []float64
	for _, advance := range []string{history.Auto, history.EachTurn} {
		bill, err := run{wire: completions, policy: policy(advance), talk: talk.Name}.play(t.Context(), talk)
		if err != nil {
			t.Fatal(err)
		}
		costs = append(costs, bill.Cost(llmtest.Prices{Write: 1.25, Read: .1}))
	}
	if costs[0] != costs[1] {
		t.Errorf("auto costs %.0f, turn %.0f", costs[0], costs[1])
	}
}

// A bar that is missed is said, and so is a page that shows something else.
func TestMissesAreSaid(t *testing.T) {
	l := line{llmtest.Profiles()[0], group{name: "some", large: true}}
	for _, c := range []struct {
		masked float64
		missed int
	}{{69, 0}, {70, 0}, {71, 1}} {
		got := cell{column: column{most: 1, large: .7}, plain: 100, masked: c.masked}.missed(sheet{}, l)
		if len(got) != c.missed {
			t.Errorf("%.2f: %q", c.masked/100, got)
		}
	}
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("a\n"+begin+end+"b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write(path, "| 1 |\n", []byte("plot")); err != nil {
		t.Fatal(err)
	}
	if err := check(path, "| 1 |\n", []byte("plot")); err != nil {
		t.Error(err)
	}
	for tables, plot := range map[string]string{"| 2 |\n": "plot", "| 1 |\n": "other"} {
		if check(path, tables, []byte(plot)) == nil {
			t.Errorf("%q and %q pass", tables, plot)
		}
	}
}

// A conversation that cannot be played is an error, not a cheap one: here no provider serves it.
func TestFailuresAreSaid(t *testing.T) {
	g := group{talks: []llmtest.Trajectory{llmtest.Uniform(3, 50)}}
	s := sheet{wire: wire{"anthropic", llmtest.Chat, 0}, lines: []line{{llmtest.Profiles()[0], g}, {llmtest.Profiles()[1], g}}}
	if _, err := play(t.Context(), []sheet{s, s}); err == nil {
		t.Error("it was played")
	}
}

// Names of lines that end at one place stand apart, and within the picture.
func TestPlotLabelsStandApart(t *testing.T) {
	curves := []curve{{name: "a", at: []float64{0, 9}}, {name: "b", at: []float64{0, 9}}, {name: "c", at: []float64{0, 8.9}}}
	var b strings.Builder
	newPanel(1, curves).draw(&b, "", curves)
	last := 0.0
	for _, m := range regexp.MustCompile(`y="([0-9.]+)" fill="[^"]*" font-weight="600">[abc] `).FindAllStringSubmatch(b.String(), -1) {
		y, err := strconv.ParseFloat(m[1], 64)
		if err != nil || y-last < labelGap-.2 || y > bottom {
			t.Errorf("a label at %v after one at %v: %v", y, last, err)
		}
		last = y
	}
	if last == 0 {
		t.Error("no labels")
	}
}
