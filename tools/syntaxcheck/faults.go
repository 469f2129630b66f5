package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// fault is a kind of damage.
type fault int

const (
	keptLines         fault = iota // no fault: the number of kept lines
	misread                        // runs of lines that tokenize differently: a comment or string was cut
	unclosed                       // brackets without their closing bracket
	emptyBody                      // of those: headers whose whole body is cut
	unopened                       // brackets without their opening bracket
	detachedAttribute              // attributes without their declaration
	missingParent                  // else, catch, case without if, try, switch
	missingDefinition              // lines whose definition is cut
	missingHeader                  // lines whose block has no header, definitions included
	unpairedDirective              // #if without #endif, or the reverse
	faultKinds
)

var faultNames = [faultKinds]string{"lines", "misread", "unclosed", "empty body", "unopened", "attribute", "no parent", "no def", "no header", "#if"}

type counts [faultKinds]int

// lineComment replaces a marker for the tokenizers.
func lineComment(lang string) string {
	if lang == "python" {
		return "# cut"
	}
	return "// cut"
}

// countFaults counts the faults of a cut. onFault, if not nil, is called for each.
func (b *syntaxLinks) countFaults(kept []bool, onFault func(fault, *syntaxLinks, []bool, int, int)) (counts, error) {
	var n counts
	mark := func(f fault, line, other int) {
		n[f]++
		if onFault != nil {
			onFault(f, b, kept, line, other)
		}
	}
	for _, k := range kept {
		if k {
			n[keptLines]++
		}
	}
	if err := b.findMisread(kept, mark); err != nil {
		return n, err
	}
	for _, p := range b.pairs {
		switch {
		case kept[p.open] && !kept[p.close] && b.isOutline[p.open] && !slices.Contains(kept[p.open+1:p.close], true):
			mark(emptyBody, p.open, p.close)
		case kept[p.open] && !kept[p.close]:
			mark(unclosed, p.open, p.close)
		case kept[p.close] && !kept[p.open]:
			mark(unopened, p.close, p.open)
		}
	}
	for _, p := range b.conditionals {
		if kept[p.open] != kept[p.close] {
			mark(unpairedDirective, p.open, p.close)
		}
	}
	countBroken(b.attributes, kept, detachedAttribute, mark)
	countBroken(b.dependents, kept, missingParent, mark)
	b.findOrphans(kept, mark)
	return n, nil
}

func countBroken(links []link, kept []bool, f fault, mark func(fault, int, int)) {
	for _, l := range links {
		if kept[l.line] && !kept[l.needs] {
			mark(f, l.line, l.needs)
		}
	}
}

// findOrphans finds the lines of blocks without a header, each line once.
func (b *syntaxLinks) findOrphans(kept []bool, mark func(fault, int, int)) {
	lostDef, lostAny := map[int]int{}, map[int]int{}
	for _, blk := range b.blocks {
		if blk.first < 0 || kept[blk.head] {
			continue
		}
		for i := blk.first; i <= blk.last; i++ {
			if !kept[i] || b.lineClasses[i] == "" || strings.Trim(b.lines[i], " \t\r{}()[];,") == "" {
				continue
			}
			lostAny[i] = blk.head
			if blk.isDefinition {
				lostDef[i] = blk.head
			}
		}
	}
	for i := range b.lines {
		if head, ok := lostDef[i]; ok {
			mark(missingDefinition, i, head)
		}
		if head, ok := lostAny[i]; ok {
			mark(missingHeader, i, head)
		}
	}
}

// findMisread finds where kept lines begin to tokenize differently.
func (b *syntaxLinks) findMisread(kept []bool, mark func(fault, int, int)) error {
	var rest []string
	var from []int
	for i, row := range b.lines {
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
		is := cut.lineClasses[k] != b.lineClasses[i]
		if is && !was {
			mark(misread, i, i)
		}
		was = is
	}
	return nil
}

// faultTable holds the counts by language.
type faultTable struct {
	langs          []string
	samples        map[string]int
	ours, baseline map[string]*counts
}

func (t *faultTable) add(lang string, ours, naive counts) {
	if t.samples == nil {
		t.samples, t.ours, t.baseline = map[string]int{}, map[string]*counts{}, map[string]*counts{}
	}
	for _, name := range []string{lang, "~all"} {
		if t.samples[name] == 0 {
			t.langs = append(t.langs, name)
			t.ours[name], t.baseline[name] = &counts{}, &counts{}
		}
		t.samples[name]++
		for f := range faultKinds {
			t.ours[name][f] += ours[f]
			t.baseline[name][f] += naive[f]
		}
	}
}

func (t *faultTable) print(w io.Writer) {
	slices.Sort(t.langs)
	fmt.Fprintf(w, "%-11s %4s", "", "n")
	for _, name := range faultNames {
		fmt.Fprintf(w, " %12s", name)
	}
	fmt.Fprintln(w)
	for _, lang := range t.langs {
		fmt.Fprintf(w, "%-11s %4d", strings.TrimPrefix(lang, "~"), t.samples[lang])
		for f := range faultKinds {
			cell := fmt.Sprintf("%d/%d", t.ours[lang][f], t.baseline[lang][f])
			if f == keptLines {
				cell = strconv.Itoa(t.ours[lang][f])
			}
			fmt.Fprintf(w, " %12s", cell)
		}
		fmt.Fprintln(w)
	}
}

// exampleSet collects examples of faults.
type exampleSet struct {
	most  int
	shown [faultKinds][]string
	seen  [faultKinds]int
}

// collector returns a function that collects examples of one sample.
func (g *exampleSet) collector(id string) func(fault, *syntaxLinks, []bool, int, int) {
	return func(f fault, b *syntaxLinks, kept []bool, line, other int) {
		g.seen[f]++
		// only some, so that examples are from many samples
		if g.most == 0 || len(g.shown[f]) >= g.most || g.seen[f]%7 != 1 {
			return
		}
		var out strings.Builder
		fmt.Fprintf(&out, "%s: %s, line %d, with %d\n", faultNames[f], id, line+1, other+1)
		for _, at := range []int{min(line, other), max(line, other)} {
			for i := max(0, at-3); i <= min(len(b.lines)-1, at+3); i++ {
				sign := map[bool]string{true: " ", false: "-"}[kept[i]]
				fmt.Fprintf(&out, "  %s %4d %.110s\n", sign, i+1, b.lines[i])
			}
			out.WriteString("    ...\n")
		}
		g.shown[f] = append(g.shown[f], out.String())
	}
}

func (g *exampleSet) print(w io.Writer) {
	for _, examples := range g.shown {
		for _, e := range examples {
			fmt.Fprintln(w, e)
		}
	}
}
