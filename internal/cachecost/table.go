package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/llmtest"
)

// report is the tables, and the bars that were missed.
func report(sheets []sheet, paid bills) (text string, missed []string) {
	var b strings.Builder
	for i, s := range sheets {
		if i > 0 {
			b.WriteString("\n")
		}
		missed = append(missed, s.print(&b, paid)...)
	}
	return b.String(), missed
}

// print writes the sheet as a table, and is the bars that it missed.
func (s sheet) print(b *strings.Builder, paid bills) (missed []string) {
	fmt.Fprintf(b, "### %s\n\n| write, read | conversation | unmasked |", s.title)
	for _, c := range s.columns {
		fmt.Fprintf(b, " %s |", c.name)
	}
	fmt.Fprintf(b, "\n|---|---|--:|%s\n", strings.Repeat("--:|", len(s.columns)))
	for _, l := range s.lines {
		cells := s.cells(l, paid)
		for _, c := range cells {
			missed = append(missed, c.missed(s, l)...)
		}
		l.print(b, cells)
	}
	s.notes(b, paid)
	return missed
}

// print writes a line; of many conversations their sum, the middle and the worst.
func (l line) print(b *strings.Builder, cells []cell) {
	row := func(name, plain string, of func(cell) float64) {
		fmt.Fprintf(b, "| %s | %s | %s |", short(l.at), name, plain)
		for _, c := range cells {
			fmt.Fprintf(b, " %.2f |", of(c))
		}
		b.WriteString("\n")
	}
	plain := fmt.Sprintf("%.0fk", cells[0].plain/1000)
	if len(l.talks) == 1 {
		row(l.name, plain, cell.ratio)
		return
	}
	name := fmt.Sprintf("%d %s", len(l.talks), l.name)
	row(name+", sum", plain, cell.ratio)
	row(name+", median", "", cell.median)
	row(name+", worst", "", func(c cell) float64 { return c.each[len(c.each)-1] })
}

func short(p llmtest.Profile) string {
	if p.NoCache {
		return p.Name
	}
	return fmt.Sprintf("%.2f, %.1f", p.Prices.Write, p.Prices.Read)
}

// cell is what a group costs under one policy.
type cell struct {
	column
	plain, masked float64   // in tokens of fresh input
	each          []float64 // what each conversation costs relative to not masking, cheapest first
}

func (c cell) ratio() float64  { return c.masked / c.plain }
func (c cell) median() float64 { return (c.each[(len(c.each)-1)/2] + c.each[len(c.each)/2]) / 2 }

func (s sheet) cells(l line, paid bills) []cell {
	var out []cell
	for _, col := range s.columns {
		c := cell{column: col}
		for _, t := range l.talks {
			plain := paid[s.runOf(unmasked(), l.at, t)].Cost(l.at.Prices)
			masked := paid[s.runOf(col.policy, l.at, t)].Cost(l.at.Prices)
			c.plain += plain
			c.masked += masked
			c.each = append(c.each, masked/plain)
		}
		slices.Sort(c.each)
		out = append(out, c)
	}
	return out
}

// missed says that the cell is over its bar.
func (c cell) missed(s sheet, l line) []string {
	most := c.most
	if l.large {
		most = c.large
	}
	if most == 0 || c.ratio() <= most+1e-9 {
		return nil
	}
	return []string{fmt.Sprintf("%s, %s, %s: %s costs %.4f, the bar is %.2f", s.title, l.at.Name, l.name, c.name, c.ratio(), most)}
}

// notes says how far over unmasked what has bars was at the worst request of all: what would have
// been lost, had the conversation ended there.
func (s sheet) notes(b *strings.Builder, paid bills) {
	for _, c := range s.columns {
		if c.most == 0 {
			continue
		}
		worst, where := 1.0, "never behind"
		for _, l := range s.lines {
			for _, t := range l.talks {
				over, turn := peak(paid[s.runOf(unmasked(), l.at, t)], paid[s.runOf(c.policy, l.at, t)], l.at.Prices)
				if over > worst+1e-9 {
					worst, where = over, fmt.Sprintf("“%s” at %s, after %d of %d turns", t.Name, l.at.Name, turn, len(t.Turns))
				}
			}
		}
		fmt.Fprintf(b, "\nHad a conversation ended at its worst moment, %s would have cost at most %.2f: %s.\n", c.name, worst, where)
	}
}

// peak is the most that masking ever cost relative to not masking, up to some request, and which.
func peak(plain, masked llmtest.Ledger, prices llmtest.Prices) (over float64, turn int) {
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
