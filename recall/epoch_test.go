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

// A receipt for an original that the store lost is void: the original is stored again.
func TestLostOriginalsAreStoredAgain(t *testing.T) {
	r, _ := open(t, nil)
	texts, decoded := rawTexts(3)
	first, err := r.StoreAll(t.Context(), "t", texts)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		lost := first[round].ID
		if err := r.store.Drop(t.Context(), r.keysOf("t").groupKey(lost)); err != nil {
			t.Fatal(err)
		}
		if first[round].Valid(time.Now(), r.Epoch(t.Context())) {
			t.Error("the receipt of a lost text is still valid")
		}
		again, err := r.StoreAll(t.Context(), "t", texts)
		if err != nil || again[round].ID != lost {
			t.Fatalf("%v, %v", again, err)
		}
		for i, k := range again {
			if got, err := fetch(t, r, "t", k.ID); err != nil || got != decoded[i] {
				t.Errorf("round %d, text %d: %d bytes of %d, %v", round, i, len(got), len(decoded[i]), err)
			}
		}
	}
}

// At the cap, with a spare time shorter than the usual lifetime of a receipt, no id of an evicted
// original is returned.
func TestEvictedOriginalsAreStoredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := state.Default()
		cfg.MaxBytes, cfg.Spare = 64<<10, unit.Duration(10*time.Second)
		store := state.New(memory.New(), cfg, time.Now)
		defer func() { _ = store.Close() }()
		r, err := New(store, testSecret, Default())
		if err != nil {
			t.Fatal(err)
		}
		texts, decoded := rawTexts(1)
		for i := range 2000 { // others push it out again and again
			if i%7 == 0 {
				receipts, err := r.StoreAll(t.Context(), "t", texts)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := fetch(t, r, "t", receipts[0].ID); err != nil || got != decoded[0] {
					t.Fatalf("after %d texts: %v", i, err)
				}
			}
			if _, err := r.StoreText(t.Context(), "t", fmt.Sprint(strings.Repeat("z", i%500), i), pruned); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i%5) * 200 * time.Millisecond)
		}
	})
}

// A text that is large only because of its escapes is stored as one part.
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
	if err != nil || s.Recoverable != 1 {
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

// Parts on their way to the store are reserved in the caller's memory scope, a few at a time however
// large the text, and freed. Without memory the text goes whole.
func TestPartsUseTheMemoryBudget(t *testing.T) {
	r, _ := open(t, nil)
	text := strings.Repeat("a line of a large file\n", 40<<20/23)
	budget := membudget.New(8 * 4 * partSize)
	scope := budget.Scope("caller")
	ctx := membudget.NewContext(t.Context(), scope)
	if _, err := r.StoreText(ctx, "t", text, pruned); err != nil {
		t.Errorf("40 MiB in parts: %v", err)
	}
	body := quote(text[:5<<20])
	full := membudget.New(4 << 20).Scope("caller")
	if err := full.Reserve(1 << 19); err != nil {
		t.Fatal(err)
	}
	_, got := shrinkIn(membudget.NewContext(t.Context(), full), t, r, body)
	if got.PassedWhole != 1 || fault.KindOf(got.Err) != fault.Full {
		t.Errorf("without memory: %+v", got)
	}
	if stats := budget.Stats(); stats.Held != 0 {
		t.Errorf("%d bytes stay reserved", stats.Held)
	}
}
