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

// rawTexts are n texts as the insides of JSON strings, and decoded.
func rawTexts(n int) (texts []StoreRequest, decoded []string) {
	for i := range n {
		a, b := strings.Repeat(fmt.Sprintf("line %d é\n", i), 30), fmt.Sprintf("\ttab %d", i)
		texts = append(texts, StoreRequest{Raw: [][]byte{jsonscan.AppendEscaped(nil, a), jsonscan.AppendEscaped(nil, b)}, Origin: pruned})
		decoded = append(decoded, a+"\n"+b)
	}
	return texts, decoded
}

func idsOf(receipts []Receipt) (ids []string) {
	for _, k := range receipts {
		ids = append(ids, k.ID)
	}
	return ids
}

// I1, H+2: the texts of a request are stored in few writes, under their usual ids; stored again within
// the lifetime of a receipt, they cost no writes.
func TestHPlus2StoreAll(t *testing.T) {
	r, driver := open(t, nil)
	texts, decoded := rawTexts(50)
	texts = append(texts, texts[3]) // the same file read twice
	decoded = append(decoded, decoded[3])
	receipts, err := r.StoreAll(t.Context(), "t", texts)
	if err != nil || driver.puts.Load() != 1 {
		t.Fatalf("%v, %d writes", err, driver.puts.Load())
	}
	for i, id := range idsOf(receipts) {
		if got, err := fetch(t, r, "t", id); err != nil || got != decoded[i] || id != r.ID("t", decoded[i]) {
			t.Errorf("%s gives %d bytes of %d, %v", id, len(got), len(decoded[i]), err)
		}
	}
	driver.refuse.Store(true)
	again, err := r.StoreAll(t.Context(), "t", texts)
	if err != nil || fmt.Sprint(idsOf(again)) != fmt.Sprint(idsOf(receipts)) || driver.puts.Load() != 1 {
		t.Errorf("again: %v, %d writes", err, driver.puts.Load())
	}
	if _, err := r.StoreAll(t.Context(), "bob", texts[:1]); err == nil {
		t.Error("the receipt of one tenant is used for another")
	}
}

// I1: a text that the store does not acknowledge gets no id.
func TestI1StoreAllRefused(t *testing.T) {
	r, driver := open(t, nil)
	texts, _ := rawTexts(3)
	driver.refuse.Store(true)
	receipts, err := r.StoreAll(t.Context(), "t", texts)
	if err == nil || strings.Join(idsOf(receipts), "") != "" {
		t.Errorf("%v, %v", receipts, err)
	}
	driver.refuse.Store(false)
	if receipts, err = r.StoreAll(t.Context(), "t", texts); err != nil || receipts[2].ID == "" {
		t.Errorf("%v, %v", receipts, err)
	}
	off, _ := open(t, func(c *Config, _ *state.Config) { c.Enabled = false })
	if receipts, err = off.StoreAll(t.Context(), "t", texts); fault.KindOf(err) != fault.Unavailable || receipts[0].ID != "" {
		t.Errorf("off: %v, %v", receipts, err)
	}
}

// I9: the bytes on their way to the store are bounded, within one request too.
func TestI9StoreAllInParts(t *testing.T) {
	r, driver := open(t, func(c *Config, _ *state.Config) { c.SpillBytes = minSpill })
	var texts []StoreRequest
	for i := range 12 {
		texts = append(texts, StoreRequest{Raw: [][]byte{[]byte(strings.Repeat(fmt.Sprintf("%08d", i), 1<<17))}, Origin: pruned})
	}
	receipts, err := r.StoreAll(t.Context(), "t", texts)
	if err != nil || driver.puts.Load() < 4 {
		t.Fatalf("%v, %d writes", err, driver.puts.Load())
	}
	for i, id := range idsOf(receipts) {
		if got, err := fetch(t, r, "t", id); err != nil || got != string(texts[i].Raw[0]) {
			t.Errorf("text %d: %d bytes, %v", i, len(got), err)
		}
	}
	if !r.spill.TryAcquire(minSpill) {
		t.Error("memory stays reserved")
	}
}

// touchCounter is a driver that counts lease renewals.
type touchCounter struct {
	state.Driver
	touches atomic.Int64
}

func (c *touchCounter) Touch(ctx context.Context, group string, lease state.Lease) (bool, error) {
	c.touches.Add(1)
	return c.Driver.Touch(ctx, group, lease)
}

// I1: after the lifetime of a receipt the store is asked again, so that leases are renewed in time.
func TestI1StoreAllRenewsLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		driver := &touchCounter{Driver: memory.New()}
		store := state.New(driver, state.Default(), time.Now)
		defer func() { _ = store.Close() }()
		r, err := New(store, testSecret, Default())
		if err != nil {
			t.Fatal(err)
		}
		texts, _ := rawTexts(1)
		for range 20 {
			if _, err := r.StoreAll(t.Context(), "t", texts); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		if n := driver.touches.Load(); n < 4 || n > 8 {
			t.Errorf("asked the store %d times in twenty minutes", n)
		}
	})
}

// Records come back unchanged, to their tenant only, and the store holds nothing readable of them.
func TestRecords(t *testing.T) {
	r, driver := open(t, nil)
	if _, err := r.GetRecord(t.Context(), "t", "a talk"); fault.KindOf(err) != fault.UnknownHandle {
		t.Errorf("got %v", err)
	}
	for _, value := range []string{"first", "second", ""} {
		if err := r.PutRecords(t.Context(), "t", Record{"a talk", []byte(value)}, Record{"another", []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if got, err := r.GetRecord(t.Context(), "t", "a talk"); err != nil || string(got) != value {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if _, err := r.GetRecord(t.Context(), "bob", "a talk"); fault.KindOf(err) != fault.UnknownHandle {
		t.Errorf("another tenant got %v", err)
	}
	for _, v := range driver.values {
		if strings.Contains(string(v), "second") || strings.Contains(string(v), "a talk") {
			t.Error("the record is readable in the store")
		}
	}
}
