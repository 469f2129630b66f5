package llmtest

// Prices are relative to a token of fresh input.
type Prices struct {
	// Write and Read are what a token costs that goes into the cache, and one that comes from it.
	Write, Read float64
	// Long is a token that goes into the cache for an hour; when 0 it is 1.6 times Write, which is
	// Anthropic's 2.00 for 1.25.
	Long float64
	// Output is a token of the answer. At 0 only the input is charged.
	Output float64
}

// Profile is a named price list.
type Profile struct {
	Name   string
	Prices Prices
	// NoCache says that nothing is cached at all.
	NoCache bool
}

// Profiles are the ways in which providers charge for cached prompts.
func Profiles() []Profile {
	return []Profile{
		{Name: "write 1.25, read 0.1", Prices: Prices{Write: 1.25, Read: 0.1}},
		{Name: "write 1, read 0.1", Prices: Prices{Write: 1, Read: 0.1}},
		{Name: "write 1, read 0.5", Prices: Prices{Write: 1, Read: 0.5}},
		{Name: "no cache", Prices: Prices{Write: 1, Read: 1}, NoCache: true},
	}
}

// Entry is what one request was charged, in tokens: fresh input, input written to the cache (for an
// hour: CreatedLong), input read from it, output.
type Entry struct {
	Fresh, Created, CreatedLong, Cached, Output int

	// Seq is the request's number, from 0.
	Seq   int
	Shape Shape
	Model string
}

// Input is the length of the prompt.
func (e Entry) Input() int { return e.Fresh + e.Created + e.CreatedLong + e.Cached }

// Cost is what the entry comes to, in tokens of fresh input.
func (e Entry) Cost(p Prices) float64 {
	long := p.Long
	if long == 0 {
		long = 1.6 * p.Write
	}
	return float64(e.Fresh) + p.Write*float64(e.Created) + long*float64(e.CreatedLong) +
		p.Read*float64(e.Cached) + p.Output*float64(e.Output)
}

// Ledger is a bill.
type Ledger []Entry

// Total adds up the tokens.
func (l Ledger) Total() Entry {
	var t Entry
	for _, e := range l {
		t.Fresh += e.Fresh
		t.Created += e.Created
		t.CreatedLong += e.CreatedLong
		t.Cached += e.Cached
		t.Output += e.Output
	}
	return t
}

// Cost is what the bill comes to at these prices.
func (l Ledger) Cost(p Prices) float64 { return l.Total().Cost(p) }
