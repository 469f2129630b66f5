package upstream

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// maxInstallHold is how long one install keeps others waiting. A launcher that hangs must not stop the rest.
const maxInstallHold = time.Minute

// InstallQueue limits how many servers are fetched by their launchers at the same time, and lets two that fetch the
// same package do so one after the other: older versions of npx damage their cache otherwise. A nil queue sets no
// limit.
type InstallQueue struct {
	slots chan struct{}

	mu     sync.Mutex
	byKey  map[string]chan struct{} // of what is being fetched
	inLine map[string]int           // how many have or want it
}

// NewInstallQueue returns a queue with a slot for each processor, but at least four.
func NewInstallQueue() *InstallQueue {
	return &InstallQueue{slots: make(chan struct{}, max(4, runtime.NumCPU())), byKey: map[string]chan struct{}{}, inLine: map[string]int{}}
}

// acquire waits until a package may be fetched. The function that it returns must be called when it is there; after
// maxInstallHold the next may start in any case.
func (q *InstallQueue) acquire(ctx context.Context, key string) (release func(), err error) {
	if q == nil {
		return func() {}, nil
	}
	q.mu.Lock()
	same := q.byKey[key]
	if same == nil {
		same = make(chan struct{}, 1)
		q.byKey[key] = same
	}
	q.inLine[key]++
	q.mu.Unlock()
	leave := func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.inLine[key]--; q.inLine[key] == 0 {
			delete(q.byKey, key)
			delete(q.inLine, key)
		}
	}
	select {
	case same <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
	select {
	case q.slots <- struct{}{}:
	case <-ctx.Done():
		<-same
		leave()
		return nil, ctx.Err()
	}
	free := sync.OnceFunc(func() {
		<-q.slots
		<-same
		leave()
	})
	timer := time.AfterFunc(maxInstallHold, free)
	return func() { timer.Stop(); free() }, nil
}
