package masking

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/gencache"
	"github.com/ctxgate/ctxgate/internal/varint"
	"github.com/ctxgate/ctxgate/recall"
)

// conversationStates keeps the states of conversations between their requests, in the store, so that any
// replica continues where another left off. If the store fails, the local state is used, or none: no request
// fails.
type conversationStates struct {
	recall *recall.Recall
	now    func() time.Time
	local  *gencache.Cache[string, conversationState] // states of this process
}

const (
	maxLocalStates = 1 << 12 // in each generation of local
	maxEvents      = 512     // of a conversation; older ones are dropped
)

// conversationState is the state of a conversation at one provider and model: each has its own cache.
type conversationState struct {
	lastRequestAt time.Time // when the last request was sent
	turns         int       // its tool turns
	prefix        history.Hash
	preamble      history.Hash // its tools and system prompt
	events        []history.Event

	storedAt time.Time // lastRequestAt as the store has it
}

// load returns the state of a conversation, false if there is none. A local state younger than trust is used
// without asking the store.
func (m *conversationStates) load(ctx context.Context, tenant, name string, trust time.Duration) (conversationState, bool) {
	local, known := m.local.Get(tenant + name)
	local.events = slices.Clip(local.events) // concurrent requests append to the same state
	if known && m.now().Sub(local.lastRequestAt) < trust {
		return local, true
	}
	raw, err := m.recall.GetRecord(ctx, tenant, name)
	var rec conversationState
	if err == nil {
		rec, err = decodeState(raw)
	}
	switch {
	case err == nil && known && local.lastRequestAt.After(rec.lastRequestAt):
		local.events, local.storedAt = rec.events, rec.storedAt
		return local, true
	case err == nil:
		return rec, true
	case fault.KindOf(err) != fault.UnknownHandle:
		slog.WarnContext(ctx, "the state of a conversation cannot be read; the local one is used", "error", err)
	}
	return local, known
}

// save records that a request is sent now. It writes to the store if something was decided, or if the stored
// time is behind by grain.
func (m *conversationStates) save(ctx context.Context, tenant, name string, rec conversationState, decided bool, grain time.Duration) {
	if over := len(rec.events) - maxEvents; over > 0 {
		rec.events = rec.events[over:]
	}
	rec.lastRequestAt = m.now()
	if decided || rec.lastRequestAt.Sub(rec.storedAt) >= grain {
		rec.storedAt = rec.lastRequestAt
		if err := m.recall.PutRecords(ctx, tenant, recall.Record{Name: name, Value: rec.encode()}); err != nil {
			slog.WarnContext(ctx, "the state of a conversation cannot be stored", "error", err)
			rec.storedAt = time.Time{}
		}
	}
	m.local.Put(tenant+name, rec, 1)
}

const stateVersion = 1

func (rec conversationState) encode() []byte {
	b := []byte{stateVersion}
	b = varint.AppendInt64(b, rec.lastRequestAt.UnixMilli())
	b = varint.AppendUint(b, rec.turns)
	b = append(append(b, rec.prefix[:]...), rec.preamble[:]...)
	for _, e := range rec.events {
		b = append(b, byte(e.Kind))
		for _, n := range []int{e.Turn, e.First, e.End} {
			b = varint.AppendUint(b, n)
		}
		b = append(b, e.Prefix[:]...)
	}
	return b
}

var errBadState = errors.New("the stored state of a conversation is not valid")

func decodeState(raw []byte) (rec conversationState, err error) {
	d := varint.NewDecoder(raw)
	if d.Byte() != stateVersion {
		return rec, errBadState
	}
	rec.lastRequestAt = time.UnixMilli(d.Int64())
	rec.storedAt = rec.lastRequestAt
	rec.turns = d.Uint()
	rec.prefix, rec.preamble = decodeHash(d), decodeHash(d)
	for len(d.Rest()) > 0 {
		rec.events = append(rec.events, history.Event{Kind: history.EventKind(d.Byte()), Turn: d.Uint(), First: d.Uint(), End: d.Uint(), Prefix: decodeHash(d)})
	}
	if d.Failed() {
		return conversationState{}, errBadState
	}
	return rec, nil
}

func decodeHash(d *varint.Decoder) (h history.Hash) {
	copy(h[:], d.Bytes(len(h)))
	return h
}
