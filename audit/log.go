package audit

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ctxgate/ctxgate/fault"
)

const (
	maxQueueBytes = 2 << 20 // of events that wait to be written

	// With on_failure = "deny", a request waits so long for its line. Once a write takes longer, requests do not wait.
	maxWait = 2 * time.Second

	// An event that nobody waits for is written so much later, together with those that follow: a write of its own would
	// cost more processor time than the decision. Who kills the process loses so much.
	gatherTime = 20 * time.Millisecond

	closeTimeout = 3 * time.Second        // for what is left in the queue
	retryDelay   = 100 * time.Millisecond // after a failed write
	reportEvery  = time.Minute            // a failure that lasts is logged so often
)

// Log is the audit log. Without a path it is off, and costs nothing. All methods are safe for concurrent use, and a nil
// Log is one that is off.
type Log struct {
	opts Options
	on   atomic.Bool
	deny atomic.Bool

	applying sync.Mutex // held while the destination changes

	cfg Config // guarded by applying

	mu       sync.Mutex
	current  *runner // nil: off
	queue    []byte  // events, each with a line break
	waiters  *batch  // who waits for the events in queue; nil: nobody
	dropped  int64   // events that did not fit since the last marker
	repeated map[string]*repeatedEvent

	wake    chan struct{} // something is queued
	urgent  chan struct{} // and somebody waits for it
	pool    sync.Pool     // of *[]byte
	written atomic.Int64
	lost    atomic.Int64
	failing atomic.Bool
}

// Stats is what a log has done.
type Stats struct {
	Written int64 // lines
	Dropped int64 // decisions that could not be written
	Queued  int64 // bytes of events that wait
	Failing bool  // the last write failed
}

// batch is the events that are written together.
type batch struct {
	done chan struct{}
	err  error
}

// runner is the goroutine that writes to one destination.
type runner struct {
	writer  *writer
	stop    chan struct{}
	done    chan struct{}
	busy    atomic.Int64 // when the write began that is under way, in Unix nanoseconds; 0: none
	failed  atomic.Bool
	pending atomic.Int64 // how many events are taken

	taken    []byte // events that are being written
	reported time.Time
}

// Open opens the log. The destination must be usable now; later failures are handled as on_failure says.
func Open(cfg Config, opts Options) (*Log, error) {
	l := &Log{opts: opts, wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
	l.pool.New = func() any { b := make([]byte, 0, 1<<10); return &b }
	if err := l.Apply(cfg); err != nil {
		return nil, err
	}
	return l, nil
}

// Enabled says whether there is a log, so that nobody prepares events for none.
func (l *Log) Enabled() bool { return l != nil && l.on.Load() }

// Required says that a call may be made only after its line was written.
func (l *Log) Required() bool { return l.Enabled() && l.deny.Load() }

// Record queues an event. It never waits and never fails: what does not fit in the queue is counted.
func (l *Log) Record(e *Event) {
	if l.Enabled() {
		_ = l.enqueue(e, false)
	}
}

var errNotRecorded = errors.New("the audit log cannot be written")

// Require records an event and waits until it is written, if on_failure is "deny". The error says that the call must
// not be made.
func (l *Log) Require(ctx context.Context, e *Event) error {
	if !l.Required() {
		l.Record(e)
		return nil
	}
	b := l.enqueue(e, true)
	if b == nil {
		return unavailable(errNotRecorded)
	}
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case <-b.done:
		if b.err != nil {
			return unavailable(b.err)
		}
		return nil
	case <-ctx.Done():
		return unavailable(ctx.Err())
	case <-timer.C:
		return unavailable(errNotRecorded)
	}
}

func unavailable(cause error) error {
	return fault.Wrap(fault.Unavailable, "the audit log cannot be written, and on_failure is \"deny\"", cause)
}

// enqueue adds an event to the queue. For a waiter it returns the batch, or nil if waiting would be in vain.
func (l *Log) enqueue(e *Event, wait bool) *batch {
	p := l.pool.Get().(*[]byte)
	body := append(appendEvent((*p)[:0], e), '\n')
	b := l.push(body, wait)
	*p = body
	l.pool.Put(p)
	notify(l.wake)
	if b != nil {
		notify(l.urgent)
	}
	return b
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *Log) push(body []byte, wait bool) *batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current == nil {
		return nil
	}
	if len(l.queue)+len(body) > maxQueueBytes {
		l.dropped++
		l.lost.Add(1)
		return nil
	}
	l.queue = append(l.queue, body...)
	if !wait || l.current.isStuck() {
		return nil
	}
	if l.waiters == nil {
		l.waiters = &batch{done: make(chan struct{})}
	}
	return l.waiters
}

// isStuck says that a write takes too long or the last one failed: who waits would wait in vain.
func (r *runner) isStuck() bool {
	since := r.busy.Load()
	return r.failed.Load() || since != 0 && time.Now().UnixNano()-since > int64(maxWait)
}

// Stats returns what the log has done.
func (l *Log) Stats() Stats {
	if l == nil {
		return Stats{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Written: l.written.Load(), Dropped: l.lost.Load(), Queued: int64(len(l.queue)), Failing: l.failing.Load()}
}

// Apply changes the configuration. The new destination is opened first: if that fails, the old one stays.
func (l *Log) Apply(cfg Config) error {
	l.applying.Lock()
	defer l.applying.Unlock()
	if cfg == l.cfg {
		return nil
	}
	var next *runner
	if cfg.Path != "" {
		w, err := openWriter(cfg, l.opts)
		if err != nil {
			return err
		}
		next = &runner{writer: w, stop: make(chan struct{}), done: make(chan struct{})}
	}
	l.replace(next, cfg)
	return nil
}

// Close writes what is queued and closes the log. It gives up after a few seconds.
func (l *Log) Close() error {
	if l != nil {
		l.applying.Lock()
		defer l.applying.Unlock()
		l.replace(nil, Config{})
	}
	return nil
}

// replace stops the runner and starts another, or none; l.applying is held.
func (l *Log) replace(next *runner, cfg Config) {
	if old := l.current; old != nil {
		l.flushRepeated()
		l.recordProcess(KindStop)
		l.stopRunner(old)
	}
	l.cfg = cfg
	l.mu.Lock()
	l.current = next
	l.on.Store(next != nil)
	l.deny.Store(cfg.OnFailure == Deny)
	if next == nil {
		l.queue, l.repeated = nil, nil
		l.answerWaiters(errNotRecorded)
	}
	l.mu.Unlock()
	if next != nil {
		l.failing.Store(false)
		l.recordProcess(KindStart)
		go l.run(next)
	}
}

// recordProcess records that this process starts or ends to write.
func (l *Log) recordProcess(kind string) {
	if !l.opts.Command {
		l.Record(&Event{Kind: kind, Reason: "process " + strconv.Itoa(os.Getpid())})
	}
}

// stopRunner lets a runner write what is queued. One that does not finish is left behind, and takes nothing more.
func (l *Log) stopRunner(r *runner) {
	close(r.stop)
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.current = nil
	if left := r.pending.Load(); left > 0 {
		l.dropped += left
		l.lost.Add(left)
		slog.Error("the audit log was closed before everything was written", "lines_left", left+countLines(l.queue))
	}
}

// answerWaiters tells those who wait for the queued events how it went; l.mu is held.
func (l *Log) answerWaiters(err error) {
	if l.waiters != nil {
		l.waiters.err = err
		close(l.waiters.done)
		l.waiters = nil
	}
}

// run writes what is queued until it is stopped.
func (l *Log) run(r *runner) {
	defer close(r.done)
	defer func() {
		if err := r.writer.close(); err != nil {
			slog.Error("closing the audit log", "error", err)
		}
	}()
	synced := time.Now()
	ticker := time.NewTicker(syncInterval)
	defer ticker.Stop()
	gather := time.NewTimer(gatherTime)
	defer gather.Stop()
	for ticks := 0; ; {
		stopping := false
		select {
		case <-l.wake:
			gather.Reset(gatherTime)
			select {
			case <-gather.C:
			case <-l.urgent:
			case <-r.stop:
				stopping = true
			}
		case <-r.stop:
			stopping = true
		case <-ticker.C:
			if ticks++; ticks%repeatTicks == 0 {
				l.flushRepeated()
			}
		}
		ok := l.drain(r)
		if r.writer.cfg.Sync != SyncNone && (stopping || time.Since(synced) >= syncInterval) {
			synced = time.Now()
			if err := r.writer.syncSink(); err != nil {
				l.report(r, err)
			}
		}
		switch {
		case stopping:
			return
		case !ok: // wait a little, so that a full disk does not keep a core busy
			select {
			case <-time.After(retryDelay):
			case <-r.stop:
				l.drain(r)
				return
			}
			notify(l.wake)
		}
	}
}

// drain writes until the queue is empty. It returns false if a write failed; then what was not written stays taken.
func (l *Log) drain(r *runner) bool {
	for {
		waiters, ok := l.take(r)
		if !ok {
			return true
		}
		r.pending.Store(countLines(r.taken))
		r.busy.Store(time.Now().UnixNano())
		n, err := r.writer.append(r.taken)
		r.busy.Store(0)
		l.written.Add(countLines(r.taken[:n]))
		r.taken = r.taken[:copy(r.taken, r.taken[n:])]
		r.pending.Store(countLines(r.taken))
		l.report(r, err)
		if waiters != nil {
			waiters.err = err
			close(waiters.done)
		}
		if err != nil {
			l.mu.Lock()
			l.answerWaiters(err)
			l.mu.Unlock()
			return false
		}
	}
}

// take moves the queue to the runner, unless the runner still has events to write. It returns false if there is nothing
// to write.
func (l *Log) take(r *runner) (*batch, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != r {
		return nil, false // it was left behind
	}
	if len(r.taken) > 0 { // of a write that failed; who waited for it was told
		return nil, true
	}
	if l.dropped > 0 { // after the events that were queued before it was full
		l.queue = append(appendEvent(l.queue, &Event{Kind: KindDropped, Reason: "the queue was full", Count: l.dropped}), '\n')
		l.dropped = 0
	}
	if len(l.queue) == 0 {
		return nil, false
	}
	r.taken, l.queue = l.queue, r.taken[:0]
	waiters := l.waiters
	l.waiters = nil
	return waiters, true
}

func countLines(events []byte) int64 { return int64(bytes.Count(events, []byte("\n"))) }

// report logs that writes fail, and that they succeed again.
func (l *Log) report(r *runner, err error) {
	was := r.failed.Swap(err != nil)
	l.failing.Store(err != nil)
	switch {
	case err != nil && (!was || time.Since(r.reported) > reportEvery):
		r.reported = time.Now()
		slog.Error("the audit log cannot be written", "error", err, "on_failure", r.writer.cfg.OnFailure, "dropped", strconv.FormatInt(l.lost.Load(), 10))
	case err == nil && was:
		slog.Warn("the audit log can be written again", "dropped", l.lost.Load())
	}
}
