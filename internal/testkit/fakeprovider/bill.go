package fakeprovider

// Prices are relative to a token of fresh input.
type Prices struct {
	// Write and Read are the prices of a token written to and read from the cache.
	Write, Read float64
	// Write1h is the price of a token cached for an hour; when 0, 1.6 times Write, as Anthropic's 2.00 to
	// 1.25.
	Write1h float64
	// Output is the price of an output token; when 0, only input is charged.
	Output float64
	// StepFactor multiplies all prices of a request with more than StepAbove tokens of input; 0: there is no step.
	StepAbove  int
	StepFactor float64
}

// PriceList is a provider's named prices.
type PriceList struct {
	Name   string
	Prices Prices
	// NoCache: the provider has no cache.
	NoCache bool
}

// PriceLists returns the ways in which providers charge for cached prompts.
func PriceLists() []PriceList {
	return []PriceList{
		{Name: "write 1.25, read 0.1", Prices: Prices{Write: 1.25, Read: 0.1}},
		{Name: "write 1, read 0.1", Prices: Prices{Write: 1, Read: 0.1}},
		{Name: "write 1, read 0.5", Prices: Prices{Write: 1, Read: 0.5}},
		{Name: "no cache", Prices: Prices{Write: 1, Read: 1}, NoCache: true},
	}
}

// Usage is what one request was charged, in tokens. CacheWrite1h is input cached for an hour.
type Usage struct {
	Uncached, CacheWrite, CacheWrite1h, CacheRead, Output int

	// Seq is the request's number, from 0.
	Seq   int
	Shape Shape
	Model string
}

// Input is the length of the prompt.
func (e Usage) Input() int { return e.Uncached + e.CacheWrite + e.CacheWrite1h + e.CacheRead }

// Cost is the request's cost, in tokens of uncached input.
func (e Usage) Cost(p Prices) float64 {
	long := p.Write1h
	if long == 0 {
		long = 1.6 * p.Write
	}
	cost := float64(e.Uncached) + p.Write*float64(e.CacheWrite) + long*float64(e.CacheWrite1h) +
		p.Read*float64(e.CacheRead) + p.Output*float64(e.Output)
	if e.IsAboveStep(p) {
		cost *= p.StepFactor
	}
	return cost
}

// IsAboveStep says whether the request is larger than the price step.
func (e Usage) IsAboveStep(p Prices) bool { return p.StepFactor > 0 && e.Input() > p.StepAbove }

// Bill is the usage of each request.
type Bill []Usage

// Total adds up the tokens.
func (l Bill) Total() Usage {
	var t Usage
	for _, e := range l {
		t.Uncached += e.Uncached
		t.CacheWrite += e.CacheWrite
		t.CacheWrite1h += e.CacheWrite1h
		t.CacheRead += e.CacheRead
		t.Output += e.Output
	}
	return t
}

// Cost is the bill's cost at the given prices.
func (l Bill) Cost(p Prices) float64 {
	if p.StepFactor == 0 {
		return l.Total().Cost(p)
	}
	sum := 0.0
	for _, e := range l {
		sum += e.Cost(p)
	}
	return sum
}
