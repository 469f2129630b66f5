package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// plotCurve is the cost of a policy up to each request.
type plotCurve struct {
	name, colour, dash string
	width              float64
	costs              []float64 // in thousands of tokens of uncached input
	ratio              float64   // at the end, relative to the baseline
}

// curveStyles are readable on light and dark pages.
var curveStyles = map[string]plotCurve{
	"none":                  {colour: "#8b949e", dash: "2 4", width: 2},
	history.AdvanceEachTurn: {colour: "#e5534b", width: 2},
	history.AdvanceStride:   {colour: "#c69026", dash: "8 4", width: 2},
	history.AdvanceAuto:     {colour: "#2f81f7", width: 3},
}

// plottedTable is what the plot shows: one long conversation, with cheap cache reads and with reads at half
// the price.
func plottedTable() costTable {
	return costTable{
		wire:  chatWire,
		lines: []tableLine{{fakeprovider.PriceLists()[0], uniformGroups()[1]}, {fakeprovider.PriceLists()[2], uniformGroups()[1]}},
		columns: []policyColumn{
			{name: "none", policy: unmaskedPolicy()}, {name: history.AdvanceEachTurn, policy: policy(history.AdvanceEachTurn)},
			{name: history.AdvanceAuto, policy: policy(history.AdvanceAuto)}, {name: history.AdvanceStride, policy: policy(history.AdvanceStride)},
		},
	}
}

// drawPlot is the plot.
func (s costTable) drawPlot(paid runBills) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-sans-serif, system-ui, sans-serif" font-size="13" fill="%s">`+"\n", width, height, grey)
	b.WriteString("  <title>What a conversation of 120 tool turns has cost, by policy</title>\n")
	fmt.Fprintf(&b, `  <text x="%d" y="20" font-size="15" font-weight="600">What 120 tool turns with results of 1,500 tokens have cost, turn by turn</text>`+"\n", left)
	fmt.Fprintf(&b, `  <text x="%d" y="40">in tokens of fresh input; beside each line its end relative to masking nothing</text>`+"\n", left)
	for i, l := range s.lines {
		var curves []plotCurve
		for _, c := range s.columns {
			curves = append(curves, s.curve(c, l, paid))
		}
		newPanel(i, curves).drawPanel(&b, "cached input: "+l.prices.Name, curves)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// curve adds up the bill of a run.
func (s costTable) curve(c policyColumn, l tableLine, paid runBills) plotCurve {
	out := curveStyles[c.name]
	out.name = c.name
	sum := 0.0
	for _, e := range paid[s.runFor(c.policy, l.prices, l.trajectories[0])] {
		sum += e.Cost(l.prices.Prices) / 1000
		out.costs = append(out.costs, sum)
	}
	out.ratio = sum * 1000 / paid[s.runFor(unmaskedPolicy(), l.prices, l.trajectories[0])].Cost(l.prices.Prices)
	return out
}

// drawPanel draws frame, ticks, lines, and at the end of each its name.
func (p plotPanel) drawPanel(b *strings.Builder, title string, curves []plotCurve) {
	fmt.Fprintf(b, `  <text x="%.0f" y="%d" font-weight="600">%s</text>`+"\n", p.x, top-14, title)
	p.drawAxes(b)
	for _, c := range curves {
		var path strings.Builder
		for i, v := range c.costs {
			fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], p.xOf(float64(i)), p.yOf(v))
		}
		dash := ""
		if c.dash != "" {
			dash = fmt.Sprintf(` stroke-dasharray="%s"`, c.dash)
		}
		fmt.Fprintf(b, `  <path d="%s" fill="none" stroke="%s" stroke-width="%.0f" stroke-linejoin="round"%s/>`+"\n", path.String(), c.colour, c.width, dash)
	}
	p.drawLabels(b, curves)
}

// drawLabels labels the curves at their ends and moves overlapping labels apart.
func (p plotPanel) drawLabels(b *strings.Builder, curves []plotCurve) {
	last := func(c plotCurve) float64 { return p.yOf(c.costs[len(c.costs)-1]) }
	sorted := slices.SortedFunc(slices.Values(curves), func(a, b plotCurve) int { return int(100 * (last(a) - last(b))) })
	y := float64(top) - labelGap
	for _, c := range sorted {
		y = max(y+labelGap, last(c))
		x := p.x + p.width
		fmt.Fprintf(b, `  <path d="M%.1f %.1fL%.1f %.1f" stroke="%s" opacity=".6"/>`+"\n", x+2, last(c), x+12, y, c.colour)
		fmt.Fprintf(b, `  <text x="%.1f" y="%.1f" fill="%s" font-weight="600">%s %.2f</text>`+"\n", x+15, y+4, c.colour, c.name, c.ratio)
	}
}

// The plot's dimensions.
const (
	width, height = 890, 400
	left, top     = 58, 88
	panelWidth    = 290
	panelStep     = 440 // from one panel to the next
	bottom        = height - 46
	labelGap      = 17.0

	grey = "#7d8590"
)

// plotPanel is a pair of axes.
type plotPanel struct {
	x, width float64
	turns    int
	step     float64 // between ticks
	maxCost  float64 // at the top
}

func newPanel(i int, curves []plotCurve) plotPanel {
	p := plotPanel{x: float64(left + i*panelStep), width: panelWidth, turns: len(curves[0].costs) - 1}
	for _, c := range curves {
		p.maxCost = max(p.maxCost, c.costs[len(c.costs)-1])
	}
	p.step = roundStep(p.maxCost / 5)
	p.maxCost = math.Ceil(p.maxCost/p.step) * p.step
	return p
}

// roundStep rounds up to 1, 2 or 5 times a power of ten.
func roundStep(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= step {
			return n * power
		}
	}
	return 10 * power
}

func (p plotPanel) xOf(turn float64) float64 { return p.x + p.width*turn/float64(p.turns) }
func (p plotPanel) yOf(cost float64) float64 { return bottom - (bottom-top)*cost/p.maxCost }

// drawAxes draws the axes and ticks.
func (p plotPanel) drawAxes(b *strings.Builder) {
	fmt.Fprintf(b, `  <g stroke="%s" stroke-width="1">`+"\n", grey)
	for v := p.step; v <= p.maxCost; v += p.step {
		fmt.Fprintf(b, `    <path d="M%.1f %.1fh%.1f" opacity=".25"/>`+"\n", p.x, p.yOf(v), p.width)
	}
	fmt.Fprintf(b, `    <path d="M%.1f %dV%dh%.1f" fill="none"/>`+"\n", p.x, top, bottom, p.width)
	fmt.Fprintf(b, "  </g>\n  <g font-size=\"12\" text-anchor=\"end\">\n")
	for v := 0.0; v <= p.maxCost; v += p.step {
		fmt.Fprintf(b, `    <text x="%.1f" y="%.1f">%s</text>`+"\n", p.x-6, p.yOf(v)+4, formatThousands(v))
	}
	fmt.Fprintf(b, "  </g>\n  <g font-size=\"12\" text-anchor=\"middle\">\n")
	for t := 0; t <= p.turns; t += 20 {
		fmt.Fprintf(b, `    <text x="%.1f" y="%d">%d</text>`+"\n", p.xOf(float64(t)), bottom+17, t)
	}
	fmt.Fprintf(b, "    <text x=\"%.1f\" y=\"%d\">tool turns</text>\n  </g>\n", p.x+p.width/2, bottom+36)
}

// formatThousands formats a number of thousands.
func formatThousands(thousands float64) string {
	if thousands >= 1000 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", thousands/1000), ".0") + "M"
	}
	if thousands == 0 {
		return "0"
	}
	return fmt.Sprintf("%.0fk", thousands)
}
