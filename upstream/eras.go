package upstream

import (
	"context"
	"errors"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/mcp"
)

// greetOrder is which greeting a server gets first. A server that speaks both eras is bound to the
// era of the greeting that it answers.
type greetOrder uint8

const (
	newerFirst greetOrder = iota // server/discover, and initialize when that is refused
	olderFirst                   // the client is of the older era: initialize, and server/discover when that is refused
	olderOnly                    // initialize
)

// olderSupport says whether a server of the newer era can also be greeted with initialize, in a way
// that lets it ask its client. It is found out anew whenever the server is met.
type olderSupport uint8

const (
	olderUnknown olderSupport = iota // nobody has tried
	olderSpoken                      // it has answered initialize
	olderRefused                     // it refused initialize, or keeps no sessions
)

// order is how to greet the server on a lane.
func (r *Remote) order(l *Lane) greetOrder {
	if l.key.older {
		return olderOnly
	}
	known := r.knownEra()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sole && r.era == 0 && mcp.EraOf(l.client.Version) == mcp.EraLegacy {
		if r.stumbled { // it did not survive initialize
			return newerFirst
		}
		return olderFirst
	}
	if known == mcp.EraLegacy {
		return olderOnly
	}
	return newerFirst
}

// declined is the failure of a server of the newer era that cannot be greeted with initialize.
type declined struct{ error }

func (d declined) Unwrap() error { return d.error }

// isDeclined says whether a failed greeting of a lane of the older era means that the server does
// not speak that era. A server that never said that it does need not refuse in so many words.
func (r *Remote) isDeclined(l *Lane, err error) bool {
	if !l.key.older {
		return false
	}
	if _, is := errors.AsType[declined](err); is {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.older != olderSpoken && !r.listsOlder
}

// refuseOlder remembers that the server does not serve the older era, and forgets the lane that
// tried.
func (r *Remote) refuseOlder(l *Lane) {
	l.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.older = olderRefused
	if r.lanes[l.key] == l {
		delete(r.lanes, l.key)
	}
}

// metOlder remembers that the server answered initialize.
func (r *Remote) metOlder() {
	r.mu.Lock()
	r.older = olderSpoken
	r.mu.Unlock()
}

// doubtOlder forgets whether the server serves the older era too.
func (r *Remote) doubtOlder() {
	r.mu.Lock()
	r.older = olderUnknown
	r.mu.Unlock()
}

// wantsOlder says whether a client gets a lane that is greeted with initialize at a server of the
// newer era: a session of the older era that the server could ask; the lock is held. In the newer
// era a server may not send it a request, and many of their tools know no other way to ask. A program
// need not list its older revisions. Over HTTP only a server that does is greeted so: to any other, a
// request without the headers of the newer era would be a mistake, and most of them keep no sessions.
func (r *Remote) wantsOlder(who Who) bool {
	return (r.listsOlder || !r.isFar()) && !r.closed && r.shared != nil && !r.sole && !r.entry.Shared && r.entry.RPC == "" &&
		r.era == mcp.EraModern && r.older != olderRefused && who.Session != "" && who.Client.Answers()
}

// pickOlder is the lane of a session of the older era at a server that speaks both; nil when the
// session is served by the lane that everybody shares. Whether the server speaks the older era is
// found out by the first session that would need it, while others wait.
func (r *Remote) pickOlder(ctx context.Context, who Who) (*Lane, func(), error) {
	free := func() {}
	for {
		l, release, trying, err := r.olderLane(who)
		switch {
		case trying != nil:
			select {
			case <-trying.Settled():
			case <-trying.stopped:
			case <-ctx.Done():
				return nil, free, failure(ctx, ctx.Err())
			}
			continue
		case l == nil || err != nil:
			return nil, free, err
		}
		if _, err = l.Conn(ctx); err == nil {
			return l, release, nil
		}
		release()
		if ctx.Err() == nil && !r.speaksOlder() {
			return nil, free, nil
		}
		return nil, free, err
	}
}

// speaksOlder says whether the server has answered initialize, or lists older revisions and has not
// refused it.
func (r *Remote) speaksOlder() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.older == olderSpoken || r.older == olderUnknown && r.listsOlder
}

// olderLane finds or makes that lane, or gives the lane of another session that is finding out
// whether the server speaks the older era.
func (r *Remote) olderLane(who Who) (l *Lane, release func(), trying *Lane, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.wantsOlder(who) {
		return nil, nil, nil, nil
	}
	key := olderKey(who)
	if r.lanes[key] == nil && r.older == olderUnknown && r.trying != nil && !r.trying.isSettled() {
		return nil, nil, r.trying, nil
	}
	if l, err = r.own(key, who); err != nil {
		return nil, nil, nil, err
	}
	if r.older == olderUnknown {
		r.trying = l
	}
	return l, l.hold(), nil, nil
}

// olderKey is the key of that lane.
func olderKey(who Who) laneKey {
	return laneKey{class: Class(who.Client), kind: ofSession, owner: who.Session, older: true}
}

// checkSession says why a connection that was greeted with initialize is of no use to a lane of the
// older era: over HTTP a server that gave no session has no way to ask its client.
func (s *stream) checkSession() error {
	if s.spoken().session != "" {
		return nil
	}
	return declined{fault.New(fault.BadReply, "the server keeps no sessions of the older era")}
}

// olderFailure is why a lane of the older era could not be greeted. A server that answered, with
// anything but a greeting, does not speak that era; one that did not answer may have failed.
func olderFailure(err error, crashed bool) error {
	if fault.KindOf(err) == fault.BadReply && !crashed {
		return declined{err}
	}
	return fault.Wrap(fault.Unavailable, "the server did not start", err)
}
