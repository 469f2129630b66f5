package chat_test

import (
	"context"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// BenchmarkNewResults shortens all results of a conversation of 400 messages and 2 MB, once with a warm
// and once with a cold cache.
func BenchmarkNewResults(b *testing.B) {
	dialogue := []dialogueStep{{user: "Find where the cache evicts sessions."}}
	for i := range 200 {
		dialogue = append(dialogue, dialogueStep{uses: []toolUse{{id: string(rune('a'+i%26)) + string(rune('a'+i/26)), name: "read", args: `{"path":"src/a.go","pattern":"evict"}`, texts: []string{sourceText(i, 9000)}}}})
	}
	body := encodeRequest(openaichat.Codec{}, recoverTool, dialogue)
	store := state.New(memory.New(), patientStore(), time.Now)
	defer store.Close()
	for name, reducer := range map[string]string{"none": "none", "mask": "mask", "prune": "prune"} {
		o := withNewResults(openaichat.Codec{}, body, shortenOver2000(reducer))
		o.Policy.Enabled = true // so that the request is parsed
		shrink := newMasker(b, store)
		shrink(o.policy)(context.Background(), o.Request)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				shrink(o.policy)(context.Background(), o.Request)
			}
		})
	}
	b.Run("prune, cold cache", func(b *testing.B) {
		o := withNewResults(openaichat.Codec{}, body, shortenOver2000("prune"))
		for b.Loop() {
			newMasker(b, store)(o.policy)(context.Background(), o.Request)
		}
	})
}
