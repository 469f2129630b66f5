// Package history decides which old tool results of a conversation a model need not see again,
// and gives the edits that put a short placeholder in their place. It reads the request of any of
// three wire shapes as bytes, and its decisions are a pure replay of the conversation: no clock,
// no store, no network, so that any replica makes the same bytes again.
//
// Path through the files: read.go reads the request; chat.go, messages.go and responses.go what
// is peculiar to each shape; policy.go is the configuration; window.go the rolling window of the
// document; book.go, replay.go and auto.go the policies that move the window less often, to spare the
// provider's prompt cache; plan.go puts these together with what was decided before; failed.go
// tells errors; placeholder.go and handles.go write what stands in a result's place; prefix.go
// names a conversation; replies.go finds what the model said in it and tools.go what it may call;
// goal.go tells what a call was looking for, and reduced.go hears how results were shortened before
// they were masked. recent.go remembers conversations, to read the next request of one faster.
//
// Invariants: no message, block or id is added, removed, moved or changed; only the text of
// results is replaced, and only by something shorter (I5), but where the document's rolling window
// masks short results too (H2). Every other byte stays. A decision depends
// only on the conversation up to the turn at which it was made, and on events the caller kept;
// what is masked stays masked, with the same bytes. What is remembered changes nothing but time.
// Sums are made of whole numbers, so that all machines agree. What is not to be understood is an
// error, and the caller sends it as it came.
package history

import (
	"bytes"
	"time"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Shape is the wire shape of a request.
type Shape uint8

// The shapes.
const (
	Chat      Shape = iota + 1 // OpenAI chat completions
	Messages                   // Anthropic messages
	Responses                  // OpenAI responses
)

func (s Shape) String() string {
	switch s {
	case Chat:
		return "chat"
	case Messages:
		return "messages"
	case Responses:
		return "responses"
	}
	return "unknown"
}

// Unknown is the name of a tool whose call does not name it.
const Unknown = "inconnu"

// Dialogue is one request's conversation, as spans of its body. It is for one goroutine.
type Dialogue struct {
	Shape    Shape
	Model    string
	Stream   bool
	Messages []Message // messages, or items, in order
	Turns    []Turn    // tool turns in order
	Results  []Result  // tool results in order

	// Breakpoint is the last message that carries a cache_control, -1 when none does. What the
	// system prompt and the tools carry stands before every message.
	Breakpoint int

	// Lasts is how long the request asks the provider to keep what it caches; 0 where it does not
	// say, or says no more than the usual. MarkLasts is what the cache_control of Breakpoint asks.
	Lasts, MarkLasts time.Duration

	body  []byte
	edge  int             // offset of the end of the block that Breakpoint is about
	base  int             // bytes of tools and system prompt, which stand in front of the messages
	front []jsonscan.Span // these
	tools jsonscan.Span   // the list of tools; empty where there is none

	reads  bool             // there may be results of reading back
	others []jsonscan.Field // members of the request that nothing here is about
	said   said             // names of its beginnings
	heard  heard            // what the model and the user named

	template template  // the last that results were to be masked by
	booked   *book     // the replay of what was to be masked
	reduced  bool      // results are sent shorter than they came
	renamed  bool      // calls were named again since the last request
	via      string    // who kept originals
	stands   *standing // for Recent to keep
}

// lasting says for how long a cache_control, or something that may hold some, asks; 0 for the usual.
func lasting(raw []byte) time.Duration {
	if bytes.Contains(raw, []byte(`"1h"`)) {
		return time.Hour
	}
	return 0
}

// Message is one message of the conversation, or one item of a responses input.
type Message struct {
	jsonscan.Span
	Bytes int // what it weighs: its bytes without what clients add and take away between turns

	total int // what it and all messages before it weighed as they came
	bare  int // bytes of it and all messages before it that weigh nothing

	spoken bool // by the model or the user, not by a tool
	open   bool // after it, results are still part of the last turn
	mark   mark
}

// mark is the last cache_control of a message.
type mark struct {
	edge  int // where what it is about ends; 0 for none
	lasts time.Duration
}

// Kept is what is known of an original: that the store has it until then, while its epoch is this.
type Kept struct {
	ID    string
	Until time.Time
	Epoch uint64
}

// Turn is a tool turn: a message of the model that calls tools.
type Turn struct {
	Message int // where it begins
	End     int // the message after the results that directly follow it
}

// Result is what a tool answered.
type Result struct {
	Message  int
	CallID   string
	Name     string          // of the tool, Unknown when its call is not there
	Turn     int             // the turn that called it, -1 for an orphan
	Chars    int             // code points of its text, with the line breaks that join its blocks
	Maskable bool            // it is text and nothing else
	Texts    []jsonscan.Span // its text, raw: one span, or one for each of its blocks, which line breaks join

	// Kept is for the caller to remember under which id the original is kept, and until when that
	// is sure. It is as good as new where [Recent] does not remember it.
	Kept Kept

	failed verdicts // what is known of it being an error
	marked bool     // it is marked as one
	bytes  int      // what its content weighs
	less   int      // by how much its text is sent shorter than it came
	before int      // what weighs before it in the conversation
	since  int      // the turn from which on it ages: its own, or a later one when it came late
	call   int      // the number of its call's id
	last   int      // the last turn of the whole conversation that names its id: the document's
	label  string   // the tool's name by the document: the last one given
	gained gained   // what masking it saves
	placed *placed  // what stood in its place when it was last masked
}

// Tokens estimates how many tokens some bytes of a request are.
func Tokens(bytes int) int { return bytes * 10 / 34 }

// Tokens estimates the whole request: tools, system prompt and messages.
func (d *Dialogue) Tokens() int { return Tokens(d.base + d.weigh(len(d.Messages))) }

// TokensUpTo estimates the request that had so many tool turns: up to the results of its last.
func (d *Dialogue) TokensUpTo(turns int) int {
	return Tokens(d.base + d.weigh(d.endOf(min(turns, len(d.Turns)))))
}

// Weightless is how many bytes of the messages weigh nothing: what clients add and take away between
// turns.
func (d *Dialogue) Weightless() int {
	if len(d.Messages) == 0 {
		return 0
	}
	return d.Messages[len(d.Messages)-1].bare
}

func (d *Dialogue) weigh(messages int) int {
	if messages == 0 {
		return 0
	}
	return d.Messages[messages-1].total
}
