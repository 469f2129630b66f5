package history

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sort"
	"sync"

	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// ConversationCache is a bounded two-generation cache of conversations. The next request of a conversation
// begins with the bytes of the last one (they are compared, not hashed), so reading resumes where those
// bytes end, and what was found out about them is reused. It saves 3 to 7 times the processor time on
// conversations that grow (go run ./tools/bench growing); it never changes a result.
//
// The cache keeps the bodies it has read: they must not be modified. A conversation is taken out while one
// of its requests is in flight; a second request at the same time is read from its beginning.
type ConversationCache struct {
	generationBytes int // limit of each generation
	depth           int
	seed            maphash.Seed

	mu           sync.Mutex
	currentBytes int // held in current
	current      map[conversationKey][]*cachedConversation
	previous     map[conversationKey][]*cachedConversation
}

// conversationKey is what all requests of a conversation share.
type conversationKey struct {
	owner string
	codec llm.Codec
	head  uint64
}

const (
	keyBytes          = 256 // the first bytes of a request, part of its key
	tailBytes         = 64  // the last bytes of a conversation, compared first
	minCachedBytes    = 8 << 10
	messageOverhead   = 768 // memory of a message besides its bytes, about
	maxPartialMatches = 8   // conversations that are compared for a common beginning
)

// NewConversationCache makes a cache of about size bytes, for requests nested at most maxDepth deep.
func NewConversationCache(size, maxDepth int) *ConversationCache {
	return &ConversationCache{generationBytes: size / 2, depth: maxDepth, seed: maphash.MakeSeed()}
}

// cachedConversation is a request up to the end of its messages.
type cachedConversation struct {
	key    conversationKey
	reader reader // in its state at that point
	prefix []byte // the body up to that point
	size   int    // memory, about
}

// Read is [Read] for the conversations of an owner. Call Put afterwards, so that the next request can
// resume. What is found in the request is charged to the scope.
func (m *ConversationCache) Read(owner string, codec llm.Codec, body []byte, memory *membudget.Scope) (*Dialogue, error) {
	r := newReader(codec, body)
	r.memory = memory
	if len(body) < minCachedBytes {
		return r.readRequest(m.depth)
	}
	r.entry = &cachedConversation{key: conversationKey{owner, codec, maphash.Bytes(m.seed, body[:keyBytes])}}
	if old, upto := m.takeBestMatch(r.entry.key, body); old != nil {
		resumed := old.reader.resume(body, upto)
		resumed.entry, resumed.memory, resumed.chargedParts = r.entry, memory, 0
		if d, err := resumed.readOn(m.depth); err == nil {
			d.resumed = true
			return d, nil
		} // a full read reports the error with its position
	}
	return r.readRequest(m.depth)
}

// Put stores a conversation that m has read, with what was found out about it. It takes d's results: no
// plan of d may be used afterwards. The rest of d stays readable.
func (m *ConversationCache) Put(d *Dialogue) {
	if d == nil || d.entry == nil {
		return
	}
	s := d.entry
	d.entry = nil
	messages := s.reader.d.Messages
	end := messages[len(messages)-1].End
	s.reader.memory = nil
	s.size = len(d.body) + messageOverhead*(len(messages)+len(s.reader.d.Results)+len(s.reader.callLog))
	if end < minCachedBytes || s.size > m.generationBytes {
		return
	}
	s.prefix = d.body[:end]
	s.reader.adoptFindings(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil || m.currentBytes+s.size > m.generationBytes {
		m.current, m.previous, m.currentBytes = map[conversationKey][]*cachedConversation{}, m.current, 0
	}
	m.currentBytes += s.size
	m.current[s.key] = append(m.current[s.key], s)
}

// takeBestMatch removes and returns the conversation that has the longest beginning in common with a
// request, and the length of that beginning.
func (m *ConversationCache) takeBestMatch(key conversationKey, body []byte) (best *cachedConversation, upto int) {
	m.mu.Lock()
	all := slices.Concat(m.previous[key], m.current[key])
	m.mu.Unlock()
	for _, s := range slices.Backward(all) { // newest first
		n := len(s.prefix)
		// Conversations that differ mostly differ at the end, which is cheaper to compare.
		if n <= len(body) && n > upto && bytes.HasSuffix(body[:n], s.prefix[max(0, n-tailBytes):]) && bytes.Equal(s.prefix, body[:n]) {
			best, upto = s, n
		}
	}
	for i, s := range slices.Backward(all) {
		if best != nil || len(all)-i > maxPartialMatches {
			break
		}
		messages := s.reader.d.Messages
		if n := commonPrefix(s.prefix, body); n >= messages[len(messages)/2].End {
			best, upto = s, n
		}
	}
	if best == nil || !m.remove(best) {
		return nil, 0
	}
	return best, upto
}

// commonPrefix is the length of the longest common prefix.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	const step = 4 << 10
	at := 0
	for at+step <= n && bytes.Equal(a[at:at+step], b[at:at+step]) {
		at += step
	}
	for at < n && a[at] == b[at] {
		at++
	}
	return at
}

// remove takes a conversation out. It reports false if another request has taken it.
func (m *ConversationCache) remove(s *cachedConversation) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, half := range []map[conversationKey][]*cachedConversation{m.current, m.previous} {
		at := slices.Index(half[s.key], s)
		if at < 0 {
			continue
		}
		if i == 0 {
			m.currentBytes -= s.size
		}
		if half[s.key] = slices.Delete(half[s.key], at, at+1); len(half[s.key]) == 0 {
			delete(half, s.key)
		}
		return true
	}
	return false
}

// prepareEntry copies the state at the end of the messages, for the cache.
func (r *reader) prepareEntry() {
	if r.entry == nil || len(r.d.Messages) == 0 {
		return
	}
	s := r.entry
	d := *r.d
	s.reader = *r
	s.reader.d, s.reader.entry = &d, nil
	s.reader.keys = slices.Clip(s.reader.keys)
	d.front, d.others = slices.Clip(d.front), slices.Clip(d.others)
	s.reader.body, d.body = nil, nil
	r.d.entry = s
}

// adoptFindings takes over what was found out about a conversation since it was read.
func (r *reader) adoptFindings(d *Dialogue) {
	d.clearReductions()
	r.d.Results, r.d.prefixes, r.d.keeper = d.Results, d.prefixes, d.keeper
	// The next reader appends to these: d must not share them.
	d.Results, d.prefixes = nil, prefixSums{sums: slices.Clip(d.prefixes.sums)}
}

// clearReductions undoes SetReductions, which each request calls anew.
func (d *Dialogue) clearReductions() {
	if !d.reduced {
		return
	}
	d.reduced = false
	total := 0
	for i := range d.Results {
		r := &d.Results[i]
		total += r.reducedBy
		r.before += total - r.reducedBy
		if r.reducedBy > 0 {
			d.Messages[r.Message].Bytes += r.reducedBy
			r.reducedBy = 0
		}
	}
}

// resume returns a reader of body that has already read the messages that end within its first upto bytes.
// These bytes are the same as r's.
func (r *reader) resume(body []byte, upto int) *reader {
	next := *r
	d := *r.d
	next.d, next.body, d.body = &d, body, body
	next.current = llm.Message{} // its slices are r's
	next.inMessages = true
	next.sharedTurns = len(d.Turns)
	messages := sort.Search(len(d.Messages), func(i int) bool { return d.Messages[i].End > upto })
	if messages < len(d.Messages) {
		next.rewind(messages)
	}
	return &next
}

// rewind drops the messages from the given number on.
func (r *reader) rewind(messages int) {
	d := r.d
	d.Messages = d.Messages[:messages:messages]
	d.Turns = d.Turns[:sort.Search(len(d.Turns), func(i int) bool { return d.Turns[i].Message >= messages })]
	d.Results = d.Results[:sort.Search(len(d.Results), func(i int) bool { return d.Results[i].Message >= messages })]
	r.ownTurns()
	if n := len(d.Turns); n > 0 {
		d.Turns[n-1].End = min(d.Turns[n-1].End, messages)
	}
	d.Breakpoint, d.breakpointEnd, d.CacheTTL = -1, 0, r.ttlBeforeMessages
	r.total, r.volatileTotal, r.turnOpen = 0, 0, false
	for i, m := range d.Messages {
		r.total += m.Bytes
		r.volatileTotal = m.volatileTotal
		r.turnOpen = m.open
		if m.mark.End > 0 {
			d.Breakpoint, d.breakpointEnd = i, m.mark.End
		}
		d.CacheTTL = max(d.CacheTTL, m.mark.TTL)
	}
	for i := range d.Results {
		if p := d.Results[i].placeholder; p != nil && p.end > messages {
			d.Results[i].placeholder = nil
		}
	}
	r.callLog = slices.Clip(r.callLog[:sort.Search(len(r.callLog), func(i int) bool { return r.callLog[i].message >= messages })])
	r.replayCallNames()
	if d.prefixes.next > messages {
		d.prefixes = prefixSums{}
	}
}

// replayCallNames rebuilds the calls from the log. Calls are numbered in the order in which they come.
func (r *reader) replayCallNames() {
	known := 0
	for _, e := range r.callLog {
		known = max(known, e.number+1)
	}
	for i := range r.d.Results {
		known = max(known, r.d.Results[i].call+1)
	}
	for _, c := range r.calls[known:] {
		delete(r.ids, c.id)
	}
	r.calls = slices.Clone(r.calls[:known])
	for i := range r.calls {
		r.calls[i].turn, r.calls[i].name = -1, ""
	}
	r.turnCalls = nil
	last := len(r.d.Turns) - 1
	for _, e := range r.callLog {
		e.applyTo(&r.calls[e.number])
		if e.turn == last {
			r.addTurnCall(e)
		}
	}
	for i := len(r.d.Results) - 1; i >= 0 && r.d.Results[i].Turn == last; i-- {
		if number := r.d.Results[i].call; number >= 0 {
			r.calls[number].answered = true
		}
	}
}

// readOn continues inside the list of messages.
func (r *reader) readOn(maxDepth int) (*Dialogue, error) {
	at := r.d.Messages
	if len(at) == 0 {
		return nil, errNoMessages
	}
	s := jsonscan.NewAt(r.body, at[len(at)-1].End, 2, maxDepth)
	err := s.MoreElements(r.readMessage(s))
	if err == nil {
		r.endMessages()
		err = s.MoreMembers(r.keys, r.d.wire().RequestKeys, r.readMember(s))
	}
	return r.finishRequest(s, err)
}

// SetKeeper names who stores the originals. What another one stored does not count.
func (d *Dialogue) SetKeeper(who string) {
	if d.keeper == who {
		return
	}
	d.keeper = who
	for i := range d.Results {
		d.Results[i].Stored = Stored{}
	}
}
