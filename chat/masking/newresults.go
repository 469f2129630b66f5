package masking

import (
	"errors"
	"slices"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/glob"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/reduce"
)

// NewResults is how long results of a client's own tools are shortened when they are first sent. They
// are sent with the same bytes from then on, until the window masks them.
type NewResults struct {
	// What to do with long tool results that did not come through the gateway's MCP endpoint, from the
	// first request that contains them: "mask", "prune" or "none". The original is stored first; if that
	// fails, the result is sent uncut. Default "none".
	//
	// "mask" keeps the start and the end, "prune" the lines that matter for what the call was looking for:
	// its argument context_focus_question if it has one, else the texts in its arguments and the user's
	// last message; with their markers they have at most max_chars characters. Where no line matters, and
	// of a text of one line or of more than 16 MiB, the start and the end stay. The outcome depends only on the
	// result and on what precedes it, so that the provider's cache stays valid. Results with images,
	// results without a call, texts that a gateway with the same store and secret has already cut, and
	// answers of recover_text are not changed.
	//
	// If the model has no recover_text (see recovery.offer), it cannot read left-out text back: then
	// results are always masked, because missing lines in the middle are easier to overlook than a visible
	// cut, and the marker names no id.
	Reduce reduce.Name `key:"reduce"`

	// The tools whose results are shortened, with * for any characters. Default ["*"].
	Tools []string `key:"tools"`

	// Exceptions: the tools among them whose results are not shortened. Default none.
	Except []string `key:"except"`

	// A text of more characters than this is shortened; in a result that is a list of texts, each text
	// counts separately. Default 20000.
	MaxChars int `key:"max_chars" min:"1"`

	// How many characters to keep from the start of a masked text. Default 5000.
	HeadChars int `key:"head_chars" min:"0"`

	// How many characters to keep from the end of a masked text. Default 5000.
	TailChars int `key:"tail_chars" min:"0"`

	// The wording of the markers, as masking.markers. Default "document"; with profile = "agents", "plain".
	Markers reduce.Markers `key:"markers"`

	// Shorten a text that is JSON as JSON, to at most max_chars characters, by leaving elements out of the
	// middle of its arrays. Default false.
	JSON bool `key:"json"`

	// Do not mask texts that look like errors, as in schema1. When such a text is pruned, it is treated as
	// a log, whose error lines come first; one of a single line stays whole. Default true.
	KeepErrors bool `key:"keep_errors"`

	Prune reduce.PruneOptions `key:",inline"`
}

// DefaultNewResults shortens nothing (H10).
func DefaultNewResults() NewResults {
	return NewResults{
		Reduce: reduce.None, Tools: []string{"*"}, MaxChars: 20_000, HeadChars: 5000, TailChars: 5000, Markers: reduce.DocumentMarkers, KeepErrors: true,
		Prune: reduce.DefaultPruneOptions(),
	}
}

const maxPattern = 512

// Validate lists every problem; each text begins with the key it is about.
func (b NewResults) Validate() []error {
	problems := b.Reduce.Validate()
	for key, list := range map[string][]string{"tools": b.Tools, "except": b.Except} {
		if slices.ContainsFunc(list, func(p string) bool { return p == "" || len(p) > maxPattern }) {
			problems = append(problems, errors.New(key+": a pattern is empty or longer than 512 bytes"))
		}
	}
	problems = append(problems, b.Prune.Validate()...)
	return append(problems, b.mask().Validate()...)
}

// IsOff reports whether nothing is shortened.
func (b NewResults) IsOff() bool { return b.Reduce == reduce.None || b.Reduce == "" }

func (b NewResults) mask() reduce.Mask {
	return reduce.Mask{MaxChars: b.MaxChars, HeadChars: b.HeadChars, TailChars: b.TailChars, Markers: b.Markers}
}

// matches reports whether a result may be shortened. What the model asked to read back must reach it.
func (b NewResults) matches(r *history.Result) bool {
	any := func(patterns []string) bool {
		return slices.ContainsFunc(patterns, func(p string) bool { return glob.New(p).Match(r.Name) })
	}
	return r.Maskable && r.Turn >= 0 && !recovertool.IsName(r.Name) && any(b.Tools) && !any(b.Except)
}

// textPolicy is everything that decides how a text is shortened, beside the text itself.
type textPolicy struct {
	tenant     string
	keepErrors bool
	recall.Policy
}

// textPolicy is the policy for all texts of a request but for goal and failure; canRecover reports
// whether the model can read originals back.
func (b NewResults) textPolicy(tenant string, canRecover bool) textPolicy {
	choice := reduce.Choice{Reducer: b.Reduce, Prune: b.Prune}
	if !canRecover {
		choice = choice.WithoutRecovery()
	}
	return textPolicy{tenant, b.KeepErrors, recall.Policy{Mask: b.mask(), RecoverLine: canRecover, JSON: b.JSON, Choice: choice}}
}
