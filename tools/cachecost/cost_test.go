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
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

const page = "../../docs/savings.md"

// only keeps some lines of a table.
func (s costTable) only(want func(tableLine) bool) costTable {
	s.lines = slices.DeleteFunc(slices.Clone(s.lines), func(l tableLine) bool { return !want(l) })
	return s
}

// smallOnly selects the shortest conversation at the given prices.
func smallOnly(profiles ...fakeprovider.PriceList) func(tableLine) bool {
	return func(l tableLine) bool {
		return l.name == "58 × 520" && slices.Contains(profiles, l.prices)
	}
}

// checkShown replays some tables and checks their bars and the page.
func checkShown(t *testing.T, sheets ...reportTable) runBills {
	t.Helper()
	paid, err := replayAll(t.Context(), sheets...)
	if err != nil {
		t.Fatal(err)
	}
	text, missed := writeReport(sheets, paid)
	for _, m := range missed {
		t.Error(m)
	}
	_, tables, _, err := splitPage(page)
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

// H+1: auto costs no more than masking nothing, at all prices, and the page is up to date. make cachecost
// checks the other lines, which take minutes with the race detector.
func TestHPlus1BarsHold(t *testing.T) {
	all := costTables(false)
	first := smallOnly(fakeprovider.PriceLists()[0])
	checkShown(t, all[0].only(smallOnly(fakeprovider.PriceLists()...)), all[2].only(first), all[3].only(first))
}

// H+1: after the provider's cache has expired, masking costs nothing, so it also happens before a client's
// breakpoints.
func TestHPlus1SweepAfterABreak(t *testing.T) {
	s := costTables(false)[6].only(smallOnly(fakeprovider.PriceLists()[0]))
	for _, c := range s.costCells(s.lines[0], checkShown(t, s)) {
		if c.ratio() > .9 {
			t.Errorf("%s costs %.2f", c.name, c.ratio())
		}
	}
}

// H+1: sixty file reads of Claude Code, with nothing configured, cost at most 0.80 of what they cost without the
// gateway; thirty cost no more than without it.
func TestHPlus1ClaudeCodeReadsFiles(t *testing.T) {
	m := newModelTable(true)
	m.rows, m.groups = m.rows[:1], m.groups[1:]
	paid, err := replayAll(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	for _, missed := range m.write(&strings.Builder{}, paid) {
		t.Error(missed)
	}
	r, talk := m.rows[0], m.groups[1].trajectories[0]
	if ratio := paid[r.masked(talk)].Cost(r.bill()) / paid[r.unmasked(talk)].Cost(r.bill()); ratio > .8 {
		t.Errorf("%s cost %.3f", talk.Name, ratio)
	}
}

// H+1: without a discount auto equals turn and is replayed as turn.
func TestHPlus1AutoWithoutDiscountIsTurn(t *testing.T) {
	talk := trajectories.Uniform(20, 200)
	var costs []float64
	for _, advance := range []string{history.AdvanceAuto, history.AdvanceEachTurn} {
		bill, err := replayRun{wire: chatWire, policy: policy(advance), trajectory: talk.Name}.replay(t.Context(), talk)
		if err != nil {
			t.Fatal(err)
		}
		costs = append(costs, bill.Cost(fakeprovider.Prices{Write: 1.25, Read: .1}))
	}
	if costs[0] != costs[1] {
		t.Errorf("auto costs %.0f, turn %.0f", costs[0], costs[1])
	}
}

// A missed bar and an outdated page are reported.
func TestMissedBarsAreReported(t *testing.T) {
	l := tableLine{fakeprovider.PriceLists()[0], conversationGroup{name: "some", isLarge: true}}
	for _, c := range []struct {
		masked float64
		missed int
	}{{69, 0}, {70, 0}, {71, 1}} {
		got := costCell{policyColumn: policyColumn{maxRatio: 1, maxLargeRatio: .7}, unmasked: 100, masked: c.masked}.missedBars(costTable{}, l)
		if len(got) != c.missed {
			t.Errorf("%.2f: %q", c.masked/100, got)
		}
	}
	path := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(path, []byte("a\n"+tablesBegin+tablesEnd+"b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writePage(path, "| 1 |\n", []byte("plot")); err != nil {
		t.Fatal(err)
	}
	if err := checkPage(path, "| 1 |\n", []byte("plot")); err != nil {
		t.Error(err)
	}
	for tables, plot := range map[string]string{"| 2 |\n": "plot", "| 1 |\n": "other"} {
		if checkPage(path, tables, []byte(plot)) == nil {
			t.Errorf("%q and %q pass", tables, plot)
		}
	}
}

// A conversation that cannot be replayed is an error: here no provider serves it.
func TestReplayFailuresAreReported(t *testing.T) {
	g := conversationGroup{trajectories: []trajectories.Trajectory{trajectories.Uniform(3, 50)}}
	s := costTable{wire: clientWire{"anthropic", fakeprovider.Chat, 0}, lines: []tableLine{{fakeprovider.PriceLists()[0], g}, {fakeprovider.PriceLists()[1], g}}}
	if _, err := replayAll(t.Context(), s, s); err == nil {
		t.Error("it was replayed")
	}
}

// Labels of curves that end at one point do not overlap and are inside the picture.
func TestPlotLabelsDoNotOverlap(t *testing.T) {
	curves := []plotCurve{{name: "a", costs: []float64{0, 9}}, {name: "b", costs: []float64{0, 9}}, {name: "c", costs: []float64{0, 8.9}}}
	var b strings.Builder
	newPanel(1, curves).drawPanel(&b, "", curves)
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
