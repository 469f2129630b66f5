package upstream

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
)

// laneKey says whose a lane is. The zero key is everybody's.
type laneKey struct {
	class string // what its client can answer
	kind  string // ofSession, ofClient or ofCall
	owner string // the session, or the client that has none
	n     int    // which of the lanes for calls that its owner makes at the same time
	older bool   // greeted with initialize, at a server that speaks the newer era
}

// The kinds of lanes that serve one client alone.
const (
	ofSession = "session" // for as long as the session uses it
	ofClient  = "client"  // of a client without sessions; its calls may overlap
	ofCall    = "call"    // of a client without sessions; one call at a time
)

// Who is the client of a call, as far as lanes care.
type Who struct {
	Client  mcp.Client
	Session string          // of the older era; "" for a client of the newer one
	Subject string          // who a client without a session says it is
	Conn    string          // the connection that its request came by
	Open    context.Context // ends when that connection is closed; nil where nobody knows
	Caller  string          // whose share of the server's lanes it uses
	Owner   Peer            // how to reach the session outside its calls
}

// Pick gives the lane for a client's calls, and a function to give it back. A client that a
// server cannot ask shares one lane with all others; so does every client of a server that asks
// only in its replies, or on the stream of the call that made it ask. Any other has a lane that
// is its own: for as long as its session lives, or, without a session, for one call at a time. Which
// of these a server is, is known when it has been met: until then a client that it could ask waits.
// A session of the older era that can be asked has a lane of its own at a server of both eras, too.
func (r *Remote) Pick(ctx context.Context, who Who) (*Lane, func(), error) {
	free := func() {}
	if err := r.meet(ctx, who); err != nil {
		return nil, free, err
	}
	if l, release, err := r.pickOlder(ctx, who); l != nil || err != nil {
		return l, release, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.shared == nil {
		return nil, free, fault.New(fault.Unavailable, "the server is being stopped")
	}
	key := r.keyFor(who)
	switch key.kind {
	case "":
		return r.shared, free, nil
	case ofCall:
		return r.borrow(key, who)
	}
	l, err := r.own(key, who)
	if err != nil {
		return nil, free, err
	}
	return l, l.hold(), nil
}

// Find gives the lane that a client has already, if any: a notification starts nothing.
func (r *Remote) Find(who Who) (*Lane, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.shared == nil {
		return nil, false
	}
	if l, ok := r.lanes[olderKey(who)]; ok && r.wantsOlder(who) {
		return l, true
	}
	key := r.keyFor(who)
	switch key.kind {
	case "":
		return r.shared, true
	case ofCall:
		l := r.laneOfCalls(key, who.Conn, false)
		return l, l != nil
	}
	l, ok := r.lanes[key]
	return l, ok
}

// laneOfCalls is the lane for the calls of a client without a session, of those that are free or of all; nil
// where there is none. It is the lane that the client's connection had last, or one whose connection is
// closed; the lock is held.
func (r *Remote) laneOfCalls(key laneKey, conn string, free bool) *Lane {
	var mine, left *Lane
	for k, l := range r.lanes {
		switch {
		case !k.isSameClient(key) || free && l.isHeld():
		case l.lentTo == conn:
			mine = firstOf(mine, l)
		case !l.isLent():
			left = firstOf(left, l)
		}
	}
	return cmp.Or(mine, left)
}

// isSameClient says whether two keys differ by nothing but the call.
func (k laneKey) isSameClient(other laneKey) bool {
	k.n = other.n
	return k == other
}

// keyFor says whose lane a client gets; the lock is held.
func (r *Remote) keyFor(who Who) laneKey {
	switch {
	case r.sole, r.entry.Shared, r.era != mcp.EraLegacy, !who.Client.Answers(), r.entry.RPC != "":
		return laneKey{}
	case who.Session != "":
		return laneKey{class: Class(who.Client), kind: ofSession, owner: who.Session}
	case r.entry.URL != "" && r.entry.Transport == "http" && !r.sse:
		return laneKey{class: Class(who.Client), kind: ofClient, owner: who.Subject}
	}
	return laneKey{class: Class(who.Client), kind: ofCall, owner: who.Subject}
}

// meet waits for a server whose era decides which lane a client gets.
func (r *Remote) meet(ctx context.Context, who Who) error {
	r.mu.Lock()
	lane, decided := r.shared, r.sole || r.entry.Shared || r.entry.RPC != "" || r.era != 0
	r.mu.Unlock()
	if decided || lane == nil || !who.Client.Answers() {
		return nil
	}
	_, err := lane.Conn(ctx)
	return err
}

// Class names what a client can answer, and in which era: a server may offer different things to
// clients of different classes.
func Class(c mcp.Client) string {
	switch {
	case !c.Answers():
		return ""
	case mcp.EraOf(c.Version) == mcp.EraLegacy:
		return mcp.EraLegacy.String() + " " + string(c.Capabilities)
	}
	return string(c.Capabilities)
}

// own is the lane of a key, made when it is not there; the lock is held.
func (r *Remote) own(key laneKey, who Who) (*Lane, error) {
	if l := r.lanes[key]; l != nil {
		return l, nil
	}
	if err := r.makeRoom(who.Caller); err != nil {
		return nil, err
	}
	owner := who.Owner
	if key.kind != ofSession {
		owner = nil
	}
	l := newLane(r, key, who.Client, owner)
	l.caller = who.Caller
	r.lanes[key] = l
	return l, nil
}

// borrow lends a lane of the client to one call; the lock is held. Clients that say the same of
// themselves are told apart by their connections: a lane is lent again to the connection that had it
// last, so that a client that makes one call at a time always meets the same program. Once that
// connection is closed, the lane may be lent to another of the same name: most clients close
// theirs when they are idle.
func (r *Remote) borrow(key laneKey, who Who) (*Lane, func(), error) {
	l := r.laneOfCalls(key, who.Conn, true)
	if l == nil {
		for r.lanes[key] != nil {
			key.n++
		}
		var err error
		if l, err = r.own(key, who); err != nil {
			return nil, func() {}, err
		}
	}
	l.lentTo, l.open = who.Conn, who.Open
	return l, l.hold(), nil
}

// isLent says whether the connection that had the lane last is still open; the remote's lock is held.
func (l *Lane) isLent() bool { return l.open == nil || l.open.Err() == nil }

// firstOf is the lane with the smaller number; a may be nil.
func firstOf(a, b *Lane) *Lane {
	if a != nil && a.key.n < b.key.n {
		return a
	}
	return b
}

// makeRoom ends lanes that are not in use where there are too many, those of the caller itself
// first where it has its share; the lock is held. A caller's share is half of all: what one caller
// opens never leaves another without a lane.
func (r *Remote) makeRoom(caller string) error {
	for share := (r.cfg.MaxLanes + 1) / 2; r.lanesOfCaller(caller) >= share; {
		if !r.evict(func(l *Lane) bool { return l.caller == caller && r.isSpare(l) }) {
			return fault.New(fault.Full, fmt.Sprintf(
				"this caller has %d connections of its own to this server in use, which is its share; see max_client_connections = %d", share, r.cfg.MaxLanes))
		}
	}
	for len(r.lanes) >= r.cfg.MaxLanes {
		if !r.evict(r.isSpare) {
			return fault.New(fault.Full, fmt.Sprintf(
				"too many clients have a connection of their own to this server in use; see max_client_connections = %d", r.cfg.MaxLanes))
		}
	}
	return nil
}

// lanesOfCaller counts the lanes that a caller has; the lock is held.
func (r *Remote) lanesOfCaller(caller string) int {
	n := 0
	for _, l := range r.lanes {
		if l.caller == caller {
			n++
		}
	}
	return n
}

// isSpare says whether a lane may be ended to make room; the lock is held. What a client did on its
// lane may be needed until the client has left it alone for the idle timeout: a session, or a
// client of the newer era whose connection is open.
func (r *Remote) isSpare(l *Lane) bool {
	since := time.Duration(-1)
	if l.key.kind == ofSession || l.key.kind == ofCall && l.isLent() {
		since = r.cfg.IdleTimeout.D()
	}
	_, idle := l.idle(since)
	return idle
}

// Leave ends the lanes of a session.
func (r *Remote) Leave(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, l := range r.lanes {
		if key.kind == ofSession && key.owner == session {
			r.remove(l)
		}
	}
}

// remove takes a lane out of the table and ends it; the lock is held.
func (r *Remote) remove(l *Lane) {
	if r.lanes[l.key] == l {
		delete(r.lanes, l.key)
		go l.Close()
	}
}

// evict ends the lane that was used longest ago, of those that may go; the lock is held.
func (r *Remote) evict(may func(*Lane) bool) bool {
	var found *Lane
	var last time.Time
	for _, l := range r.lanes {
		if !may(l) {
			continue
		}
		if used, _ := l.idle(0); found == nil || used.Before(last) {
			found, last = l, used
		}
	}
	if found == nil {
		return false
	}
	r.remove(found)
	return true
}
