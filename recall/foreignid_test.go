//go:build unix

package recall

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/testkit/cputime"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/sqlite"
)

// fullVariable makes the tests of ids run in their long form: 10⁶ ids, and the CPU time of their answers.
const fullVariable = "CTXGATE_FOREIGN_IDS"

// countingDriver counts the operations of the driver by their names.
type countingDriver struct {
	state.Driver
	mu  sync.Mutex
	ops map[string]int
}

func (d *countingDriver) count(op string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ops[op]++
}

func (d *countingDriver) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	if !strings.HasPrefix(key, "tenant/") { // a secret is looked up as time passes, whatever the id is
		d.count("get")
	}
	return d.Driver.Get(ctx, group, key, now)
}

func (d *countingDriver) Touch(ctx context.Context, group string, lease state.Lease) (bool, error) {
	d.count("touch")
	return d.Driver.Touch(ctx, group, lease)
}

// takeOps returns the operations since the last call.
func (d *countingDriver) takeOps() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := fmt.Sprint(d.ops)
	d.ops = map[string]int{}
	return text
}

// unreadableIDs are ids that a tenant must not read anything with, by kind.
type unreadableIDs struct {
	r      *Recall
	driver *countingDriver
	kinds  map[string]func(i int) string
}

const sameTexts = 1000

// newUnreadableIDs stores the same texts for two tenants, and returns what the second must not read.
func newUnreadableIDs(t *testing.T) unreadableIDs {
	t.Helper()
	file, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	d := &countingDriver{Driver: file, ops: map[string]int{}}
	at := func(now func() time.Time) *Recall {
		cfg := state.Default()
		cfg.Timeout = unit.Duration(10 * time.Minute) // the machine may be busy
		keeping := Default()
		keeping.KeepTimeout = cfg.Timeout
		r, err := New(state.New(d, cfg, now), testSecret, keeping)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := at(time.Now)
	long := at(func() time.Time { return time.Now().Add(-20 * 24 * time.Hour) })
	store := func(r *Recall, tenant, what string) (ids []string) {
		requests := make([]StoreRequest, sameTexts)
		for i := range requests {
			requests[i] = StoreRequest{Raw: [][]byte{fmt.Appendf(nil, "%s text %d: %s", what, i, strings.Repeat("the secret of a tenant ", 20))}, Origin: pruned}
		}
		receipts, err := r.StoreAll(t.Context(), tenant, requests)
		if err != nil {
			t.Fatal(err)
		}
		return idsOf(receipts)
	}
	foreign, own := store(r, "a", "same"), store(r, "b", "same")
	if foreign[0] == own[0] {
		t.Fatal("two tenants have the same id for a text")
	}
	expired := store(long, "b", "old")
	guess := func() string {
		var sum [idBytes]byte
		for i := range sum {
			sum[i] = byte(rand.Uint32())
		}
		return formatID(sum)
	}
	pick := func(ids []string) func(int) string { return func(i int) string { return ids[i%len(ids)] } }
	return unreadableIDs{r, d, map[string]func(i int) string{
		"guessed":    func(int) string { return guess() },
		"foreign":    pick(foreign),
		"expired":    pick(expired),
		"miswritten": func(int) string { return strings.ToUpper(strings.ReplaceAll(guess(), "1", "l")) },
		"malformed": func(i int) string {
			return []string{"", "prn_", foreign[i%sameTexts] + "0", foreign[i%sameTexts][:20], "prn_\x00", own[i%sameTexts][4:]}[i%6]
		},
		"revoked": pick(own), // the reader may not call its origin any more
	}}
}

// answer is what the second tenant gets for an id.
func (u unreadableIDs) answer(ctx context.Context, kind, id string) string {
	text, err := u.r.RecoverText(ctx, "b", ReadRequest{ID: id}, func(Origin) bool { return kind != "revoked" }, 0)
	return fmt.Sprintf("%q %s %s", text, fault.PublicOf(err), fault.KindOf(err))
}

// S4, S17: guessed, foreign, expired, malformed and revoked ids get the same answer, to the byte; and those that are
// well-formed and not there cost the store the same operations.
func TestUnreadableIDsGetOneAnswer(t *testing.T) {
	u := newUnreadableIDs(t)
	n := 10_000
	if os.Getenv(fullVariable) != "" {
		n = 1_000_000
	}
	kinds := []string{"guessed", "foreign", "expired", "miswritten", "malformed", "revoked"}
	want := fmt.Sprintf("%q %s %s", []byte(nil), ErrUnknown.Error(), fault.UnknownHandle)
	u.driver.takeOps()
	for i := range n / len(kinds) {
		ops := map[string]string{}
		for _, kind := range kinds {
			if got := u.answer(t.Context(), kind, u.kinds[kind](i)); got != want {
				t.Fatalf("%s: %s, want %s", kind, got, want)
			}
			ops[kind] = u.driver.takeOps()
		}
		for _, kind := range kinds[1:4] {
			if ops[kind] != ops["guessed"] {
				t.Fatalf("a %s id costs %s, a guessed one %s", kind, ops[kind], ops["guessed"])
			}
		}
	}
	// The owner reads all of it.
	for i := range sameTexts {
		if _, err := u.r.RecoverText(t.Context(), "a", ReadRequest{ID: u.kinds["foreign"](i)}, func(Origin) bool { return true }, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// The answers to well-formed ids that are not there take the same CPU time. Batches of the kinds take turns, and the
// medians of their ratios are compared; on a busy machine that still takes minutes.
func TestUnreadableIDsTakeTheSameTime(t *testing.T) {
	if os.Getenv(fullVariable) == "" {
		t.Skip("takes minutes and needs a quiet machine: set " + fullVariable)
	}
	u := newUnreadableIDs(t)
	const rounds, batch = 300, 200
	kinds := []string{"guessed", "foreign", "expired", "miswritten"}
	took := map[string][]time.Duration{}
	for round := range rounds {
		for n := range kinds {
			kind := kinds[(n+round)%len(kinds)]
			ids := make([]string, batch)
			for i := range ids {
				ids[i] = u.kinds[kind](round*batch + i)
			}
			began := cputime.Used()
			for _, id := range ids {
				_ = u.answer(t.Context(), kind, id)
			}
			took[kind] = append(took[kind], cputime.Used()-began)
		}
	}
	for _, kind := range kinds[1:] {
		ratios := make([]float64, rounds)
		for i := range ratios {
			ratios[i] = float64(took[kind][i]) / float64(took["guessed"][i])
		}
		slices.Sort(ratios)
		slices.Sort(took[kind])
		median := ratios[rounds/2]
		t.Logf("%s: %v of CPU for an answer, %.3f of a guessed one", kind, took[kind][rounds/2]/batch, median)
		if median < 0.95 || median > 1.05 {
			t.Errorf("%s takes %.3f of the CPU time of a guessed id", kind, median)
		}
	}
}
