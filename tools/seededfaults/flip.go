package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// choice is the environment variable with the number of the fault; without it there is none. reachedFile is the one with the
// name of a file that gets the numbers of all conditions that a run evaluates.
const (
	choice      = "CTXGATE_SEEDED_FAULT"
	reachedFile = "CTXGATE_SEEDED_FAULTS_REACHED"
)

// selectorFile is the file that the faulty package gets.
const selectorFile = "seededfault_selector.go"

// selectorText is its text; the verbs are the package and one more than the last number. It must cost next to nothing:
// tests measure time.
const selectorText = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	chosenSeededFault, _ = strconv.Atoi(os.Getenv("` + choice + `"))
	reachedSeededFile    = os.Getenv("` + reachedFile + `")
	reachedSeededFaults  [%d]atomic.Bool
)

func seededFault(n int) bool {
	if reachedSeededFile != "" && !reachedSeededFaults[n].Load() && !reachedSeededFaults[n].Swap(true) {
		if f, err := os.OpenFile(reachedSeededFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			_, _ = f.WriteString(strconv.Itoa(n) + " ")
			_ = f.Close()
		}
	}
	return n == chosenSeededFault
}
`

// fault is an if statement whose condition can be inverted.
type fault struct {
	number    string
	file      string // without its directory
	line      int
	condition string
}

func (f fault) String() string { return fmt.Sprintf("%s:%d: if %s", f.file, f.line, f.condition) }

// seedFaults returns the text of a file in which every condition c of an if statement is
//
//	seededFault(7) != bool(c)
//
// and what the numbers mean. Lines keep their numbers.
func seedFaults(path string, src []byte, first int) ([]byte, []fault, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, err
	}
	type insertion struct {
		at   int
		text string
	}
	var faults []fault
	var insertions []insertion
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.IfStmt)
		if !ok {
			return true
		}
		from, to := fset.Position(s.Cond.Pos()), fset.Position(s.Cond.End())
		f := fault{
			number: strconv.Itoa(first + len(faults)), file: filepath.Base(path), line: from.Line,
			condition: strings.Join(strings.Fields(string(src[from.Offset:to.Offset])), " "),
		}
		faults = append(faults, f)
		insertions = append(insertions, insertion{from.Offset, fmt.Sprintf("seededFault(%s) != bool(", f.number)}, insertion{to.Offset, ")"})
		return true
	})
	// A condition can contain a function with conditions of its own.
	slices.SortStableFunc(insertions, func(a, b insertion) int { return a.at - b.at })
	var out []byte
	done := 0
	for _, i := range insertions {
		out = append(append(out, src[done:i.at]...), i.text...)
		done = i.at
	}
	return append(out, src[done:]...), faults, nil
}
