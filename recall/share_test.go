package recall

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/sqlite"
)

// A tenant that stores ten times its share costs another tenant no original, and still works: its own oldest go, and
// never one that was shown within the spare time.
func TestTenantEvictsItsOwn(t *testing.T) {
	file, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	cfg := state.Default()
	cfg.MaxBytes, cfg.TenantShare, cfg.Spare, cfg.Timeout = 400<<10, 0.25, unit.Duration(time.Minute), unit.Duration(time.Minute)
	store := state.New(file, cfg, func() time.Time { return now })
	defer store.Close()
	keeping := Default()
	keeping.KeepTimeout = cfg.Timeout
	r, err := New(store, testSecret, keeping)
	if err != nil {
		t.Fatal(err)
	}
	text := func(tenant string, i int) string { // that cannot be compressed much
		var b strings.Builder
		for x := uint32(i*7 + len(tenant) + 1); b.Len() < 2000; x = x*1664525 + 1013904223 {
			b.WriteByte('a' + byte(x>>24)%26)
		}
		return fmt.Sprint(tenant, i, b.String())
	}
	put := func(tenant string, i int) string {
		t.Helper()
		id, err := r.StoreText(t.Context(), tenant, text(tenant, i), pruned)
		if err != nil {
			t.Fatalf("%s %d: %v", tenant, i, err)
		}
		return id
	}
	var quiet []string
	for i := range 35 { // the oldest of all
		quiet = append(quiet, put("quiet", i))
	}
	recent := []string{}
	for i := range 700 { // about a megabyte, ten times its share of 100 KiB
		now = now.Add(10 * time.Second)
		if recent = append(recent, put("busy", i)); len(recent) > 6 {
			recent = recent[1:]
		}
		for _, id := range recent { // what was shown within the last minute
			if _, err := r.Open(t.Context(), "busy", id); err != nil {
				t.Fatalf("%s of the last minute is gone: %v", id, err)
			}
		}
	}
	for i, id := range quiet {
		if got, err := fetch(t, r, "quiet", id); err != nil || got != text("quiet", i) {
			t.Errorf("text %d of the quiet tenant: %v", i, err)
		}
	}
	owners, err := store.Owners(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range owners {
		if o.Bytes > 100<<10 {
			t.Errorf("%+v is over its share", o)
		}
	}
	if _, err := r.Open(t.Context(), "busy", r.ID("busy", text("busy", 0))); err == nil {
		t.Error("the busy tenant has lost nothing")
	}
}
