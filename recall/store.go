package recall

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"slices"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/semaphore"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/state"
)

var errDisabled = fault.New(fault.Unavailable, "originals are not kept here (recall.enabled)")

// StoreText stores a plain text for a caller that cuts it by other rules than [Recall.Shrink], and
// returns its id. The id is the text's own and is returned with an error too: then nothing can be
// read back under it, and nothing may be cut from the text.
func (r *Recall) StoreText(ctx context.Context, tenant, text string, from Origin) (id string, err error) {
	if !r.cfg.Enabled {
		return r.ID(tenant, text), errDisabled
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.KeepTimeout.D())
	defer cancel()
	reserved := r.newReservation(ctx)
	if err := reserved.reserve(ctx, len(text), nil); err != nil {
		return r.ID(tenant, text), err
	}
	defer reserved.releaseAll()
	return retryConflicts(func() (string, error) {
		k, err := r.keysForStoring(ctx, tenant)
		if err != nil {
			return r.ID(tenant, text), err
		}
		o := newOriginal(k, textChunks(text), len(text), utf8.RuneCountInString(text))
		items, err := r.originalItems(ctx, k, o, Call{Origin: from})
		if err != nil {
			return o.id, err
		}
		return o.id, r.put(ctx, k, items...)
	})
}

// ID is the id of a text, stored or not: the same as for a string of a reply that says the same.
func (r *Recall) ID(tenant, text string) string {
	return formatID(hash128(r.keysOf(tenant).id, textChunks(text)))
}

// textChunks yields a text in chunks of at most partSize, each valid only until the next.
func textChunks(text string) iter.Seq[[]byte] {
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

// StoreRequest is a text to store, as a request or reply has it: the insides of JSON strings, to be
// joined by line breaks.
type StoreRequest struct {
	Raw    [][]byte
	Origin Origin
	CallID string // the id of the tool call whose result it is, "" if it has none

	// Replacement returns the text that is shown instead, as the inside of a JSON string, when that
	// is long enough to be cut again elsewhere. It is called when the text is stored; nil for none.
	Replacement func() []byte
}

// StoreAll stores texts, in as few writes as it can. A text that could not be stored has a receipt
// without an id, and the error says why. A text that this process stored a short while ago costs one
// small read, of the store's epoch.
func (r *Recall) StoreAll(ctx context.Context, tenant string, texts []StoreRequest) ([]Receipt, error) {
	if !r.cfg.Enabled {
		return make([]Receipt, len(texts)), errDisabled
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.KeepTimeout.D())
	defer cancel()
	return retryConflicts(func() ([]Receipt, error) { return r.storeAll(ctx, tenant, texts) })
}

func (r *Recall) storeAll(ctx context.Context, tenant string, texts []StoreRequest) ([]Receipt, error) {
	receipts := make([]Receipt, len(texts))
	b := storeBatch{r: r, reserved: r.newReservation(ctx), tenant: tenant, receipts: receipts, started: time.Now(), epoch: r.Epoch(ctx)}
	for i := range texts {
		fp := r.receipts.fingerprint(tenant, &texts[i])
		if earlier, ok := r.receipts.byText.Get(fp); ok && earlier.Valid(b.started, b.epoch) {
			receipts[i] = earlier
			continue
		}
		if err := b.addText(ctx, i, fp, &texts[i]); err != nil {
			return receipts, errors.Join(err, b.flush(ctx))
		}
	}
	return receipts, errors.Join(b.flush(ctx), b.tooManyOrigins)
}

// storeBatch collects texts on their way to the store.
type storeBatch struct {
	r              *Recall
	tenant         string
	keys           tenantKeys
	receipts       []Receipt
	started        time.Time   // before the store was first asked
	epoch          state.Epoch // at that time
	pending        []pendingText
	items          []state.Item
	reserved       reservation
	tooManyOrigins error // set when a text was not stored for that reason, though the store works
}

type pendingText struct {
	index int // among the receipts
	fp    gencache.Fingerprint
	id    string
	from  Call
}

// addText prepares a text; flush stores it.
func (b *storeBatch) addText(ctx context.Context, n int, fp gencache.Fingerprint, t *StoreRequest) error {
	if err := b.r.store.Ready(); err != nil {
		return err
	}
	if b.keys.secret == nil {
		var err error
		if b.keys, err = b.r.keysForStoring(ctx, b.tenant); err != nil {
			return err
		}
	}
	if err := b.reserved.reserve(ctx, t.maxBytes(), func() error { return b.flush(ctx) }); err != nil {
		return err
	}
	o := newOriginal(b.keys, t.chunks(), t.maxBytes(), t.chars())
	if t.Replacement != nil {
		o.shortened = append(o.shortened, b.keys.shortenedKey(hash128(b.keys.shortened, jsonscan.DecodedChunks(t.Replacement(), partSize))))
	}
	from := Call{Origin: t.Origin, ID: t.CallID}
	if at := slices.IndexFunc(b.pending, func(p pendingText) bool { return p.id == o.id }); at >= 0 {
		if b.pending[at].from.Origin == from.Origin {
			c, err := b.keys.cipher(o.id)
			if err != nil {
				return err
			}
			b.items = append(b.items, b.keys.shortenedItems(o)...)
			b.items = append(b.items, b.r.callItems(ctx, b.keys, o.id, c, from)...)
			b.pending = append(b.pending, pendingText{n, fp, o.id, from})
			return nil
		}
		// Its manifest is to name this origin too, and is not in the store yet.
		if err := b.putPending(ctx); err != nil {
			return err
		}
	}
	items, err := b.r.originalItems(ctx, b.keys, o, from)
	if errors.Is(err, errTooManyOrigins) { // concerns this text alone
		b.tooManyOrigins = err
		return nil
	}
	if err != nil {
		return err
	}
	b.items = append(b.items, items...)
	b.pending = append(b.pending, pendingText{n, fp, o.id, from})
	if b.reserved.held >= partSize {
		return b.flush(ctx)
	}
	return nil
}

// flush stores what was collected and releases its memory.
func (b *storeBatch) flush(ctx context.Context) error {
	defer b.reserved.releaseAll()
	return b.putPending(ctx)
}

// putPending stores what was collected and, once the store has acknowledged it, writes the receipts.
func (b *storeBatch) putPending(ctx context.Context) error {
	defer func() { b.pending, b.items = nil, nil }()
	if err := b.r.put(ctx, b.keys, b.items...); err != nil {
		return err
	}
	for _, p := range b.pending {
		receipt := Receipt{ID: p.id, ValidUntil: b.started.Add(b.r.receipts.lifetime), Epoch: b.epoch}
		b.r.receipts.byText.Put(p.fp, receipt, 1)
		b.receipts[p.index] = receipt
	}
	return nil
}

func (t *StoreRequest) chunks() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for i, raw := range t.Raw {
			if i > 0 && !yield([]byte{'\n'}) {
				return
			}
			for chunk := range jsonscan.DecodedChunks(raw, partSize) {
				if !yield(chunk) {
					return
				}
			}
		}
	}
}

// maxBytes is the most bytes that the decoded text can have.
func (t *StoreRequest) maxBytes() int {
	n := max(0, len(t.Raw)-1)
	for _, raw := range t.Raw {
		n += len(raw)
	}
	return n
}

func (t *StoreRequest) chars() int {
	n := max(0, len(t.Raw)-1)
	for _, raw := range t.Raw {
		n += jsonscan.CountChars(raw)
	}
	return n
}

// Receipt says that an original is in the store: until ValidUntil, and only while the store's epoch
// is Epoch. A store that was emptied, replaced or restored from a copy has another epoch.
type Receipt struct {
	ID         string // "" when the original could not be stored
	ValidUntil time.Time
	Epoch      state.Epoch
}

// Valid says whether the receipt can be relied on without asking the store again. The epoch is the
// store's own, read since the request came.
func (k Receipt) Valid(now time.Time, epoch state.Epoch) bool {
	return k.ID != "" && k.Epoch == epoch && now.Before(k.ValidUntil)
}

// receiptCache remembers which originals this process stored, or found stored, a short while ago. A
// conversation shows the same texts on every turn: their leases need no renewal and their ids no
// hashing each time.
//
// A receipt is valid for lifetime, which is at most half of the store's spare time, however often it
// is used; then the store is asked again.
type receiptCache struct {
	lifetime  time.Duration
	hasher    gencache.Hasher
	byText    *gencache.Cache[gencache.Fingerprint, Receipt]
	lastEpoch atomic.Uint64
}

const receiptCacheSize = 1 << 16 // texts in each generation

func newReceiptCache(lifetime time.Duration) *receiptCache {
	return &receiptCache{lifetime: lifetime, hasher: gencache.NewHasher(), byText: gencache.New[gencache.Fingerprint, Receipt](receiptCacheSize)}
}

// fingerprint is of the tenant, the origin, the call and the raw text.
func (c *receiptCache) fingerprint(tenant string, t *StoreRequest) gencache.Fingerprint {
	return c.hasher.Sum(func(h *maphash.Hash) {
		for _, s := range []string{tenant, t.Origin.Server, t.Origin.Tool, t.CallID} {
			_, _ = h.WriteString(s)
			_ = h.WriteByte(0)
		}
		for _, raw := range t.Raw {
			maphash.WriteComparable(h, len(raw))
			_, _ = h.Write(raw)
		}
	})
}

// Epoch is the store's epoch. While the store is down it is the last one known: receipts stay valid,
// since a store that does not answer has not lost anything yet.
func (r *Recall) Epoch(ctx context.Context) state.Epoch {
	epoch, err := r.store.Epoch(ctx)
	if err != nil {
		return state.Epoch(r.receipts.lastEpoch.Load())
	}
	r.receipts.lastEpoch.Store(uint64(epoch))
	return epoch
}

// isShortened says whether a text is, to the byte, one that this gateway showed to the tenant instead
// of an original. The store remembers those texts under a keyed hash; a marker proves nothing, since
// anybody can write one. The lease of the original is renewed, because it is shown again. With an
// error the answer is not known.
func (r *Recall) isShortened(ctx context.Context, tenant string, text iter.Seq[[]byte]) (bool, error) {
	for _, t := range r.ring.Tenants(tenant) {
		k := r.namesOf(t)
		key := k.shortenedKey(hash128(k.shortened, text))
		raw, err := r.store.GetQuick(ctx, key)
		if err != nil {
			if err := ignoreUnknown(err); err != nil {
				return false, err
			}
			continue
		}
		_, _ = r.store.Touch(ctx, key) // a store that cannot write may still be read
		if id := decodeShownText(raw).id; id != "" {
			_, _ = r.store.Touch(ctx, k.groupKey(id))
		}
		return true, nil
	}
	return false, nil
}

// MarkShortened remembers texts that a caller made of a stored original, so that they are not cut
// again. Whoever sent the original has it already, so nothing counts as left out of them.
func (r *Recall) MarkShortened(ctx context.Context, tenant, id string, texts ...string) error {
	if !r.cfg.Enabled {
		return errDisabled
	}
	k, err := r.keysForStoring(ctx, tenant)
	if err != nil {
		return err
	}
	items := make([]state.Item, len(texts))
	for i, text := range texts {
		key := k.shortenedKey(hash128(k.shortened, textChunks(text)))
		items[i] = state.Item{Key: key, Group: key, Value: shownText{id, nothingMore}.encodeText()}
	}
	return r.put(ctx, k, items...)
}

// reservation is the memory that the originals of one reply hold on their way to the store: out of
// spill_bytes, which all replies share, and out of the caller's memory budget.
type reservation struct {
	spill *semaphore.Weighted
	scope *membudget.Scope
	held  int64
}

func (r *Recall) newReservation(ctx context.Context) reservation {
	return reservation{spill: r.spill, scope: membudget.FromContext(ctx)}
}

// reserve acquires what an original of n raw bytes needs: a part of its text, the part compressed and
// the part sealed. When too little is left, flush runs first: replies that each hold some memory and
// wait for more would wait for one another forever.
func (r *reservation) reserve(ctx context.Context, n int, flush func() error) error {
	need := 3 * min(int64(n), partSize)
	if r.spill.TryAcquire(need) {
		if r.scope.Reserve(need) == nil {
			r.held += need
			return nil
		}
		r.spill.Release(need)
	}
	if flush != nil {
		if err := flush(); err != nil {
			return err
		}
	}
	if err := r.spill.Acquire(ctx, need); err != nil {
		return fault.Wrap(fault.Full, "too many originals on their way to the store", err)
	}
	if err := r.scope.Reserve(need); err != nil {
		r.spill.Release(need)
		return err
	}
	r.held += need
	return nil
}

func (r *reservation) releaseAll() {
	r.spill.Release(r.held)
	r.scope.Free(r.held)
	r.held = 0
}
