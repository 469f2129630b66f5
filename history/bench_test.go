package history

import (
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// A request of 1,000 messages, about 2 MB: read, decided upon, and masked.
func BenchmarkRequest(b *testing.B) {
	for _, shape := range shapes {
		full := even(500, 100, 1000)
		body := full.render(shape, look{})
		p, c := DefaultPolicy(), Cache{1.25, .1}
		kept := mustRead(b, shape, body).Plan(p, c, nil).Latch
		plan := func() *Plan {
			d := mustRead(b, shape, body)
			return d.Plan(p, c, d.Own(kept))
		}
		b.Run(shape.String()+"/read", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				mustRead(b, shape, body)
			}
		})
		b.Run(shape.String()+"/plan", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				plan()
			}
		})
		b.Run(shape.String()+"/edits", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				plan := plan()
				edits := make([]jsonscan.Edit, 0, len(plan.Cuts))
				for i := range plan.Cuts {
					edits = append(edits, plan.Edits(i, someID)...)
				}
				if len(edits) == 0 {
					b.Fatal("nothing masked")
				}
			}
		})
	}
}
