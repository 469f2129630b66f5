// Stylefigures prints figures that tell how a Go source tree reads: lines, functions and their length,
// very small and very large files, and unexported names that many functions share.
//
// Usage: stylefigures [-check] [-rigs PREFIXES] [DIR]
//
// With -check it exits with status 1 when a name of product code is shared by too many functions.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
)

const (
	maxSharedName = 4 // functions that may share one unexported name
	longFunc      = 60
	smallFile     = 60
	largeFile     = 500
	topNames      = 30
)

func main() {
	log.SetFlags(0)
	check := flag.Bool("check", false, fmt.Sprintf("exit with status 1 when more than %d functions share an unexported name", maxSharedName))
	rigs := flag.String("rigs", "tools/,internal/testkit/,e2e/,examples/,state/statetest/", "comma-separated path prefixes of code that is not part of the product")
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	files, err := readTree(root, strings.Split(*rigs, ","))
	if err != nil {
		log.Fatal(err)
	}
	printTotals(os.Stdout, files)
	printFileSizes(os.Stdout, files)
	if shared := printNames(os.Stdout, files); *check && shared > 0 {
		log.Fatalf("%d unexported names are shared by more than %d functions; give the verb its object (readFrame, not read)", shared, maxSharedName)
	}
}

func printTotals(w io.Writer, files []sourceFile) {
	fmt.Fprintf(w, "%-8s %6s %8s %10s %7s %9s\n", "", "files", "lines", "functions", "median", fmt.Sprintf("over %d", longFunc))
	for _, k := range []kind{product, rig, test} {
		var count, lines, long int
		var lengths []int
		for _, f := range files {
			if f.kind != k {
				continue
			}
			count++
			lines += f.lines
			for _, fn := range f.funcs {
				lengths = append(lengths, fn.lines)
				if fn.lines > longFunc {
					long++
				}
			}
		}
		slices.Sort(lengths)
		median, share := 0, 0.0
		if n := len(lengths); n > 0 {
			median, share = lengths[n/2], 100*float64(long)/float64(n)
		}
		fmt.Fprintf(w, "%-8s %6d %8d %10d %7d %8.1f%%\n", k, count, lines, len(lengths), median, share)
	}
}

func printFileSizes(w io.Writer, files []sourceFile) {
	var small, large []string
	for _, f := range files {
		entry := fmt.Sprintf("  %4d %s", f.lines, f.path)
		switch {
		case f.lines > largeFile:
			large = append(large, entry)
		case f.kind == product && f.lines <= smallFile:
			small = append(small, entry)
		}
	}
	fmt.Fprintf(w, "\nfiles over %d lines: %d\n", largeFile, len(large))
	for _, entry := range large {
		fmt.Fprintln(w, entry)
	}
	fmt.Fprintf(w, "\nproduct files of at most %d lines: %d\n", smallFile, len(small))
	for _, entry := range small {
		fmt.Fprintln(w, entry)
	}
}

// printNames lists the most shared unexported names of product code, with their places where there are
// too many, and returns how many names are shared too often.
func printNames(w io.Writer, files []sourceFile) (tooMany int) {
	places := map[string][]string{}
	for _, f := range files {
		for _, fn := range f.funcs {
			if f.kind == product && !fn.exported && fn.name != "main" && fn.name != "_" {
				places[fn.name] = append(places[fn.name], fmt.Sprintf("%s:%d", f.path, fn.line))
			}
		}
	}
	var names []string
	for name, at := range places {
		names = append(names, name)
		if len(at) > maxSharedName {
			tooMany++
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if d := len(places[b]) - len(places[a]); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	fmt.Fprintf(w, "\nunexported function and method names shared by more than %d in product code: %d\n", maxSharedName, tooMany)
	for i, name := range names[:min(len(names), max(topNames, tooMany))] {
		line := fmt.Sprintf("  %3d %s", len(places[name]), name)
		if i < tooMany {
			line += "  " + strings.Join(places[name], " ")
		}
		fmt.Fprintln(w, line)
	}
	return tooMany
}
