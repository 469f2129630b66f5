package history

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sort"
	"sync"

	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
)

// Recent remembers conversations that were read lately. The next request of a conversation begins
// with the bytes of the last one, and is read from where they end; what was found out about them is
// found out already. That a request begins so is seen by comparing them: nothing depends on luck.
// What it remembers changes how long a request takes, never what comes of it.
//
// A conversation is taken out while a request of it is under way: a second one at the same time is
// read from its beginning.
type Recent struct {
	most  int // bytes in each half
	depth int
	seed  maphash.Seed

	mu     sync.Mutex
	held   int // bytes in now
	now    map[beginning][]*standing
	before map[beginning][]*standing
}

// beginning is what requests must share for one to be a later one of the other.
type beginning struct {
	owner string
	shape Shape
	head  uint64
}

const (
	headBytes   = 256 // of a request, by which the conversations are looked up that it may belong to
	tailBytes   = 64  // at the end of a conversation, by which most of those are told apart
	leastRecent = 8 << 10
	eachMessage = 768 // about what a message takes in memory besides its bytes
	mostAlike   = 8   // conversations that are looked into for more than half of their messages
)

// NewRecent makes a memory of about so many bytes, for requests nested at most maxDepth deep.
func NewRecent(most, maxDepth int) *Recent {
	return &Recent{most: most / 2, depth: maxDepth, seed: maphash.MakeSeed()}
}

// standing is a conversation as it stood where its messages ended: what is behind them is not in it.
type standing struct {
	key    beginning
	reader reader // its dialogue is as it was there
	text   text
	size   int // about what it takes in memory
}

// Read is [Read] for the conversations of an owner. The conversation must be Kept for the next
// request to be read from its end. What is found in the request is charged to the scope.
func (m *Recent) Read(owner string, shape Shape, body []byte, memory *membudget.Scope) (*Dialogue, error) {
	r := newReader(shape, body)
	r.memory = memory
	if len(body) < leastRecent {
		return r.read(m.depth)
	}
	r.stands = &standing{key: beginning{owner, shape, maphash.Bytes(m.seed, body[:headBytes])}}
	if old, upto := m.take(r.stands.key, body); old != nil {
		resumed := old.reader.resume(body, upto)
		resumed.stands, resumed.memory, resumed.charged = r.stands, memory, 0
		if n := len(resumed.d.Messages); n > 0 {
			r.stands.text = old.text.upTo(resumed.d.Messages[n-1].End)
		}
		if d, err := resumed.goOn(m.depth); err == nil {
			return d, nil
		} // what is wrong with it is for a reader to say that has seen all of it
		r.stands.text = nil
	}
	return r.read(m.depth)
}

// Keep remembers a conversation that was read by m, and all that was found out about it. Its results
// are not d's any more: no plan of d may be used from here on. The rest of d can be looked at.
func (m *Recent) Keep(d *Dialogue) {
	if d == nil || d.stands == nil {
		return
	}
	s := d.stands
	d.stands = nil
	messages := s.reader.d.Messages
	end := messages[len(messages)-1].End
	s.reader.memory = nil
	s.size = end + eachMessage*(len(messages)+len(s.reader.d.Results)+len(s.reader.log))
	if end < leastRecent || s.size > m.most {
		return
	}
	s.text = s.text.append(d.body[:end])
	s.reader.learn(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.now == nil || m.held+s.size > m.most {
		m.now, m.before, m.held = map[beginning][]*standing{}, m.now, 0
	}
	m.held += s.size
	m.now[s.key] = append(m.now[s.key], s)
}

// take finds the conversation that has most in common with a request, and takes it out. It says how
// many of its bytes are the request's.
func (m *Recent) take(key beginning, body []byte) (best *standing, upto int) {
	m.mu.Lock()
	all := slices.Concat(m.before[key], m.now[key])
	m.mu.Unlock()
	for _, s := range slices.Backward(all) { // the latest first
		if n := s.text.size(); n <= len(body) && n > upto && s.text.ends(body) && s.text.alike(body) == n {
			best, upto = s, n
		}
	}
	for i, s := range slices.Backward(all) {
		if best != nil || len(all)-i > mostAlike {
			break
		}
		messages := s.reader.d.Messages
		if n := s.text.alike(body); n >= messages[len(messages)/2].End {
			best, upto = s, n
		}
	}
	if best == nil || !m.remove(best) {
		return nil, 0
	}
	return best, upto
}

// text is the bytes of a conversation, in pieces: those of each request are only what it added.
type text [][]byte

const mostPieces = 32

func (t text) size() (n int) {
	for _, p := range t {
		n += len(p)
	}
	return n
}

// ends says whether the last of t's bytes stand at the same place in body, which is at least as long.
func (t text) ends(body []byte) bool {
	last := t[len(t)-1]
	end := t.size()
	tail := last[max(0, len(last)-tailBytes):]
	return bytes.Equal(tail, body[end-len(tail):end])
}

// alike is how many bytes t and body begin with alike.
func (t text) alike(body []byte) int {
	at := 0
	for _, p := range t {
		n := alike(p, body[at:])
		if at += n; n < len(p) {
			break
		}
	}
	return at
}

func alike(a, b []byte) int {
	if len(a) <= len(b) && bytes.Equal(a, b[:len(a)]) {
		return len(a)
	}
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

// upTo is the first n bytes of t.
func (t text) upTo(n int) text {
	out := make(text, 0, len(t)+1)
	for _, p := range t {
		p = p[:min(len(p), n)]
		if n -= len(p); len(p) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// append makes t all of body, whose first bytes it is. Now and then it becomes one piece again.
func (t text) append(body []byte) text {
	if len(t) >= mostPieces {
		t = nil
	}
	if n := t.size(); n < len(body) {
		t = append(t, bytes.Clone(body[n:]))
	}
	return t
}

// remove takes a conversation out; false when somebody else has it.
func (m *Recent) remove(s *standing) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, half := range []map[beginning][]*standing{m.now, m.before} {
		at := slices.Index(half[s.key], s)
		if at < 0 {
			continue
		}
		if i == 0 {
			m.held -= s.size
		}
		if half[s.key] = slices.Delete(half[s.key], at, at+1); len(half[s.key]) == 0 {
			delete(half, s.key)
		}
		return true
	}
	return false
}

// stand notes how the conversation stands, for Recent to keep.
func (r *reader) stand() {
	if r.stands == nil || len(r.d.Messages) == 0 {
		return
	}
	s := r.stands
	d := *r.d
	s.reader = *r
	s.reader.d, s.reader.stands = &d, nil
	s.reader.keys = slices.Clip(s.reader.keys)
	d.front, d.others = slices.Clip(d.front), slices.Clip(d.others)
	s.reader.body, d.body = nil, nil
	r.d.stands = s
}

// learn takes over what was found out about a conversation since it was read.
func (r *reader) learn(d *Dialogue) {
	d.whole()
	r.done = len(d.Results)
	if r.d.booked = d.booked; d.booked != nil {
		d.booked.d, d.booked = nil, nil
	}
	r.d.Results, r.d.said, r.d.heard, r.d.via, r.d.template = d.Results, d.said, d.heard, d.via, d.template
	// What goes on to grow is no longer d's.
	d.Results, d.said, d.heard = nil, said{sums: slices.Clip(d.said.sums)}, heard{}
}

// whole forgets by how much results are sent shorter: that is told anew of each request.
func (d *Dialogue) whole() {
	if !d.reduced {
		return
	}
	d.reduced, d.booked = false, nil
	total := 0
	for i := range d.Results {
		r := &d.Results[i]
		total += r.less
		r.before += total - r.less
		if r.less > 0 {
			d.Messages[r.Message].Bytes += r.less
			r.less = 0
		}
	}
}

// resume is a reader of body that has read its first upto bytes, which are r's, or as many messages
// of it as there are in them.
func (r *reader) resume(body []byte, upto int) *reader {
	next := *r
	d := *r.d
	next.d, next.body, d.body = &d, body, body
	next.inside = true
	next.shared = len(d.Turns)
	messages := sort.Search(len(d.Messages), func(i int) bool { return d.Messages[i].End > upto })
	if messages < len(d.Messages) {
		next.rewind(messages)
	}
	next.old = len(d.Results)
	return &next
}

// rewind forgets the messages from some on.
func (r *reader) rewind(messages int) {
	d := r.d
	d.Messages = d.Messages[:messages:messages]
	whole := sort.Search(len(d.Turns), func(i int) bool { return d.Turns[i].End > messages })
	d.Turns = d.Turns[:sort.Search(len(d.Turns), func(i int) bool { return d.Turns[i].Message >= messages })]
	d.Results = d.Results[:sort.Search(len(d.Results), func(i int) bool { return d.Results[i].Message >= messages })]
	r.ownTurns()
	if n := len(d.Turns); n > 0 {
		d.Turns[n-1].End = min(d.Turns[n-1].End, messages)
	}
	d.booked = d.booked.rewind(whole, len(d.Results))
	d.Breakpoint, d.edge, d.Lasts = -1, 0, r.lasted
	r.total, r.bare, r.open = 0, 0, false
	for i, m := range d.Messages {
		r.total += m.Bytes
		r.bare = m.bare
		r.open = m.open
		if m.mark.edge > 0 {
			d.Breakpoint, d.edge = i, m.mark.edge
		}
		d.Lasts = max(d.Lasts, m.mark.lasts)
	}
	for i := range d.Results {
		if p := d.Results[i].placed; p != nil && p.end > messages {
			d.Results[i].placed = nil
		}
	}
	r.done = 0
	r.log = slices.Clip(r.log[:sort.Search(len(r.log), func(i int) bool { return r.log[i].message >= messages })])
	r.rename()
	d.said.forget(messages)
	d.heard.forget(messages)
}

// rename makes the calls anew of the log. Calls have numbers in the order in which they come.
func (r *reader) rename() {
	known := 0
	for _, e := range r.log {
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
	for _, e := range r.log {
		e.apply(&r.calls[e.number])
	}
}

// goOn reads on inside the list of messages.
func (r *reader) goOn(maxDepth int) (*Dialogue, error) {
	at := r.d.Messages
	if len(at) == 0 {
		return nil, errNoMessages
	}
	s := jsonscan.Inside(r.body, at[len(at)-1].End, 2, maxDepth)
	err := s.MoreElements(r.element(s))
	if err == nil {
		r.listed()
		err = s.MoreMembers(r.keys, requestKeys, r.member(s))
	}
	return r.end(s, err)
}

// Via says by whom originals are kept, and for whom: what was kept by another does not count.
func (d *Dialogue) Via(who string) {
	if d.via == who {
		return
	}
	d.via = who
	for i := range d.Results {
		d.Results[i].Kept = Kept{}
	}
}
