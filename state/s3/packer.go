package s3

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/ctxgate/ctxgate/state"
)

const (
	// A segment is uploaded when it has segmentBytes, or manyEntries, or when its time has come.
	segmentBytes = 8 << 20
	manyEntries  = 64

	// maxPendingBytes is how much of all values can wait for their upload, or be under way. Once more of it is in the
	// bodies of the requests.
	maxPendingBytes = 32 << 20

	uploadTimeout = 30 * time.Second
)

// pace is how long values wait for others.
type pace struct {
	linger       time.Duration // a value that comes alone
	shortSpacing time.Duration // between the uploads of two segments, if there are manyEntries
	spacing      time.Duration // between two uploads otherwise, which is the longest that a value waits
}

// With defaultPace, 100 values a second make 17 PUTs of 1,000 values, and more a second fewer; a gateway that was idle
// uploads a value without much delay.
var defaultPace = pace{linger: 50 * time.Millisecond, shortSpacing: 100 * time.Millisecond, spacing: 600 * time.Millisecond}

// packer packs the values of concurrent Puts into segments.
type packer struct {
	bucket     *bucket
	onUploaded func(*segment) // after the callers were told
	memory     *semaphore.Weighted
	pace       pace

	mu        sync.Mutex
	open      *batch // that takes further values; nil if there is none
	lastFlush time.Time
	closed    bool
	uploads   sync.WaitGroup
}

// batch is a segment on its way, and those who wait for it.
type batch struct {
	segment
	size     int
	reserved int64 // of the packer's memory
	timer    *time.Timer
	waiting  int // guarded by the packer
	cancel   context.CancelFunc
	done     chan struct{} // closed when it is uploaded, or failed
	err      error
}

func newPacker(b *bucket, onUploaded func(*segment)) *packer {
	return &packer{bucket: b, onUploaded: onUploaded, memory: semaphore.NewWeighted(maxPendingBytes), pace: defaultPace}
}

// upload returns where the entries are, after the segment with all of them was uploaded.
func (p *packer) upload(ctx context.Context, entries []entry) ([]pointer, error) {
	size := 0
	for _, e := range entries {
		size += len(e.Value)
	}
	if err := p.memory.Acquire(ctx, reservedBytes(size)); err != nil {
		return nil, err
	}
	b, first, err := p.addEntries(entries, size)
	if err != nil {
		p.memory.Release(reservedBytes(size))
		return nil, err
	}
	defer p.leave(b)
	select {
	case <-b.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if b.err != nil {
		return nil, b.err
	}
	pointers := make([]pointer, len(entries))
	for i := range entries {
		pointers[i] = b.pointer(first + i)
	}
	return pointers, nil
}

// reservedBytes is what values count towards maxPendingBytes: values that are larger wait until they are alone.
func reservedBytes(size int) int64 { return int64(min(size, maxPendingBytes)) }

// addEntries adds entries to the open batch, all to the same.
func (p *packer) addEntries(entries []entry, size int) (b *batch, first int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, 0, state.ErrClosed
	}
	if p.open != nil && p.open.size+size > segmentBytes {
		p.startUpload(p.open)
	}
	now := time.Now()
	if p.open == nil {
		b := &batch{done: make(chan struct{})}
		_, _ = rand.Read(b.id[:]) // never fails
		p.open = b
		b.timer = time.AfterFunc(max(p.pace.linger, p.lastFlush.Add(p.pace.spacing).Sub(now)), func() { p.uploadOpen(b) })
	}
	b = p.open
	b.waiting++
	b.size += size
	b.reserved += reservedBytes(size)
	first = len(b.entries)
	for _, e := range entries {
		b.endHour = max(b.endHour, segmentEnd(e.lastUsed, e.expires))
		b.entries = append(b.entries, e)
	}
	switch {
	case b.size >= segmentBytes:
		p.startUpload(b)
	case len(b.entries) >= manyEntries:
		b.timer.Reset(max(0, p.lastFlush.Add(p.pace.shortSpacing).Sub(now)))
	}
	return b, first, nil
}

// leave counts a waiter out. What nobody waits for is not uploaded.
func (p *packer) leave(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.waiting--; b.waiting == 0 && b.cancel != nil {
		b.cancel()
	}
}

func (p *packer) uploadOpen(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == b {
		p.startUpload(b)
	}
}

// startUpload starts the upload of the open batch; the packer is locked.
func (p *packer) startUpload(b *batch) {
	p.open = nil
	b.timer.Stop()
	p.lastFlush = time.Now()
	var ctx context.Context
	ctx, b.cancel = context.WithTimeout(context.Background(), uploadTimeout)
	if b.waiting == 0 {
		b.cancel()
	}
	p.uploads.Add(1)
	go p.uploadBatch(ctx, b)
}

func (p *packer) uploadBatch(ctx context.Context, b *batch) {
	defer p.uploads.Done()
	b.written = time.Now().UnixNano()
	if b.err = ctx.Err(); b.err == nil {
		b.err = p.bucket.Put(ctx, segmentName(b.endHour, b.id), b.encodeObject())
	}
	close(b.done)
	b.cancel()
	if b.err == nil {
		p.onUploaded(&b.segment)
	}
	p.memory.Release(b.reserved)
}

// Close uploads what waits, and waits for it.
func (p *packer) Close() {
	p.mu.Lock()
	p.closed = true
	if p.open != nil {
		p.startUpload(p.open)
	}
	p.mu.Unlock()
	p.uploads.Wait()
}
