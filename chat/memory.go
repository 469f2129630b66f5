package chat

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/lately"
	"github.com/ctxgate/ctxgate/recall"
)

// memory is what is known of conversations between their requests: when the last one went to the
// provider, and what was decided that cannot be told from the conversation. It is in the store, so
// that any replica goes on where another left off. A store that fails costs no request: then what
// this process knows counts, and else nothing.
type memory struct {
	notes *recall.Recall
	now   func() time.Time
	here  *lately.Map[string, record] // those of this process
}

const (
	memoryMost = 1 << 12 // conversations in each half of what is here
	eventsMost = 512     // of a conversation; beyond, the oldest are forgotten
)

// record is what is known of one conversation at one provider, under one model: another's cache is
// another cache.
type record struct {
	seen   time.Time // when a request last went out
	turns  int       // how many tool turns that had
	said   history.Sum
	front  history.Sum // its tools and system prompt
	events []history.Event

	stored time.Time // what the store knows of seen
}

// recall is the record of a conversation; false where there is none. What this process noted less
// than trust ago is taken for all there is.
func (m *memory) recall(ctx context.Context, tenant, name string, trust time.Duration) (record, bool) {
	here, known := m.here.Get(tenant + name)
	here.events = slices.Clip(here.events) // others have the same record, and add to it too
	if known && m.now().Sub(here.seen) < trust {
		return here, true
	}
	raw, err := m.notes.GetNote(ctx, tenant, name)
	var rec record
	if err == nil {
		rec, err = decodeRecord(raw)
	}
	switch {
	case err == nil && known && here.seen.After(rec.seen):
		here.events, here.stored = rec.events, rec.stored
		return here, true
	case err == nil:
		return rec, true
	case fault.KindOf(err) != fault.Unknown:
		slog.WarnContext(ctx, "what is known of a conversation cannot be read", "error", err)
	}
	return here, known
}

// note remembers a request that goes out now. The store is told when something was decided, and
// otherwise only when what it knows is behind by grain.
func (m *memory) note(ctx context.Context, tenant, name string, rec record, decided bool, grain time.Duration) {
	if over := len(rec.events) - eventsMost; over > 0 {
		rec.events = rec.events[over:]
	}
	rec.seen = m.now()
	if decided || rec.seen.Sub(rec.stored) >= grain {
		rec.stored = rec.seen
		if err := m.notes.PutNotes(ctx, tenant, recall.Note{Name: name, Value: rec.encode()}); err != nil {
			slog.WarnContext(ctx, "what was decided for a conversation cannot be kept", "error", err)
			rec.stored = time.Time{}
		}
	}
	m.here.Put(tenant+name, rec, 1)
}

const recordVersion = 1

func (rec record) encode() []byte {
	b := []byte{recordVersion}
	b = binary.AppendVarint(b, rec.seen.UnixMilli())
	b = binary.AppendUvarint(b, uint64(rec.turns))
	b = append(append(b, rec.said[:]...), rec.front[:]...)
	for _, e := range rec.events {
		b = append(b, byte(e.Kind))
		for _, n := range []int{e.Turn, e.First, e.End} {
			b = binary.AppendUvarint(b, uint64(n))
		}
		b = append(b, e.Prefix[:]...)
	}
	return b
}

var errRecord = errors.New("a record of a conversation cannot be read")

func decodeRecord(raw []byte) (rec record, err error) {
	d := decoder{raw: raw}
	if d.byte() != recordVersion {
		return rec, errRecord
	}
	rec.seen = time.UnixMilli(d.signed())
	rec.stored = rec.seen
	rec.turns = d.number()
	rec.said, rec.front = d.sum(), d.sum()
	for len(d.raw) > 0 && !d.failed {
		rec.events = append(rec.events, history.Event{Kind: history.Kind(d.byte()), Turn: d.number(), First: d.number(), End: d.number(), Prefix: d.sum()})
	}
	if d.failed {
		return record{}, errRecord
	}
	return rec, nil
}

type decoder struct {
	raw    []byte
	failed bool
}

func (d *decoder) take(n int) []byte {
	if d.failed = d.failed || n <= 0 || n > len(d.raw); d.failed {
		return nil
	}
	out := d.raw[:n]
	d.raw = d.raw[n:]
	return out
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) signed() int64 {
	n, size := binary.Varint(d.raw)
	d.take(size)
	return n
}

func (d *decoder) number() int {
	n, size := binary.Uvarint(d.raw)
	d.take(size)
	return int(n & (1<<31 - 1))
}

func (d *decoder) sum() (s history.Sum) {
	copy(s[:], d.take(len(s)))
	return s
}
