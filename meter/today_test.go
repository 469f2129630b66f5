package meter

import (
	"errors"
	"maps"
	"testing"
	"time"
)

func TestTodayEndsAtMidnight(t *testing.T) {
	now := time.Date(2026, 11, 16, 23, 50, 0, 0, time.Local)
	m := &Meter{day: newDayCounter(func() time.Time { return now })}
	m.CountReadBack(10)
	if d := m.Today(); d.ReadBacks != 1 || d.CharsReadBack != 10 || !d.Since.Equal(now) {
		t.Errorf("%+v", d)
	}
	now = now.Add(time.Hour)
	if d := m.Today(); !d.IsZero() || !d.Since.Equal(time.Date(2026, 11, 17, 0, 0, 0, 0, time.Local)) || d.Date != "2026-11-17" {
		t.Errorf("%+v", d)
	}
}

// What two processes count, one after the other or at once, adds up; a store that fails loses nothing.
func TestTodayOutlivesTheProcess(t *testing.T) {
	now := time.Date(2026, 11, 16, 12, 0, 0, 0, time.Local)
	clock := func() time.Time { return now }
	var stored *StoredDay
	save := func(change func(*StoredDay) *StoredDay) error {
		change(stored) // another process may come between: then it is asked again
		if next := change(stored); next != nil {
			copied := StoredDay{next.Day, maps.Clone(next.Processes)}
			stored = &copied
		}
		return nil
	}
	check := func(m *Meter, want int64, since time.Time) {
		t.Helper()
		if d := m.Today(); d.ReadBacks != want || !d.Since.Equal(since) {
			t.Errorf("%d read backs since %v, want %d since %v", d.ReadBacks, d.Since, want, since)
		}
	}
	start := func() *Meter { return &Meter{day: newDayCounter(clock)} }
	saveAll := func(m *Meter) {
		t.Helper()
		if err := m.SaveToday(save); err != nil {
			t.Fatal(err)
		}
	}
	first := start()
	saveAll(first) // so that a gateway that starts later knows since when was counted
	first.CountReadBack(1)
	down := errors.New("down")
	if err := first.SaveToday(func(func(*StoredDay) *StoredDay) error { return down }); !errors.Is(err, down) {
		t.Fatal(err)
	}
	check(first, 1, now)
	if err := first.SaveToday(func(change func(*StoredDay) *StoredDay) error { return errors.Join(save(change), down) }); !errors.Is(err, down) {
		t.Fatal(err)
	}
	first.CountReadBack(1)
	saveAll(first) // the first is stored, though it was not known
	check(first, 2, now)
	saveAll(first)
	check(first, 2, now)
	first.day.count(func(d *Day) { d.ReadBacks-- })
	saveAll(first)
	check(first, 1, now)
	began := now
	now = now.Add(time.Hour)
	second := start()
	saveAll(second)
	check(second, 1, began)
	first.CountReadBack(1)
	second.CountReadBack(1)
	saveAll(first)
	saveAll(second)
	check(second, 3, began)
	if stored.ReadBacks != 3 {
		t.Errorf("%+v", stored)
	}
	// The next day: counted since midnight, as a gateway ran before.
	now = now.Add(24 * time.Hour)
	third := start()
	saveAll(third)
	third.CountReadBack(1)
	check(third, 1, time.Date(2026, 11, 17, 0, 0, 0, 0, time.Local))
	saveAll(third)
	if stored.ReadBacks != 1 || stored.Date != "2026-11-17" {
		t.Errorf("%+v", stored)
	}
}
