package chat

import (
	"errors"
	"fmt"
	"slices"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/prune"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/reduce"
)

// Birth is how long results of a client's own tools are shortened when they are first sent. They
// are sent with the same bytes ever after, until the window masks them.
type Birth struct {
	// What to do with a long result of a tool that did not come through the hub, from the first
	// request on that has it: "mask", "prune" or "none". Its original is kept first; where that
	// cannot be done, it goes whole. Default "none".
	//
	// "mask" leaves the beginning and the end, "prune" the lines that matter for what the call was
	// looking for: its argument context_focus_question where it has one, or else the texts among
	// its arguments and what the user said last. A text of one line or of more than 16 MiB is
	// masked. Whatever is done depends only on the result and on what stands before it, so that
	// the provider's cache holds from the start. Results that have images, results without a call,
	// texts that a gateway with the same store and secret has cut, and what recover_text read back
	// stay as they are.
	//
	// Where the model has no recover_text (see recovery.offer), what is left out cannot be read by
	// it: then results are masked, for a line in the middle is missed sooner than what a cut shows
	// to be missing, and no way back is named.
	Reduce string `key:"reduce" oneof:"none,mask,prune"`

	// The tools whose results are shortened, with * for any run of characters. Default ["*"].
	Tools []string `key:"tools"`

	// Those among them whose results are not. Default none.
	Except []string `key:"except"`

	// A text of more characters than this is shortened; in a result that is a list of texts, each
	// counts by itself. Default 20000.
	MaxChars int `key:"max_chars" min:"1"`

	// Of a text that is masked, how many characters to keep from the start. Default 5000.
	HeadChars int `key:"head_chars" min:"0"`

	// Of a text that is masked, how many characters to keep from the end. Default 5000.
	TailChars int `key:"tail_chars" min:"0"`

	// Shorten a text that is itself JSON as JSON, to at most max_chars characters, by leaving
	// elements out of the middle of its arrays. Default false.
	JSON bool `key:"json"`

	// Leave a text whole that looks like an error, as the window does, rather than mask it. One
	// that is pruned is read as a log, of which lines that tell of errors always stay. Default
	// true.
	KeepErrors bool `key:"keep_errors"`

	// For "prune": what sort of text the results are: "code", "logs", "docs", or "auto" to look at
	// each. Default "auto".
	PruneType string `key:"prune_type" oneof:"auto,code,logs,docs"`

	// For "prune": the most lines to leave out of a text, as a part of all its lines. Default 0.7.
	PruneRatio float64 `key:"prune_ratio" min:"0" max:"1"`

	// For "prune": the fewest lines to keep of a text. Default 20.
	PruneMinKeep int `key:"prune_min_keep" min:"0"`
}

// The ways to shorten.
const (
	reduceNone  = "none"
	reduceMask  = "mask"
	reducePrune = "prune"
)

// DefaultBirth shortens nothing (H10).
func DefaultBirth() Birth {
	return Birth{
		Reduce: reduceNone, Tools: []string{"*"}, MaxChars: 20_000, HeadChars: 5000, TailChars: 5000, KeepErrors: true,
		PruneType: "auto", PruneRatio: 0.7, PruneMinKeep: 20,
	}
}

const maxPattern = 512

// Validate lists every problem; each text begins with the key it is about.
func (b Birth) Validate() []error {
	var problems []error
	if !slices.Contains([]string{reduceNone, reduceMask, reducePrune}, b.Reduce) {
		problems = append(problems, fmt.Errorf("reduce: %q is none of none, mask, prune", b.Reduce))
	}
	for key, list := range map[string][]string{"tools": b.Tools, "except": b.Except} {
		if slices.ContainsFunc(list, func(p string) bool { return p == "" || len(p) > maxPattern }) {
			problems = append(problems, errors.New(key+": a pattern is empty or longer than 512 bytes"))
		}
	}
	if _, ok := prune.ParseKind(b.PruneType); !ok && b.PruneType != "auto" {
		problems = append(problems, fmt.Errorf("prune_type: %q is none of auto, code, logs, docs", b.PruneType))
	}
	if !(b.PruneRatio >= 0 && b.PruneRatio <= 1) { // NaN too
		problems = append(problems, errors.New("prune_ratio: must be between 0 and 1"))
	}
	if b.PruneMinKeep < 0 {
		problems = append(problems, errors.New("prune_min_keep: must not be negative"))
	}
	return append(problems, b.mask().Validate()...)
}

func (b Birth) off() bool { return b.Reduce != reduceMask && b.Reduce != reducePrune }

func (b Birth) mask() reduce.Mask {
	return reduce.Mask{MaxChars: b.MaxChars, HeadChars: b.HeadChars, TailChars: b.TailChars}
}

// takes says whether a result may be shortened. What the model asked to read back must reach it.
func (b Birth) takes(r *history.Result) bool {
	any := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return fits(p, r.Name) })
	}
	return r.Maskable && r.Turn >= 0 && !history.ReadsBack(r.Name) && any(b.Tools) && !any(b.Except)
}

// rule is how one text is shortened: all that decides it, beside the text itself.
type rule struct {
	tenant   string
	goal     string // "" where nothing is pruned
	failed   bool   // it is marked as an error that is to be kept
	recovers bool   // the model can read originals back

	reduce.Mask
	json    bool
	errors  bool // keep_errors
	kind    string
	ratio   float64
	minKeep int
}

func (b Birth) rule(tenant string, recovers bool) rule {
	return rule{
		tenant: tenant, recovers: recovers, Mask: b.mask(), json: b.JSON, errors: b.KeepErrors,
		kind: b.PruneType, ratio: b.PruneRatio, minKeep: b.PruneMinKeep,
	}
}

func (u rule) draft(raw []byte) recall.Draft {
	u.failed = u.failed || u.errors && history.LooksFailed(raw)
	d := recall.Draft{
		Tenant: u.tenant, Raw: raw, ByLines: u.failed,
		Policy: recall.Policy{Mask: u.Mask, RecoverLine: u.recovers, JSON: u.json && !u.failed},
	}
	if u.goal != "" {
		d.Focus = &recall.Focus{Goal: u.goal, Kind: u.kindOf, Budget: prune.Budget{MaxRatio: u.ratio, MinKeep: u.minKeep}}
	}
	return d
}

func (u rule) kindOf(text string) prune.Kind {
	if u.failed {
		return prune.Logs
	}
	if kind, ok := prune.ParseKind(u.kind); ok {
		return kind
	}
	return prune.Guess(text)
}
