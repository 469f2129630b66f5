package recall

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// process is another process with the same store.
func process(t *testing.T, driver state.Driver, secret []byte, old ...[]byte) *Recall {
	t.Helper()
	r, err := New(state.New(driver, state.Default(), time.Now), secret, Default(), old...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// After a tenant was forgotten, no process reads its originals and records or shows their ids; what it sends again is
// stored again, under the same ids.
func TestForgottenTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.New()
		a, b := process(t, d, testSecret), process(t, d, testSecret)
		texts, decoded := rawTexts(3)
		large := strings.Repeat("a line of a large text\n", 100_000)
		ids := map[string][]string{}
		for _, tenant := range []string{"x", "y"} {
			for _, r := range []*Recall{a, b} {
				receipts, err := r.StoreAll(t.Context(), tenant, texts)
				if err != nil {
					t.Fatal(err)
				}
				ids[tenant] = idsOf(receipts)
				if err := r.PutRecords(t.Context(), tenant, Record{"conversation", []byte("state")}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := a.StoreText(t.Context(), tenant, large, pruned); err != nil {
				t.Fatal(err)
			}
		}
		first, _ := b.StoreAll(t.Context(), "x", texts)
		reads := func(r *Recall, tenant string, want bool) {
			t.Helper()
			for i, id := range ids[tenant] {
				if got, err := fetch(t, r, tenant, id); want && (err != nil || got != decoded[i]) || !want && fault.PublicOf(err) != ErrUnknown.Error() {
					t.Errorf("%s %s: %d bytes, %v; want found %v", tenant, id, len(got), err, want)
				}
			}
			if got, err := fetch(t, r, tenant, r.ID(tenant, large)); want != (err == nil && got == large) {
				t.Errorf("%s, the large text: %d bytes, %v; want found %v", tenant, len(got), err, want)
			}
			if got, err := r.GetRecord(t.Context(), tenant, "conversation"); want != (err == nil && string(got) == "state") {
				t.Errorf("%s, the record: %q, %v; want found %v", tenant, got, err, want)
			}
			if list, err := r.List(t.Context(), tenant, ListRequest{Limit: 100}); err != nil || want != (len(list.Originals) > 0) {
				t.Errorf("%s: %d in the list, %v; want found %v", tenant, len(list.Originals), err, want)
			}
		}
		reads(b, "x", true)
		done, err := a.ring.Forget(t.Context(), "x")
		if err != nil || done.Secrets != 1 || done.Groups < 5 {
			t.Fatalf("%+v, %v", done, err)
		}
		for _, r := range []*Recall{a, b, process(t, d, testSecret)} {
			reads(r, "x", false)
			reads(r, "y", true)
		}
		if entries, err := d.List(t.Context(), state.ListRequest{Prefix: "cut/" + a.keysOf("x").tag, Limit: 10, Now: time.Now()}); err != nil || len(entries) > 0 {
			t.Errorf("%v is left, %v", entries, err)
		}
		if first[0].Valid(time.Now(), b.Epoch(t.Context())) {
			t.Error("a receipt for a forgotten original is valid")
		}
		// The tenant calls again.
		again, err := b.StoreAll(t.Context(), "x", texts)
		if err != nil || fmt.Sprint(idsOf(again)) != fmt.Sprint(ids["x"]) {
			t.Fatalf("%v, %v; want the same ids", again, err)
		}
		if _, err := b.StoreText(t.Context(), "x", large, pruned); err != nil {
			t.Fatal(err)
		}
		if err := b.PutRecords(t.Context(), "x", Record{"conversation", []byte("state")}); err != nil {
			t.Fatal(err)
		}
		reads(a, "x", true)
	})
}

// Whatever moment a tenant is forgotten at: an id that StoreAll returns afterwards can be read back.
func TestForgottenWhileStoring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memory.New()
		a, b := process(t, d, testSecret), process(t, d, testSecret)
		texts, decoded := rawTexts(2)
		ctx, stop := context.WithCancel(t.Context())
		forgets := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
				if _, err := a.ring.Forget(t.Context(), "x"); err != nil {
					t.Error(err)
				}
				forgets++
			}
		}()
		for range 2000 {
			before := b.Epoch(t.Context())
			receipts, err := b.StoreAll(t.Context(), "x", texts)
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range receipts {
				got, err := fetch(t, b, "x", r.ID)
				if b.Epoch(t.Context()) == before && (err != nil || got != decoded[i]) {
					t.Fatalf("%s is shown and cannot be read: %v", r.ID, err)
				}
			}
			time.Sleep(time.Millisecond)
		}
		stop()
		<-done
		if forgets < 5 {
			t.Errorf("forgotten %d times only", forgets)
		}
	})
}

var newSecret = []byte("the root secret after a rotation!")

// While root secrets are rotated, old ids are read, a conversation's bytes change once, and texts that were shortened
// before are not cut again. Without the old secret, old ids are unknown.
func TestRootSecretIsRotated(t *testing.T) {
	d := memory.New()
	body := quote(strings.Repeat("a text of a conversation ", 1000))
	before := process(t, d, testSecret)
	shown, _ := shrink(t, before, "t", body, DefaultPolicy())
	oldID := idIn(t, unquote(t, shown))
	if err := before.PutRecords(t.Context(), "t", Record{"conversation", []byte("state")}); err != nil {
		t.Fatal(err)
	}

	rotating := process(t, d, newSecret, testSecret)
	if got, err := fetch(t, rotating, "t", oldID); err != nil || string(quote(got)) != string(body) {
		t.Errorf("an old id: %d bytes, %v", len(got), err)
	}
	if got, err := rotating.GetRecord(t.Context(), "t", "conversation"); err != nil || string(got) != "state" {
		t.Errorf("an old record: %q, %v", got, err)
	}
	if n, err := rotating.OmittedBytes(t.Context(), "t", shown[1:len(shown)-1]); err != nil || n == 0 {
		t.Errorf("what an old marker omits: %d, %v", n, err)
	}
	small := DefaultPolicy()
	small.MaxChars, small.HeadChars, small.TailChars = 1000, 400, 400
	if _, s := shrink(t, rotating, "t", shown, small); s.AlreadyCut != 1 {
		t.Errorf("a text that was shortened under the old secret is cut again: %+v", s)
	}
	next, _ := shrink(t, rotating, "t", body, DefaultPolicy())
	newID := idIn(t, unquote(t, next))
	if newID == oldID {
		t.Error("new ids are made with the old secret")
	}
	if again, _ := shrink(t, rotating, "t", body, DefaultPolicy()); string(again) != string(next) {
		t.Error("the bytes change a second time")
	}
	if list, err := rotating.List(t.Context(), "t", ListRequest{Limit: 10}); err != nil || len(list.Originals) != 2 {
		t.Errorf("%d in the list, %v; want the old and the new one", len(list.Originals), err)
	}
	if _, err := fetch(t, rotating, "other", oldID); fault.PublicOf(err) != ErrUnknown.Error() {
		t.Errorf("an old id of another tenant: %v", err)
	}

	after := process(t, d, newSecret)
	if last, _ := shrink(t, after, "t", body, DefaultPolicy()); string(last) != string(next) {
		t.Error("the bytes change when the old secret goes")
	}
	for _, id := range []string{oldID, "prn_00000000000000000000000000"} {
		if _, err := fetch(t, after, "t", id); fault.PublicOf(err) != ErrUnknown.Error() {
			t.Errorf("%s without the old secret: %v", id, err)
		}
	}
	if _, err := after.GetRecord(t.Context(), "t", "conversation"); fault.KindOf(err) != fault.UnknownHandle {
		t.Errorf("an old record without the old secret: %v", err)
	}
	if got, err := fetch(t, after, "t", newID); err != nil || string(quote(got)) != string(body) {
		t.Errorf("a new id: %d bytes, %v", len(got), err)
	}
}
