// Package masking shortens requests to LLM providers: it masks old tool results, shortens new ones, and stores
// every original first. A result whose original cannot be stored is sent whole.
//
// Path through the files: masking.go has what goes in and comes out, and the prices that decide; mask.go decides
// which old results are masked, with history's plan; conversationstate.go keeps what was decided between
// requests; fit.go keeps requests below the sizes at which they would cost more; newresults.go and resultreducer.go
// shorten results when they are first sent; hubcuts.go finds, for the ledger, what the MCP endpoint cut before.
package masking

import (
	"time"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/prices"
	"github.com/ctxgate/ctxgate/meter"
)

// Request is a request to an LLM provider, before it is sent.
type Request struct {
	Tenant      string
	Scope       string // of the originals: who may read them back
	Codec       llm.Codec
	Model       string
	Provider    string
	Policy      history.Policy    // for its old tool results
	NewResults  NewResults        // for new ones
	CachePrices CachePrices       // what the provider's cache costs
	Price       prices.Price      // of the model, with how its cache works; zero: not known
	Body        []byte            // must not be modified
	Dialogue    *history.Dialogue // nil if it cannot be read
}

// Result is how to shrink a request, and what the ledger needs to know about it.
type Result struct {
	// Edits are the replacements in the body, in order and without overlap.
	Edits []jsonscan.Edit

	OriginalTokens int                    // the request as it came, estimated
	ReadTokens     int                    // the part of it that the model reads
	Cuts           []ToolCut              // what the edits remove
	BoundaryMoved  bool                   // something is masked that the previous request showed
	CacheState     meter.CacheState       // what the provider's cache should have
	PreviousTokens int                    // the conversation's previous request as it came, estimated; 0 without one
	NothingMarked  bool                   // the provider caches only what is marked, and no message is marked
	Overhead       meter.RecoveryOverhead // what is in the request only because something was masked

	NotMasking string // why nothing is masked or shortened, for people; "" if something is

	// Place identifies the conversation of the request, and PlaceBefore that of the request before its last tool
	// turn; zero if there is none.
	Place, PlaceBefore history.Hash

	lastTurns int           // tool turns of the conversation's previous request
	sizeKey   string        // of the conversation in inputCounts; "": it is not counted
	size      history.Event // what it counts
}

// ToolCut is what was cut from the results of one tool.
type ToolCut struct {
	Tool      string
	Results   int
	Tokens    int  // estimated
	NeverSent bool // no request ever showed it: it was cut when it was new
	IsNew     bool // it is cut for the first time
	AtHub     bool // the MCP endpoint cut it, before the client sent it
}

// maxMerged is how many of the last cuts are searched for one of the same tool: a conversation has few tools.
const maxMerged = 8

// addCut adds a cut, merged with one of the same tool and kind.
func addCut(all []ToolCut, c ToolCut) []ToolCut {
	for i := range all[max(0, len(all)-maxMerged):] {
		if same := &all[len(all)-1-i]; same.Tool == c.Tool && same.NeverSent == c.NeverSent && same.IsNew == c.IsNew && same.AtHub == c.AtHub {
			same.Results += c.Results
			same.Tokens += c.Tokens
			return all
		}
	}
	return append(all, c)
}

// measureForLedger sets what the ledger needs to know about a request besides its cuts.
func (s *Result) measureForLedger(dialogue *history.Dialogue) {
	s.NothingMarked = dialogue.Codec.Wire().MarkedCacheOnly && dialogue.Breakpoint < 0
	s.ReadTokens = dialogue.Tokens() - history.Tokens(syntaxBytes(dialogue))
	if n := len(dialogue.Turns); n > 0 {
		s.Place = dialogue.PrefixHash(n)
	}
	s.Overhead.Old = dialogue.RecoveryToolTokens()
	if !dialogue.HasReadBack() {
		return
	}
	newest := len(dialogue.Turns) - 1
	if newest > 0 {
		s.PlaceBefore = dialogue.PrefixHash(newest)
	}
	readBackTokens, otherResults := 0, 0 // of the newest turn
	for i := range dialogue.Results {
		r := &dialogue.Results[i]
		isReadBack, isNewest := recovertool.IsName(r.Name), r.Turn == newest
		switch {
		case isReadBack && isNewest:
			readBackTokens += resultTokens(r)
		case isReadBack:
			s.Overhead.Old += resultTokens(r)
			s.Overhead.Uncached += resultTokens(r)
		case isNewest:
			otherResults++
		default:
			s.Overhead.Uncached = 0
		}
	}
	s.Overhead.OnlyReadBack = readBackTokens > 0 && otherResults == 0
	if s.Overhead.New = readBackTokens; newest < s.lastTurns { // the last request is repeated
		s.Overhead.New, s.Overhead.Old = 0, s.Overhead.Old+readBackTokens
	}
	s.Overhead.Old += callTokens(dialogue)
}

// callTokens estimates the model's messages of earlier turns that did nothing but read back.
func callTokens(dialogue *history.Dialogue) int {
	others := make([]bool, len(dialogue.Turns))
	readBack := make([]bool, len(dialogue.Turns))
	for i := range dialogue.Results {
		if r := &dialogue.Results[i]; r.Turn >= 0 {
			isReadBack := recovertool.IsName(r.Name)
			others[r.Turn], readBack[r.Turn] = others[r.Turn] || !isReadBack, readBack[r.Turn] || isReadBack
		}
	}
	bytes := 0
	for t := range max(0, len(dialogue.Turns)-1) {
		if readBack[t] && !others[t] {
			bytes += max(0, dialogue.ModelBytes(t)-callSyntax)
		}
	}
	return history.Tokens(bytes)
}

// callSyntax is how many bytes of a call with its result are only JSON syntax, beside those of their messages.
const callSyntax = 70

// syntaxBytes is the part of a conversation's size that the model does not read, less what it reads though it
// is not counted: thinking.
func syntaxBytes(dialogue *history.Dialogue) int {
	return dialogue.Codec.Wire().SyntaxBytes*len(dialogue.Messages) + callSyntax*len(dialogue.Results) - dialogue.VolatileBytes()
}

func resultTokens(r *history.Result) int {
	n := 0
	for _, span := range r.Texts {
		n += span.Len()
	}
	return history.Tokens(n)
}

// CachePrices are a provider's prices of cached input, relative to fresh input.
type CachePrices struct {
	// Writing to the cache. Default 1.
	Write float64 `key:"write" min:"0"`
	// Writing to the cache for an hour, if a request asks for that. Default 0: 1.6 times write, as
	// Anthropic charges.
	WriteHour float64 `key:"write_1h" min:"0"`
	// Reading from the cache. Default 1.
	Read float64 `key:"read" min:"0"`
	// How long a cache entry lives; a duration. Default 5m.
	TTL unit.Duration `key:"ttl"`
}

// forPlan is what the plan needs to know about the prices of a request.
func (o *Request) forPlan(dialogue *history.Dialogue) history.CachePrices {
	p := history.CachePrices{
		Write: o.CachePrices.Write, Read: o.CachePrices.Read,
		ContextTokens: o.Price.Context, MinTokens: o.Price.MinTokens, Lookback: o.Price.Lookback, LongestPrefix: o.Price.Cache.FindsPrefixes(),
	}
	if dialogue.BreakpointTTL >= time.Hour {
		p.Write = o.CachePrices.HourlyWrite()
	}
	if step := o.Price.Step; step.AboveTokens > 0 {
		p.Step = history.PriceStep{AboveTokens: step.AboveTokens, Factor: step.Input / o.Price.Input}
	}
	return p
}

// hourFactor is the price of writing for an hour relative to writing.
const hourFactor = 1.6

// HourlyWrite is the price of writing to the cache for an hour.
func (c CachePrices) HourlyWrite() float64 {
	switch {
	case c.WriteHour > 0:
		return c.WriteHour
	case c.Read < c.Write:
		return hourFactor * c.Write
	}
	return c.Write
}
