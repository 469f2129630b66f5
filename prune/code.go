package prune

// codeGoal is code that is read for a goal.
type codeGoal struct {
	*code
	g     *goal
	x     *index
	scale scales
	own   []float32 // what each line has by itself
	near  []float32 // with its neighbours
	units []float32 // what each unit has as a whole
}

// codeSignals are the reasons to keep a line of code for a goal. The weights were found on the development
// half of the benchmark, each repository in turn left out.
var codeSignals = []signal[*codeGoal]{
	{"near", .75, func(c *codeGoal, out []float32) { copy(out, c.near) }},
	{"far", .15, func(c *codeGoal, out []float32) { blur(c.own, .95, out) }},
	{"unit", .15, func(c *codeGoal, out []float32) { c.spread(c.unit, c.units, out) }},
	{"stanza", .5, (*codeGoal).stanzas},
	{"path", .65, (*codeGoal).path},
	{"around", .3, (*codeGoal).around},
	{"called", .3, (*codeGoal).called},
}

// codePriors are what a line of code is worth for what it is, whatever the goal.
var codePriors = []struct {
	name   string
	is     trait
	weight float32
}{
	{"return", isReturn, .2},
	{"call", isCall, .15},
	{"blank", isBlank, -2},
	{"marks", isMarks, -2},
	{"comment", isComment, -.5},
	{"import", isImport, -1.7},
	{"def", isDef, -.25},
	{"trivial", isTrivial, -1.4},
}

func scoreCode(c *code, g *goal, x *index) []float32 {
	score := weigh(newCodeGoal(c, g, x), c.count(), codeSignals)
	for i, is := range c.is {
		for _, p := range codePriors {
			if is&p.is != 0 {
				score[i] += p.weight
			}
		}
	}
	return score
}

func newCodeGoal(text *code, g *goal, x *index) *codeGoal {
	c := &codeGoal{code: text, g: g, x: x}
	c.scale.has, c.scale.near = x.weights(g)
	c.own = c.ownScores()
	c.near = make([]float32, len(c.own))
	blur(c.own, .75, c.near)
	c.units = groupScores(g, x, c.unit, len(c.head))
	return c
}

// ownScores are what lines have by themselves: the rare words of the goal in them, less in long ones
// (BM25, for lines that have a word once).
func (c *codeGoal) ownScores() []float32 {
	const k1, b = .9, .3
	out := make([]float32, len(c.is))
	for i := range out {
		if c.x.has[i]|c.x.near[i] != 0 {
			length := float32(float64(c.x.words[i]) / c.x.mean)
			out[i] = c.scale.worth(c.x.has[i], c.x.near[i]) * (k1 + 1) / (1 + k1*(1-b+b*length))
		}
	}
	return out
}

func (c *codeGoal) spread(of []int32, values, out []float32) {
	for i, group := range of {
		out[i] = values[group]
	}
}

func (c *codeGoal) stanzas(out []float32) {
	n := int(c.stanza[len(c.stanza)-1]) + 1
	c.spread(c.stanza, groupScores(c.g, c.x, c.stanza, n), out)
}

// path is what the lines have that a line stands under, and the line itself.
func (c *codeGoal) path(out []float32) {
	has, near := make([]uint64, len(out)), make([]uint64, len(out))
	for i := range out { // a parent comes before its children
		has[i], near[i] = c.x.has[i], c.x.near[i]
		if p := c.parent[i]; p >= 0 {
			has[i] |= has[p]
			near[i] |= near[p]
		}
		out[i] = c.scale.worth(has[i], near[i])
	}
}

// around is how many different words of the goal stand within a few lines.
func (c *codeGoal) around(out []float32) {
	const reach = 15
	has, near := make([]uint64, len(out)), make([]uint64, len(out))
	for i := range out {
		if c.x.has[i]|c.x.near[i] == 0 {
			continue
		}
		for j := max(0, i-reach); j <= min(len(out)-1, i+reach); j++ {
			has[j] |= c.x.has[i]
			near[j] |= c.x.near[i]
		}
	}
	for i := range out {
		if i > 0 && has[i] == has[i-1] && near[i] == near[i-1] {
			out[i] = out[i-1]
			continue
		}
		out[i] = c.scale.worth(has[i], near[i])
	}
}

// called lifts the definitions that are called where the goal's words are.
func (c *codeGoal) called(out []float32) {
	units := map[string]int32{}
	for i, is := range c.is {
		if is&isDef != 0 {
			calls(c.at(i), func(name string) bool {
				units[name] = c.unit[i]
				return false
			})
		}
	}
	lift := make([]float32, len(c.head))
	nearTop, unitTop := peak(c.near), peak(c.units)
	for i, is := range c.is {
		heat := c.near[i]/nearTop + c.units[c.unit[i]]/unitTop
		if is&isDef != 0 || heat == 0 {
			continue
		}
		calls(c.at(i), func(name string) bool {
			if u, ok := units[name]; ok && u != c.unit[i] {
				lift[u] = max(lift[u], heat)
			}
			return true
		})
	}
	c.spread(c.unit, lift, out)
}

// calls are the names before an opening parenthesis, until each says enough.
func calls(line string, each func(name string) bool) {
	for i := 1; i < len(line); i++ {
		if line[i] != '(' || !isNameByte(line[i-1]) {
			continue
		}
		start := i
		for start > 0 && isNameByte(line[start-1]) {
			start--
		}
		if !each(line[start:i]) {
			return
		}
	}
}
