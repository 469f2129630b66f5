package main

import (
	"fmt"
	"math"
	"strings"
)

// The plot's measures, in its own units.
const (
	width, height = 890, 400
	left, top     = 58, 88
	panelWidth    = 290
	panelStep     = 440 // from one panel to the next
	bottom        = height - 46
	labelGap      = 17.0

	grey = "#7d8590"
)

// panel is one pair of axes.
type panel struct {
	x, w  float64
	turns int
	step  float64 // between ticks
	most  float64 // at the top
}

func newPanel(i int, curves []curve) panel {
	p := panel{x: float64(left + i*panelStep), w: panelWidth, turns: len(curves[0].at) - 1}
	for _, c := range curves {
		p.most = max(p.most, c.at[len(c.at)-1])
	}
	p.step = round(p.most / 5)
	p.most = math.Ceil(p.most/p.step) * p.step
	return p
}

// round is 1, 2 or 5 times a power of ten: the nearest above.
func round(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= step {
			return n * power
		}
	}
	return 10 * power
}

func (p panel) right(turn float64) float64 { return p.x + p.w*turn/float64(p.turns) }
func (p panel) up(cost float64) float64    { return bottom - (bottom-top)*cost/p.most }

// grid draws the axes with their ticks.
func (p panel) grid(b *strings.Builder) {
	fmt.Fprintf(b, `  <g stroke="%s" stroke-width="1">`+"\n", grey)
	for v := p.step; v <= p.most; v += p.step {
		fmt.Fprintf(b, `    <path d="M%.1f %.1fh%.1f" opacity=".25"/>`+"\n", p.x, p.up(v), p.w)
	}
	fmt.Fprintf(b, `    <path d="M%.1f %dV%dh%.1f" fill="none"/>`+"\n", p.x, top, bottom, p.w)
	fmt.Fprintf(b, "  </g>\n  <g font-size=\"12\" text-anchor=\"end\">\n")
	for v := 0.0; v <= p.most; v += p.step {
		fmt.Fprintf(b, `    <text x="%.1f" y="%.1f">%s</text>`+"\n", p.x-6, p.up(v)+4, tokens(v))
	}
	fmt.Fprintf(b, "  </g>\n  <g font-size=\"12\" text-anchor=\"middle\">\n")
	for t := 0; t <= p.turns; t += 20 {
		fmt.Fprintf(b, `    <text x="%.1f" y="%d">%d</text>`+"\n", p.right(float64(t)), bottom+17, t)
	}
	fmt.Fprintf(b, "    <text x=\"%.1f\" y=\"%d\">tool turns</text>\n  </g>\n", p.x+p.w/2, bottom+36)
}

// tokens writes thousands.
func tokens(thousands float64) string {
	if thousands >= 1000 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", thousands/1000), ".0") + "M"
	}
	if thousands == 0 {
		return "0"
	}
	return fmt.Sprintf("%.0fk", thousands)
}
