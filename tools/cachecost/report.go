package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

// reportTable is a table of the report.
type reportTable interface {
	// runs returns the runs that the table needs.
	runs() ([]replayRun, map[string]trajectories.Trajectory)
	// write writes the table and returns its missed bars.
	write(b *strings.Builder, paid runBills) (missed []string)
}

// writeReport returns the tables and the missed bars.
func writeReport(sheets []reportTable, paid runBills) (text string, missed []string) {
	var b strings.Builder
	for i, s := range sheets {
		if i > 0 {
			b.WriteString("\n")
		}
		missed = append(missed, s.write(&b, paid)...)
	}
	return b.String(), missed
}

// write writes a table and returns its missed bars.
func (s costTable) write(b *strings.Builder, paid runBills) (missed []string) {
	fmt.Fprintf(b, "### %s\n\n| write, read | conversation | unmasked |", s.title)
	for _, c := range s.columns {
		fmt.Fprintf(b, " %s |", c.name)
	}
	fmt.Fprintf(b, "\n|---|---|--:|%s\n", strings.Repeat("--:|", len(s.columns)))
	for _, l := range s.lines {
		cells := s.costCells(l, paid)
		for _, c := range cells {
			missed = append(missed, c.missedBars(s, l)...)
		}
		l.writeRow(b, cells)
	}
	return append(missed, s.writeNotes(b, paid)...)
}

// writeRow writes a line; for several conversations their sum, median and maximum.
func (l tableLine) writeRow(b *strings.Builder, cells []costCell) {
	row := func(name, plain string, of func(costCell) float64) {
		fmt.Fprintf(b, "| %s | %s | %s |", priceLabel(l.prices), name, plain)
		for _, c := range cells {
			fmt.Fprintf(b, " %.2f |", of(c))
		}
		b.WriteString("\n")
	}
	plain := fmt.Sprintf("%.0fk", cells[0].unmasked/1000)
	if len(l.trajectories) == 1 {
		row(l.name, plain, costCell.ratio)
		return
	}
	name := fmt.Sprintf("%d %s", len(l.trajectories), l.name)
	row(name+", sum", plain, costCell.ratio)
	row(name+", median", "", costCell.median)
	row(name+", worst", "", func(c costCell) float64 { return c.ratios[len(c.ratios)-1] })
}

func priceLabel(p fakeprovider.PriceList) string {
	if p.NoCache {
		return p.Name
	}
	return fmt.Sprintf("%.2f, %.1f", p.Prices.Write, p.Prices.Read)
}

// costCell is the cost of a group under one policy.
type costCell struct {
	policyColumn
	unmasked, masked float64   // in tokens of uncached input
	ratios           []float64 // cost of each conversation relative to the baseline, ascending
}

func (c costCell) ratio() float64 { return c.masked / c.unmasked }
func (c costCell) median() float64 {
	return (c.ratios[(len(c.ratios)-1)/2] + c.ratios[len(c.ratios)/2]) / 2
}

func (s costTable) costCells(l tableLine, paid runBills) []costCell {
	var out []costCell
	for _, col := range s.columns {
		c := costCell{policyColumn: col}
		for _, t := range l.trajectories {
			plain := paid[s.runFor(unmaskedPolicy(), l.prices, t)].Cost(l.prices.Prices)
			masked := paid[s.runFor(col.policy, l.prices, t)].Cost(l.prices.Prices)
			c.unmasked += plain
			c.masked += masked
			c.ratios = append(c.ratios, masked/plain)
		}
		slices.Sort(c.ratios)
		out = append(out, c)
	}
	return out
}

// missedBars reports a cell over its bar.
func (c costCell) missedBars(s costTable, l tableLine) []string {
	most := c.maxRatio
	if l.isLarge {
		most = c.maxLargeRatio
	}
	if most == 0 || c.ratio() <= most+1e-9 {
		return nil
	}
	return []string{fmt.Sprintf("%s, %s, %s: %s costs %.4f, the bar is %.2f", s.title, l.prices.Name, l.name, c.name, c.ratio(), most)}
}

// writeNotes writes, for each policy with a bar, the highest cost relative to the baseline at any request:
// the loss if the conversation had ended there. It returns those that are too high.
func (s costTable) writeNotes(b *strings.Builder, paid runBills) (missed []string) {
	for _, c := range s.columns {
		if c.maxRatio == 0 {
			continue
		}
		worst, where := 1.0, "never behind"
		for _, l := range s.lines {
			for _, t := range l.trajectories {
				over, turn := worstRatio(paid[s.runFor(unmaskedPolicy(), l.prices, t)], paid[s.runFor(c.policy, l.prices, t)], l.prices.Prices)
				if over > worst+1e-9 {
					worst, where = over, fmt.Sprintf("“%s” at %s, after %d of %d turns", t.Name, l.prices.Name, turn, len(t.Turns))
				}
			}
		}
		fmt.Fprintf(b, "\nHad a conversation ended at its worst moment, %s would have cost at most %.2f: %s.\n", c.name, worst, where)
		most := maxWorst
		if s.wire == rollingWire {
			most = maxWorstThinking
		}
		if worst > most {
			missed = append(missed, fmt.Sprintf("%s: %s had cost %.4f, the bar is %.2f: %s", s.title, c.name, worst, most, where))
		}
	}
	return missed
}

// worstRatio returns the highest cost relative to the baseline up to any request, and that request.
func worstRatio(plain, masked fakeprovider.Bill, prices fakeprovider.Prices) (over float64, turn int) {
	a, b := 0.0, 0.0
	for i := range plain {
		a += plain[i].Cost(prices)
		b += masked[i].Cost(prices)
		if b/a > over {
			over, turn = b/a, i
		}
	}
	return over, turn
}
