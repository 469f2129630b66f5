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
	need := 3 * min(int64(len(text)), partSize) // as in keeper.take
	if err := r.spill.Acquire(ctx, need); err != nil {
		return r.ID(tenant, text), fault.Wrap(fault.Full, "too many originals on their way to the store", err)
	}
	defer r.spill.Release(need)
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
	b := batch{r: r, tenant: tenant, kept: kept, asked: time.Now(), epoch: r.Epoch(ctx)}
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
	return kept, b.flush(ctx)
}

// batch gathers texts on their way to the store.
type batch struct {
	r       *Recall
	tenant  string
	keys    tenantKeys
	kept    []Kept
	asked   time.Time   // since when the store is asked
	epoch   state.Epoch // which it had then
	pending []pendingText
	items   []state.Item
	held    int64
}

type pendingText struct {
	at   int
	mark lately.Mark
	id   string
}

// add prepares a text; flush makes it kept.
func (b *batch) add(ctx context.Context, at int, m lately.Mark, t *Text) error {
	if b.keys.tag == "" {
		b.keys = b.r.keysOf(b.tenant)
	}
	text := t.decode()
	need := 3 * min(int64(len(text)), partSize) // as in keeper.take
	if !b.r.spill.TryAcquire(need) {
		if err := b.flush(ctx); err != nil { // waiting with full hands, two could wait for each other
			return err
		}
		if err := b.r.spill.Acquire(ctx, need); err != nil {
			return fault.Wrap(fault.Full, "too many originals on their way to the store", err)
		}
	}
	b.held += need
	o := newOriginal(b.keys, pieces(text), len(text), utf8.RuneCountInString(text))
	if !slices.ContainsFunc(b.pending, func(p pendingText) bool { return p.id == o.id }) {
		items, err := b.r.items(ctx, b.keys, o, t.From)
		if err != nil {
			return err
		}
		b.items = append(b.items, items...)
	}
	b.pending = append(b.pending, pendingText{at, m, o.id})
	if b.held >= partSize {
		return b.flush(ctx)
	}
	return nil
}

// flush puts what was gathered; only then the ids count.
func (b *batch) flush(ctx context.Context) error {
	defer func() {
		b.r.spill.Release(b.held)
		b.pending, b.items, b.held = nil, nil, 0
	}()
	if err := b.r.store.Put(ctx, b.items...); err != nil {
		return err
	}
	for _, p := range b.pending {
		b.kept[p.at] = b.r.recent.put(p.mark, p.id, b.asked, b.epoch)
	}
	return nil
}

func (t *Text) decode() string {
	var out []byte
	for i, raw := range t.Raw {
		if i > 0 {
			out = append(out, '\n')
		}
		out = jsonscan.AppendText(out, raw)
	}
	return string(out)
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
