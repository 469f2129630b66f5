package meter

import (
	"sync"
	"time"
)

// Day is what was cut and read back on one day, in local time.
type Day struct {
	Date  string    `json:"date"`  // 2006-01-02
	Since time.Time `json:"since"` // when the count began: midnight, or later if no gateway had counted before

	TextsCut       int64 `json:"texts_cut"`       // texts of MCP results that were shortened
	CharsCut       int64 `json:"chars_cut"`       // characters left out of them
	ModelRequests  int64 `json:"model_requests"`  // to the LLM endpoint
	MaskedRequests int64 `json:"masked_requests"` // those of them without some tool results
	MaskedTokens   int64 `json:"masked_tokens"`   // what they would have had more, estimated
	ReadBacks      int64 `json:"read_backs"`      // calls of recover_text that were answered
	CharsReadBack  int64 `json:"chars_read_back"`
	SentWhole      int64 `json:"sent_whole"`    // texts not cut because their originals could not be stored
	Unrecoverable  int64 `json:"unrecoverable"` // texts cut for good

	// What replies of models cost and saved, in tokens of fresh input and in millionths of the currency, as in
	// [Account]. Unpriced counts replies without a price.
	Replies       int64 `json:"replies"`
	Unpriced      int64 `json:"unpriced"`
	Billed        int64 `json:"billed"`
	Unmasked      int64 `json:"unmasked"`
	Recovery      int64 `json:"recovery"`
	AtHub         int64 `json:"saved_hub"`
	Shortened     int64 `json:"saved_shortened"`
	Masked        int64 `json:"saved_masked"`
	Steps         int64 `json:"saved_steps"`
	Cache         int64 `json:"saved_cache"`
	Spent         int64 `json:"money_spent"`
	MoneySaved    int64 `json:"money_saved"`
	MoneyRecovery int64 `json:"money_recovery"`
}

func (d *Day) addReply(a Account) {
	d.Add(Day{
		Replies: a.Requests, Unpriced: a.Unpriced, Billed: a.Cost.Billed, Unmasked: a.Cost.Unmasked, Recovery: a.Cost.Recovery,
		AtHub: a.Parts.AtHub, Shortened: a.Parts.Shortened, Masked: a.Parts.Masked, Steps: a.Parts.Steps, Cache: a.Parts.Cache,
		Spent: int64(a.Spent), MoneySaved: int64(a.MoneySaved), MoneyRecovery: int64(a.MoneyRecovery),
	})
}

func (d *Day) counters() []*int64 {
	return []*int64{&d.TextsCut, &d.CharsCut, &d.ModelRequests, &d.MaskedRequests, &d.MaskedTokens, &d.ReadBacks, &d.CharsReadBack, &d.SentWhole, &d.Unrecoverable,
		&d.Replies, &d.Unpriced, &d.Billed, &d.Unmasked, &d.Recovery, &d.AtHub, &d.Shortened, &d.Masked, &d.Steps, &d.Cache, &d.Spent, &d.MoneySaved, &d.MoneyRecovery}
}

// Add adds the counters of another count.
func (d *Day) Add(other Day) {
	sum := d.counters()
	for i, n := range other.counters() {
		*sum[i] = plus(*sum[i], *n)
	}
}

// IsZero reports whether nothing was counted.
func (d Day) IsZero() bool {
	for _, n := range d.counters() {
		if *n != 0 {
			return false
		}
	}
	return true
}

// dayCounter counts for the current day: what this process counted and did not save yet, beside what it and
// others saved.
type dayCounter struct {
	now func() time.Time

	mu      sync.Mutex
	saved   Day
	unsaved Day
	process Day // all days of this process
}

func newDayCounter(now func() time.Time) *dayCounter {
	t := now()
	return &dayCounter{now: now, saved: Day{Date: t.Format(time.DateOnly), Since: t}}
}

// startDay forgets the day before; c.mu is held.
func (c *dayCounter) startDay() {
	t := c.now()
	if date := t.Format(time.DateOnly); date != c.saved.Date {
		year, month, day := t.Date()
		c.saved, c.unsaved = Day{Date: date, Since: time.Date(year, month, day, 0, 0, 0, 0, t.Location())}, Day{}
	}
}

func (c *dayCounter) count(add func(*Day)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startDay()
	var d Day
	add(&d)
	c.unsaved.Add(d)
	c.process.Add(d)
}

// Today is the count of the current day.
func (m *Meter) Today() Day {
	m.day.mu.Lock()
	defer m.day.mu.Unlock()
	m.day.startDay()
	d := m.day.saved
	d.Add(m.day.unsaved)
	return d
}

// SaveToday adds what was counted since the last call to what is stored, so that the count outlives the
// process. stored is what load found; nil for nothing. save gets the sum; what it does not store is counted
// again the next time.
func (m *Meter) SaveToday(stored *Day, save func(Day) error) error {
	m.day.mu.Lock()
	m.day.startDay()
	sum, unsaved := m.day.saved, m.day.unsaved
	m.day.mu.Unlock()
	if stored != nil && stored.Date == sum.Date {
		sum = *stored
	} else {
		// The day is new in the store. If another day is stored, a gateway has counted since before midnight.
		for _, n := range sum.counters() {
			*n = 0
		}
		if stored != nil {
			year, month, day := sum.Since.Date()
			sum.Since = time.Date(year, month, day, 0, 0, 0, 0, sum.Since.Location())
		}
	}
	isNew := stored == nil || stored.Date != sum.Date
	sum.Add(unsaved)
	if !unsaved.IsZero() || isNew {
		if err := save(sum); err != nil {
			return err
		}
	}
	m.day.mu.Lock()
	defer m.day.mu.Unlock()
	if m.day.saved.Date != sum.Date {
		return nil // midnight has passed
	}
	m.day.saved = sum
	counted := m.day.unsaved.counters()
	for i, n := range unsaved.counters() {
		*counted[i] -= *n
	}
	return nil
}

// CountModelRequest counts a request to the LLM endpoint from which tool results of so many tokens were left
// out.
func (m *Meter) CountModelRequest(maskedTokens int) {
	m.day.count(func(d *Day) {
		d.ModelRequests++
		if maskedTokens > 0 {
			d.MaskedRequests++
			d.MaskedTokens += int64(maskedTokens)
		}
	})
}

// CountReadBack counts characters of an original that were read back.
func (m *Meter) CountReadBack(chars int) {
	m.day.count(func(d *Day) {
		d.ReadBacks++
		d.CharsReadBack += int64(chars)
	})
}
