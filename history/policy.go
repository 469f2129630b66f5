package history

import (
	"errors"
	"fmt"
	"math"

	"github.com/ctxgate/ctxgate/llm"
)

// The advance policies: when the boundary between masked and whole results moves.
const (
	AdvanceEachTurn = "turn"     // at every turn: the document's rolling window
	AdvanceStride   = "stride"   // every so many turns
	AdvancePressure = "pressure" // when the request grows too large
	AdvanceAuto     = "auto"     // when it pays, by the provider's prices
)

// DefaultTemplate is the document's placeholder.
const DefaultTemplate = "[Observation masquée: résultat d’outil ancien (tool_call_id={tool_call_id}, outil={tool_name}, chars={original_chars})]"

// The placeholders of profile = "agents". PlainRecoverTemplate replaces PlainTemplate where the model has
// recover_text.
const (
	PlainTemplate        = "[… {original_chars} characters of an old {tool_name} result left out; tool_call_id={tool_call_id}]"
	PlainRecoverTemplate = "[… {original_chars} characters of an old {tool_name} result left out; call recover_text with prune_id={prune_id}]"
)

// Policy says which results are masked, when, and by what.
type Policy struct {
	// Mask old tool results in conversations. Default true.
	Enabled bool `key:"enabled"`

	// How many of the last tool turns keep their results unmasked. Unless advance is "turn", more of them do until
	// the window moves. Default 8; with profile = "agents", 3. 0 masks nothing.
	WindowTurns int `key:"window_turns"`

	// Do not mask results that look like errors: with profile = "document", every text that contains
	// Traceback, Exception, timeout, connect_error, connection refused, "error" or a line that starts with
	// Error, and every JSON object with the key error; with profile = "agents", not texts that only
	// mention an error, such as source code. Default true.
	KeepErrors bool `key:"keep_errors"`

	// How many of the last results of each tool stay unmasked, however old they are. Default 0: only the
	// window counts.
	KeepLastK int `key:"keep_last_k_per_tool" min:"0"`

	// The text that replaces a result. {tool_call_id}, {tool_name}, {original_chars} and
	// {prune_id} are replaced. Where the model has recover_text and the template has no {prune_id}, how to
	// read the result back is added. Default: the document's, in French; with profile = "agents", a
	// shorter one in English.
	Template string `key:"placeholder_template"`

	// When the window moves: "turn" (at every turn, which costs more than it saves if the provider caches
	// prompts), "stride" (every stride turns), "pressure" (when a request exceeds trigger_tokens) or
	// "auto" (when it pays, by the provider's cache prices; without such prices, at every turn). Default
	// "auto".
	Advance string `key:"advance" oneof:"turn,stride,pressure,auto"`

	// For advance = "stride": how many turns pass between moves. Default 16.
	Stride int `key:"stride" min:"1"`

	// For advance = "pressure": the size of a request, in estimated tokens, above which the window moves.
	// For "auto": the size of the messages above which the first move may take more than two turns to pay
	// back. Default 60000.
	TriggerTokens int `key:"trigger_tokens" min:"0"`

	// For advance = "pressure": how many estimated tokens a move must clear at least. Default 10000.
	ClearAtLeast int `key:"clear_at_least" min:"0"`

	// Let the window move past the clients' cache_control marks. Agents that mark their last message on
	// every turn, as Claude Code does, have their whole history before a mark; with false it is masked
	// only after the provider's cache has expired. With true the window moves as advance says; "auto" does
	// so only when it pays. Default false: nothing at or before the last mark is changed; with
	// profile = "agents", true.
	PastBreakpoints bool `key:"past_breakpoints"`

	// How many identifiers (paths, URLs, ids) of a masked result its placeholder lists, among those that
	// the conversation used later. Default 4; 0 lists none.
	KeepHandles int `key:"keep_handles" min:"0"`

	// Agents is set by the top-level key profile = "agents", not by a key of its own. It selects the
	// narrower readings of H2 and H8: a result that masking would not make shorter stays, and text
	// that only mentions an error is not one; and the wider one of H7: a list of texts is text. False holds the documents to the letter.
	Agents bool
}

// DefaultPolicy is the contract's.
func DefaultPolicy() Policy {
	return Policy{
		Enabled: true, WindowTurns: 8, KeepErrors: true, Template: DefaultTemplate, Advance: AdvanceAuto,
		Stride: 16, TriggerTokens: 60_000, ClearAtLeast: 10_000, KeepHandles: 4,
	}
}

// readsAsText says whether a result is text that may be masked.
func (p Policy) readsAsText(r *Result) bool { return r.Maskable || p.Agents && r.textList }

// Validate lists every problem; each text begins with the key it is about.
func (p Policy) Validate() []error {
	var problems []error
	switch p.Advance {
	case AdvanceEachTurn, AdvanceStride, AdvancePressure, AdvanceAuto:
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

func (p Policy) isOff() bool { return !p.Enabled || p.WindowTurns <= 0 }

// isRolling says whether the window moves at every turn, as in the document.
func (p Policy) isRolling(c price) bool {
	return p.Advance == AdvanceEachTurn || p.Advance == AdvanceAuto && !c.hasDiscount()
}

// masksShort says whether a result is masked even if its placeholder is longer than its text: the document's
// window applies to the letter (H2, the exception to I5).
func (p Policy) masksShort(c price) bool { return p.isRolling(c) && !p.Agents }

// CachePrices is what a provider charges for writing input to its cache and for reading it back, relative to
// uncached input, and what else decides whether moving the window pays. The zero value is a provider without
// a discount of which nothing is known. It is comparable.
type CachePrices struct {
	Write, Read float64

	// Step is the size of a request above which all of it costs more. Zero: there is none, or it is not known.
	Step PriceStep

	// ContextTokens is the largest input that the model takes; 0: not known.
	ContextTokens int

	// MinTokens is the shortest prefix that the provider caches; 0: not known.
	MinTokens int

	// LongestPrefix says that the provider reads the longest prefix that it ever cached. False: it reads only
	// what was written at a mark: one of the client's where the client marks, else, if there is a Lookback, the end
	// of an earlier request.
	LongestPrefix bool

	// Lookback is how far before a mark the provider finds an entry: blocks where the client marks, else requests.
	// 0: not known.
	Lookback int
}

// PriceStep multiplies the price of all input of a request with more than AboveTokens tokens.
type PriceStep struct {
	AboveTokens int
	Factor      float64
}

// price is CachePrices in thousandths: integers are the same on every machine.
type price struct {
	write, read int
	minBytes    int // a prefix of fewer bytes may be too short for the cache
	marks       markKind
	lookback    int // requests whose ends are found, with providerMarks
}

// markKind is where a provider's cache can be read up to.
type markKind uint8

const (
	noMarks       markKind = iota // any byte
	clientMarks                   // blocks that the client marks
	providerMarks                 // the ends of earlier requests
)

// uncached is the price of input that the cache does not see.
const uncached = 1000

func (c CachePrices) price() price {
	// A request may have a third fewer tokens than its bytes suggest.
	p := price{write: uncached, read: uncached, minBytes: c.MinTokens * 34 / 10 * 3 / 2}
	if c.Write != 0 || c.Read != 0 {
		p.write, p.read = int(math.Round(c.Write*1000)), int(math.Round(c.Read*1000))
	}
	return p
}

// priceOn is the price, and up to where the cache can be read, for requests of a wire shape.
func (c CachePrices) priceOn(w *llm.Wire) price {
	p := c.price()
	switch {
	case c.LongestPrefix:
	case w.MarkedCacheOnly:
		p.marks = clientMarks
	case c.Lookback > 0:
		p.marks, p.lookback = providerMarks, c.Lookback
	}
	return p
}

// hasDiscount says whether reading from the cache is cheaper than writing to it.
func (p price) hasDiscount() bool { return p.read < p.write }
