// Package stubreducer is a reducer for tests: one file and one line of registration, as any other. It
// shows that nothing else has to know of a new reducer.
package stubreducer

import (
	"context"
	"slices"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
)

// Name is the stub's value of the configuration key "reduce".
const Name reduce.Name = "opening"

// Opening keeps the first 40 characters of a string.
var Opening = reduce.Reducer{Name: string(Name), Cutter: func(context.Context, reduce.Policy) reduce.Cutter {
	return func(body []byte, str jsonscan.Str) (reduce.Cut, bool) {
		c, ok := reduce.Mask{HeadChars: 40}.CutString(body, str)
		edits := func(id string) []jsonscan.Edit { return []jsonscan.Edit{c.Edit(id)} }
		return reduce.Cut{OmittedChars: str.Chars - c.Head, Edits: edits}, ok
	}
}}

// Register adds reducers for the time of a test, which must not run in parallel with others.
func Register(t testing.TB, reducers ...reduce.Reducer) {
	before := reduce.Reducers
	t.Cleanup(func() { reduce.Reducers = before })
	reduce.Reducers = append(slices.Clone(before), reducers...)
}
