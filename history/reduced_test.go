package history

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// shortened leaves half of each longer text out of some results, told by the result alone.
func shortened(d *Dialogue) (less []int, edits map[int][]jsonscan.Edit) {
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
			cut := jsonscan.Span{Start: span.Start + jsonscan.SkipChars(raw, 20), End: span.Start + jsonscan.LastChars(raw, 20)}
			edits[i] = append(edits[i], jsonscan.Edit{Span: cut, Text: []byte("…")})
			less[i] += cut.Len() - len("…")
		}
	}
	return less, edits
}

func all(d *Dialogue, edits map[int][]jsonscan.Edit) (out []jsonscan.Edit) {
	for i := range d.Results {
		out = append(out, edits[i]...)
	}
	return out
}

// A conversation whose results are reduced is reckoned with as if they had come so.
func TestReducedWeighsAsSent(t *testing.T) {
	for _, shape := range shapes {
		for seed := range uint64(40) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			d := mustRead(t, shape, makeTalk(seed, 12).render(shape, look{}))
			p, c := anyPolicy(rnd)
			p.KeepErrors, p.KeepHandles, p.Template = false, 0, "{tool_name} {prune_id} {tool_call_id}"
			asCame := d.Tokens()
			less, edits := shortened(d)
			other := mustRead(t, shape, jsonscan.AppendSpliced(nil, d.body, all(d, edits)))
			d.Reduced(less)
			a, b := freshBook(d, p, c), freshBook(other, p, c)
			for what, pair := range map[string][2][]int{"size": {a.size, b.size}, "from": {a.from, b.from}, "gain": {a.gain, b.gain}, "due": {a.due, b.due}} {
				if fmt.Sprint(pair[0]) != fmt.Sprint(pair[1]) {
					t.Fatalf("%s, seed %d: %s is %v, of what is sent %v", shape, seed, what, pair[0], pair[1])
				}
			}
			x, y := d.Plan(p, c, nil), other.Plan(p, c, nil)
			if fmt.Sprint(x.Cuts) != fmt.Sprint(y.Cuts) || len(all(d, edits)) == 0 {
				t.Fatalf("%s, seed %d: cuts %v, of what is sent %v", shape, seed, x.Cuts, y.Cuts)
			}
			if d.Tokens() != asCame || d.TokensUpTo(len(d.Turns)) <= other.TokensUpTo(len(d.Turns)) {
				t.Fatal("the request as it came weighs something else now")
			}
		}
	}
}

// I4, H+1: with results that are reduced from the start, decisions stay a replay: each request
// extends the one before but at a move.
func TestReducedConversationsGrow(t *testing.T) {
	moves := 0
	for _, shape := range shapes {
		for seed := range uint64(50) {
			full := makeTalk(seed, 8)
			if !uniqueIDs(full) {
				continue
			}
			rnd := rand.New(rand.NewPCG(seed, 5))
			p, c := anyPolicy(rnd)
			var before []byte
			turns := 0
			for _, n := range full.requests() {
				d := mustRead(t, shape, full[:n].render(shape, look{}))
				after, plan := sent(d, p, c)
				moved := false
				for _, cut := range plan.Cuts {
					moved = moved || cut.At > turns
				}
				if moved {
					moves++
				}
				if before != nil && !moved && !bytes.HasPrefix(after, listOf(before)) {
					t.Fatalf("%s, seed %d: the prefix changed without a move at turn %d:\n%s\n%s", shape, seed, len(d.Turns), before, after)
				}
				laws(t, d.body, after)
				if !plan.short && len(after) > len(d.body) {
					t.Fatal("longer")
				}
				before, turns = after, len(d.Turns)
			}
		}
	}
	if moves < 70 {
		t.Errorf("only %d moves", moves)
	}
}

// sent is a request with its results reduced, or masked.
func sent(d *Dialogue, p Policy, c Cache) ([]byte, *Plan) {
	less, edits := shortened(d)
	d.Reduced(less)
	plan := d.Plan(p, c, nil)
	for i, cut := range plan.Cuts {
		edits[cut.Result] = plan.Edits(i, someID)
	}
	return jsonscan.AppendSpliced(nil, d.body, all(d, edits)), plan
}

// I5: what was reduced to less than a placeholder is not masked, but by the document's window (H2).
func TestReducedToLessThanAPlaceholder(t *testing.T) {
	full := even(12, 20, 200)
	d := mustRead(t, Chat, full.render(Chat, look{}))
	p := advancing(EachTurn)
	p.Agents = true
	if plan := d.Plan(p, Cache{}, nil); len(plan.Cuts) != 4 {
		t.Fatalf("masked %v", plan.Cuts)
	}
	less := make([]int, len(d.Results))
	less[1] = d.Results[1].raw() - 100
	d.Reduced(less)
	plan := d.Plan(p, Cache{}, nil)
	if len(plan.Cuts) != 3 || plan.Cuts[1].Result != 2 {
		t.Errorf("masked %v", plan.Cuts)
	}
	p.Agents = false
	if plan := d.Plan(p, Cache{}, nil); len(plan.Cuts) != 4 || len(plan.Edits(1, someID)) == 0 {
		t.Errorf("the document masks %v", plan.Cuts)
	}
}
