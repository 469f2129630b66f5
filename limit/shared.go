package limit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"math"
	"strconv"
	"time"

	"github.com/ctxgate/ctxgate/state"
)

const (
	storeBudget = 50 * time.Millisecond  // how long a call waits for the store
	probeEvery  = 250 * time.Millisecond // how often a store that failed is tried
	grantFor    = 100 * time.Millisecond // how long calls that the store has granted can be used

	// A refusal of the store is repeated without asking for at most this long, and for a moment longer than it says where
	// calls come often.
	maxRefusal  = 250 * time.Millisecond
	maxShortest = 50 * time.Millisecond

	// All replicas together hold at most this part of a burst as calls that were granted and not yet used.
	grantedPart = 100
)

// Shared is a store that counts for all replicas.
type Shared struct {
	Counters state.Counters

	// Replicas is how many there are now, this one included. While the store does not answer, each has an equal share of
	// every rate.
	Replicas func() int

	// Timeout is how long a call waits for the store. Default 50 ms.
	Timeout time.Duration

	// OnChange is told when the store stops answering, with the error, and when it answers again, with nil. It must not
	// block. It may be nil.
	OnChange func(error)
}

// rateStore is a Shared and whether it answers; the limiter's lock guards it.
type rateStore struct {
	Shared
	isDown    bool
	failed    []state.Rate  // what it did not answer
	nextProbe time.Duration // while it is down
	isProbing bool
}

// grant is what this process knows of a bucket in the store.
type grant struct {
	key          string        // in the store
	group        string        // the same
	left         int64         // calls that were granted and not used
	grantedUntil time.Duration // when they have to be given back
	size         int64         // how many more calls the last request asked for
	isAsking     bool          // a request asks for more calls
	givenBack    int64         // granted and not used in time, not yet reported
	unreported   int64         // used while the store did not answer
	refusedUntil time.Duration
	refusalWait  time.Duration // when the store would have accepted a call
}

// Share counts rates in a store from now on, so that they hold for all replicas together. It is called before the first call.
func (l *Limiter) Share(s Shared) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Timeout = cmp.Or(s.Timeout, storeBudget)
	l.store = &rateStore{Shared: s}
}

// hashTexts is a name for several texts.
func hashTexts(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		_, _ = h.Write([]byte(strconv.Itoa(len(text)) + ":" + text))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// localRate is the rate of this process while it counts by itself: its share, if there are several.
func (l *Limiter) localRate(r *rule) rate {
	if l.store == nil {
		return r.rate
	}
	n := int64(max(1, l.store.Replicas()))
	return rate{calls: r.rate.calls, every: r.rate.every * time.Duration(n), burst: max(1, r.rate.burst/n)}
}

// missing is how many calls a bucket lacks.
func (r rate) missing(b bucket, now time.Duration) int64 {
	if r.isFull(b, now) {
		return 0
	}
	return int64(math.Ceil(float64(b.since+r.refillTime(b.calls)-now) / float64(r.every) * float64(r.calls)))
}

// isStoreUp says whether to ask the store. One that failed is tried in the background: no call waits for it.
func (l *Limiter) isStoreUp(now time.Duration) bool {
	s := l.store
	if s == nil {
		return false
	}
	if s.isDown && !s.isProbing && now >= s.nextProbe {
		s.isProbing = true
		go l.probeStore(s.failed)
	}
	return !s.isDown
}

func (l *Limiter) probeStore(rates []state.Rate) {
	_, err := l.askStore(rates)
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.store
	s.isProbing = false
	if s.isDown = err != nil; s.isDown {
		s.nextProbe = l.now().Sub(l.start) + probeEvery
	} else if s.OnChange != nil {
		s.OnChange(nil)
	}
}

// askStore needs no context of a caller: it takes at most Timeout, and what it takes has to be counted.
func (l *Limiter) askStore(rates []state.Rate) (state.Taken, error) {
	ctx, cancel := context.WithTimeout(context.Background(), l.store.Timeout)
	defer cancel()
	return l.store.Counters.Take(ctx, rates)
}

// setDown stops asking the store after an error.
func (l *Limiter) setDown(rates []state.Rate, err error) {
	s := l.store
	if s.isDown {
		return
	}
	s.isDown, s.failed, s.nextProbe = true, rates, l.now().Sub(l.start)+probeEvery
	for i := range s.failed {
		s.failed[i].Cost, s.failed[i].Extra, s.failed[i].Spent = 0, 0, 0
	}
	if s.OnChange != nil {
		s.OnChange(err)
	}
}

// takeShared takes a call from what the store has granted to this process, or asks the store; meanwhile the lock is not held.
// isDecided is false if the store does not answer: then nothing is taken.
func (l *Limiter) takeShared(matches []match, now time.Duration, h *Hold) (isDecided bool, err error) {
	var refusal *rule
	var wait time.Duration
	for _, m := range matches {
		if m.isHeld && m.inFlight >= m.entry.Concurrency && wait < busyRetry {
			refusal, wait = m.rule, busyRetry
		}
		if m.isRating && m.knows() && now < m.refusedUntil && m.refusalWait-now > wait {
			refusal, wait = m.rule, m.refusalWait-now
		}
	}
	if refusal != nil {
		return true, refusal.refuse(wait)
	}
	var rates []state.Rate
	var asked []int // the matches that the rates are of
	for i := range matches {
		m := &matches[i]
		if m.isHeld {
			m.inFlight++ // at once, so that others see it while the lock is not held
		}
		m.store()
		if !m.isRating {
			continue
		}
		m.expire(now)
		if m.isLeased = m.knows() && m.left > 0; m.isLeased {
			m.left--
			continue
		}
		rates, asked = append(rates, l.request(m, now)), append(asked, i)
	}
	if len(rates) == 0 {
		l.commit(matches, now, h)
		return true, nil
	}

	l.mu.Unlock()
	taken, err := l.askStore(rates)
	l.mu.Lock()

	now = l.now().Sub(l.start)
	for j, i := range asked {
		m := matches[i]
		if !m.knows() {
			continue
		}
		if rates[j].Extra > 0 {
			m.isAsking = false
		}
		if err != nil {
			m.unreported += max(rates[j].Spent, 0)
			m.givenBack += max(-rates[j].Spent, 0)
		} else if taken.OK && len(taken.Extra) > 0 && taken.Extra[j] > 0 {
			m.left += taken.Extra[j]
			m.grantedUntil = now + grantFor
		}
	}
	if err == nil && taken.OK {
		l.commit(matches, now, h)
		return true, nil
	}
	for _, m := range matches {
		if m.isHeld {
			m.inFlight--
		}
		if m.isLeased {
			m.left++
		}
	}
	if err != nil {
		l.setDown(rates, err)
		return false, nil
	}
	m := matches[asked[taken.Limit]]
	if m.knows() {
		m.refusalWait = now + max(taken.Retry, l.shortestRefusal(m.rate))
		m.refusedUntil = min(m.refusalWait, now+maxRefusal)
	}
	return true, m.refuse(taken.Retry)
}

// mostGranted is how many calls a process may be granted at once: 1 if every call asks.
func (l *Limiter) mostGranted(r rate) int64 {
	return max(1, min(r.burst/int64(grantedPart*max(1, l.store.Replicas())), state.MaxExtra))
}

// shortestRefusal is how long a refusal is repeated at least, where calls come so often that not all ask: at most while
// the rate gains half a percent of its burst, which is not lost by that.
func (l *Limiter) shortestRefusal(r rate) time.Duration {
	if l.mostGranted(r) <= 1 {
		return 0
	}
	return min(r.refillTime(r.burst)/(2*grantedPart), maxShortest)
}

// knows says whether the usage is of one owner; that of the callers beyond maxKeys says nothing about one of them.
func (m match) knows() bool { return m.usage != &m.shared }

// expire takes back what was granted and not used in time.
func (u *usage) expire(now time.Duration) {
	if u.left > 0 && now >= u.grantedUntil {
		u.givenBack += u.left
		u.left, u.size = 0, 0
	}
}

// request is what a call asks the store for: itself and, if calls come often, some of the next ones, so that not every
// call asks.
func (l *Limiter) request(m *match, now time.Duration) state.Rate {
	r := state.Rate{Calls: m.rate.calls, Every: m.rate.every, Burst: m.rate.burst, Cost: 1}
	if !m.knows() {
		r.Group, r.Key = m.storeKey()
		return r
	}
	if m.key == "" {
		m.group, m.key = m.storeKey()
	}
	r.Group, r.Key = m.group, m.key
	local := l.localRate(m.rule)
	r.Spent = min(m.unreported, local.missing(m.bucket, now)) - m.givenBack
	m.unreported, m.givenBack = 0, 0
	if most := l.mostGranted(m.rate); most > 1 && !m.isAsking {
		// Twice as many as the last time if those were used up in time, none after a pause.
		if now < m.grantedUntil {
			m.size = 2*m.size + 1
		} else {
			m.size = 0
			m.grantedUntil = now + grantFor
		}
		m.size = min(m.size, most-1)
		r.Extra, m.isAsking = m.size, m.size > 0
	}
	return r
}

// storeKey is where the store counts the calls of an owner. All rates of a tenant are in one group.
func (m match) storeKey() (group, key string) {
	key = hashTexts(m.id, m.owner.Tenant, m.owner.Issuer, m.owner.Subject, m.owner.Credential)
	if m.entry.Per == "match" {
		return m.id, key
	}
	return hashTexts("tenant", m.owner.Tenant), key
}

// commit counts a call that the store has accepted. The process's own bucket counts it, too, as far as it goes: if the
// store stops answering, it has no second burst.
func (l *Limiter) commit(matches []match, now time.Duration, h *Hold) {
	for _, m := range matches {
		if m.isRating && m.knows() {
			if r := l.localRate(m.rule); r.wait(m.bucket, now) == 0 {
				r.takeCall(&m.bucket, now)
			}
		}
		if m.isHeld {
			h.addUsage(m.usage)
		}
	}
}
