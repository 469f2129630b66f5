package meter

import (
	"crypto/rand"
	"maps"
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

	id      string // of this process
	saves   int64  // its number
	pending *Day   // the part of unsaved that the last save had, if it is not known whether that was stored
}

func newDayCounter(now func() time.Time) *dayCounter {
	t := now()
	return &dayCounter{now: now, id: rand.Text(), saved: Day{Date: t.Format(time.DateOnly), Since: t}}
}

// startDay forgets the day before; c.mu is held.
func (c *dayCounter) startDay() {
	t := c.now()
	if date := t.Format(time.DateOnly); date != c.saved.Date {
		year, month, day := t.Date()
		c.saved, c.unsaved, c.pending = Day{Date: date, Since: time.Date(year, month, day, 0, 0, 0, 0, t.Location())}, Day{}, nil
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

// StoredDay is the count of all processes that share a store.
type StoredDay struct {
	Day

	// Processes is how often each process has added to the count: a process that does not know whether it has added
	// something finds out here.
	Processes map[string]int64 `json:"processes,omitempty"`
}

// maxProcesses bounds the processes of a day that are known; of more, some may add something twice.
const maxProcesses = 1000

// SaveToday adds what was counted since the last call to what is stored, so that the count outlives the
// process. update must call change with what is stored, nil for nothing, and store what that returns unless it is nil. It
// may call it again if another process has stored something meanwhile. What it does not store is counted again the next time.
func (m *Meter) SaveToday(update func(change func(stored *StoredDay) *StoredDay) error) error {
	c := m.day
	c.mu.Lock()
	c.startDay()
	if c.pending == nil {
		pending := c.unsaved
		c.pending = &pending
		c.saves++
	}
	today, pending, id, number := c.saved, *c.pending, c.id, c.saves
	c.mu.Unlock()
	var sum StoredDay
	err := update(func(stored *StoredDay) *StoredDay {
		isNew := stored == nil || stored.Date != today.Date
		if !isNew {
			sum = StoredDay{stored.Day, maps.Clone(stored.Processes)}
			if stored.Processes[id] >= number || pending.IsZero() {
				return nil // it is stored, though the last call did not know
			}
		} else {
			// The day is new in the store. If another day is stored, a gateway has counted since before midnight.
			sum = StoredDay{Day: Day{Date: today.Date, Since: today.Since}}
			if stored != nil {
				year, month, day := today.Since.Date()
				sum.Since = time.Date(year, month, day, 0, 0, 0, 0, today.Since.Location())
			}
		}
		sum.Add(pending)
		if sum.Processes == nil {
			sum.Processes = map[string]int64{}
		}
		for other := range sum.Processes {
			if len(sum.Processes) < maxProcesses {
				break
			}
			delete(sum.Processes, other)
		}
		sum.Processes[id] = number
		return &sum
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.saved.Date != sum.Date {
		return nil // midnight has passed
	}
	c.saved, c.pending = sum.Day, nil
	counted := c.unsaved.counters()
	for i, n := range pending.counters() {
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
