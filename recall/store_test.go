package recall

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/state"
)

var pruned = Origin{Server: "pruner", Tool: "prune_text"}

// P+3, P+4: a plain text comes back byte-exact under its usual id.
func TestPPlus3StoreAndReadBack(t *testing.T) {
	r, driver := open(t, nil)
	for name, text := range map[string]string{
		"empty":         "",
		"short":         "one line",
		"special bytes": "tab\tquote\"slash\\line\r\n\x01é汉😀\n",
		"one part":      strings.Repeat("x", partSize),
		"a bit more":    strings.Repeat("x", partSize) + "é",
		"three parts":   strings.Repeat("a line of a large file\n", 130_000),
	} {
		t.Run(name, func(t *testing.T) {
			id, err := r.StoreText(t.Context(), "t", text, pruned)
			if err != nil || id != r.ID("t", text) {
				t.Fatalf("%s, %v; want %s", id, err, r.ID("t", text))
			}
			if got, err := fetch(t, r, "t", id); err != nil || got != text {
				t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
			}
			before := driver.puts.Load()
			if again, err := r.StoreText(t.Context(), "t", text, pruned); err != nil || again != id || driver.puts.Load() != before {
				t.Errorf("stored again: %s, %v, %d writes", again, err, driver.puts.Load()-before)
			}
			if other := r.ID("bob", text); other == id {
				t.Error("another tenant's id is the same")
			}
			if _, err := fetch(t, r, "bob", id); fault.KindOf(err) != fault.UnknownHandle {
				t.Errorf("another tenant reads it: %v", err)
			}
		})
	}
}

// P+3: a string of a reply and an equal plain text are one original.
func TestPPlus3StoreTextAndShrinkAgree(t *testing.T) {
	r, _ := open(t, nil)
	text := strings.Repeat("the same \"text\"\n", 1000)
	out, _ := shrink(t, r, "t", quote(text), DefaultPolicy())
	id, err := r.StoreText(t.Context(), "t", text, pruned)
	if err != nil || id != idIn(t, unquote(t, out)) {
		t.Errorf("%s, %v; Shrink gave %s", id, err, idIn(t, unquote(t, out)))
	}
	o, err := r.Open(t.Context(), "t", id)
	if err != nil || len(o.Origins) != 2 || o.Origins[1] != pruned {
		t.Errorf("%+v, %v", o, err)
	}
}

// I1: when the text cannot be stored, StoreText returns an error and the id all the same.
func TestI1StoreTextFails(t *testing.T) {
	for name, text := range map[string]string{"small": "some text", "large": strings.Repeat("a line\n", 400_000)} {
		r, driver := open(t, nil)
		driver.refuse.Store(true)
		if id, err := r.StoreText(t.Context(), "t", text, pruned); fault.KindOf(err) != fault.Unavailable || id != r.ID("t", text) {
			t.Errorf("%s, the store refuses: %s, %v", name, id, err)
		}
		driver.refuse.Store(false)
		if id, err := r.StoreText(t.Context(), "t", text, pruned); err != nil {
			t.Errorf("%s, after the store came back: %s, %v", name, id, err)
		}
		off, driver := open(t, func(c *Config, _ *state.Config) { c.Enabled = false })
		if id, err := off.StoreText(t.Context(), "t", text, pruned); fault.KindOf(err) != fault.Unavailable || id != r.ID("t", text) || driver.puts.Load() != 0 {
			t.Errorf("%s, recall is off: %s, %v", name, id, err)
		}
	}
}

// I9: StoreText waits for memory no longer than keep_timeout, and then holds none.
func TestI9StoreTextWaitsForMemory(t *testing.T) {
	r, driver := open(t, func(c *Config, _ *state.Config) {
		c.SpillBytes, c.KeepTimeout = minSpill, unit.Duration(200*time.Millisecond)
	})
	if err := r.spill.Acquire(context.Background(), minSpill); err != nil {
		t.Fatal(err)
	}
	if id, err := r.StoreText(t.Context(), "t", "text", pruned); fault.KindOf(err) != fault.Full || id == "" || driver.puts.Load() != 0 {
		t.Errorf("%s, %v", id, err)
	}
	r.spill.Release(minSpill)
	for range 100 {
		if _, err := r.StoreText(t.Context(), "t", strings.Repeat("y", 3000), pruned); err != nil {
			t.Fatal(err)
		}
	}
	if !r.spill.TryAcquire(minSpill) {
		t.Error("memory stays reserved")
	}
}

// interleavingDriver runs a function once the first part of a text is stored.
type interleavingDriver struct {
	state.Driver
	done atomic.Bool
	do   func()
}

func (m *interleavingDriver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	ok, err := m.Driver.PutIf(ctx, cond, items, lease)
	if !m.done.Swap(true) {
		m.do()
	}
	return ok, err
}

// I1: storing a large text while others store the same text, escaped differently, loses nothing.
func TestI1ConcurrentStoresOfOneText(t *testing.T) {
	text := strings.Repeat("a line of a large file, é\n", 100_000)
	plain := quote(text)
	escaped := bytes.ReplaceAll(plain, []byte("é"), []byte(`\u00e9`))
	keep := func(r *Recall) { _, _ = r.StoreText(context.Background(), "t", text, pruned) }
	cut := func(body []byte) func(*Recall) {
		return func(r *Recall) {
			strs, _, _ := jsonscan.New(body, 0).LongStrings(nil, 4000)
			r.Shrink(context.Background(), ShrinkRequest{Tenant: "t", Origin: Origin{Server: "a", Tool: "b"}, Body: body, Strings: strs}, DefaultPolicy())
		}
	}
	ways := map[string]func(*Recall){"stored": keep, "cut": cut(plain), "cut, escaped": cut(escaped)}
	for a, first := range ways {
		for b, second := range ways {
			// The one is kept while the store has the first part of the other in hand: on a busy
			// machine that takes longer than a store may. What is tried here is not how long.
			patient := state.Default()
			patient.Timeout = unit.Duration(10 * time.Minute)
			r, driver := open(t, func(c *Config, _ *state.Config) { c.KeepTimeout = patient.Timeout })
			r.store = state.New(&interleavingDriver{Driver: driver, do: func() { second(r) }}, patient, time.Now)
			first(r)
			if got, err := fetch(t, r, "t", r.ID("t", text)); err != nil || got != text {
				t.Errorf("%s while %s: %d bytes of %d, %v", b, a, len(got), len(text), err)
			}
		}
	}
}

// A text that is long only because of its escapes is one part, escaped or not.
func TestEscapedTextIsOnePart(t *testing.T) {
	r, _ := open(t, nil)
	text := strings.Repeat("é", 300_000)
	body := []byte(`"` + strings.Repeat(`\u00e9`, 300_000) + `"`)
	_, s := shrink(t, r, "t", body, DefaultPolicy())
	if got, err := fetch(t, r, "t", r.ID("t", text)); err != nil || got != text || s.Recoverable != 1 {
		t.Errorf("%d bytes of %d, %v", len(got), len(text), err)
	}
}
