package prune

import "math"

// signal is one reason to keep a line. What it gives is brought to 0…1 before it is weighed, so
// that weights can be compared.
type signal[T any] struct {
	name   string
	weight float32
	of     func(T, []float32) // adds to a slice of zeros, one value a line
}

// weigh adds up signals.
func weigh[T any](text T, n int, signals []signal[T]) []float32 {
	sum := make([]float32, n)
	each(text, n, signals, func(_ string, points []float32) {
		for i, p := range points {
			sum[i] += p
		}
	})
	return sum
}

// each gives what every signal adds to the lines.
func each[T any](text T, n int, signals []signal[T], add func(name string, points []float32)) {
	one := make([]float32, n)
	for _, s := range signals {
		clear(one)
		s.of(text, one)
		rescale(one, s.weight)
		add(s.name, one)
	}
}

// rescale multiplies values so that the largest becomes weight. What fades with distance (blur) can
// peak at a denormal number, by which weight cannot be divided without becoming infinite; such
// values are divided by their peak first.
func rescale(v []float32, weight float32) {
	top := peak(v)
	scale := weight / top
	if math.IsInf(float64(scale), 0) {
		for i := range v {
			v[i] = v[i] / top * weight
		}
		return
	}
	for i := range v {
		v[i] *= scale
	}
}

// peak is the largest of some values, or 1 when all are 0.
func peak(v []float32) float32 {
	top := float32(0)
	for _, x := range v {
		top = max(top, x)
	}
	if top == 0 {
		return 1
	}
	return top
}

// blur gives each line a share of what the lines around it have: half of it, and less with every
// line between.
func blur(v []float32, decay float32, out []float32) {
	carry := float32(0)
	for i := range v {
		out[i] = v[i] + carry
		carry = decay * (carry + v[i]/2)
	}
	carry = 0
	for i := len(v) - 1; i >= 0; i-- {
		out[i] += carry
		carry = decay * (carry + v[i]/2)
	}
}

// scales are what words of the goal are worth in a text, by themselves and in other forms.
type scales struct{ has, near []float64 }

// worth adds up the words of two masks.
func (s scales) worth(has, near uint64) float32 {
	sum := 0.
	for t := range bits(has) {
		sum += s.has[t]
	}
	for t := range bits(near &^ has) {
		sum += s.near[t]
	}
	return float32(sum)
}

// groupScores rates groups of lines as wholes: how many lines of each have the words of the goal,
// against how many groups have them at all. of gives each line's group, counted from 0, n are the
// groups.
func groupScores(g *goal, x *index, of []int32, n int) []float32 {
	const k1, b = 1.2, .5 // how soon more of the same word adds nothing; how much long groups pay
	terms := len(g.terms)
	count := make([]float32, n*terms)
	length := make([]float32, n)
	for i, group := range of {
		length[group] += float32(x.words[i])
		row := count[int(group)*terms : int(group+1)*terms]
		for t := range bits(x.has[i]) {
			row[t]++
		}
		for t := range bits(x.near[i]) {
			row[t] += float32(x.share(t))
		}
	}
	weight, mean := groupRarity(g, count, length)
	out := make([]float32, n)
	for group := range out {
		norm := float32(k1 * (1 - b + b*length[group]/mean))
		for t, f := range count[group*terms : (group+1)*terms] {
			if f > 0 {
				out[group] += weight[t] * f * (k1 + 1) / (f + norm)
			}
		}
	}
	return out
}

// groupRarity is what each word says, by the number of groups that have it, and how long groups
// are.
func groupRarity(g *goal, count, length []float32) (weight []float32, mean float32) {
	terms := len(g.terms)
	df := make([]float64, terms)
	total, filled := float32(0), float32(0)
	for group, words := range length {
		if words == 0 {
			continue
		}
		total += words
		filled++
		for t, f := range count[group*terms : (group+1)*terms] {
			if f > 0 {
				df[t]++
			}
		}
	}
	weight = make([]float32, terms)
	for t := range weight {
		weight[t] = float32(g.terms[t].base * rarity(df[t], float64(filled)))
	}
	return weight, float32(math.Max(float64(total/max(filled, 1)), 1))
}
