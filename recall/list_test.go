package recall

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/linesearch"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// openWithClock is a Recall whose store has this clock.
func openWithClock(t *testing.T, driver state.Driver, now *time.Time) *Recall {
	t.Helper()
	store := state.New(driver, state.Default(), func() time.Time { return *now })
	t.Cleanup(func() { _ = store.Close() })
	r, err := New(store, testSecret, Default())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func storeResult(t *testing.T, r *Recall, tenant, callID, text string, from Origin) string {
	t.Helper()
	got, err := r.StoreAll(t.Context(), tenant, []StoreRequest{{Raw: [][]byte{jsonscan.AppendEscaped(nil, text)}, Origin: from, CallID: callID}})
	if err != nil {
		t.Fatal(err)
	}
	return got[0].ID
}

func list(t *testing.T, r *Recall, tenant string, req ListRequest) List {
	t.Helper()
	if req.Limit == 0 {
		req.Limit = 50
	}
	got, err := r.List(t.Context(), tenant, req)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// summary is "id call server/tool" of each entry, with ids in short.
func summary(l List, names map[string]string) string {
	var out []string
	for _, e := range l.Originals {
		out = append(out, strings.TrimSpace(names[e.ID]+" "+e.Call.ID+" "+e.Call.Server+"/"+e.Call.Tool))
	}
	return strings.Join(out, "; ")
}

func TestListNewestCallFirst(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	r := openWithClock(t, memory.New(), &now)
	names := map[string]string{}
	for i := range 5 {
		names[storeResult(t, r, "t", fmt.Sprint("toolu_", i), fmt.Sprintf("\n{\n  text %d\n", i), Origin{Server: "llm:anthropic", Tool: "Bash"})] = fmt.Sprint(i)
		now = now.Add(time.Hour)
	}
	if got, want := summary(list(t, r, "t", ListRequest{Limit: 3}), names), "4 toolu_4 llm:anthropic/Bash; 3 toolu_3 llm:anthropic/Bash; 2 toolu_2 llm:anthropic/Bash"; got != want {
		t.Errorf("got %s", got)
	}
	if got := list(t, r, "t", ListRequest{Limit: 3}); !got.More {
		t.Error("the list does not say that there is more")
	}
	since := list(t, r, "t", ListRequest{Since: now.Add(-2 * time.Hour)})
	if len(since.Originals) != 2 || since.More {
		t.Errorf("since: %+v", since)
	}
	first := since.Originals[0]
	if first.Text != "text 4" || first.Line != 3 || first.Chars != 12 || first.Bytes != 12 || !first.Call.At.Equal(now.Add(-time.Hour)) {
		t.Errorf("%+v", first)
	}
	if got := list(t, r, "other tenant", ListRequest{}); len(got.Originals) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
	if got := list(t, r, "other tenant", ListRequest{CallID: "toolu_1"}); len(got.Originals) != 0 {
		t.Errorf("another tenant sees %+v", got)
	}
}

// Two servers, or two calls, whose results say the same: each call is found, and leads to the one text.
func TestListTwoCallsWithOneText(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	driver := &faultyDriver{Driver: memory.New()}
	r := openWithClock(t, driver, &now)
	text := [][]byte{[]byte("the same text")}
	bash, read := Origin{Server: "llm:p", Tool: "Bash"}, Origin{Server: "files", Tool: "read"}
	batch := []StoreRequest{{Raw: text, Origin: bash, CallID: "call_1"}, {Raw: text, Origin: bash, CallID: "call_2"}, {Raw: text, Origin: bash, CallID: "call_1"}}
	receipts, err := r.StoreAll(t.Context(), "t", batch)
	if err != nil || receipts[1].ID != receipts[0].ID {
		t.Fatal(receipts, err)
	}
	if n := driver.puts.Load(); n != 1 {
		t.Errorf("%d writes for one request; want 1", n)
	}
	if id := storeResult(t, r, "t", "", "the same text", read); id != receipts[0].ID {
		t.Fatal(id)
	}
	for _, call := range []string{"call_1", "call_2"} {
		got := list(t, r, "t", ListRequest{CallID: call})
		if len(got.Originals) != 1 || got.Originals[0].ID != receipts[0].ID || got.Originals[0].Call.ID != call || got.Originals[0].Call.Origin != bash {
			t.Errorf("%s: %+v", call, got)
		}
	}
	if got := list(t, r, "t", ListRequest{}); len(got.Originals) != 3 {
		t.Errorf("%+v", got)
	}
	// The same conversation on its next turns, in this process and in the next: nothing is written.
	before := driver.puts.Load()
	for range 2 {
		r = openWithClock(t, driver, &now)
		if _, err := r.StoreAll(t.Context(), "t", batch); err != nil {
			t.Fatal(err)
		}
		storeResult(t, r, "t", "", "the same text", read)
	}
	if n := driver.puts.Load() - before; n != 0 {
		t.Errorf("%d writes for what is stored", n)
	}
}

// One call may have several texts, and a provider may use an id again.
func TestListSeveralTextsOfOneCall(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	r := openWithClock(t, memory.New(), &now)
	var want []string
	for i := range 3 {
		want = append(want, storeResult(t, r, "t", "call_0", fmt.Sprint("text ", i), pruned))
		now = now.Add(time.Second)
	}
	var got []string
	for _, e := range list(t, r, "t", ListRequest{CallID: "call_0"}).Originals {
		got = append(got, e.ID)
	}
	if slices.Reverse(want); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := list(t, r, "t", ListRequest{CallID: "call_0", Limit: 2}); len(got.Originals) != 2 || !got.More {
		t.Errorf("%+v", got)
	}
}

// A tool without call ids that returns the same text again a day later is listed under today.
func TestListTextThatCameAgain(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	driver := memory.New()
	r := openWithClock(t, driver, &now)
	storeResult(t, r, "t", "", "again and again", pruned)
	now = now.Add(20 * time.Hour)
	storeResult(t, r, "t", "", "between", pruned)
	now = now.Add(4 * time.Hour)
	r = openWithClock(t, driver, &now)
	storeResult(t, r, "t", "", "again and again", pruned)
	got := list(t, r, "t", ListRequest{})
	if len(got.Originals) != 2 || got.Originals[0].Text != "again and again" || !got.Originals[0].Call.At.Equal(now) {
		t.Errorf("%+v", got)
	}
}

func TestListSearchesTextsWithinItsLimit(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	r := openWithClock(t, memory.New(), &now)
	for i := range 10 {
		storeResult(t, r, "t", fmt.Sprint(i), fmt.Sprintf("first\nsecond\npanic: %d\n%s\npanic again", i, strings.Repeat("line\n", 2000)), pruned)
		now = now.Add(time.Minute)
	}
	pattern, err := linesearch.Compile(`panic: [2468]`)
	if err != nil {
		t.Fatal(err)
	}
	got := list(t, r, "t", ListRequest{Pattern: pattern, MaxBytes: 1 << 20})
	var lines []string
	for _, e := range got.Originals {
		lines = append(lines, fmt.Sprint(e.Line, " ", e.Text))
	}
	if want := "3 panic: 8,3 panic: 6,3 panic: 4,3 panic: 2"; strings.Join(lines, ",") != want || got.Stopped || got.Searched < 100_000 {
		t.Errorf("%v, %+v", lines, got)
	}
	got = list(t, r, "t", ListRequest{Pattern: pattern, MaxBytes: 35_000})
	if len(got.Originals) != 1 || !got.Stopped || got.Searched > 35_000 {
		t.Errorf("%+v", got)
	}
}

// An original that an earlier version stored has no call: it is listed after the others, the last used
// first.
func TestListOriginalsOfEarlierVersions(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	driver := &withoutCalls{Driver: memory.New()}
	driver.drop = true
	r := openWithClock(t, driver, &now)
	names := map[string]string{}
	for i := range 5 {
		names[storeResult(t, r, "t", "lost", fmt.Sprint("old ", i), Origin{Server: "files", Tool: "read"})] = fmt.Sprint("old", i)
		now = now.Add(24 * time.Hour)
	}
	storeResult(t, r, "t", "", strings.Repeat("0123456789abcdef", 3*partSize/16), Origin{Server: "files", Tool: "large"})
	driver.drop = false
	names[storeResult(t, r, "t", "call_1", "new", Origin{Server: "files", Tool: "read"})] = "new"
	if got, want := summary(list(t, r, "t", ListRequest{}), names), "new call_1 files/read; files/large; old4  files/read; old3  files/read; old2  files/read; old1  files/read; old0  files/read"; strings.ReplaceAll(got, "  ", " ") != strings.ReplaceAll(want, "  ", " ") {
		t.Errorf("got %s", got)
	}
	if got := list(t, r, "t", ListRequest{Limit: 3}); len(got.Originals) != 3 || !got.More || names[got.Originals[2].ID] != "old4" {
		t.Errorf("%+v", got)
	}
	if got := list(t, r, "t", ListRequest{Since: now.Add(-25 * time.Hour)}); len(got.Originals) != 3 {
		t.Errorf("%+v", got)
	}
	// Shown again by this version, it is one of the others.
	storeResult(t, r, "t", "call_2", "old 0", Origin{Server: "files", Tool: "read"})
	if got := list(t, r, "t", ListRequest{CallID: "call_2"}); len(got.Originals) != 1 || got.Originals[0].Text != "old 0" {
		t.Errorf("%+v", got)
	}
}

// withoutCalls stores no calls, as earlier versions did.
type withoutCalls struct {
	state.Driver
	drop bool
}

func (d *withoutCalls) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	if d.drop {
		items = slices.DeleteFunc(slices.Clone(items), func(i state.Item) bool {
			return strings.HasPrefix(i.Key, "call/") || strings.HasPrefix(i.Key, "time/")
		})
	}
	return d.Driver.PutIf(ctx, cond, items, lease)
}

// The store holds no call id, tool or server name in plain text.
func TestCallsAreSealed(t *testing.T) {
	r, driver := open(t, nil)
	storeResult(t, r, "t", "toolu_secret", "some text", Origin{Server: "secret-server", Tool: "secret_tool"})
	for _, v := range driver.values {
		if bytes.Contains(v, []byte("secret")) {
			t.Errorf("the store sees %q", v)
		}
	}
}

// While the store is down, a list fails with its error.
func TestListWhileStoreIsDown(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	driver := memory.New()
	r := openWithClock(t, driver, &now)
	storeResult(t, r, "t", "call_1", "text", pruned)
	_ = driver.Close()
	for _, req := range []ListRequest{{Limit: 1}, {Limit: 1, CallID: "call_1"}} {
		if _, err := r.List(t.Context(), "t", req); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%v", err)
		}
	}
}
