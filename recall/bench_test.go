package recall

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/sqlite"
)

// BenchmarkShrink shrinks, on SQLite, a text of 1 MB that is new each time, one that is shown again,
// and a JSON text that is new each time, masked and thinned.
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
	strs, _, err := jsonscan.New(body, 0).LongStrings(nil, 4000)
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
				if s := r.Shrink(context.Background(), ShrinkRequest{Tenant: "t", Body: body, Strings: strs}, DefaultPolicy()); s.Recoverable != 1 {
					b.Fatal(s.Err)
				}
			}
		})
	}
	text := quote(issues(20_000))
	if strs, _, err = jsonscan.New(text, 0).LongStrings(nil, 4000); err != nil {
		b.Fatal(err)
	}
	for _, asJSON := range []bool{false, true} {
		b.Run(fmt.Sprintf("json=%v", asJSON), func(b *testing.B) {
			p := DefaultPolicy()
			p.JSON = asJSON
			b.SetBytes(int64(len(text)))
			for i := 0; b.Loop(); i++ {
				tenant := fmt.Sprintf("%d/%v", i, asJSON) // to whom it is new
				if s := r.Shrink(context.Background(), ShrinkRequest{Tenant: tenant, Body: text, Strings: strs}, p); s.Recoverable != 1 {
					b.Fatal(s.Err)
				}
			}
		})
	}
}
