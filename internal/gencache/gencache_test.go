package gencache

import (
	"hash/maphash"
	"testing"
)

// I9: the cache holds two generations at most; entries in use stay, others go.
func TestGenerations(t *testing.T) {
	m := New[int, string](100)
	m.Put(-1, "in use", 1)
	for i := range 10_000 {
		m.Put(i, "x", 10)
		if v, ok := m.Get(-1); !ok || v != "in use" {
			t.Fatalf("an entry in use was dropped after %d", i)
		}
	}
	if n := len(m.young) + len(m.old); n > 22 {
		t.Errorf("%d entries are cached", n)
	}
	if _, ok := m.Get(17); ok {
		t.Error("an unused entry is still there")
	}
	if _, ok := m.Get(9_999); !ok {
		t.Error("the last is not there")
	}
	m.Put(-2, "too large", 26)
	if _, ok := m.Get(-2); ok {
		t.Error("an entry that pushes out the others was cached")
	}
}

// A key that is put again counts once.
func TestPutAgain(t *testing.T) {
	m := New[string, int](10)
	for i := range 1000 {
		m.Put("same", i, 2)
		m.Put("other", i, 2)
	}
	if v, ok := m.Get("same"); !ok || v != 999 || m.weight != 4 {
		t.Errorf("%d, %t, weight %d", v, ok, m.weight)
	}
}

func TestFingerprints(t *testing.T) {
	a, b := NewHasher(), NewHasher()
	text := func(s string) func(*maphash.Hash) { return func(h *maphash.Hash) { _, _ = h.WriteString(s) } }
	x, again := a.Sum(text("x")), a.Sum(text("x"))
	if x != again || x == a.Sum(text("y")) || x == b.Sum(text("x")) {
		t.Error("fingerprints do not distinguish")
	}
}

func TestClear(t *testing.T) {
	c := New[int, string](2)
	for i := range 4 { // two generations
		c.Put(i, "x", 1)
	}
	c.Clear()
	for i := range 4 {
		if v, ok := c.Get(i); ok {
			t.Errorf("%d is still %q", i, v)
		}
	}
	c.Put(5, "y", 1)
	if v, ok := c.Get(5); !ok || v != "y" {
		t.Errorf("%q, %v after Clear", v, ok)
	}
}
