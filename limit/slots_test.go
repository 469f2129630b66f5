package limit

import "testing"

// One caller gets at most three quarters of the slots, and a released slot can be acquired again.
func TestSlotsLeaveRoomForOthers(t *testing.T) {
	var s Slots
	var held []func()
	for range 6 {
		release := s.Acquire("a", 8)
		if release == nil {
			t.Fatalf("refused with %d in flight", len(held))
		}
		held = append(held, release)
	}
	if s.Acquire("a", 8) != nil {
		t.Error("one caller got more than three quarters")
	}
	if s.Acquire("b", 8) == nil || s.Acquire("c", 8) == nil {
		t.Error("another caller got none")
	}
	if s.Acquire("d", 8) != nil {
		t.Error("more than there are")
	}
	held[0]()
	held[0]() // twice is once
	if s.inFlight != 7 || s.Acquire("a", 8) == nil {
		t.Errorf("%d in flight", s.inFlight)
	}
	if new(Slots).Acquire("a", 1) == nil {
		t.Error("the only slot cannot be acquired")
	}
}
