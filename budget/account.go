package budget

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/state"
)

const (
	// freshFor is how long a refusal may rely on what was last read: other processes may have given something back.
	freshFor = time.Second

	// maxAttempts is how often a write is tried again because another process came before it.
	maxAttempts = 20
)

// account is the tally of one tenant. Operations that come while one is written are written together afterwards.
type account struct {
	tenant string

	mu      sync.Mutex
	queue   []*operation
	running bool // a goroutine writes

	// Of the goroutine that writes:
	stored   []byte // what is in the store, as far as is known; nil for nothing
	readAt   time.Time
	unsaved  change // what could not be stored
	tried    []byte // what a write that failed may have stored all the same
	triedFor change // and the part of unsaved that is in it
	hasError bool   // the last write failed
}

// operation is one change of a tally. The goroutine that writes fills in the rest and closes done.
type operation struct {
	change
	mayRefuse bool

	refusal error
	warning string
	done    chan struct{}
}

// submit has an operation done, soon.
func (a *account) submit(t *Tracker, op *operation) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = append(a.queue, op)
	if !a.running {
		a.running = true
		t.writes.Go(func() { a.run(t) })
	}
}

// run does operations until there are none.
func (a *account) run(t *Tracker) {
	for {
		a.mu.Lock()
		batch := a.queue
		a.queue = nil
		if len(batch) == 0 {
			a.running = false
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		a.runBatch(t, batch)
		for _, op := range batch {
			close(op.done)
		}
	}
}

// isIdle says whether nothing is lost if the account is forgotten.
func (a *account) isIdle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.running && a.unsaved.isZero()
}

// runBatch decides about operations and stores their changes. If the store fails, they count in this process, and are
// stored with the next ones.
func (a *account) runBatch(t *Tracker, batch []*operation) {
	ctx := context.Background() // the store has a time limit of its own
	var total change
	var err error
	for range maxAttempts {
		if a.readAt.IsZero() {
			if err = a.read(ctx, t); err != nil {
				break
			}
		}
		total = a.decide(t, batch)
		if t.now().Sub(a.readAt) >= freshFor && hasRefusal(batch) {
			a.readAt = time.Time{}
			continue
		}
		if total.isZero() {
			return
		}
		var stored bool
		if stored, err = a.write(ctx, t, total); stored || err != nil {
			break
		}
		a.readAt = time.Time{} // another process wrote
		err = fault.New(fault.Unavailable, "other processes change this budget all the time")
	}
	if err != nil {
		a.readAt = time.Time{}
		total = a.decide(t, batch) // by what is known here
		if !a.hasError {
			slog.WarnContext(ctx, "what a tenant used of its budget could not be stored; this process counts by itself until it can be", "tenant", a.tenant, "error", err)
		}
		a.addUnsaved(total)
	}
	a.hasError = err != nil
}

func hasRefusal(batch []*operation) bool {
	for _, op := range batch {
		if op.refusal != nil {
			return true
		}
	}
	return false
}

// decide decides about each operation, in order, and returns the sum of their changes.
func (a *account) decide(t *Tracker, batch []*operation) (total change) {
	have := readTally(a.stored).at(t.now()).with(a.unsaved)
	for _, op := range batch {
		op.refusal = nil
		if op.mayRefuse {
			if op.refusal = t.refusalOf(a.tenant, have); op.refusal != nil {
				continue
			}
			op.warning = t.warningOf(a.tenant, have)
		}
		have = have.with(op.change)
		total.addChange(op.change)
	}
	return total
}

func (a *account) read(ctx context.Context, t *Tracker) error {
	raw, err := t.store.Get(ctx, keyPrefix+a.tenant)
	if fault.KindOf(err) == fault.UnknownHandle {
		raw, err = nil, nil
	}
	if err != nil {
		return err
	}
	a.stored, a.readAt = raw, t.now()
	if a.tried != nil && bytes.Equal(raw, a.tried) {
		a.addUnsaved(a.triedFor.negative())
	}
	a.tried = nil
	return nil
}

func (a *account) addUnsaved(c change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unsaved.addChange(c)
}

// write stores the tally after a change, and what could not be stored before. It returns false if another process has
// stored another since it was read.
func (a *account) write(ctx context.Context, t *Tracker, c change) (bool, error) {
	next := readTally(a.stored).at(t.now()).with(a.unsaved).with(c)
	raw, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	key := keyPrefix + a.tenant
	stored, err := t.store.PutIf(ctx, state.Condition{Group: key, Key: key, Value: a.stored}, state.Item{Key: key, Group: key, Value: raw, Pinned: true})
	if err != nil {
		a.tried, a.triedFor = raw, change{}
		a.triedFor.addChange(a.unsaved)
		a.triedFor.addChange(c)
	}
	if err != nil || !stored {
		return false, err
	}
	a.stored, a.readAt = raw, t.now()
	a.mu.Lock()
	a.unsaved = change{}
	a.mu.Unlock()
	return true, nil
}
