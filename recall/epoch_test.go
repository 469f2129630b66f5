package recall

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// An id that the store lost is not given again: what is remembered of it is void.
func TestLostOriginalsAreKeptAgain(t *testing.T) {
	r, _ := open(t, nil)
	texts, said := rawTexts(3)
	first, err := r.KeepAll(t.Context(), "t", texts)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		lost := first[round].ID
		if err := r.store.Drop(t.Context(), r.keysOf("t").group(lost)); err != nil {
			t.Fatal(err)
		}
		if first[round].Holds(time.Now(), r.Epoch(t.Context())) {
			t.Error("what is remembered of a lost text still holds")
		}
		again, err := r.KeepAll(t.Context(), "t", texts)
		if err != nil || again[round].ID != lost {
			t.Fatalf("%v, %v", again, err)
		}
		for i, k := range again {
			if got, err := fetch(t, r, "t", k.ID); err != nil || got != said[i] {
				t.Errorf("round %d, text %d: %d bytes of %d, %v", round, i, len(got), len(said[i]), err)
			}
		}
	}
}

// At the cap, with a spare span that is shorter than anything is remembered for, no id is given that
// the store has evicted.
func TestEvictedOriginalsAreKeptAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := state.Default()
		cfg.MaxBytes, cfg.Spare = 64<<10, unit.Duration(10*time.Second)
		store := state.New(memory.New(), cfg, time.Now)
		defer func() { _ = store.Close() }()
		r, err := New(store, testSecret, Default())
		if err != nil {
			t.Fatal(err)
		}
		texts, said := rawTexts(1)
		for i := range 2000 { // others push it out again and again
			if i%7 == 0 {
				kept, err := r.KeepAll(t.Context(), "t", texts)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := fetch(t, r, "t", kept[0].ID); err != nil || got != said[0] {
					t.Fatalf("after %d texts: %v", i, err)
				}
			}
			if _, err := r.Keep(t.Context(), "t", fmt.Sprint(strings.Repeat("z", i%500), i), pruned); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i%5) * 200 * time.Millisecond)
		}
	})
}

// A text that is large only by its escapes is in the store once.
func TestEscapedTextIsStoredOnce(t *testing.T) {
	var noise strings.Builder // that cannot be compressed
	for i := range 200_000 {
		noise.WriteByte("0123456789abcdefghijklmnopqrstuvwxyz"[(i*i*7+i/3*31+i>>5)%36])
	}
	text := noise.String()
	var escaped strings.Builder
	for _, c := range text {
		fmt.Fprintf(&escaped, `\u%04x`, c)
	}
	r, _ := open(t, nil)
	_, s := shrink(t, r, "t", []byte(`"`+escaped.String()+`"`), DefaultPolicy())
	once, err := r.Stat(t.Context())
	if err != nil || s.Kept != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	plain, _ := open(t, nil)
	shrink(t, plain, "t", quote(text), DefaultPolicy())
	want, _ := plain.Stat(t.Context())
	if once != want {
		t.Errorf("as it came it takes %+v, unescaped %+v", once, want)
	}
	if got, err := fetch(t, r, "t", r.ID("t", text)); err != nil || got != text {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Parts on their way to the store are taken from the caller's share of memory, a few parts at a
// time however large the text, and given back. Where there is not so much, the text goes whole.
func TestPartsAreTakenFromTheMemoryBudget(t *testing.T) {
	r, _ := open(t, nil)
	text := strings.Repeat("a line of a large file\n", 40<<20/23)
	budget := membudget.New(8 * 4 * partSize)
	scope := budget.Scope("caller")
	ctx := membudget.With(t.Context(), scope)
	if _, err := r.Keep(ctx, "t", text, pruned); err != nil {
		t.Errorf("40 MiB in parts: %v", err)
	}
	body := quote(text[:5<<20])
	full := membudget.New(4 << 20).Scope("caller")
	if err := full.Take(1 << 19); err != nil {
		t.Fatal(err)
	}
	_, kept := shrinkIn(membudget.With(t.Context(), full), t, r, body)
	if kept.Whole != 1 || fault.KindOf(kept.Err) != fault.Full {
		t.Errorf("without memory: %+v", kept)
	}
	if stats := budget.Stats(); stats.Held != 0 {
		t.Errorf("%d bytes were not given back", stats.Held)
	}
}
