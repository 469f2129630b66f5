package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// fault is a way to break what belongs together.
type fault int

const (
	keptLines fault = iota // no fault: what the others are counted against
	misread                // runs of lines that read as something else: a comment or string was torn
	unclosed               // brackets without what closes them
	hollow                 // of those: headers whose body is gone as a whole
	unopened               // brackets that close what was never opened
	loose                  // attributes of nothing
	unlinked               // else, catch, case without if, try, switch
	headless               // lines whose definition is gone
	homeless               // lines whose block lost its header, definitions included
	untested               // #if without #endif, or the other way round
	faultKinds
)

var faultNames = [faultKinds]string{"lines", "misread", "unclosed", "hollow", "unopened", "loose attr", "unlinked", "headless", "homeless", "#if"}

type counts [faultKinds]int

// lineComment is what stands for a marker, so that tokenizers read on.
func lineComment(lang string) string {
	if lang == "python" {
		return "# cut"
	}
	return "// cut"
}

// faults counts what a cut broke. tell is told of every fault, if it is there.
func (b *bonds) faults(kept []bool, tell func(fault, *bonds, []bool, int, int)) (counts, error) {
	var n counts
	mark := func(f fault, line, other int) {
		n[f]++
		if tell != nil {
			tell(f, b, kept, line, other)
		}
	}
	for _, k := range kept {
		if k {
			n[keptLines]++
		}
	}
	if err := b.misreadings(kept, mark); err != nil {
		return n, err
	}
	for _, p := range b.pairs {
		switch {
		case kept[p.open] && !kept[p.close] && b.outline[p.open] && !slices.Contains(kept[p.open+1:p.close], true):
			mark(hollow, p.open, p.close)
		case kept[p.open] && !kept[p.close]:
			mark(unclosed, p.open, p.close)
		case kept[p.close] && !kept[p.open]:
			mark(unopened, p.close, p.open)
		}
	}
	for _, p := range b.tests {
		if kept[p.open] != kept[p.close] {
			mark(untested, p.open, p.close)
		}
	}
	broken(b.attrs, kept, loose, mark)
	broken(b.linked, kept, unlinked, mark)
	b.orphans(kept, mark)
	return n, nil
}

func broken(links []link, kept []bool, f fault, mark func(fault, int, int)) {
	for _, l := range links {
		if kept[l.line] && !kept[l.needs] {
			mark(f, l.line, l.needs)
		}
	}
}

// orphans finds the lines of blocks that lost their headers, each line once.
func (b *bonds) orphans(kept []bool, mark func(fault, int, int)) {
	lostDef, lostAny := map[int]int{}, map[int]int{}
	for _, blk := range b.blocks {
		if blk.first < 0 || kept[blk.head] {
			continue
		}
		for i := blk.first; i <= blk.last; i++ {
			if !kept[i] || b.looks[i] == "" || strings.Trim(b.rows[i], " \t\r{}()[];,") == "" {
				continue
			}
			lostAny[i] = blk.head
			if blk.def {
				lostDef[i] = blk.head
			}
		}
	}
	for i := range b.rows {
		if head, ok := lostDef[i]; ok {
			mark(headless, i, head)
		}
		if head, ok := lostAny[i]; ok {
			mark(homeless, i, head)
		}
	}
}

// misreadings finds where kept lines begin to read otherwise than they did.
func (b *bonds) misreadings(kept []bool, mark func(fault, int, int)) error {
	var rest []string
	var from []int
	for i, row := range b.rows {
		switch {
		case kept[i]:
			rest, from = append(rest, row), append(from, i)
		case i == 0 || kept[i-1]:
			rest, from = append(rest, lineComment(b.lang)), append(from, -1)
		}
	}
	cut, err := tokenize(b.lang, strings.Join(rest, "\n"))
	if err != nil {
		return err
	}
	was := false
	for k, i := range from {
		if i < 0 {
			continue
		}
		is := cut.looks[k] != b.looks[i]
		if is && !was {
			mark(misread, i, i)
		}
		was = is
	}
	return nil
}

// table holds the counts of each language.
type table struct {
	langs       []string
	samples     map[string]int
	ours, naive map[string]*counts
}

func (t *table) add(lang string, ours, naive counts) {
	if t.samples == nil {
		t.samples, t.ours, t.naive = map[string]int{}, map[string]*counts{}, map[string]*counts{}
	}
	for _, name := range []string{lang, "~all"} {
		if t.samples[name] == 0 {
			t.langs = append(t.langs, name)
			t.ours[name], t.naive[name] = &counts{}, &counts{}
		}
		t.samples[name]++
		for f := range faultKinds {
			t.ours[name][f] += ours[f]
			t.naive[name][f] += naive[f]
		}
	}
}

func (t *table) print(w io.Writer) {
	slices.Sort(t.langs)
	fmt.Fprintf(w, "%-11s %4s", "", "n")
	for _, name := range faultNames {
		fmt.Fprintf(w, " %12s", name)
	}
	fmt.Fprintln(w)
	for _, lang := range t.langs {
		fmt.Fprintf(w, "%-11s %4d", strings.TrimPrefix(lang, "~"), t.samples[lang])
		for f := range faultKinds {
			cell := fmt.Sprintf("%d/%d", t.ours[lang][f], t.naive[lang][f])
			if f == keptLines {
				cell = strconv.Itoa(t.ours[lang][f])
			}
			fmt.Fprintf(w, " %12s", cell)
		}
		fmt.Fprintln(w)
	}
}

// gallery collects examples of faults.
type gallery struct {
	most  int
	shown [faultKinds][]string
	seen  [faultKinds]int
}

// of gives what takes examples from one sample.
func (g *gallery) of(id string) func(fault, *bonds, []bool, int, int) {
	return func(f fault, b *bonds, kept []bool, line, other int) {
		g.seen[f]++
		// every so many only, so that examples are of many samples
		if g.most == 0 || len(g.shown[f]) >= g.most || g.seen[f]%7 != 1 {
			return
		}
		var out strings.Builder
		fmt.Fprintf(&out, "%s: %s, line %d, with %d\n", faultNames[f], id, line+1, other+1)
		for _, at := range []int{min(line, other), max(line, other)} {
			for i := max(0, at-3); i <= min(len(b.rows)-1, at+3); i++ {
				sign := map[bool]string{true: " ", false: "-"}[kept[i]]
				fmt.Fprintf(&out, "  %s %4d %.110s\n", sign, i+1, b.rows[i])
			}
			out.WriteString("    ...\n")
		}
		g.shown[f] = append(g.shown[f], out.String())
	}
}

func (g *gallery) print(w io.Writer) {
	for _, examples := range g.shown {
		for _, e := range examples {
			fmt.Fprintln(w, e)
		}
	}
}
