package history

import (
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// BenchmarkRequest reads, plans and masks a request of 1,000 messages, about 2 MB.
func BenchmarkRequest(b *testing.B) {
	for _, shape := range shapes {
		full := uniformTranscript(500, 100, 1000)
		body := full.render(shape, renderOptions{})
		p, c := DefaultPolicy(), CachePrices{Write: 1.25, Read: .1}
		pins := mustRead(b, shape, body).Plan(p, c, nil).Pins
		plan := func() *Plan {
			d := mustRead(b, shape, body)
			return d.Plan(p, c, d.OwnEvents(pins))
		}
		b.Run(shape.Wire().Name+"/read", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				mustRead(b, shape, body)
			}
		})
		b.Run(shape.Wire().Name+"/plan", func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				plan()
			}
		})
		b.Run(shape.Wire().Name+"/edits", func(b *testing.B) {
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
