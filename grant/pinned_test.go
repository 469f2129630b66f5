package grant

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// A token is not evicted for text of tools, however much of that there is and however old the token.
func TestTokensAreNotEvictedForText(t *testing.T) {
	w := newWorld(t)
	listenTo(t, willing)
	config := state.Default()
	config.MaxBytes, config.Spare = 64<<10, 0
	moment := time.Now()
	store := state.New(memory.New(), config, func() time.Time { return moment })
	t.Cleanup(func() { _ = store.Close() })
	first := open(t, store)
	mustPost(t, first, w.to(Config{}), "x")
	first.Close()
	for i := range 200 {
		moment = moment.Add(time.Minute)
		key := fmt.Sprint("text ", i)
		if err := store.Put(t.Context(), state.Item{Key: key, Group: key, Value: []byte(strings.Repeat("x", 4<<10))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Get(t.Context(), "text 0"); fault.KindOf(err) != fault.Unknown {
		t.Fatalf("the store is not at its cap: %v", err)
	}
	second := open(t, store)
	mustPost(t, second, w.to(Config{}), "y")
	if asks, _, _, _ := w.counts(); asks != 1 {
		t.Errorf("asked %d times for the token", asks)
	}
}
