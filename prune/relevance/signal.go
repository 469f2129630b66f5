package relevance

import (
	"math"
)

// Signal is one reason to keep a line. Its values are scaled to 0…1 before they are weighed, so that
// weights can be compared.
type Signal[T any] struct {
	Name    string
	Weight  float32
	Measure func(T, []float32) // fills a slice of zeros, one value a line
}

// SumSignals returns the weighted sum of signals over n lines.
func SumSignals[T any](text T, n int, signals []Signal[T]) []float32 {
	sum := make([]float32, n)
	EachSignal(text, n, signals, func(_ string, points []float32) {
		for i, p := range points {
			sum[i] += p
		}
	})
	return sum
}

// EachSignal calls add with the weighted values of every signal; the slice is reused.
func EachSignal[T any](text T, n int, signals []Signal[T], add func(name string, points []float32)) {
	one := make([]float32, n)
	for _, s := range signals {
		clear(one)
		s.Measure(text, one)
		rescale(one, s.Weight)
		add(s.Name, one)
	}
}

// rescale scales values so that the largest becomes weight. Values that fade with distance (see Blur)
// can peak at a denormal number, and weight divided by that is infinite; such values are divided by
// their peak first.
func rescale(v []float32, weight float32) {
	top := Peak(v)
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

// Peak returns the largest value, or 1 if all are 0.
func Peak(v []float32) float32 {
	top := float32(0)
	for _, x := range v {
		top = max(top, x)
	}
	if top == 0 {
		return 1
	}
	return top
}

// Blur spreads values to the lines around them: half of a value goes to each side, and every line
// further gets decay times as much.
func Blur(v []float32, decay float32, out []float32) {
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

// TermWeights are the weights of the terms of a goal in a text, and of their variants.
type TermWeights struct{ Exact, Variant []float64 }

// Sum adds up the weights of the terms in two masks.
func (s TermWeights) Sum(exact, variant uint64) float32 {
	sum := 0.
	for t := range Bits(exact) {
		sum += s.Exact[t]
	}
	for t := range Bits(variant &^ exact) {
		sum += s.Variant[t]
	}
	return float32(sum)
}

// GroupScores scores groups of lines with BM25, a group being the document: of gives each line's
// group, counted from 0, and n is the number of groups.
func GroupScores(g *Goal, x *Index, of []int32, n int) []float32 {
	const k1, b = 1.2, .5 // BM25's saturation and length normalization
	terms := len(g.Terms)
	count := make([]float32, n*terms)
	length := make([]float32, n)
	for i, group := range of {
		length[group] += float32(x.WordCounts[i])
		row := count[int(group)*terms : int(group+1)*terms]
		for t := range Bits(x.Exact[i]) {
			row[t]++
		}
		for t := range Bits(x.Variant[i]) {
			row[t] += float32(x.VariantShare(t))
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

// groupRarity returns the weight of each term by the number of groups that have it, and the mean
// length of groups.
func groupRarity(g *Goal, count, length []float32) (weight []float32, mean float32) {
	terms := len(g.Terms)
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
		weight[t] = float32(g.Terms[t].Weight * Rarity(df[t], float64(filled)))
	}
	return weight, float32(math.Max(float64(total/max(filled, 1)), 1))
}
