package recall

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"

	"github.com/ctxgate/ctxgate/clients"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
	"github.com/ctxgate/ctxgate/state"
)

// Policy is how the strings of a reply are cut.
type Policy struct {
	reduce.Mask `key:",inline"`

	// Add a line after the marker that names the id of the original. Default true; with false the output
	// is the bare marker.
	RecoverLine bool `key:"recover_line"`

	// When the store does not accept an original, a string of more bytes than this is cut nevertheless,
	// finally, and counted as unrecoverable; a size. Default 0: such a string is always sent uncut.
	HardLimit unit.Bytes `key:"hard_limit_bytes"`

	// Shorten a text that is JSON as JSON, so that the rest still parses: to at most max_chars characters,
	// by leaving whole elements out of the middle of its arrays (head_chars and tail_chars give the
	// proportion of the remaining start and end). One string element in their place says how many are
	// missing and how to read them back. The same elements are left out of a structuredContent with the
	// same data, without that string element if its schema would not allow it; if no marker fits,
	// _meta["ctxgate/cut"] of the result says so. Text that is not JSON, or cannot be shortened to fit, is
	// cut as any other. Default false: every string longer than max_chars is cut by itself, wherever it
	// is, and structuredContent is not shortened otherwise.
	JSON bool `key:"json"`

	// Which reducer shortens a string, and its parameters; no configuration key.
	reduce.Choice
}

// DefaultPolicy is the contract's.
func DefaultPolicy() Policy { return Policy{Mask: reduce.DefaultMask(), RecoverLine: true} }

// Validate lists every problem; each text begins with the key it is about.
func (p Policy) Validate() []error { return p.Mask.Validate() }

// ShrinkRequest is a reply to shrink.
type ShrinkRequest struct {
	Tenant  string
	Origin  Origin         // where the reply came from
	CallID  string         // the client's id of the call that it answers, "" if it gave none
	Body    []byte         // the whole message
	Strings []jsonscan.Str // the strings of Body that may be too long

	Limit clients.Result  // the largest tool result that the client passes to its model; zero for none
	Whole []jsonscan.Span // places that are never cut, for Limit; Strings has none in them
}

// ShrinkResult is what became of the strings of a reply.
type ShrinkResult struct {
	Edits []jsonscan.Edit // to splice into the body; none when it goes as it came

	CharsCut      int64    // characters left out
	Recoverable   int      // texts cut whose originals can be read back
	PassedWhole   int      // texts sent whole because their originals could not be stored
	Unrecoverable int      // texts cut for good: over the hard limit, or with recall disabled
	IDs           []string // of the originals, the first maxResultIDs
	AlreadyCut    int      // texts that this gateway shortened before, and does not cut again
	Err           error    // why originals could not be stored, for the log
}

// Shrink stores the original of every text that p cuts, and returns the edits that cut them.
// It never fails: a text whose original cannot be stored stays whole, and after a panic the whole
// reply does.
func (r *Recall) Shrink(ctx context.Context, req ShrinkRequest, p Policy) (s ShrinkResult) {
	limited := r.cfg.Enabled && !req.Limit.IsZero() && mayExceed(req.Body, req.Limit, len(req.Strings))
	if len(req.Strings) == 0 && !p.JSON && !limited {
		return s
	}
	defer func() {
		if p := recover(); p != nil {
			s = ShrinkResult{PassedWhole: len(req.Strings), Err: fmt.Errorf("masking panicked: %v\n%s", p, debug.Stack())}
		}
	}()
	if !r.cfg.Enabled {
		p.Choice = p.WithoutRecovery()
		for c := range p.cuts(req, p.cutFunc(ctx, req.Body)) {
			s.Unrecoverable++
			s.addEdits(c, "")
		}
		s.sortEdits()
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.KeepTimeout.D())
	defer cancel()
	var blocks *cut
	// To find out what fits, the shortened reply is built and measured. Without memory for that the policy alone cuts.
	if scope := membudget.FromContext(ctx); limited && scope.Reserve(int64(len(req.Body))) == nil {
		p.Scored = &reduce.ScoredText{}
		fitting := p.fitTo(ctx, req)
		p, req.Strings, blocks = fitting.policy, fitting.strings, fitting.blocks
		scope.Free(int64(len(req.Body)))
	}
	s, _ = retryConflicts(func() (ShrinkResult, error) {
		s := r.storeCuts(ctx, req, p, blocks)
		return s, s.Err
	})
	return s
}

// storeCuts stores the originals of what p cuts, and of the blocks that are left out, if any.
func (r *Recall) storeCuts(ctx context.Context, req ShrinkRequest, p Policy, blocks *cut) (s ShrinkResult) {
	w := cutWriter{r: r, reserved: r.newReservation(ctx), req: req, policy: p, out: &s}
	defer w.reserved.releaseAll()
	for c := range p.cuts(req, p.cutFunc(ctx, req.Body)) {
		w.addCut(ctx, c)
	}
	if blocks != nil {
		w.addCut(ctx, *blocks)
	}
	w.flush(ctx)
	if s.Err == nil {
		s.Err = w.tooManyOrigins
	}
	s.sortEdits()
	return s
}

func (s *ShrinkResult) addEdits(c cut, id string) {
	s.Edits = append(s.Edits, c.edits(id)...)
	s.CharsCut += int64(c.charsCut)
}

func (s *ShrinkResult) sortEdits() {
	slices.SortFunc(s.Edits, func(a, b jsonscan.Edit) int { return a.Start - b.Start })
}

// cuts are what p shortens in a reply, in no particular order.
func (p Policy) cuts(req ShrinkRequest, each cutFunc) iter.Seq[cut] {
	if p.JSON {
		return p.jsonCuts(req, each)
	}
	return func(yield func(cut) bool) {
		for _, str := range req.Strings {
			if c, ok := each(str); ok && !yield(c) {
				return
			}
		}
	}
}

// cutWriter collects the originals of one reply, so that many small ones cost the store one write.
type cutWriter struct {
	r      *Recall
	keys   tenantKeys
	req    ShrinkRequest
	policy Policy
	out    *ShrinkResult

	pending        []pendingCut
	items          []state.Item
	reserved       reservation
	tooManyOrigins error // set when a text was not stored for that reason, though the store works
}

type pendingCut struct {
	cut
	id       string // to show in the marker; "" without a recover line
	original original
}

// maxResultIDs bounds ShrinkResult.IDs.
const maxResultIDs = 32

// addCut prepares one cut; flush stores its original and applies it. After a failure the rest of
// the reply is not tried: a store that refused one original refuses the next, and the client waits.
func (w *cutWriter) addCut(ctx context.Context, c cut) {
	if w.out.Err != nil {
		w.passWhole(c)
		return
	}
	first := c.parts[0]
	if known, err := w.r.isShortened(ctx, w.req.Tenant, first.chunks(w.req.Body)); known {
		w.out.AlreadyCut++
		return
	} else if err != nil { // it must not be cut twice
		w.storeFailed(ctx, err, c)
		return
	}
	if w.keys.secret == nil {
		var err error
		if w.keys, err = w.r.keysForStoring(ctx, w.req.Tenant); err != nil {
			w.storeFailed(ctx, err, c)
			return
		}
	}
	flush := func() error { w.flush(ctx); return w.out.Err }
	if err := w.reserved.reserve(ctx, first.Len(), flush); err != nil {
		w.storeFailed(ctx, err, c)
		return
	}
	o := newOriginal(w.keys, first.chunks(w.req.Body), first.Len(), c.chars)
	o.passBytes = passBytes(w.req.Limit)
	shownID := o.id
	if !w.policy.RecoverLine && !c.needsID {
		shownID = ""
	}
	for _, p := range c.parts {
		o.shortened = append(o.shortened, w.keys.shortenedKey(hash128(w.keys.shortened, p.shortenedChunks(w.req.Body, shownID))))
	}
	if err := w.addItems(ctx, o); errors.Is(err, errTooManyOrigins) { // concerns this text alone
		w.tooManyOrigins = err
		w.passWhole(c)
		return
	} else if err != nil {
		w.storeFailed(ctx, err, c)
		return
	}
	w.pending = append(w.pending, pendingCut{c, shownID, o})
	if w.reserved.held >= partSize {
		w.flush(ctx)
	}
}

// addItems collects the items that make o readable.
func (w *cutWriter) addItems(ctx context.Context, o original) error {
	// A result often says the same twice, as content and as structuredContent.
	if slices.ContainsFunc(w.items, func(i state.Item) bool { return i.Key == w.keys.groupKey(o.id) }) {
		w.items = append(w.items, w.keys.shortenedItems(o)...)
		return nil
	}
	items, err := w.r.originalItems(ctx, w.keys, o, Call{Origin: w.req.Origin, ID: w.req.CallID})
	w.items = append(w.items, items...)
	return err
}

// putItems stores what was collected. If another process came between, it is prepared and put again.
func (w *cutWriter) putItems(ctx context.Context) error {
	for try := 1; ; try++ {
		err := w.r.put(ctx, w.keys, w.items...)
		if !isWorthRetrying(err) || try == maxTries {
			return err
		}
		if w.keys, err = w.r.keysForStoring(ctx, w.req.Tenant); err != nil {
			return err
		}
		w.items = nil
		for _, p := range w.pending {
			if err := w.addItems(ctx, p.original); err != nil {
				return err
			}
		}
	}
}

// flush stores what was collected and, once the store has acknowledged it, applies the cuts.
func (w *cutWriter) flush(ctx context.Context) {
	err := w.out.Err
	if err == nil && len(w.items) > 0 {
		err = w.putItems(ctx)
	}
	w.reserved.releaseAll()
	for _, p := range w.pending {
		if err != nil {
			w.out.Err = err
			w.passWhole(p.cut)
			continue
		}
		w.out.Recoverable++
		if len(w.out.IDs) < maxResultIDs {
			w.out.IDs = append(w.out.IDs, p.original.id)
		}
		w.out.addEdits(p.cut, p.id)
	}
	w.pending, w.items = nil, nil
}

// storeFailed records why the original of c could not be stored. What was collected before it still
// can be.
func (w *cutWriter) storeFailed(ctx context.Context, err error, c cut) {
	w.flush(ctx)
	w.out.Err = err
	w.passWhole(c)
}

// passWhole sends a text whole because its original is not in the store, as when the store is down.
// Only a text over the policy's hard limit is cut all the same, for good.
func (w *cutWriter) passWhole(c cut) {
	if w.policy.HardLimit == 0 || int64(c.parts[0].Len()) <= int64(w.policy.HardLimit) || c.needsID && c.withoutID == nil {
		w.out.PassedWhole++
		return
	}
	if c.needsID {
		c = *c.withoutID
	}
	w.out.Unrecoverable++
	w.out.addEdits(c, "")
}

// PlanRequest is a text that is shown again and again, as a conversation shows the results of its
// tools, and how to shorten it.
type PlanRequest struct {
	Tenant string
	Raw    []byte // the inside of a JSON string
	Policy Policy
}

// PlanShrink returns the edits that shorten req.Raw; none when it stays whole. They are the edits
// that [Recall.Shrink] would make, but nothing is stored: show them only after [Recall.StoreAll] has
// stored the text.
//
// The same request has the same edits at all times and in every process: they depend on no clock, so
// that a text is shown with the same bytes each time. Only the size of the text decides how much work
// is done. A text that this gateway shortened before stays whole for as long as the store remembers
// it, which is while the text is shown. An error means that the store could not answer, that ctx
// ended, or a bug.
func (r *Recall) PlanShrink(ctx context.Context, req PlanRequest) (edits []jsonscan.Edit, err error) {
	defer func() {
		if p := recover(); p != nil {
			edits, err = nil, fmt.Errorf("shortening panicked: %v\n%s", p, debug.Stack())
		}
	}()
	if len(req.Raw) <= req.Policy.MaxChars {
		return nil, nil
	}
	if r.cfg.Enabled {
		if known, err := r.isShortened(ctx, req.Tenant, jsonscan.DecodedChunks(req.Raw, partSize)); known || err != nil {
			return nil, err
		}
	}
	str := jsonscan.Str{Span: jsonscan.Span{End: len(req.Raw)}, Chars: jsonscan.CountChars(req.Raw)}
	c, ok := req.Policy.cutFunc(ctx, req.Raw)(str)
	if err := ctx.Err(); err != nil {
		return nil, err // pruning may have fallen back to a mask for want of time
	}
	if !ok {
		return nil, nil
	}
	id := ""
	if req.Policy.RecoverLine || c.needsID {
		id = formatID(hash128(r.keysOf(req.Tenant).id, c.parts[0].chunks(req.Raw)))
	}
	edits = c.edits(id)
	if jsonscan.SplicedLen(req.Raw, edits) >= len(req.Raw) {
		return nil, nil
	}
	return edits, nil
}
