package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

const (
	fewKeys   = 8 // as many known keys as a message lists
	fewPlaces = 4
)

// unknown says what to do about a key that a table does not have: the key of the table that was
// probably meant, else the table it belongs in, else the keys there are.
func (d *decoder) unknown(key string, table []Field) string {
	text := "unknown key " + quote(key)
	var known []string
	for _, f := range table {
		known = append(known, f.Key)
	}
	if near := nearest(key, known); near != "" {
		return text + meant(near)
	}
	if d.homes == nil {
		d.homes = homesOf(d.root)
	}
	if homes := d.homes[key]; len(homes) > 0 && len(homes) <= fewPlaces {
		return text + "; it belongs " + strings.Join(homes, " or ")
	}
	part := sharing(key, known)
	switch {
	case part != "":
		return text + meant(part)
	case len(known) == 0:
		return text + "; no keys are known here"
	case len(known) <= fewKeys:
		return text + "; the keys here are " + quoteAll(known)
	default:
		return text
	}
}

// homesOf names the tables that have each key.
func homesOf(root reflect.Type) map[string][]string {
	homes := map[string][]string{}
	var visit func(t reflect.Type, path, heading string, above []reflect.Type)
	visit = func(t reflect.Type, path, heading string, above []reflect.Type) {
		if slices.Contains(above, t) { // a type may hold itself
			return
		}
		above = append(above, t)
		for _, f := range Fields(t) {
			homes[f.Key] = append(homes[f.Key], heading)
			if elem, below, heading := f.Table(path); elem != nil {
				visit(elem, below, "under "+heading, above)
			}
		}
	}
	visit(root, "", "at the top level", nil)
	return homes
}

func quoteAll(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quote(s)
	}
	return strings.Join(quoted, ", ")
}

// didYouMean is the end of a message, empty when nothing known is near.
func didYouMean(word string, known []string) string {
	return meant(cmp.Or(nearest(word, known), sharing(word, known)))
}

func meant(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", quote(word))
}

// nearest is the known word that a few slips turn into this one.
func nearest(word string, known []string) string {
	return closest(known, 3, func(k string) (int, bool) {
		d := distance(word, k)
		return d, d <= 1+min(len(word), len(k))/4
	})
}

// sharing is the known word that this one is a part of, or that is a part of this one.
func sharing(word string, known []string) string {
	return closest(known, 20, func(k string) (int, bool) { return partOf(word, k) })
}

// closest is the first of the words at the least distance, if any is near and within most.
func closest(words []string, most int, measure func(string) (distance int, near bool)) string {
	best := ""
	for _, w := range words {
		if d, near := measure(w); near && d <= most {
			best, most = w, d-1
		}
	}
	return best
}

// partOf measures how much "rate_limit" lacks of "rate_limit_per_minute". Short words are parts
// of too many.
func partOf(a, b string) (missing int, ok bool) {
	a, b = fold(a), fold(b)
	if len(a) > len(b) {
		a, b = b, a
	}
	return len(b) - len(a), len(a) >= 4 && strings.Contains(b, a)
}

// distance is how many typing slips lie between two words: letters added, lost, changed, or
// swapped with their neighbour (Damerau and Levenshtein's, in its optimal alignment form). Case,
// dashes and underscores do not count.
func distance(a, b string) int {
	ra, rb := []rune(fold(a)), []rune(fold(b))
	const far = 1 << 10
	if abs(len(ra)-len(rb)) > 3 {
		return far // not worth a table: a key may be as long as a file
	}
	var before, last []int // the two rows above
	row := make([]int, len(rb)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range ra {
		before, last, row = last, row, make([]int, len(rb)+1)
		row[0] = i + 1
		for j, y := range rb {
			cost := 1
			if x == y {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && x == rb[j-1] && ra[i-1] == y {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(rb)]
}

var withoutDashes = strings.NewReplacer("_", "", "-", "")

func fold(s string) string { return withoutDashes.Replace(strings.ToLower(s)) }

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}
