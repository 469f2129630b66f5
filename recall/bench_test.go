package recall

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/sqlite"
)

// A text of 1 MB that is new each time, and one that is shown again, on SQLite.
func BenchmarkShrink(b *testing.B) {
	driver, err := sqlite.Open(b.Context(), b.TempDir()+"/x.db")
	if err != nil {
		b.Fatal(err)
	}
	store := state.New(driver, state.Default(), time.Now)
	b.Cleanup(func() { _ = store.Close() })
	r, err := New(store, testSecret, Default())
	if err != nil {
		b.Fatal(err)
	}
	body := []byte(`"` + strings.Repeat(`line \"one\" of text\n\tmore`, 40_000) + `"`)
	strs, _, err := jsonscan.New(body, 0).Long(nil, 4000)
	if err != nil {
		b.Fatal(err)
	}
	for name, fresh := range map[string]bool{"new": true, "again": false} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for i := 0; b.Loop(); i++ {
				if fresh {
					copy(body[1:], []byte{'a' + byte(i%26), 'a' + byte(i/26%26), 'a' + byte(i/676%26), 'a' + byte(i/17576%26)})
				}
				if s := r.Shrink(context.Background(), Doc{Tenant: "t", Body: body, Strings: strs}, DefaultPolicy()); s.Kept != 1 {
					b.Fatal(s.Err)
				}
			}
		})
	}
}
