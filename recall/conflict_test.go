package recall

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// Processes that store one text at once, each from another tool, all add their tool: whoever may call one of them can
// read the text back.
func TestOriginsOfProcessesAreKept(t *testing.T) {
	driver := memory.New()
	text := strings.Repeat("the same text from several tools\n", 500)
	body := quote(text)
	const processes, tools = 6, 5
	cfg := state.Default()
	cfg.Timeout = unit.Duration(time.Minute)
	keeping := Default()
	keeping.KeepTimeout = cfg.Timeout
	var wg sync.WaitGroup
	for p := range processes {
		r, err := New(state.New(driver, cfg, time.Now), testSecret, keeping)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for n := range tools {
				from := Origin{Server: fmt.Sprint("s", p), Tool: fmt.Sprint("t", n)}
				switch n % 3 {
				case 0:
					if _, err := r.StoreText(context.Background(), "t", text, from); err != nil {
						t.Error(err)
					}
				case 1:
					strs, _, _ := jsonscan.New(body, 0).LongStrings(nil, 4000)
					if s := r.Shrink(context.Background(), ShrinkRequest{Tenant: "t", Origin: from, Body: body, Strings: strs}, DefaultPolicy()); s.Err != nil || s.Recoverable != 1 {
						t.Errorf("%+v", s)
					}
				default:
					if got, err := r.StoreAll(context.Background(), "t", []StoreRequest{{Raw: [][]byte{body[1 : len(body)-1]}, Origin: from}}); err != nil || got[0].ID == "" {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	r, err := New(state.New(driver, cfg, time.Now), testSecret, keeping)
	if err != nil {
		t.Fatal(err)
	}
	for p := range processes {
		for n := range tools {
			want := Origin{Server: fmt.Sprint("s", p), Tool: fmt.Sprint("t", n)}
			if _, err := r.OpenFor(t.Context(), "t", r.ID("t", text), func(o Origin) bool { return o == want }); err != nil {
				t.Errorf("%+v may not read the text back: %v", want, err)
			}
		}
	}
}

// What processes add to one record at once adds up.
func TestRecordsAreUpdatedInOneStep(t *testing.T) {
	driver := memory.New()
	cfg := state.Default()
	cfg.Timeout = unit.Duration(time.Minute)
	const processes, times = 4, 25
	var wg sync.WaitGroup
	for range processes {
		r, err := New(state.New(driver, cfg, time.Now), testSecret, Default())
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			for range times {
				err := state.ErrConflict
				for errors.Is(err, state.ErrConflict) { // others may come between many times
					err = r.UpdateRecord(context.Background(), "t", "sum", func(old []byte) ([]byte, error) { return append(old, '.'), nil })
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	r, err := New(state.New(driver, cfg, time.Now), testSecret, Default())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := r.GetRecord(context.Background(), "t", "sum"); err != nil || len(got) != processes*times {
		t.Errorf("%d of %d additions were stored, %v", len(got), processes*times, err)
	}
	down := errors.New("no")
	if err := r.UpdateRecord(context.Background(), "t", "sum", func([]byte) ([]byte, error) { return nil, down }); !errors.Is(err, down) {
		t.Error(err)
	}
	if err := r.UpdateRecord(context.Background(), "t", "sum", func([]byte) ([]byte, error) { return nil, nil }); err != nil {
		t.Error(err)
	}
}
