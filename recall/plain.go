package recall

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/lately"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/state"
)

// errOff is what becomes of a text that is to be kept where nothing is.
var errOff = fault.New(fault.Unavailable, "originals are not kept here (recall.enabled)")

// Keep keeps a plain text, not a string of a reply, for whoever cuts it by other rules than
// [Recall.Shrink], and gives its id. The id is the text's own, and comes with an error too: then
// nothing can be read back under it, and nothing may be cut from the text.
func (r *Recall) Keep(ctx context.Context, tenant, text string, from Origin) (id string, err error) {
	if !r.cfg.Enabled {
		return r.ID(tenant, text), errOff
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.KeepTimeout.D())
	defer cancel()
	reserved := r.newReservation(ctx)
	if err := reserved.take(ctx, len(text), nil); err != nil {
		return r.ID(tenant, text), err
	}
	defer reserved.release()
	k := r.keysOf(tenant)
	o := newOriginal(k, pieces(text), len(text), utf8.RuneCountInString(text))
	items, err := r.items(ctx, k, o, from)
	if err != nil {
		return o.id, err
	}
	return o.id, r.store.Put(ctx, items...)
}

// Text is a text to keep, as a request or reply has it: the insides of JSON strings, to be joined by
// line breaks.
type Text struct {
	Raw  [][]byte
	From Origin

	// Made gives the text that is shown instead, as the inside of a JSON string, where that is long
	// enough to be cut again elsewhere. It is asked when the text is kept; nil for none.
	Made func() []byte
}

// KeepAll keeps texts, in as few writes as it can, and says how; for what could not be kept there is
// no id, and the error says why. What this process kept a short while ago costs one small read, of
// the store's epoch.
func (r *Recall) KeepAll(ctx context.Context, tenant string, texts []Text) ([]Kept, error) {
	kept := make([]Kept, len(texts))
	if !r.cfg.Enabled {
		return kept, errOff
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.KeepTimeout.D())
	defer cancel()
	b := batch{r: r, reserved: r.newReservation(ctx), tenant: tenant, kept: kept, asked: time.Now(), epoch: r.Epoch(ctx)}
	for i := range texts {
		m := r.recent.mark(tenant, &texts[i])
		if before, ok := r.recent.get(m, b.asked, b.epoch); ok {
			kept[i] = before
			continue
		}
		if err := b.add(ctx, i, m, &texts[i]); err != nil {
			return kept, errors.Join(err, b.flush(ctx))
		}
	}
	return kept, errors.Join(b.flush(ctx), b.crowded)
}

// batch gathers texts on their way to the store.
type batch struct {
	r        *Recall
	tenant   string
	keys     tenantKeys
	kept     []Kept
	asked    time.Time   // since when the store is asked
	epoch    state.Epoch // which it had then
	pending  []pendingText
	items    []state.Item
	reserved reservation
	crowded  error // why some texts were not kept, though the store works
}

type pendingText struct {
	at   int
	mark lately.Mark
	id   string
	from Origin
}

// add prepares a text; flush makes it kept.
func (b *batch) add(ctx context.Context, n int, m lately.Mark, t *Text) error {
	if b.keys.tag == "" {
		b.keys = b.r.keysOf(b.tenant)
	}
	if err := b.reserved.take(ctx, t.size(), func() error { return b.flush(ctx) }); err != nil {
		return err
	}
	o := newOriginal(b.keys, t.text(), t.size(), t.chars())
	if t.Made != nil {
		o.made = append(o.made, b.keys.madeKey(hash128(b.keys.made, jsonscan.Texts(t.Made(), partSize))))
	}
	if at := slices.IndexFunc(b.pending, func(p pendingText) bool { return p.id == o.id }); at >= 0 {
		if b.pending[at].from == t.From {
			b.items = append(b.items, b.keys.madeItems(o)...)
			b.pending = append(b.pending, pendingText{n, m, o.id, t.From})
			return nil
		}
		// Its manifest is to name this origin, too, and is not in the store yet.
		if err := b.put(ctx); err != nil {
			return err
		}
	}
	items, err := b.r.items(ctx, b.keys, o, t.From)
	if errors.Is(err, errOrigins) { // of this text alone
		b.crowded = err
		return nil
	}
	if err != nil {
		return err
	}
	b.items = append(b.items, items...)
	b.pending = append(b.pending, pendingText{n, m, o.id, t.From})
	if b.reserved.held >= partSize {
		return b.flush(ctx)
	}
	return nil
}

// flush puts what was gathered, and gives back what that took.
func (b *batch) flush(ctx context.Context) error {
	defer b.reserved.release()
	return b.put(ctx)
}

// put puts what was gathered; only then the ids count.
func (b *batch) put(ctx context.Context) error {
	defer func() { b.pending, b.items = nil, nil }()
	if err := b.r.store.Put(ctx, b.items...); err != nil {
		return err
	}
	for _, p := range b.pending {
		b.kept[p.at] = b.r.recent.put(p.mark, p.id, b.asked, b.epoch)
	}
	return nil
}

// text is what it says, in pieces of at most a part.
func (t *Text) text() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i, raw := range t.Raw {
			if i > 0 && !yield([]byte{'\n'}) {
				return
			}
			for piece := range jsonscan.Texts(raw, partSize) {
				if !yield(piece) {
					return
				}
			}
		}
	}
}

// size is how many bytes it has at most.
func (t *Text) size() int {
	n := max(0, len(t.Raw)-1)
	for _, raw := range t.Raw {
		n += len(raw)
	}
	return n
}

func (t *Text) chars() int {
	n := max(0, len(t.Raw)-1)
	for _, raw := range t.Raw {
		n += jsonscan.CountChars(raw)
	}
	return n
}

// ID is the id of a text, kept or not: the same as for a string of a reply that says the same.
func (r *Recall) ID(tenant, text string) string {
	return formatID(hash128(r.keysOf(tenant).id, pieces(text)))
}

// pieces are a text in pieces of at most a part, each only valid until the next.
func pieces(text string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var buf []byte
		for rest := text; len(rest) > 0; {
			n := min(len(rest), partSize)
			buf = append(buf[:0], rest[:n]...)
			if rest = rest[n:]; !yield(buf) {
				return
			}
		}
	}
}
