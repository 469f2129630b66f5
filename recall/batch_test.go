package recall

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// rawTexts are texts as JSON has them, with what each says.
func rawTexts(n int) (texts []Text, said []string) {
	for i := range n {
		a, b := strings.Repeat(fmt.Sprintf("line %d é\n", i), 30), fmt.Sprintf("\ttab %d", i)
		texts = append(texts, Text{Raw: [][]byte{jsonscan.AppendRaw(nil, a), jsonscan.AppendRaw(nil, b)}, From: pruned})
		said = append(said, a+"\n"+b)
	}
	return texts, said
}

func idsOf(kept []Kept) (ids []string) {
	for _, k := range kept {
		ids = append(ids, k.ID)
	}
	return ids
}

// I1, H+2: texts of a request are kept in few writes, under the ids they have anywhere; and for a
// while they cost the store nothing.
func TestHPlus2KeepAll(t *testing.T) {
	r, driver := open(t, nil)
	texts, said := rawTexts(50)
	texts = append(texts, texts[3]) // the same file read twice
	said = append(said, said[3])
	kept, err := r.KeepAll(t.Context(), "t", texts)
	if err != nil || driver.puts.Load() != 1 {
		t.Fatalf("%v, %d writes", err, driver.puts.Load())
	}
	for i, id := range idsOf(kept) {
		if got, err := fetch(t, r, "t", id); err != nil || got != said[i] || id != r.ID("t", said[i]) {
			t.Errorf("%s gives %d bytes of %d, %v", id, len(got), len(said[i]), err)
		}
	}
	driver.refuse.Store(true)
	again, err := r.KeepAll(t.Context(), "t", texts)
	if err != nil || fmt.Sprint(idsOf(again)) != fmt.Sprint(idsOf(kept)) || driver.puts.Load() != 1 {
		t.Errorf("again: %v, %d writes", err, driver.puts.Load())
	}
	if _, err := r.KeepAll(t.Context(), "bob", texts[:1]); err == nil {
		t.Error("what was kept for one tenant counts for another")
	}
}

// I1: what the store does not acknowledge has no id.
func TestI1KeepAllRefused(t *testing.T) {
	r, driver := open(t, nil)
	texts, _ := rawTexts(3)
	driver.refuse.Store(true)
	kept, err := r.KeepAll(t.Context(), "t", texts)
	if err == nil || strings.Join(idsOf(kept), "") != "" {
		t.Errorf("%v, %v", kept, err)
	}
	driver.refuse.Store(false)
	if kept, err = r.KeepAll(t.Context(), "t", texts); err != nil || kept[2].ID == "" {
		t.Errorf("%v, %v", kept, err)
	}
	off, _ := open(t, func(c *Config, _ *state.Config) { c.Enabled = false })
	if kept, err = off.KeepAll(t.Context(), "t", texts); fault.KindOf(err) != fault.Unavailable || kept[0].ID != "" {
		t.Errorf("off: %v, %v", kept, err)
	}
}

// I9: what is on its way at once is bounded, also within one request.
func TestI9KeepAllInParts(t *testing.T) {
	r, driver := open(t, func(c *Config, _ *state.Config) { c.SpillBytes = minSpill })
	var texts []Text
	for i := range 12 {
		texts = append(texts, Text{Raw: [][]byte{[]byte(strings.Repeat(fmt.Sprintf("%08d", i), 1<<17))}, From: pruned})
	}
	kept, err := r.KeepAll(t.Context(), "t", texts)
	if err != nil || driver.puts.Load() < 4 {
		t.Fatalf("%v, %d writes", err, driver.puts.Load())
	}
	for i, id := range idsOf(kept) {
		if got, err := fetch(t, r, "t", id); err != nil || got != string(texts[i].Raw[0]) {
			t.Errorf("text %d: %d bytes, %v", i, len(got), err)
		}
	}
	if !r.spill.TryAcquire(minSpill) {
		t.Error("some of the spill was not given back")
	}
}

// counted is a driver that counts the leases it renews.
type counted struct {
	state.Driver
	touches atomic.Int64
}

func (c *counted) Touch(ctx context.Context, group string, lease state.Lease) (bool, error) {
	c.touches.Add(1)
	return c.Driver.Touch(ctx, group, lease)
}

// I1: what was kept a while ago is asked for again, so that its lease is renewed in time.
func TestI1KeepAllRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &counted{Driver: memory.New()}
		store := state.New(driver, state.Default(), time.Now)
		defer func() { _ = store.Close() }()
		r, err := New(store, testSecret, Default())
		if err != nil {
			t.Fatal(err)
		}
		texts, _ := rawTexts(1)
		for range 20 {
			if _, err := r.KeepAll(t.Context(), "t", texts); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if n := driver.touches.Load(); n < 4 || n > 8 {
			t.Errorf("asked the store %d times in twenty minutes", n)
		}
	})
}

// Notes come back as they were, to their tenant, and say nothing in the store.
func TestNotes(t *testing.T) {
	r, driver := open(t, nil)
	if _, err := r.GetNote(t.Context(), "t", "a talk"); fault.KindOf(err) != fault.Unknown {
		t.Errorf("got %v", err)
	}
	for _, value := range []string{"first", "second", ""} {
		if err := r.PutNotes(t.Context(), "t", Note{"a talk", []byte(value)}, Note{"another", []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if got, err := r.GetNote(t.Context(), "t", "a talk"); err != nil || string(got) != value {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if _, err := r.GetNote(t.Context(), "bob", "a talk"); fault.KindOf(err) != fault.Unknown {
		t.Errorf("another tenant got %v", err)
	}
	for _, v := range driver.values {
		if strings.Contains(string(v), "second") || strings.Contains(string(v), "a talk") {
			t.Error("the store can read it")
		}
	}
}
