package recall

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
	"github.com/ctxgate/ctxgate/state"
)

// Policy is how one reply's strings are cut.
type Policy struct {
	reduce.Mask `key:",inline"`

	// Follow the marker with a line that names the id under which the original can be read
	// back. Default true; with false the output is the bare marker.
	RecoverLine bool `key:"recover_line"`

	// When the store refuses an original, a string of more bytes than this is cut all the same,
	// for good, and counted as unrecoverable; a size. Default 0: never, such a string is sent on
	// whole.
	HardLimit unit.Bytes `key:"hard_limit_bytes"`
}

// DefaultPolicy is the contract's.
func DefaultPolicy() Policy { return Policy{Mask: reduce.DefaultMask(), RecoverLine: true} }

// Validate lists every problem; each text begins with the key it is about.
func (p Policy) Validate() []error { return p.Mask.Validate() }

// Doc is a reply to shrink: whose it is, where it came from, and the strings in it that are long.
type Doc struct {
	Tenant  string
	From    Origin
	Body    []byte
	Strings []jsonscan.Str
}

// Shrunk is what came of one reply's strings.
type Shrunk struct {
	Edits []jsonscan.Edit // to splice into the body; none means: send it as it came

	Chars int64 // characters left out
	Kept  int   // strings cut whose originals can be read back
	Whole int   // strings sent whole because their originals could not be kept
	Lost  int   // strings cut for good: over the hard limit, or with recall off
	Known int   // strings that were cut before, and are not cut again
	Err   error // why originals could not be kept, for the log
}

// Shrink keeps the original of every string of d that p cuts, and gives the edits that cut them.
// It never fails: what cannot be kept stays as it is, and a mistake of ours costs the saving, not
// the reply.
func (r *Recall) Shrink(ctx context.Context, d Doc, p Policy) (s Shrunk) {
	if len(d.Strings) == 0 {
		return s
	}
	defer func() {
		if p := recover(); p != nil {
			s = Shrunk{Whole: len(d.Strings), Err: fmt.Errorf("masking panicked: %v\n%s", p, debug.Stack())}
		}
	}()
	if !r.cfg.Enabled {
		for _, str := range d.Strings {
			if cut, ok := p.Cut(d.Body, str); ok {
				s.Lost++
				s.add(cut, "")
			}
		}
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.KeepTimeout.D())
	defer cancel()
	k := keeper{r: r, keys: r.keysOf(d.Tenant), doc: d, policy: p, out: &s}
	defer k.release()
	for _, str := range d.Strings {
		if cut, ok := p.Cut(d.Body, str); ok {
			k.keep(ctx, cut)
		}
	}
	k.flush(ctx)
	slices.SortFunc(s.Edits, func(a, b jsonscan.Edit) int { return a.Start - b.Start })
	return s
}

func (s *Shrunk) add(cut reduce.Cut, id string) {
	s.Edits = append(s.Edits, cut.Edit(id))
	s.Chars += int64(cut.Str.Chars - cut.Head - cut.Tail)
}

// keeper gathers the originals of one reply, so that many small ones cost the store one write.
type keeper struct {
	r      *Recall
	keys   tenantKeys
	doc    Doc
	policy Policy
	out    *Shrunk

	pending []pendingCut
	items   []state.Item
	held    int64 // bytes taken from the spill
}

type pendingCut struct {
	cut reduce.Cut
	id  string // "" when the line is not shown
}

// keep prepares one cut; flush makes it real. After a failure the rest of the reply is not
// tried: the store that refused one will refuse the next, and the client is waiting.
func (k *keeper) keep(ctx context.Context, cut reduce.Cut) {
	if k.out.Err != nil {
		k.unkept(cut)
		return
	}
	raw := cut.Str.Of(k.doc.Body)
	if reduce.Marked(raw) && k.wasMadeHere(ctx, raw) {
		k.out.Known++
		return
	}
	if err := k.take(ctx, len(raw)); err != nil {
		k.fail(ctx, err, cut)
		return
	}
	o := newOriginal(k.keys, raw, cut.Str.Chars)
	shown := o.id
	if !k.policy.RecoverLine {
		shown = ""
	}
	o.made = k.keys.madeKey(k.hashMade(cut, shown))
	// A result often says the same twice, as content and as structuredContent.
	items := []state.Item{k.keys.madeItem(o)}
	if !slices.ContainsFunc(k.items, func(i state.Item) bool { return i.Key == k.keys.group(o.id) }) {
		var err error
		if items, err = k.r.items(ctx, k.keys, o, k.doc.From); err != nil {
			k.fail(ctx, err, cut)
			return
		}
	}
	k.pending = append(k.pending, pendingCut{cut, shown})
	k.items = append(k.items, items...)
	if k.held >= partSize {
		k.flush(ctx)
	}
}

// take reserves room for what an original of n raw bytes needs on its way: a part of text, the
// part compressed and the part sealed.
func (k *keeper) take(ctx context.Context, n int) error {
	need := 3 * min(int64(n), partSize)
	if k.r.spill.TryAcquire(need) {
		k.held += need
		return nil
	}
	// Wait with empty hands: keepers that each hold some and wait for more would wait for ever.
	if k.flush(ctx); k.out.Err != nil {
		return k.out.Err
	}
	if err := k.r.spill.Acquire(ctx, need); err != nil {
		return fault.Wrap(fault.Full, "too many originals on their way to the store", err)
	}
	k.held += need
	return nil
}

// flush puts what was gathered and, once that is acknowledged, makes the cuts.
func (k *keeper) flush(ctx context.Context) {
	err := k.out.Err
	if err == nil && len(k.items) > 0 {
		err = k.r.store.Put(ctx, k.items...)
	}
	k.release()
	for _, p := range k.pending {
		if err != nil {
			k.out.Err = err
			k.unkept(p.cut)
			continue
		}
		k.out.Kept++
		k.out.add(p.cut, p.id)
	}
	k.pending, k.items = nil, nil
}

func (k *keeper) release() {
	k.r.spill.Release(k.held)
	k.held = 0
}

// fail notes why cut's original could not be kept; what was gathered before it still can be.
func (k *keeper) fail(ctx context.Context, err error, cut reduce.Cut) {
	k.flush(ctx)
	k.out.Err = err
	k.unkept(cut)
}

// unkept is what happens to a string whose original is not in the store.
func (k *keeper) unkept(cut reduce.Cut) {
	if k.policy.HardLimit > 0 && int64(cut.Str.Len()) > int64(k.policy.HardLimit) {
		k.out.Lost++
		k.out.add(cut, "")
		return
	}
	k.out.Whole++
}

// hashMade is the hash of the text that cut leaves.
func (k *keeper) hashMade(cut reduce.Cut, id string) [idBytes]byte {
	marker := []byte(cut.Marker(id))
	return hash128(k.keys.made, func(yield func([]byte) bool) {
		for p := range jsonscan.Texts(k.doc.Body[cut.Str.Start:cut.Gap.Start], partSize) {
			if !yield(p) {
				return
			}
		}
		if !yield(marker) {
			return
		}
		for p := range jsonscan.Texts(k.doc.Body[cut.Gap.End:cut.Str.End], partSize) {
			if !yield(p) {
				return
			}
		}
	})
}

// wasMadeHere says whether raw is, to the byte, a text this gateway cut, under this tenant.
func (k *keeper) wasMadeHere(ctx context.Context, raw []byte) bool {
	_, err := k.r.store.Get(ctx, k.keys.madeKey(hash128(k.keys.made, jsonscan.Texts(raw, partSize))))
	return err == nil
}
