package meter

import "math"

// Rates are what a provider charges.
type Rates struct {
	// Write and Read are what input costs that its cache takes in and gives back, relative to fresh
	// input. Both 0: it has no discount. Long is Write for what is kept for an hour; 0 is the same.
	Write, Read, Long float64
	// Input and Output are the prices of a million tokens of fresh input and of output, in the
	// operator's currency; 0 where they are not known.
	Input, Output float64
}

func (r Rates) filled() Rates {
	if r.Write == 0 && r.Read == 0 {
		r.Write, r.Read = 1, 1
	}
	if r.Long == 0 {
		r.Long = r.Write
	}
	return r
}

func (r Rates) discount() bool { return r.Read < r.Write }

// Standing is how a conversation stood to the provider's cache when its request went out.
type Standing uint8

// The standings.
const (
	Unseen  Standing = iota // nobody knows: its first request, or the first that was seen
	Warm                    // the cache should have had the last request
	Expired                 // the cache had forgotten it
	Changed                 // the client had changed what it sent before
)

// Entry is one reply of a provider: what it used, and what had been done to its request. Numbers
// of tokens besides Used are estimates, and only their proportions count.
type Entry struct {
	Tenant, Provider, Model string

	Used  Tokens // as the provider says
	Rates Rates

	Round int   // of one request of a client; those after the first are there to read back
	Asked int64 // output of the round before, which asked for this one

	Sent     int   // what the model reads of the request; 0 where nothing is known of it
	Cuts     []Cut // what was taken out of it
	Moved    bool  // something was taken out that the conversation's last request had shown
	Standing Standing
	Came     int  // the request as the client wrote it
	Before   int  // what of it the conversation's last request had
	Unmarked bool // the provider caches what is marked, and of the messages nothing is
	Burden   Burden
}

// Cut is what was taken out of results of one tool.
type Cut struct {
	Tool    string
	Results int // how many; 0 is one
	Tokens  int
	Born    bool // it never was in a request
	New     bool // no request before this one was without it
}

// Burden is what a request carries only because something is cut, in estimated tokens.
type Burden struct {
	New   int  // results of reading back that are in a request for the first time
	Old   int  // such results of earlier turns, and the tool that reads back where it was added
	Late  int  // what of Old is not in the cache, though the last request had it: it was not marked
	Extra bool // all that is new is what was read back: else there would be no such request
}

const (
	// mostTokens bounds what an estimated token may count for: where a request refers to what is
	// not in it (a stored conversation, a picture's address), the provider's count says nothing of
	// what its text weighs. It errs to the side of smaller savings.
	mostTokens = 1.5
	// leastCached is the shortest prefix that providers cache, and more than the grain in which
	// they do.
	leastCached = 1024
	// hitShare of what the cache should have had must be read from it for a hit: the rest is grain
	// and the error of estimates.
	hitShare = 0.8
)

// Cost is what a reply cost, in tokens of fresh input that cost the same.
type Cost struct {
	Billed   int64 // what the provider charged for the input
	Unmasked int64 // what it would have charged, had nothing been cut
	Recovery int64 // what of Billed was charged for reading back

	// Recalled is the output that asked for what was cut. Output costs the same with and without
	// cuts, but for this.
	Recalled int64
}

// Saved is what cutting saved, less than nothing where it cost more.
func (c Cost) Saved() int64 { return c.Unmasked - c.Billed }

// reckoning is the work on one entry.
//
// Unmasked is found from what the provider says of the request that was made: had the results been
// whole, their tokens would have been billed beside the others. How dear depends on the cache:
//
//   - it had what the conversation's last request left there: old results would have been read
//     from it too, new ones written;
//   - it would have had it, but this request cut what the last one had shown, so that the prefix
//     changed: all of the last request would have been read, and only the rest written;
//   - it had nothing, or a part: they would have been read and written as their surroundings were.
type reckoning struct {
	Entry
	billed float64
	input  float64 // tokens
	scale  float64 // tokens of the provider for an estimated one
	fresh  float64 // the price of what is not read from the cache
	all    float64 // tokens, had nothing been cut
	last   float64 // those of them that were in the last request
	held   float64 // tokens that the cache should have had
	old    float64 // the price of what is older than this request
}

func reckon(e Entry) reckoning {
	e.Rates = e.Rates.filled()
	e.Used, e.Asked = e.Used.clamped(), min(max(e.Asked, 0), MostTokens)
	u := e.Used
	r := reckoning{Entry: e, input: float64(u.Fresh + u.Cached + u.Created), fresh: 1}
	written := e.Rates.Write*float64(u.Created-u.Long) + e.Rates.Long*float64(u.Long)
	r.billed = float64(u.Fresh) + written + e.Rates.Read*float64(u.Cached)
	if u.Created > 0 {
		r.fresh = written / float64(u.Created)
	}
	if e.Sent <= 0 {
		return r
	}
	r.scale = min(r.input/float64(e.Sent), mostTokens)
	cut, hidden := -e.Burden.Old-e.Burden.New, 0
	for _, c := range e.Cuts {
		cut += c.Tokens
		if !c.New {
			hidden += c.Tokens
		}
	}
	r.all = max(0, r.input+r.scale*float64(cut))
	if came := e.Came - e.Burden.Old - e.Burden.New; came > 0 {
		r.last = r.all * min(1, float64(max(0, e.Before-e.Burden.Old))/float64(came))
	}
	r.held = max(0, r.last+r.scale*float64(e.Burden.Old-e.Burden.Late-hidden))
	r.old = r.priceOfOld()
	return r
}

// priceOfOld is what a token would have cost that was in the last request already: as much of it
// is read from the cache as of the others.
func (r *reckoning) priceOfOld() float64 {
	share := 0.0
	switch {
	case r.Unmarked:
		return 1
	case r.Standing == Warm && !r.Moved:
		share = 1
		if r.missed() > 0 {
			share = float64(r.Used.Cached) / r.held
		}
	case r.input > 0:
		share = float64(r.Used.Cached) / r.input
	}
	return share*r.Rates.Read + (1-share)*r.fresh
}

// missed is how many tokens were not read from the cache that it should have had, 0 for a hit.
func (r *reckoning) missed() float64 {
	short := min(r.held-float64(r.Used.Cached), r.input-float64(r.Used.Cached))
	ours := r.Standing == Warm && r.Moved // known to be a miss, so that it need not be a large one
	if short < leastCached || !ours && float64(r.Used.Cached) >= hitShare*r.held {
		return 0
	}
	return short
}

// cost is the whole sum.
func (r *reckoning) cost() Cost {
	c := Cost{Billed: whole(r.billed)}
	if r.forRecovery() {
		c.Recovery, c.Recalled = c.Billed, r.Asked
		return c
	}
	b := r.Burden
	burden := r.scale * (r.old*float64(b.Old-b.Late) + r.fresh*float64(b.New+b.Late))
	c.Recovery = max(0, min(whole(burden), c.Billed))
	unmasked := r.billed
	for _, cut := range r.Cuts {
		unmasked += r.worth(cut)
	}
	if r.rewrote() {
		unmasked = r.unmoved() + burden
	}
	c.Unmasked = max(0, whole(unmasked)-c.Recovery)
	return c
}

// forRecovery says that without cuts there would have been no such request.
func (r *reckoning) forRecovery() bool { return r.Round > 0 || r.Burden.Extra }

// worth is what a cut would have cost whole, where the cut did not change what the cache had.
func (r *reckoning) worth(c Cut) float64 {
	if c.Born && c.New {
		return r.scale * float64(c.Tokens) * r.fresh
	}
	return r.scale * float64(c.Tokens) * r.old
}

// rewrote says that the cache would have had the last request, had this one not cut more.
func (r *reckoning) rewrote() bool { return r.Moved && r.Standing == Warm && !r.Unmarked }

// unmoved is what the request would have cost whole, where everything of the last one would have
// been in the cache.
func (r *reckoning) unmoved() float64 { return r.Rates.Read*r.last + r.fresh*(r.all-r.last) }

// Cause is why a cache did not have what a request began with.
type Cause uint8

// The causes.
const (
	Hit      Cause = iota
	Cold           // the first request of a conversation that was seen
	Lapsed         // idle for longer than the cache lives
	ByClient       // the client changed what it had sent
	ByUs           // more was cut
	ByOther        // none of these: the provider forgot
	causes
)

var causeNames = [causes]string{"hit", "cold", "expired", "client", "ours", "other"}

func (c Cause) String() string { return causeNames[c] }

// Causes are all causes of misses.
func Causes() []Cause { return []Cause{Cold, Lapsed, ByClient, ByUs, ByOther} }

// miss says why a cache did not have what it should have, and of how many tokens.
func (r *reckoning) miss() (Cause, int64) {
	if !r.Rates.discount() || r.scale == 0 || r.Round > 0 || r.Unmarked {
		return Hit, 0
	}
	if r.Standing == Unseen {
		if r.Used.Cached > 0 || r.input < leastCached {
			return Hit, 0
		}
		return Cold, int64(r.input)
	}
	short := r.missed()
	switch {
	case short == 0:
		return Hit, 0
	case r.Standing == Expired:
		return Lapsed, whole(short)
	case r.Standing == Changed:
		return ByClient, whole(short)
	case r.Moved:
		return ByUs, whole(short)
	}
	return ByOther, whole(short)
}

// mostWhole is the largest amount of one reply: a float holds every whole number up to it exactly.
const mostWhole = 1 << 53

// whole rounds an amount. Absurd prices make absurd amounts: those are cut, and what is no number is
// none.
func whole(amount float64) int64 {
	if math.IsNaN(amount) {
		return 0
	}
	return int64(math.Round(min(max(amount, -mostWhole), mostWhole)))
}

// plus adds two sums, and stays at the ends of what can be counted.
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
