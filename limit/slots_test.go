package limit

import "testing"

// One caller leaves a quarter of the slots to others, and a slot that is given back is there again.
func TestSlotsLeaveRoomForOthers(t *testing.T) {
	var s Slots
	var held []func()
	for range 6 {
		release := s.Acquire("a", 8)
		if release == nil {
			t.Fatalf("refused with %d under way", len(held))
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
	if s.busy != 7 || s.Acquire("a", 8) == nil {
		t.Errorf("%d under way", s.busy)
	}
	if new(Slots).Acquire("a", 1) == nil {
		t.Error("the only slot is nobody's")
	}
}
