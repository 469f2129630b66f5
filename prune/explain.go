package prune

// Why is how a line came to its score.
type Why struct {
	Score float32
	Must  bool     // it stays, whatever it scored
	Words []string // of the goal, that it has; in brackets those that it has in another form
	Parts []Part   // of the score; only for code, whose score is a sum
}

// Part is what one signal adds to a score.
type Part struct {
	Name   string
	Points float32
}

// Explain says for each line how it came to its score.
func (d *Doc) Explain() []Why {
	out := make([]Why, d.Len())
	for i := range out {
		out[i] = Why{Score: d.score[i], Must: d.shape.must[i]}
		for t := range bits(d.index.has[i]) {
			out[i].Words = append(out[i].Words, d.goal.terms[t].word)
		}
		for t := range bits(d.index.near[i]) {
			out[i].Words = append(out[i].Words, "("+d.goal.terms[t].word+")")
		}
	}
	if c := d.shape.code; c != nil {
		for i, is := range c.is {
			for _, p := range codePriors {
				if is&p.is != 0 {
					out[i].Parts = append(out[i].Parts, Part{p.name, p.weight})
				}
			}
		}
		each(newCodeGoal(c, d.goal, d.index), d.Len(), codeSignals, func(name string, points []float32) {
			for i, p := range points {
				if p != 0 {
					out[i].Parts = append(out[i].Parts, Part{name, p})
				}
			}
		})
	}
	return out
}
