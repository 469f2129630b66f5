// Package changes tells all replicas of a gateway that something changed which each of them has a copy of: the
// configuration file, the lists of a server.
//
// Each topic has a version in the store that replicas share, and one more for all topics together. Who changes something
// raises both and sends a signal with the new version. Signals may be lost, so every replica also compares the versions
// regularly. Nothing of what changed is in the store: a replica that learns of a change reads the thing itself again.
//
// While the store is away changes wait, one per topic, and are announced when it is back.
package changes

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/state"
)

const (
	signalTopic   = "changes"
	versionPrefix = "change " // of the keys of versions
	totalKey      = "changes"

	checkInterval = 10 * time.Second
	storeTimeout  = 2 * time.Second
	lifetime      = 30 * 24 * time.Hour // a version that is gone begins again: all replicas read once more
	maxHints      = 256                 // that wait; above it all versions are compared
)

// Feed announces changes of this process and learns of those of others. Make one with New; Run does the work.
type Feed struct {
	shared state.Shared
	topics func() []string
	notify func(topic, detail string)

	wake  chan struct{} // something waits to be announced, or all versions are to be compared
	hints chan signal

	mu      sync.Mutex
	pending map[string]string // detail by topic, not announced yet
	compare bool

	// Of Run alone.
	seen  map[string]int64
	total int64
	known bool // total was read
}

// signal is what is published.
type signal struct {
	Topic   string `json:"topic"`
	Version int64  `json:"version"`
	Detail  string `json:"detail,omitempty"`
}

// New returns a feed. topics says which topics there are now. notify is called, by Run, for a change that another process
// announced; detail is what it said, or "" where that is not known. It must not block for long.
func New(shared state.Shared, topics func() []string, notify func(topic, detail string)) *Feed {
	return &Feed{
		shared: shared, topics: topics, notify: notify,
		wake: make(chan struct{}, 1), hints: make(chan signal, maxHints), pending: map[string]string{}, seen: map[string]int64{},
	}
}

// Announce tells all other replicas of a change. It does not wait for the store; of several changes of a topic the last
// counts.
func (f *Feed) Announce(topic, detail string) {
	f.mu.Lock()
	f.pending[topic] = detail
	f.mu.Unlock()
	f.wakeUp()
}

func (f *Feed) wakeUp() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	f.shared.Subscribe(ctx, signalTopic, f.receive)
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-f.hints:
			f.apply(s)
			continue
		case <-f.wake:
		case <-tick.C:
			f.requestCompare()
		}
		if err := f.catchUp(ctx); err != nil && ctx.Err() == nil {
			slog.Debug("changes of other replicas are not known", "error", err)
		}
	}
}

// receive takes a signal; nil says that some may have been missed.
func (f *Feed) receive(payload []byte) {
	var s signal
	if json.Unmarshal(payload, &s) == nil {
		select {
		case f.hints <- s:
			return
		default:
		}
	}
	f.requestCompare()
	f.wakeUp()
}

func (f *Feed) requestCompare() {
	f.mu.Lock()
	f.compare = true
	f.mu.Unlock()
}

// apply reacts to a signal.
func (f *Feed) apply(s signal) {
	if !slices.Contains(f.topics(), s.Topic) {
		return // this replica has another configuration, for now
	}
	before, ok := f.seen[s.Topic]
	if ok && before == s.Version {
		return // our own, or found by comparing
	}
	if ok && before+1 != s.Version {
		s.Detail = "" // there were others
	}
	f.seen[s.Topic] = s.Version
	f.notify(s.Topic, s.Detail)
}

// catchUp announces what waits, and compares all versions if that was asked for. What fails is done again.
func (f *Feed) catchUp(ctx context.Context) error {
	f.mu.Lock()
	pending, compare := maps.Clone(f.pending), f.compare
	f.compare = false
	f.mu.Unlock()
	if compare { // first: what others announced before is not skipped by our own versions
		if err := f.compareAll(ctx); err != nil {
			return err // the next tick asks again
		}
	}
	for topic, detail := range pending {
		if err := f.announce(ctx, topic, detail); err != nil {
			return err
		}
		f.mu.Lock()
		if f.pending[topic] == detail {
			delete(f.pending, topic)
		}
		f.mu.Unlock()
	}
	return nil
}

func (f *Feed) announce(ctx context.Context, topic, detail string) error {
	version, err := f.addVersion(ctx, versionPrefix+topic, 1)
	if err != nil {
		return err
	}
	if _, err := f.addVersion(ctx, totalKey, 1); err != nil {
		return err
	}
	if before, ok := f.seen[topic]; !ok || before+1 == version { // otherwise somebody else changed it, too
		f.seen[topic] = version
	}
	payload, err := json.Marshal(signal{topic, version, detail})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := f.shared.Publish(ctx, signalTopic, payload); err != nil {
		slog.Debug("a change was not signalled; other replicas find it by its version", "topic", topic, "error", err)
	}
	return nil
}

// compareAll notifies of every topic whose version is another than before.
func (f *Feed) compareAll(ctx context.Context) error {
	total, err := f.addVersion(ctx, totalKey, 0)
	if err != nil || f.known && total == f.total {
		return err
	}
	topics := f.topics()
	maps.DeleteFunc(f.seen, func(topic string, _ int64) bool { return !slices.Contains(topics, topic) })
	for _, topic := range topics {
		version, err := f.addVersion(ctx, versionPrefix+topic, 0)
		if err != nil {
			return err
		}
		before, ok := f.seen[topic]
		f.seen[topic] = version
		if ok && before != version {
			f.notify(topic, "")
		}
	}
	f.total, f.known = total, true
	return nil
}

func (f *Feed) addVersion(ctx context.Context, key string, delta int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return f.shared.Add(ctx, key, delta, lifetime)
}
