package recall

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

var testSecret = []byte("0123456789abcdef0123456789abcdef")

// faultyDriver is the memory driver, with a Put that can fail or block.
type faultyDriver struct {
	state.Driver
	refuse atomic.Bool   // Put fails
	block  chan struct{} // Put waits for it, when there is one
	puts   atomic.Int64
	under  atomic.Int64
	most   atomic.Int64 // the most bytes ever under way at once

	mu     sync.Mutex
	values [][]byte
}

func (f *faultyDriver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	if strings.HasPrefix(items[0].Key, "tenant/") {
		return f.Driver.PutIf(ctx, cond, items, lease) // the tenant's secret
	}
	f.puts.Add(1)
	var size int64
	f.mu.Lock()
	for _, i := range items {
		size += int64(len(i.Value))
		f.values = append(f.values, []byte(i.Key), []byte(i.Group), i.Value)
	}
	f.mu.Unlock()
	if now := f.under.Add(size); now > f.most.Load() {
		f.most.Store(now)
	}
	defer f.under.Add(-size)
	if f.block != nil {
		select {
		case <-f.block:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if f.refuse.Load() {
		return false, fault.New(fault.Unavailable, "down")
	}
	return f.Driver.PutIf(ctx, cond, items, lease)
}

func open(t testing.TB, mend func(*Config, *state.Config)) (*Recall, *faultyDriver) {
	t.Helper()
	cfg, stateCfg := Default(), state.Default()
	cfg.KeepTimeout, stateCfg.Timeout = unit.Duration(time.Minute), unit.Duration(time.Minute) // the machine may be busy
	if mend != nil {
		mend(&cfg, &stateCfg)
	}
	driver := &faultyDriver{Driver: memory.New()}
	store := state.New(driver, stateCfg, time.Now)
	t.Cleanup(func() { _ = store.Close() })
	r, err := New(store, testSecret, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r, driver
}

// shrinkIn is shrink for the default tenant and policy, in a context.
func shrinkIn(ctx context.Context, t testing.TB, r *Recall, body []byte) ([]byte, ShrinkResult) {
	t.Helper()
	strs, _, err := jsonscan.New(body, 0).LongStrings(nil, DefaultPolicy().MaxChars)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Shrink(ctx, ShrinkRequest{Tenant: "t", Origin: Origin{Server: "srv", Tool: "tool"}, Body: body, Strings: strs}, DefaultPolicy())
	return jsonscan.AppendSpliced(nil, body, s.Edits), s
}

// shrink shortens every long string of a JSON body and returns what a client sees.
func shrink(t testing.TB, r *Recall, tenant string, body []byte, p Policy) ([]byte, ShrinkResult) {
	t.Helper()
	strs, _, err := jsonscan.New(body, 0).LongStrings(nil, p.MaxChars)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Shrink(context.Background(), ShrinkRequest{Tenant: tenant, Origin: Origin{Server: "srv", Tool: "tool"}, Body: body, Strings: strs}, p)
	return jsonscan.AppendSpliced(nil, body, s.Edits), s
}

func quote(text string) []byte {
	b, _ := json.Marshal(text)
	return b
}

func unquote(t testing.TB, body []byte) string {
	t.Helper()
	var s string
	if err := json.Unmarshal(body, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// idIn returns the id in the recover line of a masked text.
func idIn(t testing.TB, masked string) string {
	t.Helper()
	_, rest, ok := strings.Cut(masked, "[recover: prune_id=")
	if !ok {
		t.Fatalf("no recover line in %.300q", masked)
	}
	id, _, _ := strings.Cut(rest, " ")
	return id
}

func fetch(t testing.TB, r *Recall, tenant, id string) (string, error) {
	t.Helper()
	o, err := r.Open(context.Background(), tenant, id)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := o.WriteText(context.Background(), &b); err != nil {
		return "", err
	}
	if int64(b.Len()) != o.Bytes {
		t.Errorf("%d bytes, manifest says %d", b.Len(), o.Bytes)
	}
	return b.String(), nil
}

// G+1: a masked text comes back byte-exact, whatever it holds, of one part or of many.
func TestGPlus1RecoversByteExact(t *testing.T) {
	r, _ := open(t, nil)
	for name, text := range map[string]string{
		"plain":        strings.Repeat("plain text ", 1000),
		"escapes":      strings.Repeat("tab\tquote\"slash\\line\n\x01", 400),
		"astral":       strings.Repeat("😀é汉", 2000),
		"three parts":  strings.Repeat("a line of a large file, \"quoted\"\n", 80_000),
		"plain parts":  strings.Repeat("0123456789abcdef", 200_000),
		"mixed widths": strings.Repeat("é\n汉", 400_000),
	} {
		t.Run(name, func(t *testing.T) {
			out, s := shrink(t, r, "t", quote(text), DefaultPolicy())
			if s.Recoverable != 1 || s.PassedWhole+s.Unrecoverable+s.AlreadyCut != 0 || s.Err != nil {
				t.Fatalf("%+v", s)
			}
			got, err := fetch(t, r, "t", idIn(t, unquote(t, out)))
			if err != nil || got != text {
				t.Errorf("got %d bytes of %d, %v", len(got), len(text), err)
			}
		})
	}
}

// G+1: recover_line = false leaves the bare marker.
func TestGPlus1BareForm(t *testing.T) {
	r, _ := open(t, nil)
	p := DefaultPolicy()
	p.RecoverLine = false
	text := strings.Repeat("x", 5000)
	out, s := shrink(t, r, "t", quote(text), p)
	want := text[:2000] + "\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=5000 head=2000 tail=2000] ...\n" + text[:2000]
	if unquote(t, out) != want || s.Recoverable != 1 {
		t.Errorf("%+v, %q", s, unquote(t, out)[1990:2110])
	}
}

// I2: the same text gives the same bytes in another process; another tenant or secret does not.
func TestIDsAreDeterministic(t *testing.T) {
	body := quote(strings.Repeat("same text ", 1000))
	a, _ := open(t, nil)
	b, _ := open(t, nil)
	outA, _ := shrink(t, a, "t", body, DefaultPolicy())
	outB, _ := shrink(t, b, "t", body, DefaultPolicy())
	again, _ := shrink(t, a, "t", body, DefaultPolicy())
	if !bytes.Equal(outA, outB) || !bytes.Equal(outA, again) {
		t.Error("the same text gave different bytes")
	}
	// The same text, escaped differently, is the same text.
	escaped := bytes.ReplaceAll(body, []byte("s"), []byte(`\u0073`))
	if outC, _ := shrink(t, a, "t", escaped, DefaultPolicy()); idIn(t, unquote(t, outC)) != idIn(t, unquote(t, outA)) {
		t.Error("escapes changed the id")
	}
	other, _ := shrink(t, a, "other", body, DefaultPolicy())
	b, err := New(b.store, []byte("another secret of at least 32 bytes"), Default())
	if err != nil {
		t.Fatal(err)
	}
	third, _ := shrink(t, b, "t", body, DefaultPolicy())
	ids := map[string]bool{idIn(t, unquote(t, outA)): true, idIn(t, unquote(t, other)): true, idIn(t, unquote(t, third)): true}
	if len(ids) != 3 {
		t.Errorf("ids %v", ids)
	}
}

// I8: the id of another tenant, a malformed one and an expired one get the same error.
func TestIDOfAnotherTenantIsUnknown(t *testing.T) {
	now := time.Now()
	r, driver := open(t, nil)
	r.store = state.New(driver, state.Default(), func() time.Time { return now })
	out, _ := shrink(t, r, "alice", quote(strings.Repeat("secret ", 1000)), DefaultPolicy())
	id := idIn(t, unquote(t, out))
	if _, err := fetch(t, r, "alice", strings.ToUpper(id)); err != nil {
		t.Errorf("ids are case-insensitive on input: %v", err)
	}
	for _, tt := range []struct{ tenant, id string }{
		{"bob", id}, {"alice", "prn_00000000000000000000000000"}, {"alice", "prn_"}, {"alice", "x"}, {"alice", id + "0"}, {"", id},
	} {
		_, err := fetch(t, r, tt.tenant, tt.id)
		if fault.KindOf(err) != fault.UnknownHandle || fault.PublicOf(err) != ErrUnknown.Error() {
			t.Errorf("%s/%s: %v", tt.tenant, tt.id, err)
		}
	}
	now = now.Add(8 * 24 * time.Hour)
	if _, err := fetch(t, r, "alice", id); fault.PublicOf(err) != ErrUnknown.Error() {
		t.Errorf("expired: %v", err)
	}
}

// Showing a text again renews its lease.
func TestShowingRenewsTheLease(t *testing.T) {
	now := time.Now()
	r, driver := open(t, nil)
	r.store = state.New(driver, state.Default(), func() time.Time { return now })
	for _, body := range [][]byte{quote(strings.Repeat("small ", 1000)), quote(strings.Repeat("large line\n", 200_000))} {
		out, _ := shrink(t, r, "t", body, DefaultPolicy())
		id := idIn(t, unquote(t, out))
		for range 3 {
			now = now.Add(5 * 24 * time.Hour)
			shrink(t, r, "t", body, DefaultPolicy())
		}
		now = now.Add(5 * 24 * time.Hour)
		if _, err := fetch(t, r, "t", id); err != nil {
			t.Errorf("shown again 5 days ago: %v", err)
		}
		now = now.Add(5 * 24 * time.Hour)
		if _, err := fetch(t, r, "t", id); err != nil {
			t.Errorf("read 5 days ago: %v", err)
		}
	}
}

// A text that comes again, from another origin, at the end of its lease must not lose its parts while
// its manifest is rewritten.
func TestLeaseIsRenewedBeforeItIsReliedOn(t *testing.T) {
	now := time.Now()
	r, driver := open(t, func(c *Config, _ *state.Config) { c.KeepTimeout = unit.Duration(time.Minute) })
	stateCfg := state.Default()
	stateCfg.Timeout = unit.Duration(time.Minute) // of real time; only the leases follow now
	r.store = state.New(&slowDriver{driver, &now}, stateCfg, func() time.Time { return now })
	body := quote(strings.Repeat("a line of a large file\n", 100_000))
	strs, _, _ := jsonscan.New(body, 0).LongStrings(nil, 4000)
	r.Shrink(context.Background(), ShrinkRequest{Tenant: "t", Origin: Origin{Server: "a", Tool: "x"}, Body: body, Strings: strs}, DefaultPolicy())
	now = now.Add(state.Default().TTL.D() - time.Second)
	s := r.Shrink(context.Background(), ShrinkRequest{Tenant: "t", Origin: Origin{Server: "b", Tool: "y"}, Body: body, Strings: strs}, DefaultPolicy())
	if s.Recoverable != 1 {
		t.Fatalf("%+v", s)
	}
	masked := unquote(t, jsonscan.AppendSpliced(nil, body, s.Edits))
	if got, err := fetch(t, r, "t", idIn(t, masked)); err != nil || got != unquote(t, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// slowDriver takes two seconds for each Get.
type slowDriver struct {
	state.Driver
	now *time.Time
}

func (s *slowDriver) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	*s.now = s.now.Add(2 * time.Second)
	return s.Driver.Get(ctx, group, key, now)
}

// The same text is stored once, and a large one is not even compressed again.
func TestSameTextIsStoredOnce(t *testing.T) {
	r, driver := open(t, nil)
	body := quote(strings.Repeat("a line of a large file\n", 100_000))
	shrink(t, r, "t", body, DefaultPolicy())
	before, _ := r.Stat(context.Background())
	puts := driver.puts.Load()
	shrink(t, r, "t", body, DefaultPolicy())
	after, _ := r.Stat(context.Background())
	if before != after || driver.puts.Load() != puts {
		t.Errorf("%+v then %+v, %d puts more", before, after, driver.puts.Load()-puts)
	}
}

// An original keeps all its origins, so that a read can check today's rules.
func TestOriginsAreAdded(t *testing.T) {
	r, _ := open(t, nil)
	body := quote(strings.Repeat("shared text ", 1000))
	strs, _, _ := jsonscan.New(body, 0).LongStrings(nil, 4000)
	var id string
	for _, from := range []Origin{{Server: "a", Tool: "x"}, {Server: "b", Tool: "y"}, {Server: "a", Tool: "x"}} {
		s := r.Shrink(context.Background(), ShrinkRequest{Tenant: "t", Origin: from, Body: body, Strings: strs}, DefaultPolicy())
		id = idIn(t, unquote(t, jsonscan.AppendSpliced(nil, body, s.Edits)))
	}
	o, err := r.Open(context.Background(), "t", id)
	if err != nil || fmt.Sprint(o.Origins) != "[{a x   } {b y   }]" {
		t.Errorf("%v, %v", o.Origins, err)
	}
}

// A result is cut once, whichever endpoints it passes: a shortened text stays as it is, with a recover
// line or without; a text that only looks like one is cut.
func TestGPlus3CutOnce(t *testing.T) {
	r, _ := open(t, nil)
	for _, line := range []bool{true, false} {
		p := DefaultPolicy()
		p.RecoverLine = line
		text := strings.Repeat("some text\n", 1000) + fmt.Sprint(line)
		once, _ := shrink(t, r, "t", quote(text), p)
		twice, s := shrink(t, r, "t", once, p)
		if !bytes.Equal(once, twice) || s.AlreadyCut != 1 || s.Recoverable != 0 {
			t.Errorf("line=%v: cut again: %+v", line, s)
		}
		forged := bytes.Replace(once, []byte("some text"), []byte("same text"), 1)
		if out, s := shrink(t, r, "t", forged, p); bytes.Equal(out, forged) || s.AlreadyCut != 0 || s.Recoverable != 1 {
			t.Errorf("line=%v: a forgery passed: %+v", line, s)
		}
		if out, s := shrink(t, r, "bob", once, p); bytes.Equal(out, once) || s.Recoverable != 1 {
			t.Errorf("line=%v: another tenant's text passed for his own: %+v", line, s)
		}
	}
}

// S6: the store holds nothing readable.
func TestStoreHoldsOnlyCiphertext(t *testing.T) {
	r, driver := open(t, nil)
	const canary = "canary-5f1c"
	shrink(t, r, "tenant-canary", quote(strings.Repeat(canary+" ", 1000)), DefaultPolicy())
	shrink(t, r, "tenant-canary", quote(strings.Repeat(canary+"\n", 200_000)), DefaultPolicy())
	for _, v := range driver.values {
		for _, secret := range []string{canary, "tenant-canary", "srv", "tool"} {
			if bytes.Contains(v, []byte(secret)) {
				t.Fatalf("%q is readable in the store", secret)
			}
		}
	}
}

// A body full of long strings costs a few writes, not one for each string.
func TestManyStringsAreStoredTogether(t *testing.T) {
	r, driver := open(t, nil)
	var list []string
	for i := range 400 {
		list = append(list, strings.Repeat(fmt.Sprintf("string %d ", i), 600))
	}
	list = append(list, list[0]) // and one of them twice
	body, _ := json.Marshal(list)
	out, s := shrink(t, r, "t", body, DefaultPolicy())
	if s.Recoverable != 401 || driver.puts.Load() > 20 {
		t.Errorf("%d stored in %d writes", s.Recoverable, driver.puts.Load())
	}
	var masked []string
	if err := json.Unmarshal(out, &masked); err != nil {
		t.Fatal(err)
	}
	for i, m := range masked {
		if got, err := fetch(t, r, "t", idIn(t, m)); err != nil || got != list[i] {
			t.Fatalf("string %d: %v", i, err)
		}
	}
}

func TestRecallDisabled(t *testing.T) {
	r, driver := open(t, func(c *Config, _ *state.Config) { c.Enabled = false })
	out, s := shrink(t, r, "t", quote(strings.Repeat("x", 5000)), DefaultPolicy())
	if s.Unrecoverable != 1 || driver.puts.Load() != 0 || strings.Contains(unquote(t, out), "prune_id") || !bytes.Contains(out, []byte("KIMI_PROXY_OBSERVATION_MASKED")) {
		t.Errorf("%+v", s)
	}
	if out, s := shrink(t, r, "t", quote("short"), DefaultPolicy()); string(out) != `"short"` || s.Edits != nil {
		t.Errorf("%+v", s)
	}
}

func TestNewRefusesAShortSecret(t *testing.T) {
	if _, err := New(nil, []byte("short"), Default()); err == nil {
		t.Error("accepted")
	}
}

func TestConfigValidate(t *testing.T) {
	if got := append(Default().Validate(), DefaultPolicy().Validate()...); len(got) != 0 {
		t.Errorf("the defaults are refused: %v", got)
	}
	if got := (Config{}).Validate(); len(got) != 3 {
		t.Errorf("got %v", got)
	}
}
