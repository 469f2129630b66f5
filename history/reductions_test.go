package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// shortenResults removes the middle of longer texts from some results; the choice depends on the result alone.
// less is the number of bytes removed per result.
func shortenResults(d *Dialogue) (less []int, edits map[int][]jsonscan.Edit) {
	less, edits = make([]int, len(d.Results)), map[int][]jsonscan.Edit{}
	for i, r := range d.Results {
		if !r.Maskable || r.Turn < 0 {
			continue
		}
		for _, span := range r.Texts {
			raw := span.Of(d.body)
			if len(raw) < 150 || len(raw)%3 == 0 {
				continue
			}
			cut := jsonscan.Span{Start: span.Start + jsonscan.CharOffset(raw, 20), End: span.Start + jsonscan.LastCharsOffset(raw, 20)}
			edits[i] = append(edits[i], jsonscan.Edit{Span: cut, Text: []byte("…")})
			less[i] += cut.Len() - len("…")
		}
	}
	return less, edits
}

func allEdits(d *Dialogue, edits map[int][]jsonscan.Edit) (out []jsonscan.Edit) {
	for i := range d.Results {
		out = append(out, edits[i]...)
	}
	return out
}

// A conversation with reduced results is planned as if the client had sent them reduced.
func TestReductionsCountAsSent(t *testing.T) {
	for _, shape := range shapes {
		for seed := range uint64(40) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			d := mustRead(t, shape, randomTranscript(seed, 12).render(shape, renderOptions{}))
			p, c := randomPolicy(rnd)
			p.KeepErrors, p.KeepHandles, p.Template = false, 0, "{tool_name} {prune_id} {tool_call_id}"
			before := d.Tokens()
			less, edits := shortenResults(d)
			other := mustRead(t, shape, jsonscan.AppendSpliced(nil, d.body, allEdits(d, edits)))
			d.SetReductions(less)
			a, b := newTestReplay(d, p, c), newTestReplay(other, p, c)
			for what, pair := range map[string][2][]int{"size": {a.requestSizes, b.requestSizes}, "from": {a.turnStarts, b.turnStarts}, "gain": {a.gains, b.gains}, "due": {a.dueAt, b.dueAt}} {
				if fmt.Sprint(pair[0]) != fmt.Sprint(pair[1]) {
					t.Fatalf("%s, seed %d: %s is %v, of the reduced request %v", shape, seed, what, pair[0], pair[1])
				}
			}
			x, y := d.Plan(p, c, nil), other.Plan(p, c, nil)
			if fmt.Sprint(x.Cuts) != fmt.Sprint(y.Cuts) || len(allEdits(d, edits)) == 0 {
				t.Fatalf("%s, seed %d: cuts %v, of the reduced request %v", shape, seed, x.Cuts, y.Cuts)
			}
			if d.Tokens() != before || d.TokensUpTo(len(d.Turns)) <= other.TokensUpTo(len(d.Turns)) {
				t.Fatal("reductions changed the size of the original request")
			}
		}
	}
}

// I4, H+1: with results reduced from the start, each request extends the one before except at a move.
func TestReducedConversationsGrow(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	moves := 0
	for _, shape := range shapes {
		for seed := range uint64(50) {
			full := randomTranscript(seed, 8)
			if !uniqueIDs(full) {
				continue
			}
			rnd := rand.New(rand.NewPCG(seed, 5))
			p, c := randomPolicy(rnd)
			var before []byte
			turns := 0
			for _, n := range full.requests() {
				d := mustRead(t, shape, full[:n].render(shape, renderOptions{}))
				after, plan := shortenAndMask(d, p, c)
				moved := false
				for _, cut := range plan.Cuts {
					moved = moved || cut.AtTurn > turns
				}
				if moved {
					moves++
				}
				if before != nil && !moved && !bytes.HasPrefix(after, throughLastMessage(before)) {
					t.Fatalf("%s, seed %d: the prefix changed without a move at turn %d:\n%s\n%s", shape, seed, len(d.Turns), before, after)
				}
				checkStructureKept(t, d.body, after)
				if !plan.masksShort && len(after) > len(d.body) {
					t.Fatal("masking made the request longer")
				}
				before, turns = after, len(d.Turns)
			}
		}
	}
	if moves < 70 {
		t.Errorf("only %d moves: too few for the test to mean anything", moves)
	}
}

// shortenAndMask returns a request with its results reduced or masked.
func shortenAndMask(d *Dialogue, p Policy, c CachePrices) ([]byte, *Plan) {
	less, edits := shortenResults(d)
	d.SetReductions(less)
	plan := d.Plan(p, c, nil)
	for i, cut := range plan.Cuts {
		edits[cut.Result] = plan.Edits(i, someID)
	}
	return jsonscan.AppendSpliced(nil, d.body, allEdits(d, edits)), plan
}

// I5: a result reduced below the size of its placeholder is masked only by the document's window (H2).
func TestReducedToLessThanAPlaceholder(t *testing.T) {
	full := uniformTranscript(12, 20, 200)
	d := mustRead(t, openAIChat, full.render(openAIChat, renderOptions{}))
	p := policyWithAdvance(AdvanceEachTurn)
	p.Agents = true
	if plan := d.Plan(p, CachePrices{}, nil); len(plan.Cuts) != 4 {
		t.Fatalf("masked %v", plan.Cuts)
	}
	less := make([]int, len(d.Results))
	less[1] = d.Results[1].textBytes() - 100
	d.SetReductions(less)
	plan := d.Plan(p, CachePrices{}, nil)
	if len(plan.Cuts) != 3 || plan.Cuts[1].Result != 2 {
		t.Errorf("masked %v", plan.Cuts)
	}
	p.Agents = false
	if plan := d.Plan(p, CachePrices{}, nil); len(plan.Cuts) != 4 || len(plan.Edits(1, someID)) == 0 {
		t.Errorf("the document masks %v", plan.Cuts)
	}
}
