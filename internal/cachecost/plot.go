package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/llmtest"
)

// curve is what one policy has cost up to each request.
type curve struct {
	name, colour, dash string
	width              float64
	at                 []float64 // in thousands of tokens of fresh input
	ratio              float64   // in the end, relative to masking nothing
}

// looks are how the policies are drawn; the greys and colours can be read on light and dark pages.
var looks = map[string]curve{
	"none":           {colour: "#8b949e", dash: "2 4", width: 2},
	history.EachTurn: {colour: "#e5534b", width: 2},
	history.Stride:   {colour: "#c69026", dash: "8 4", width: 2},
	history.Auto:     {colour: "#2f81f7", width: 3},
}

// drawn is what the plot shows: one long conversation, where reading from the cache is cheap and
// where it is half the price.
func drawn() sheet {
	return sheet{
		wire:  completions,
		lines: []line{{llmtest.Profiles()[0], uniforms()[1]}, {llmtest.Profiles()[2], uniforms()[1]}},
		columns: []column{
			{name: "none", policy: unmasked()}, {name: history.EachTurn, policy: policy(history.EachTurn)},
			{name: history.Auto, policy: policy(history.Auto)}, {name: history.Stride, policy: policy(history.Stride)},
		},
	}
}

// draw is the plot.
func (s sheet) draw(paid bills) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="ui-sans-serif, system-ui, sans-serif" font-size="13" fill="%s">`+"\n", width, height, grey)
	b.WriteString("  <title>What a conversation of 120 tool turns has cost, by policy</title>\n")
	fmt.Fprintf(&b, `  <text x="%d" y="20" font-size="15" font-weight="600">What 120 tool turns with results of 1,500 tokens have cost, turn by turn</text>`+"\n", left)
	fmt.Fprintf(&b, `  <text x="%d" y="40">in tokens of fresh input; beside each line its end relative to masking nothing</text>`+"\n", left)
	for i, l := range s.lines {
		var curves []curve
		for _, c := range s.columns {
			curves = append(curves, s.curve(c, l, paid))
		}
		newPanel(i, curves).draw(&b, "cached input: "+l.at.Name, curves)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// curve adds up the bill of a run.
func (s sheet) curve(c column, l line, paid bills) curve {
	out := looks[c.name]
	out.name = c.name
	sum := 0.0
	for _, e := range paid[s.runOf(c.policy, l.at, l.talks[0])] {
		sum += e.Cost(l.at.Prices) / 1000
		out.at = append(out.at, sum)
	}
	out.ratio = sum * 1000 / paid[s.runOf(unmasked(), l.at, l.talks[0])].Cost(l.at.Prices)
	return out
}

// draw draws frame, ticks, lines, and at the end of each its name.
func (p panel) draw(b *strings.Builder, title string, curves []curve) {
	fmt.Fprintf(b, `  <text x="%.0f" y="%d" font-weight="600">%s</text>`+"\n", p.x, top-14, title)
	p.grid(b)
	for _, c := range curves {
		var path strings.Builder
		for i, v := range c.at {
			fmt.Fprintf(&path, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], p.right(float64(i)), p.up(v))
		}
		dash := ""
		if c.dash != "" {
			dash = fmt.Sprintf(` stroke-dasharray="%s"`, c.dash)
		}
		fmt.Fprintf(b, `  <path d="%s" fill="none" stroke="%s" stroke-width="%.0f" stroke-linejoin="round"%s/>`+"\n", path.String(), c.colour, c.width, dash)
	}
	p.labels(b, curves)
}

// labels names the lines at their ends, the highest first, and moves apart those that would touch.
func (p panel) labels(b *strings.Builder, curves []curve) {
	last := func(c curve) float64 { return p.up(c.at[len(c.at)-1]) }
	sorted := slices.SortedFunc(slices.Values(curves), func(a, b curve) int { return int(100 * (last(a) - last(b))) })
	y := float64(top) - labelGap
	for _, c := range sorted {
		y = max(y+labelGap, last(c))
		x := p.x + p.w
		fmt.Fprintf(b, `  <path d="M%.1f %.1fL%.1f %.1f" stroke="%s" opacity=".6"/>`+"\n", x+2, last(c), x+12, y, c.colour)
		fmt.Fprintf(b, `  <text x="%.1f" y="%.1f" fill="%s" font-weight="600">%s %.2f</text>`+"\n", x+15, y+4, c.colour, c.name, c.ratio)
	}
}
