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

// Where there are several tenants, all callers of one get at most half of the slots; a single tenant keeps what its
// callers may have.
func TestSlotsOfTenants(t *testing.T) {
	var s Slots
	for i := range 8 {
		if s.Acquire([]string{"a\x00\x00one", "a\x00\x00two"}[i%2], 8) == nil {
			t.Fatalf("slot %d of a single tenant is refused", i)
		}
	}
	s = Slots{}
	other := s.Acquire("b\x00\x00one", 8)
	var held []func()
	for i := range 4 {
		held = append(held, s.Acquire([]string{"a\x00\x00one", "a\x00\x00two"}[i%2], 8))
		if held[i] == nil {
			t.Fatalf("slot %d of the first half is refused", i)
		}
	}
	if s.Acquire("a\x00\x00three", 8) != nil {
		t.Error("more than half")
	}
	if s.Acquire("b\x00\x00one", 8) == nil {
		t.Error("another tenant got none")
	}
	if held[0](); s.Acquire("a\x00\x00three", 8) == nil {
		t.Error("a released slot is refused")
	}
	if other(); s.byTenant["b"] != 1 {
		t.Errorf("%v", s.byTenant)
	}
	if new(Slots).Acquire("a\x00\x00one", 1) == nil {
		t.Error("the only slot cannot be acquired")
	}
}
