package chat_test

import (
	"context"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// BenchmarkBirth: a conversation of 400 messages and 2 MB whose results are all shortened, of which
// all but the last were met before; and one that was never met.
func BenchmarkBirth(b *testing.B) {
	talk := []said{{user: "Find where the cache evicts sessions."}}
	for i := range 200 {
		talk = append(talk, said{uses: []used{{id: string(rune('a'+i%26)) + string(rune('a'+i/26)), name: "read", args: `{"path":"src/a.go","pattern":"evict"}`, texts: []string{source(i, 9000)}}}})
	}
	body := written(chat.Completions, recoverTool, talk)
	store := state.New(memory.New(), state.Default(), time.Now)
	defer store.Close()
	for name, how := range map[string]string{"none": "none", "mask": "mask", "prune": "prune"} {
		o := going(chat.Completions, body, young(how))
		o.Policy.Enabled = true // so that the request is read
		shrink := fresh(b, store)
		shrink(o.birth)(context.Background(), o.Outgoing)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				shrink(o.birth)(context.Background(), o.Outgoing)
			}
		})
	}
	b.Run("prune, never met", func(b *testing.B) {
		o := going(chat.Completions, body, young("prune"))
		for b.Loop() {
			fresh(b, store)(o.birth)(context.Background(), o.Outgoing)
		}
	})
}
