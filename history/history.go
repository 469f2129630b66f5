// Package history decides which old tool results of a conversation are masked, and makes the edits that
// replace them with placeholders. Its decisions are a pure replay of the conversation: no clock, no store,
// no network, so that every replica produces the same bytes.
//
// Path through the files: read.go reads a request with the [llm.Codec] of its wire shape; policy.go is the
// configuration; plan.go decides what is masked. It uses window.go (the document's rolling window),
// replay.go and auto.go (policies that move the window less often, to spare the provider's prompt cache)
// and failed.go (which results look like errors). placeholder.go and identifiers.go write what replaces a
// result, cachemark.go the mark that keeps what precedes it readable from the provider's cache. prefix.go hashes
// the beginnings of a conversation; replies.go finds the model's replies and the offered tools, goal.go the goals
// of calls; whynot.go says why nothing is masked, recoverytool.go how large is what reading back adds.
// conversationcache.go makes reading the next request of a
// conversation faster.
//
// Invariants: no message, block or id is added, removed, moved or changed. Only the text of results is
// replaced, and only by something shorter (I5), except where the document's rolling window masks short
// results too (H2). Every other byte stays; advance = "auto" may add one cache_control, always the same one
// (see Plan.CacheMark). A decision depends only on the conversation up to its turn, and
// on events that the caller stored; what is masked stays masked, with the same bytes (I4). The cache changes
// nothing but time. Amounts are integers, so that all machines agree. A request that cannot be understood
// is an error, and the caller sends it unchanged.
package history

import (
	"time"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// UnknownTool is the name of a tool whose call does not name it.
const UnknownTool = "inconnu"

// Dialogue is one request's conversation, as spans of its body. It is for one goroutine.
type Dialogue struct {
	Codec    llm.Codec
	Model    string
	Stream   bool
	Messages []Message // messages, or items, in order
	Turns    []Turn    // tool turns in order
	Results  []Result  // tool results in order

	// Breakpoint is the last message that carries a cache_control, -1 when none does. What the
	// system prompt and the tools carry stands before every message.
	Breakpoint int

	// CacheTTL is how long the request asks the provider to cache, 0 for the provider's default.
	// BreakpointTTL is what the cache_control of Breakpoint asks.
	CacheTTL, BreakpointTTL time.Duration

	body          []byte
	breakpointEnd int             // where the block that Breakpoint marks ends in body
	base          int             // bytes of tools and system prompt, which stand in front of the messages
	front         []jsonscan.Span // tools and system prompt
	tools         jsonscan.Span   // the list of tools; empty where there is none

	hasReadBack bool             // there may be results of recover_text
	others      []jsonscan.Field // members of the request that are not read
	identifiers identifierUses   // what the model and the user named; nil: not read yet

	prefixes prefixSums
	reduced  bool                // SetReductions was called
	keeper   string              // who stored the originals
	entry    *cachedConversation // for ConversationCache.Put
	resumed  bool                // reading started where an earlier request ended
}

func (d *Dialogue) wire() *llm.Wire { return d.Codec.Wire() }

// Message is one message of the conversation, or one item of a responses input.
type Message struct {
	jsonscan.Span
	Bytes int // its size without what clients add and remove between turns

	total         int // Bytes of it and all messages before it, as they came
	volatileTotal int // the other bytes of it and all messages before it

	spoken bool // by the model or the user, not by a tool
	byUser bool
	prompt jsonscan.Span // the user's text in it, as a JSON string
	open   bool          // after it, results are still part of the last turn
	mark   llm.CacheMark
}

// Stored says that the store has an original until a time, as long as the store has this epoch.
type Stored struct {
	ID    string
	Until time.Time
	Epoch uint64
}

// Omitted says how many bytes were left out of a result before the client had it, once that is known.
type Omitted struct {
	IsKnown bool
	Bytes   int
}

// Turn is a tool turn: a message of the model that calls tools.
type Turn struct {
	Message int // where it begins
	End     int // the message after the results that directly follow it
}

// Result is a tool result.
type Result struct {
	Message  int
	CallID   string
	Name     string          // of the tool; UnknownTool if its call is missing
	Turn     int             // the turn that called it, -1 for none
	Chars    int             // code points of its text, with the line breaks that join its blocks
	textList bool            // it is a list of only texts, which H7 leaves alone in chat completions
	Maskable bool            // it is text and nothing else
	Texts    []jsonscan.Span // its text, raw: one span, or one for each of its blocks, which line breaks join

	// Stored is for the caller: under which id the original is stored. It is empty in a conversation that
	// [ConversationCache] did not know.
	Stored Stored

	// Omitted is for the caller, too: what the MCP endpoint left out of the result.
	Omitted Omitted

	failed      verdictPair      // whether it looks like an error, if that was checked
	marked      bool             // the client marks it as an error
	bytes       int              // size of its content
	reducedBy   int              // bytes by which its text was shortened when it was new
	before      int              // size of the conversation before it
	since       int              // the turn from which its age counts: its own, or a later one if it came late
	callMessage int              // the message that makes its call
	call        int              // the number of its call's id, -1 for none
	last        int              // the last turn of the conversation that uses its id, as the document counts
	label       string           // the tool's name as the document has it: the last one given
	placeholder *placeholderText // what replaced it when it was last masked
}

// Tokens estimates the tokens of so many bytes of a request.
func Tokens(bytes int) int { return bytes * 10 / 34 }

// Tokens estimates the whole request: tools, system prompt and messages.
func (d *Dialogue) Tokens() int { return Tokens(d.base + d.weigh(len(d.Messages))) }

// TokensUpTo estimates the request that ended with the results of the given tool turn.
func (d *Dialogue) TokensUpTo(turns int) int {
	return Tokens(d.base + d.weigh(d.turnEnd(min(turns, len(d.Turns)))))
}

// VolatileBytes is the size of what clients add to messages and remove between turns.
func (d *Dialogue) VolatileBytes() int {
	if len(d.Messages) == 0 {
		return 0
	}
	return d.Messages[len(d.Messages)-1].volatileTotal
}

func (d *Dialogue) weigh(messages int) int {
	if messages == 0 {
		return 0
	}
	return d.Messages[messages-1].total
}

// SetReductions says by how many bytes each result was shortened when it was new (see chat's new results).
// Plans then count what is really sent. By how much a result is shortened must depend on nothing after it,
// nor on whether it could be stored this time: then plans remain a replay. Call it once, before any plan.
func (d *Dialogue) SetReductions(bytes []int) {
	d.reduced = true
	total := 0
	for i := range d.Results {
		r := &d.Results[i]
		r.before -= total
		r.reducedBy = bytes[i]
		d.Messages[r.Message].Bytes -= bytes[i]
		total += bytes[i]
	}
}
