package meter

import "math"

// Rates are what a provider charges.
type Rates struct {
	// Write and Read are the prices of writing input to the cache and reading it back, relative to fresh
	// input. Both 0: no discount. Long is Write for entries that live an hour; 0: the same as Write.
	Write, Read, Long float64
	// Input and Output are the prices of a million tokens of fresh input and of output, in the
	// operator's currency; 0: not known.
	Input, Output float64
	// Step re-prices large requests; the zero value is no step.
	Step PriceStep
}

// PriceStep is how a provider charges a request with more than AboveTokens of input: all of it at other prices.
// They are relative to fresh input below the step, and Output to output below it. AboveTokens 0: no step.
type PriceStep struct {
	AboveTokens                      int64
	Input, Write, Read, Long, Output float64
}

// MostCost is what input and output cost at most: all of the input is written to the cache for as long as can be.
func (r Rates) MostCost(input, output int64) Money {
	in, out := r.Input*max(r.Write, r.Long, 1), r.Output
	if s := r.Step; s.AboveTokens > 0 && input > s.AboveTokens {
		in, out = r.Input*max(s.Input, s.Write, s.Long), r.Output*s.Output
	}
	return price(input, in) + price(output, out)
}

func (r Rates) filled() Rates {
	if r.Write == 0 && r.Read == 0 {
		r.Write, r.Read = 1, 1
	}
	if r.Long == 0 {
		r.Long = r.Write
	}
	if s := &r.Step; s.Long == 0 {
		s.Long = s.Write
	}
	return r
}

func (r Rates) discount() bool { return r.Read < r.Write }

// tokenPrices are the prices of a request of one size, relative to fresh input below the price step; output is
// relative to output below it.
type tokenPrices struct{ fresh, write, read, long, output float64 }

// pricesOf returns the prices of a request with this much input.
func (r Rates) pricesOf(input float64) tokenPrices {
	if s := r.Step; s.AboveTokens > 0 && input > float64(s.AboveTokens) {
		return tokenPrices{s.Input, s.Write, s.Read, s.Long, s.Output}
	}
	return tokenPrices{1, r.Write, r.Read, r.Long, 1}
}

// CacheState is what the provider's cache should have of a conversation when its request goes out.
type CacheState uint8

// The states of a cache.
const (
	CacheUnknown  CacheState = iota // not known: the first request that was seen
	CacheWarm                       // it should have the last request
	CacheExpired                    // the last request has expired
	PrefixChanged                   // the client changed what it had sent before
)

// LedgerEntry is one reply of a provider: what it used, and what was done to its request. All numbers of
// tokens except Usage are estimates, of which only the proportions count.
type LedgerEntry struct {
	Tenant, Provider, Model string

	Usage Tokens // reported by the provider
	Rates Rates

	Round          int   // of one client request; rounds after the first read originals back
	PreviousOutput int64 // output that asked for a request which only reads back

	SentTokens     int       // what the model reads of the request; 0: not known
	Cuts           []ToolCut // what was cut from it
	BoundaryMoved  bool      // it cuts something that the last request of the conversation showed
	CacheState     CacheState
	OriginalTokens int  // the request as the client sent it
	PreviousTokens int  // the part of it that the last request of the conversation had
	NothingMarked  bool // the provider caches only what is marked, and no message is marked
	Overhead       RecoveryOverhead

	NotMasking string // why the LLM proxy masked nothing in it, for people; "" if it did
}

// ToolCut is what was cut from the results of one tool.
type ToolCut struct {
	Tool      string
	Results   int // number of results; 0 means 1
	Tokens    int
	NeverSent bool // no request ever showed it: it was cut when it was new
	IsNew     bool // this request is the first that lacks it
	AtHub     bool // the MCP endpoint cut it, before the client had it
}

// RecoveryOverhead is what a request carries only because something was cut, in estimated tokens.
type RecoveryOverhead struct {
	New          int  // results of recover_text that are in a request for the first time
	Old          int  // such results of earlier turns, and the tool definition if the proxy added it
	Uncached     int  // the part of Old that the last request had but did not mark for the cache
	OnlyReadBack bool // nothing but what was read back is new: without cuts there would be no such request
}

const (
	// maxScale bounds the provider's tokens per estimated token: where a request refers to something
	// outside of it (a stored conversation, the URL of a picture), the provider's count says nothing about
	// its text. The bound errs on the side of smaller savings.
	maxScale = 1.5
	// minCachedPrefix is the shortest prefix that providers cache, in tokens.
	minCachedPrefix = 1024
	// hitShare is the part of the expected tokens that must come from the cache for a hit; the rest allows
	// for granularity and estimation errors.
	hitShare = 0.8
)

// Cost is what a reply cost, in tokens of fresh input at the same price.
type Cost struct {
	Billed   int64 // what the provider charged for the input
	Unmasked int64 // what it would have charged without cuts
	Recovery int64 // the part of Billed for reading back

	// RecoveryOutput is the output that asked for originals. Other output costs the same with and without
	// cuts.
	RecoveryOutput int64
}

// Saved is what cutting saved, negative if it cost more.
func (c Cost) Saved() int64 { return c.Unmasked - c.Billed }

// costModel estimates what a request would have cost without cuts, from what the provider reports about the
// request that was made: the tokens of whole results would have been billed too. Their price depends on the
// cache:
//
//   - it had the last request of the conversation: old results would have been read from it, new ones
//     written to it;
//   - it would have had it, but this request cut something that the last one showed, so that the prefix
//     changed: all of the last request would have been read, and only the rest written;
//   - it had nothing, or a part: they would have been read and written in the same proportion.
//
// Where the provider has a price step, the request that was sent is priced by its own size, and the request
// without cuts by the size that it would have had.
type costModel struct {
	LedgerEntry
	prices         tokenPrices
	billed         float64
	input          float64 // tokens
	scale          float64 // tokens of the provider per estimated token
	freshPrice     float64 // price of a token that is not read from the cache
	unmaskedInput  float64 // tokens without cuts
	unmaskedLast   float64 // those of them that the last request had
	expectedCached float64 // tokens that the cache should have had
	oldPrice       float64 // price of a token that an earlier request had
}

func newCostModel(e LedgerEntry) costModel {
	e.Rates = e.Rates.filled()
	e.Usage, e.PreviousOutput = e.Usage.clamped(), min(max(e.PreviousOutput, 0), MaxTokens)
	u := e.Usage
	r := costModel{LedgerEntry: e, input: float64(u.Fresh + u.Cached + u.Created)}
	r.unmaskedInput = r.input
	if e.SentTokens <= 0 {
		return r.pricedAt(r.input)
	}
	r.scale = min(r.input/float64(e.SentTokens), maxScale)
	cut, hidden := -e.Overhead.Old-e.Overhead.New, 0
	for _, c := range e.Cuts {
		cut += c.Tokens
		if !c.IsNew {
			hidden += c.Tokens
		}
	}
	r.unmaskedInput = max(0, r.input+r.scale*float64(cut))
	if came := e.OriginalTokens - e.Overhead.Old - e.Overhead.New; came > 0 {
		r.unmaskedLast = r.unmaskedInput * min(1, float64(max(0, e.PreviousTokens-e.Overhead.Old))/float64(came))
	}
	r.expectedCached = max(0, r.unmaskedLast+r.scale*float64(e.Overhead.Old-e.Overhead.Uncached-hidden))
	return r.pricedAt(r.input)
}

// pricedAt returns the model with the prices of a request of this size.
func (r costModel) pricedAt(input float64) costModel {
	r.prices = r.Rates.pricesOf(input)
	u := r.Usage
	written := r.prices.write*float64(u.Created-u.Long) + r.prices.long*float64(u.Long)
	r.billed = r.prices.fresh*float64(u.Fresh) + written + r.prices.read*float64(u.Cached)
	r.freshPrice = r.prices.fresh
	if u.Created > 0 {
		r.freshPrice = written / float64(u.Created)
	}
	r.oldPrice = r.oldTokenPrice()
	return r
}

// unmasked returns the model with the prices that the request would have had without cuts.
func (r *costModel) unmasked() costModel { return r.pricedAt(r.unmaskedInput) }

// oldTokenPrice is the price of a token that the last request had: it is read from the cache in the same
// proportion as the others.
func (r *costModel) oldTokenPrice() float64 {
	share := 0.0
	switch {
	case r.NothingMarked:
		return r.prices.fresh
	case r.CacheState == CacheWarm && !r.BoundaryMoved:
		share = 1
		if r.missedTokens() > 0 {
			share = float64(r.Usage.Cached) / r.expectedCached
		}
	case r.input > 0:
		share = float64(r.Usage.Cached) / r.input
	}
	return share*r.prices.read + (1-share)*r.freshPrice
}

// missedTokens is the number of tokens that the cache should have had and had not, 0 for a hit.
func (r *costModel) missedTokens() float64 {
	short := min(r.expectedCached-float64(r.Usage.Cached), r.input-float64(r.Usage.Cached))
	ours := r.CacheState == CacheWarm && r.BoundaryMoved // known to be a miss, however small
	if short < minCachedPrefix || !ours && float64(r.Usage.Cached) >= hitShare*r.expectedCached {
		return 0
	}
	return short
}

// SavedParts are the parts of what cutting saved, as in Cost; a part that cost more is negative:
//
//	Unmasked - AtHub - Shortened - Masked - Steps - Cache + Recovery = Billed
type SavedParts struct {
	AtHub     int64 // results that the MCP endpoint cut, at what they would have cost whole
	Shortened int64 // results that the LLM proxy shortened when they were new
	Masked    int64 // old results that it masked
	Steps     int64 // requests that stayed below a price step
	Cache     int64 // the provider's cache: input that was written again because more was masked
}

// Sum is what was saved without what reading back cost.
func (p SavedParts) Sum() int64 { return p.AtHub + p.Shortened + p.Masked + p.Steps + p.Cache }

// of returns the part that a cut belongs to.
func (p *SavedParts) of(c ToolCut) *int64 {
	switch {
	case c.AtHub:
		return &p.AtHub
	case c.NeverSent:
		return &p.Shortened
	}
	return &p.Masked
}

func (r *costModel) cost() (Cost, SavedParts) {
	c := Cost{Billed: roundAmount(r.billed)}
	if r.isRecovery() {
		return r.recoveryRequestCost(c)
	}
	c.Recovery = r.recoveryCost()
	var parts SavedParts
	for _, cut := range r.Cuts {
		*parts.of(cut) += r.cutSaving(cut)
	}
	// First without price steps, then with them.
	sameSteps := c.Billed - c.Recovery + parts.Sum()
	if r.brokeCache() {
		sameSteps = roundAmount(r.costWithoutMove())
	}
	c.Unmasked = sameSteps
	if whole := r.unmasked(); whole.prices != r.prices {
		unmasked := whole.billed - float64(whole.recoveryCost())
		for _, cut := range r.Cuts {
			unmasked += whole.cutWorth(cut)
		}
		if r.brokeCache() {
			unmasked = whole.costWithoutMove()
		}
		c.Unmasked = roundAmount(unmasked)
	}
	parts.Steps = c.Unmasked - sameSteps
	c.Unmasked = max(0, c.Unmasked)
	parts.Cache = c.Unmasked - (c.Billed - c.Recovery + parts.Sum())
	return c, parts
}

// recoveryRequestCost is the cost of a request that would not exist without cuts: all of it was spent on reading
// back. If the cache had expired, the next request would have written the conversation again in its place, whole.
func (r *costModel) recoveryRequestCost(c Cost) (Cost, SavedParts) {
	c.Recovery, c.RecoveryOutput = c.Billed, r.PreviousOutput
	var parts SavedParts
	if short := r.missedTokens(); r.CacheState == CacheExpired && short > 0 {
		again := r.freshPrice - r.prices.read // what writing a token again costs more than reading it
		c.Recovery = max(0, roundAmount(r.billed-again*short))
		for _, cut := range r.Cuts {
			*parts.of(cut) += r.cutSaving(cut)
		}
		c.Unmasked = c.Billed - c.Recovery + parts.Sum()
	}
	return c, parts
}

// recoveryCost is the part of the bill for what is in the request only because something was cut.
func (r *costModel) recoveryCost() int64 {
	b := r.Overhead
	burden := r.scale * (r.oldPrice*float64(b.Old-b.Uncached) + r.freshPrice*float64(b.New+b.Uncached))
	return max(0, min(roundAmount(burden), roundAmount(r.billed)))
}

// outputSaved is what the price step would have added to the reply's output, as a share of its price below the step.
func (r *costModel) outputSaved() float64 {
	if r.isRecovery() {
		return 0
	}
	return r.Rates.pricesOf(r.unmaskedInput).output - r.prices.output
}

// isRecovery says that without cuts this request would not exist.
func (r *costModel) isRecovery() bool { return r.Round > 0 || r.Overhead.OnlyReadBack }

// cutSaving is what a cut saves in this request, apart from what it does to the cache.
func (r *costModel) cutSaving(c ToolCut) int64 {
	switch {
	case !r.isRecovery():
		return roundAmount(r.cutWorth(c))
	case r.CacheState == CacheExpired && !c.IsNew && r.missedTokens() > 0:
		return roundAmount((r.freshPrice - r.prices.read) * r.scale * float64(c.Tokens))
	}
	return 0
}

// cutWorth is what a cut result would have cost whole, if the cut did not change what the cache had.
func (r *costModel) cutWorth(c ToolCut) float64 {
	switch {
	case c.NeverSent && c.IsNew:
		return r.scale * float64(c.Tokens) * r.freshPrice
	case r.brokeCache():
		return r.scale * float64(c.Tokens) * r.prices.read
	}
	return r.scale * float64(c.Tokens) * r.oldPrice
}

// brokeCache says that the cache would have had the last request if this one had not cut more.
func (r *costModel) brokeCache() bool {
	return r.BoundaryMoved && r.CacheState == CacheWarm && !r.NothingMarked
}

// costWithoutMove is what the whole request would have cost with all of the last one in the cache.
func (r *costModel) costWithoutMove() float64 {
	return r.prices.read*r.unmaskedLast + r.freshPrice*(r.unmaskedInput-r.unmaskedLast)
}

// MissCause is why the cache did not have the beginning of a request.
type MissCause uint8

// The causes of misses.
const (
	CacheHit       MissCause = iota
	MissCold                 // the first request of a conversation
	MissExpired              // idle for longer than the cache keeps it
	MissByClient             // the client changed what it had sent
	MissByMasking            // masking cut more than before
	MissByProvider           // none of these: the provider dropped it
	causeCount
)

var causeNames = [causeCount]string{"hit", "cold", "expired", "client", "ours", "other"}

func (c MissCause) String() string { return causeNames[c] }

// MissCauses returns all causes of misses.
func MissCauses() []MissCause {
	return []MissCause{MissCold, MissExpired, MissByClient, MissByMasking, MissByProvider}
}

// missCause returns why the cache did not have what it should have had, and how many tokens were missing.
func (r *costModel) missCause() (MissCause, int64) {
	if !r.Rates.discount() || r.scale == 0 || r.Round > 0 || r.NothingMarked {
		return CacheHit, 0
	}
	if r.CacheState == CacheUnknown {
		if r.Usage.Cached > 0 || r.input < minCachedPrefix {
			return CacheHit, 0
		}
		return MissCold, int64(r.input)
	}
	short := r.missedTokens()
	switch {
	case short == 0:
		return CacheHit, 0
	case r.CacheState == CacheExpired:
		return MissExpired, roundAmount(short)
	case r.CacheState == PrefixChanged:
		return MissByClient, roundAmount(short)
	case r.BoundaryMoved:
		return MissByMasking, roundAmount(short)
	}
	return MissByProvider, roundAmount(short)
}

// maxAmount bounds the amounts of one reply: a float64 holds every integer up to it exactly.
const maxAmount = 1 << 53

// roundAmount rounds an amount. Absurd prices make absurd amounts, which are bounded; NaN is 0.
func roundAmount(amount float64) int64 {
	if math.IsNaN(amount) {
		return 0
	}
	return int64(math.Round(min(max(amount, -maxAmount), maxAmount)))
}

// plus adds two sums, saturating at the ends of int64.
func plus[T ~int64](a, b T) T {
	switch sum := a + b; {
	case a > 0 && b > 0 && sum < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && sum >= 0:
		return math.MinInt64
	default:
		return sum
	}
}
