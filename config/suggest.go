package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

const (
	maxListedKeys   = 8
	maxListedTables = 4
)

// unknownKeyText is the message about an unknown key: it suggests a similar key of the table, else the
// table that has this key, else lists the keys of the table.
func (d *decoder) unknownKeyText(key string, table []Field) string {
	text := "unknown key " + quote(key)
	var known []string
	for _, f := range table {
		known = append(known, f.Key)
	}
	if near := nearest(key, known); near != "" {
		return text + didYouMeanText(near)
	}
	if d.tables == nil {
		d.tables = tablesOf(d.root)
	}
	if tables := d.tables[key]; len(tables) > 0 && len(tables) <= maxListedTables {
		return text + "; it belongs " + strings.Join(tables, " or ")
	}
	part := overlapping(key, known)
	switch {
	case part != "":
		return text + didYouMeanText(part)
	case len(known) == 0:
		return text + "; this table has no keys"
	case len(known) <= maxListedKeys:
		return text + "; the keys here are " + quoteAll(known)
	default:
		return text
	}
}

// tablesOf lists, for each key, the tables that have it.
func tablesOf(root reflect.Type) map[string][]string {
	tables := map[string][]string{}
	var visit func(t reflect.Type, path, heading string, above []reflect.Type)
	visit = func(t reflect.Type, path, heading string, above []reflect.Type) {
		if slices.Contains(above, t) { // a type may hold itself
			return
		}
		above = append(above, t)
		for _, f := range Fields(t) {
			tables[f.Key] = append(tables[f.Key], heading)
			if elem, below, heading := f.Table(path); elem != nil {
				visit(elem, below, "under "+heading, above)
			}
		}
	}
	visit(root, "", "at the top level", nil)
	return tables
}

func quoteAll(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quote(s)
	}
	return strings.Join(quoted, ", ")
}

// didYouMean suggests a known word at the end of a message; "" when none is similar.
func didYouMean(word string, known []string) string {
	return didYouMeanText(Nearest(word, known))
}

func didYouMeanText(word string) string {
	if word == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", quote(word))
}

// Nearest is the known word that was probably meant by a word that is not known; "" when none is similar.
func Nearest(word string, known []string) string {
	return cmp.Or(nearest(word, known), overlapping(word, known))
}

// nearest is the known word within a few typing errors of this one.
func nearest(word string, known []string) string {
	return closest(known, 3, func(k string) (int, bool) {
		d := distance(word, k)
		return d, d <= 1+min(len(word), len(k))/4
	})
}

// overlapping is the known word that contains this one, or is contained in it.
func overlapping(word string, known []string) string {
	return closest(known, 20, func(k string) (int, bool) { return partOf(word, k) })
}

// closest is the first word with the smallest distance, if any is near and within maxDistance.
func closest(words []string, maxDistance int, measure func(string) (distance int, near bool)) string {
	best := ""
	for _, w := range words {
		if d, near := measure(w); near && d <= maxDistance {
			best, maxDistance = w, d-1
		}
	}
	return best
}

// partOf counts the letters that "rate_limit" lacks of "rate_limit_per_minute". Words of less than four
// letters are part of too many.
func partOf(a, b string) (missing int, ok bool) {
	a, b = fold(a), fold(b)
	if len(a) > len(b) {
		a, b = b, a
	}
	return len(b) - len(a), len(a) >= 4 && strings.Contains(b, a)
}

// distance is the Damerau-Levenshtein distance of two words (optimal string alignment). Case, dashes and
// underscores do not count.
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
