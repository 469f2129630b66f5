package history

import (
	"errors"
	"fmt"
	"math"
)

// How the boundary between masked and intact results moves.
const (
	EachTurn = "turn"     // at every turn: the document's rolling window
	Stride   = "stride"   // every so many turns
	Pressure = "pressure" // when the request grows too large
	Auto     = "auto"     // when it pays, by the provider's prices
)

// DefaultTemplate is the document's placeholder.
const DefaultTemplate = "[Observation masquée: résultat d’outil ancien (tool_call_id={tool_call_id}, outil={tool_name}, chars={original_chars})]"

// Policy says which results are masked, when, and by what.
type Policy struct {
	// Mask old tool results of conversations. Default true.
	Enabled bool `key:"enabled"`

	// How many tool turns, counted from the last, keep their results whole. Default 8; 0 masks
	// nothing.
	WindowTurns int `key:"window_turns"`

	// Keep results that look like errors: with profile = "document", every text that contains
	// Traceback, Exception, timeout, connect_error, connection refused, "error" or a line that starts
	// with Error, and every JSON object with the key error; with profile = "agents", not those that
	// only mention one, as source code does. Default true.
	KeepErrors bool `key:"keep_errors"`

	// How many results of each tool, counted from the last, stay whole wherever they stand.
	// Default 0: only the window counts.
	KeepLastK int `key:"keep_last_k_per_tool" min:"0"`

	// What stands in the place of a result. {tool_call_id}, {tool_name}, {original_chars} and
	// {prune_id} are replaced. Default: the document's, in French.
	Template string `key:"placeholder_template"`

	// When the window moves on: "turn" (at every turn, which costs more than it saves where the
	// provider caches prompts), "stride" (every stride turns), "pressure" (when a request exceeds
	// trigger_tokens) or "auto" (when it pays, by the provider's cache prices; without any, at
	// every turn). Default "auto".
	Advance string `key:"advance" oneof:"turn,stride,pressure,auto"`

	// With advance = "stride", how many turns the window stands still. Default 16.
	Stride int `key:"stride" min:"1"`

	// With advance = "pressure", the size of a request, in estimated tokens, over which the
	// window moves; with "auto", the size of its messages from which on a first move may take
	// more than two turns to pay back. Default 60000.
	TriggerTokens int `key:"trigger_tokens" min:"0"`

	// With advance = "pressure", how many estimated tokens a move must clear at least. Default
	// 10000.
	ClearAtLeast int `key:"clear_at_least" min:"0"`

	// Let the window move past the cache_control marks of clients too. Agents that mark their
	// last message on every turn, as Claude Code does, have all of their history before a mark;
	// with false it is masked only once the provider's cache has died of idleness. With true the
	// window moves as "advance" says, which "auto" does only when it pays. Default false: nothing
	// at or before the last mark is rewritten.
	PastBreakpoints bool `key:"past_breakpoints"`

	// How many identifiers (paths, URLs, ids) of a masked result its placeholder lists, of those
	// that the conversation went on to use. Default 4; 0 lists none.
	KeepHandles int `key:"keep_handles" min:"0"`

	// Agents is set by the top-level key profile = "agents", not by a key of its own. It selects the
	// narrower readings of H2 and H8: a result that masking would not make shorter stays, and text
	// that only mentions an error is not one. False holds the documents to the letter.
	Agents bool
}

// DefaultPolicy is the contract's.
func DefaultPolicy() Policy {
	return Policy{
		Enabled: true, WindowTurns: 8, KeepErrors: true, Template: DefaultTemplate, Advance: Auto,
		Stride: 16, TriggerTokens: 60_000, ClearAtLeast: 10_000, KeepHandles: 4,
	}
}

// Validate lists every problem; each text begins with the key it is about.
func (p Policy) Validate() []error {
	var problems []error
	switch p.Advance {
	case EachTurn, Stride, Pressure, Auto:
	default:
		problems = append(problems, fmt.Errorf("advance: %q is none of turn, stride, pressure, auto", p.Advance))
	}
	if p.Stride < 1 {
		problems = append(problems, errors.New("stride: must be positive"))
	}
	if p.Template == "" {
		problems = append(problems, errors.New("placeholder_template: must not be empty"))
	}
	for key, n := range map[string]int{"keep_last_k_per_tool": p.KeepLastK, "trigger_tokens": p.TriggerTokens, "clear_at_least": p.ClearAtLeast, "keep_handles": p.KeepHandles} {
		if n < 0 {
			problems = append(problems, fmt.Errorf("%s: must not be negative", key))
		}
	}
	return problems
}

func (p Policy) off() bool { return !p.Enabled || p.WindowTurns <= 0 }

// rolls says whether the window moves at every turn, as in the document.
func (p Policy) rolls(c price) bool {
	return p.Advance == EachTurn || p.Advance == Auto && !c.discount()
}

// masksShort says whether a result is masked even where the placeholder is longer than its text: the
// document's window holds exactly (H2, the exception of I5).
func (p Policy) masksShort(c price) bool { return p.rolls(c) && !p.Agents }

// Cache is what a provider charges for input that its cache takes in and gives back, relative to
// input without a cache. The zero value is a provider without a discount.
type Cache struct{ Write, Read float64 }

// price is a Cache in thousandths: whole numbers are the same on every machine.
type price struct{ write, read int }

func (c Cache) price() price {
	if c == (Cache{}) {
		return price{1000, 1000}
	}
	return price{int(math.Round(c.Write * 1000)), int(math.Round(c.Read * 1000))}
}

// discount says whether reading from the cache is cheaper than writing anew.
func (p price) discount() bool { return p.read < p.write }
