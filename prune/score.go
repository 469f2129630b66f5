package prune

// smooth gives each line a share of what its neighbours have.
func smooth(s []float32, radius int, decay float32) []float32 {
	out := append([]float32(nil), s...)
	for i, v := range s {
		if v == 0 {
			continue
		}
		share := v * .5
		for d := 1; d <= radius; d++ {
			share *= decay
			if i-d >= 0 {
				out[i-d] += share
			}
			if i+d < len(s) {
				out[i+d] += share
			}
		}
	}
	return out
}

// lineScores are the lines' own: the rare words of the goal that they have, less in long lines.
func lineScores(g *goal, x *index, k1, b float64) []float32 {
	out := make([]float32, len(x.has))
	w, near := x.weights(g)
	for i := range out {
		if x.has[i]|x.near[i] == 0 {
			continue
		}
		s := 0.
		for t := range bits(x.has[i]) {
			s += w[t]
		}
		for t := range bits(x.near[i]) {
			s += near[t]
		}
		out[i] = float32(s * (k1 + 1) / (1 + k1*(1-b+b*float64(x.words[i])/x.mean)))
	}
	return out
}
