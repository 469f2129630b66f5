package budget

import (
	"encoding/json"
	"maps"
	"time"
)

// tally is what a tenant has used, as it is stored.
type tally struct {
	Day       string           `json:"day"` // 2006-01-02, in UTC
	UsedDay   Amount           `json:"used_day"`
	Month     string           `json:"month"` // 2006-01
	UsedMonth Amount           `json:"used_month"`
	Held      map[int64]Amount `json:"held,omitempty"` // reserved by requests in flight, by the hour since 1970 in which they began
}

// heldHours is how long a reservation counts after its hour: a process that was killed does not give its own back.
const heldHours = 1

func hourOf(t time.Time) int64 { return t.Unix() / 3600 }

// readTally reads a stored tally. One that cannot be read is empty.
func readTally(raw []byte) tally {
	var t tally
	if json.Unmarshal(raw, &t) != nil {
		return tally{}
	}
	return t
}

// at is the tally at a time: a new day or month begins with nothing used, and reservations of processes that are gone
// are forgotten. Another process whose clock is ahead may have begun a day already.
func (t tally) at(now time.Time) tally {
	now = now.UTC()
	if day := now.Format(time.DateOnly); day > t.Day {
		t.Day, t.UsedDay = day, Amount{}
	}
	if month := now.Format("2006-01"); month > t.Month {
		t.Month, t.UsedMonth = month, Amount{}
	}
	held := map[int64]Amount{}
	for hour, a := range t.Held {
		if hour >= hourOf(now)-heldHours && a != (Amount{}) {
			held[hour] = a
		}
	}
	t.Held = held
	return t
}

// change is what one request, or several, add to a tally.
type change struct {
	used Amount
	held map[int64]Amount
}

func (c *change) addChange(d change) {
	c.used = c.used.sum(d.used)
	if c.held == nil {
		c.held = map[int64]Amount{}
	}
	for hour, a := range d.held {
		old := c.held[hour]
		// A change may be negative: what was reserved before is given back.
		c.held[hour] = Amount{old.Requests + a.Requests, old.Tokens + a.Tokens, old.Money + a.Money}
	}
}

func (c change) negative() change {
	held := map[int64]Amount{}
	for hour, a := range c.held {
		held[hour] = a.negative()
	}
	return change{c.used.negative(), held}
}

// isZero says whether the change changes nothing.
func (c *change) isZero() bool {
	for _, a := range c.held {
		if a != (Amount{}) {
			return false
		}
	}
	return c.used == Amount{}
}

// with is the tally after a change.
func (t tally) with(c change) tally {
	t.UsedDay, t.UsedMonth = t.UsedDay.sum(c.used), t.UsedMonth.sum(c.used)
	t.Held = maps.Clone(t.Held)
	if t.Held == nil {
		t.Held = map[int64]Amount{}
	}
	for hour, a := range c.held {
		if t.Held[hour] = t.Held[hour].sum(a); t.Held[hour] == (Amount{}) {
			delete(t.Held, hour)
		}
	}
	return t
}

// used is what was used of a budget.
func (t tally) used(per string) Amount {
	if per == perMonth {
		return t.UsedMonth
	}
	return t.UsedDay
}

// reserved is what the requests in flight may use.
func (t tally) reserved() Amount {
	var sum Amount
	for _, a := range t.Held {
		sum = sum.sum(a)
	}
	return sum
}

// renewal is when the budget of a day or month renews.
func renewal(per string, now time.Time) time.Time {
	year, month, day := now.UTC().Date()
	if per == perMonth {
		return time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
}
