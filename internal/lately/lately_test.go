package lately

import (
	"hash/maphash"
	"testing"
)

// I9: no more is held than two halves; what is used stays, what is not goes.
func TestHalves(t *testing.T) {
	m := NewMap[int, string](100)
	m.Put(-1, "in use", 1)
	for i := range 10_000 {
		m.Put(i, "x", 10)
		if v, ok := m.Get(-1); !ok || v != "in use" {
			t.Fatalf("what is in use was forgotten after %d", i)
		}
	}
	if n := len(m.young) + len(m.old); n > 22 {
		t.Errorf("%d are remembered", n)
	}
	if _, ok := m.Get(17); ok {
		t.Error("what nobody asked for is still there")
	}
	if _, ok := m.Get(9_999); !ok {
		t.Error("the last is not there")
	}
	m.Put(-2, "too large", 26)
	if _, ok := m.Get(-2); ok {
		t.Error("one that would push the others out was taken")
	}
}

// What is put again counts once.
func TestPutAgain(t *testing.T) {
	m := NewMap[string, int](10)
	for i := range 1000 {
		m.Put("same", i, 2)
		m.Put("other", i, 2)
	}
	if v, ok := m.Get("same"); !ok || v != 999 || m.weight != 4 {
		t.Errorf("%d, %t, weight %d", v, ok, m.weight)
	}
}

func TestMarks(t *testing.T) {
	a, b := NewMarker(), NewMarker()
	text := func(s string) func(*maphash.Hash) { return func(h *maphash.Hash) { _, _ = h.WriteString(s) } }
	x, again := a.Mark(text("x")), a.Mark(text("x"))
	if x != again || x == a.Mark(text("y")) || x == b.Mark(text("x")) {
		t.Error("marks do not tell")
	}
}
