package recall

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"

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

	// Shorten a text that is itself JSON as JSON, so that what is left still parses: to at most
	// max_chars characters, by leaving whole elements out of the middle of its arrays (head_chars
	// and tail_chars give the proportion of what stays of them). One string element in their
	// place says how many are missing and how to read them back. A structuredContent that says
	// the same loses the same elements, without an element that its schema would refuse; where
	// no marker can stand in it, _meta["ctxgate/cut"] of the result tells. Text that is not JSON,
	// or cannot be made to fit, is cut as any other. Default false: every string longer than
	// max_chars is cut by itself, wherever it stands, and structuredContent is not otherwise
	// shortened.
	JSON bool `key:"json"`
}

// DefaultPolicy is the contract's.
func DefaultPolicy() Policy { return Policy{Mask: reduce.DefaultMask(), RecoverLine: true} }

// Validate lists every problem; each text begins with the key it is about.
func (p Policy) Validate() []error { return p.Mask.Validate() }

// Doc is a reply to shrink: whose it is, where it came from, the whole message, and the strings
// in it that may be too long.
type Doc struct {
	Tenant  string
	From    Origin
	Body    []byte
	Strings []jsonscan.Str
	Focus   *Focus // what is looked for in it; nil when nobody said
}

// Shrunk is what came of one reply's strings.
type Shrunk struct {
	Edits []jsonscan.Edit // to splice into the body; none means: send it as it came

	Chars int64 // characters left out
	Kept  int   // texts cut whose originals can be read back
	Whole int   // texts sent whole because their originals could not be kept
	Lost  int   // texts cut for good: over the hard limit, or with recall off
	Known int   // texts that were cut before, and are not cut again
	Err   error // why originals could not be kept, for the log
}

// Shrink keeps the original of every text of d that p cuts, and gives the edits that cut them.
// It never fails: what cannot be kept stays as it is, and a mistake of ours costs the saving, not
// the reply.
func (r *Recall) Shrink(ctx context.Context, d Doc, p Policy) (s Shrunk) {
	if len(d.Strings) == 0 && !p.JSON {
		return s
	}
	defer func() {
		if p := recover(); p != nil {
			s = Shrunk{Whole: len(d.Strings), Err: fmt.Errorf("masking panicked: %v\n%s", p, debug.Stack())}
		}
	}()
	if !r.cfg.Enabled {
		for c := range p.cuts(d, p.masker(d)) { // lines that nobody can read back are not left out
			s.Lost++
			s.add(c, "")
		}
		s.sort()
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.KeepTimeout.D())
	defer cancel()
	k := keeper{r: r, reserved: r.newReservation(ctx), keys: r.keysOf(d.Tenant), doc: d, policy: p, out: &s}
	defer k.reserved.release()
	cutter := p.masker(d)
	if d.Focus != nil {
		cutter = p.byLines(ctx, d)
	}
	for c := range p.cuts(d, cutter) {
		k.keep(ctx, c)
	}
	k.flush(ctx)
	if s.Err == nil {
		s.Err = k.crowded
	}
	s.sort()
	return s
}

func (s *Shrunk) add(c cut, id string) {
	s.Edits = append(s.Edits, c.edits(id)...)
	s.Chars += int64(c.left)
}

func (s *Shrunk) sort() {
	slices.SortFunc(s.Edits, func(a, b jsonscan.Edit) int { return a.Start - b.Start })
}

// cuts are what p shortens in d, in no order.
func (p Policy) cuts(d Doc, each cutter) iter.Seq[cut] {
	if p.JSON {
		return p.jsonCuts(d, each)
	}
	return func(yield func(cut) bool) {
		for _, str := range d.Strings {
			if c, ok := each(str); ok && !yield(c) {
				return
			}
		}
	}
}

// keeper gathers the originals of one reply, so that many small ones cost the store one write.
type keeper struct {
	r      *Recall
	keys   tenantKeys
	doc    Doc
	policy Policy
	out    *Shrunk

	pending  []pendingCut
	items    []state.Item
	reserved reservation
	crowded  error // why some texts were not kept, though the store works
}

type pendingCut struct {
	cut
	id string // "" when the line is not shown
}

// keep prepares one cut; flush makes it real. After a failure the rest of the reply is not
// tried: the store that refused one will refuse the next, and the client is waiting.
func (k *keeper) keep(ctx context.Context, c cut) {
	if k.out.Err != nil {
		k.unkept(c)
		return
	}
	first := c.parts[0]
	// A store that cannot tell cannot keep it either.
	if known, _ := k.r.isOurs(ctx, k.keys, first.text(k.doc.Body)); known {
		k.out.Known++
		return
	}
	put := func() error { k.flush(ctx); return k.out.Err }
	if err := k.reserved.take(ctx, first.Len(), put); err != nil {
		k.fail(ctx, err, c)
		return
	}
	o := newOriginal(k.keys, first.text(k.doc.Body), first.Len(), c.chars)
	shown := o.id
	if !k.policy.RecoverLine && c.bare == nil {
		shown = ""
	}
	for _, p := range c.parts {
		o.made = append(o.made, k.keys.madeKey(hash128(k.keys.made, p.left(k.doc.Body, shown))))
	}
	// A result often says the same twice, as content and as structuredContent.
	items := k.keys.madeItems(o)
	if !slices.ContainsFunc(k.items, func(i state.Item) bool { return i.Key == k.keys.group(o.id) }) {
		var err error
		items, err = k.r.items(ctx, k.keys, o, k.doc.From)
		if errors.Is(err, errOrigins) { // of this text alone
			k.crowded = err
			k.unkept(c)
			return
		}
		if err != nil {
			k.fail(ctx, err, c)
			return
		}
	}
	k.pending = append(k.pending, pendingCut{c, shown})
	k.items = append(k.items, items...)
	if k.reserved.held >= partSize {
		k.flush(ctx)
	}
}

// flush puts what was gathered and, once that is acknowledged, makes the cuts.
func (k *keeper) flush(ctx context.Context) {
	err := k.out.Err
	if err == nil && len(k.items) > 0 {
		err = k.r.store.Put(ctx, k.items...)
	}
	k.reserved.release()
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

// fail notes why c's original could not be kept; what was gathered before it still can be.
func (k *keeper) fail(ctx context.Context, err error, c cut) {
	k.flush(ctx)
	k.out.Err = err
	k.unkept(c)
}

// unkept is what happens to a text whose original is not in the store.
func (k *keeper) unkept(c cut) {
	if k.policy.HardLimit > 0 && int64(c.parts[0].Len()) > int64(k.policy.HardLimit) {
		if c.bare != nil {
			c = *c.bare
		}
		k.out.Lost++
		k.out.add(c, "")
		return
	}
	k.out.Whole++
}
