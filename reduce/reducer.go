// Package reduce decides what to leave out of long strings. A [Reducer] is one way to do so: mask keeps
// the head and the tail, json keeps the shape of a JSON text, prune keeps the lines that matter for a
// goal, within the same length. A [Policy] chooses among them for tool results, at the MCP endpoint and at the LLM endpoint
// alike. Everything is pure: text in, cuts out; no clock, no store, no network. Before a cut may be
// shown its original must be stored; that is recall's job.
//
// Path through the files: reducer.go holds the type, the list of reducers and the policy; mask.go,
// json.go and prune.go are one reducer each. grapheme.go keeps a cut from splitting what a reader sees
// as one character, marker.go writes what replaces the cut. For json, outline.go measures the text in
// one pass, fit.go divides the budget, value.go moves within valid JSON, copy.go applies a cut to
// another encoding of the same value, typed.go to a value whose types must not change.
//
// The laws, checked for every reducer in laws_test.go: edits lie within the string and do not overlap;
// bytes outside of them are untouched; the same input gives the same bytes; valid JSON stays valid; an
// id that is given appears in the result; what json and prune leave has at most MaxChars characters,
// markers included. Those of mask and of json are stricter.
package reduce

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Reducers are all reducers, in the order in which the configuration lists them. A new one is a file
// in this package and a line here.
var Reducers = []Reducer{
	maskReducer,
	jsonReducer,
	pruneReducer,
}

// Reducer is one way to shorten long strings.
type Reducer struct {
	// Name is its value of the configuration key "reduce".
	Name string

	// OwnKey means that the reducer is switched on by a key of its own, json = true, and is tried
	// before the one that "reduce" names.
	OwnKey bool

	// NeedsGoal means that it is used only if the goal is known. Tools with a policy that names it are
	// listed with an argument for the goal.
	NeedsGoal bool

	// NeedsRecovery means that its markers always name the original's id: it is used only if the
	// original can be read back.
	NeedsRecovery bool

	// KeepsErrors means that it keeps lines that report errors, so that it may shorten a text that
	// reports a failure.
	KeepsErrors bool

	// HoldsLimit means that what it leaves of a string has at most MaxChars characters, markers included.
	// So has what mask leaves of a string that it cannot shorten.
	HoldsLimit bool

	// Cutter prepares to shorten the strings of one message.
	Cutter func(ctx context.Context, p Policy) Cutter
}

// Cutter decides what to leave out of a string of body that has more than MaxChars characters. False
// means that the reducer cannot shorten it; the next one is tried. It must be deterministic.
type Cutter func(body []byte, str jsonscan.Str) (Cut, bool)

// Cut is what a reducer leaves out of one string.
type Cut struct {
	OmittedChars int

	// Edits are the splices of body, in order, each within the string. With an id, what replaces the
	// text says how to read it back.
	Edits func(id string) []jsonscan.Edit

	Decoded []byte   // the string's text, if the reducer decoded it
	JSON    *JSONCut // set by json: the cut for copies of the value
}

// Name is a value of the configuration key "reduce".
type Name string

// The names that have a meaning of their own.
const (
	None   Name = "none" // leave long strings whole
	ByMask Name = "mask" // the default, and the fallback of every other reducer
)

// OneOf lists the valid names, for the configuration.
func (Name) OneOf() []string {
	names := []string{string(None)}
	for _, r := range Reducers {
		if !r.OwnKey {
			names = append(names, r.Name)
		}
	}
	return names
}

// Validate reports a name that no reducer has.
func (n Name) Validate() []error {
	if names := n.OneOf(); !slices.Contains(names, string(n)) {
		return []error{fmt.Errorf("reduce: %q is none of %s", n, strings.Join(names, ", "))}
	}
	return nil
}

// Choice says which reducer to use, and what it needs beside the text.
type Choice struct {
	Reducer Name   // "" is mask
	Goal    string // what the reader of the text is looking for; "" if unknown
	IsError bool   // the text reports a failure: only reducers that keep errors may shorten it
	Prune   PruneOptions

	// Scored is for trying several limits on a text: it keeps what took time, for one text. It is for one goroutine. Nil
	// keeps nothing.
	Scored *ScoredText
}

// NeedsGoal reports whether the chosen reducer needs a goal.
func (c Choice) NeedsGoal() bool { return c.Reducer.reducer().NeedsGoal }

// WithoutRecovery is the choice for text whose original cannot be read back.
func (c Choice) WithoutRecovery() Choice {
	if c.Reducer.reducer().NeedsRecovery {
		c.Reducer = ByMask
	}
	return c
}

func (n Name) reducer() Reducer {
	i := slices.IndexFunc(Reducers, func(r Reducer) bool { return r.Name == string(n) })
	if i < 0 {
		return Reducer{}
	}
	return Reducers[i]
}

// Policy is everything that decides how a string is shortened.
type Policy struct {
	Mask
	Choice
	JSON  bool // try json first
	IDLen int  // length of the id in markers; 0 if they name none
}

// Chain returns the reducers to try for a string, in order: those with a key of their own, the chosen
// one, and mask.
func (p Policy) Chain() []Reducer {
	if p.Reducer == None {
		return nil
	}
	var own, chosen, mask []Reducer
	for _, r := range Reducers {
		switch {
		case r.NeedsGoal && p.Goal == "" || p.IsError && !r.KeepsErrors:
		case r.OwnKey && p.JSON:
			own = append(own, r)
		case r.Name == string(ByMask):
			mask = append(mask, r)
		case r.Name == string(p.Reducer) && !r.OwnKey:
			chosen = append(chosen, r)
		}
	}
	if len(mask) > 0 && slices.ContainsFunc(chosen, func(r Reducer) bool { return r.HoldsLimit }) {
		mask[0] = maskWithin
	}
	return slices.Concat(own, chosen, mask)
}
