package legacy

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
)

// subscriptionOverhead is what a subscription costs beside its URI.
const subscriptionOverhead = 1 << 10

// Methods is the methods that only legacy clients have.
func (e *endpoint) Methods() map[string]hub.Method {
	methods := map[string]hub.Method{}
	for name, serve := range map[string]func(context.Context, *session, *hub.Request) (hub.Reply, error){
		mcp.Initialize:           e.initialize,
		mcp.Ping:                 acknowledge,
		mcp.LoggingSetLevel:      setLevel,
		mcp.ResourcesSubscribe:   e.subscribe,
		mcp.ResourcesUnsubscribe: e.unsubscribe,
	} {
		methods[name] = hub.Method{Protocol: mcp.Legacy, Serve: func(ctx context.Context, req *hub.Request) (hub.Reply, error) {
			return serve(ctx, req.Session.(*session), req) //nolint:forcetypeassert // every legacy request has one of ours
		}}
	}
	return methods
}

func acknowledge(_ context.Context, _ *session, req *hub.Request) (hub.Reply, error) {
	return hub.ResultReply(req, []byte(`{}`)), nil
}

// initialize answers on stdin and stdout, where there is one session. Over HTTP it opens a session before a method
// is looked up.
func (e *endpoint) initialize(ctx context.Context, s *session, req *hub.Request) (hub.Reply, error) {
	if !s.isStdio {
		return hub.Reply{}, fault.New(fault.InvalidRequest, "the session is initialized already")
	}
	return e.initializeReply(ctx, s, req), nil
}

// setLevel sets which log messages a session gets. Servers learn it with the next call.
func setLevel(ctx context.Context, s *session, req *hub.Request) (hub.Reply, error) {
	level := req.Params.Text("level")
	if mcp.LogSeverity(level) < 0 {
		return hub.Reply{}, hub.InvalidParams("level must be one of " + strings.Join(mcp.LogLevels, ", "))
	}
	s.mu.Lock()
	s.level = level
	s.mu.Unlock()
	return acknowledge(ctx, s, req)
}

func (e *endpoint) subscribe(ctx context.Context, s *session, req *hub.Request) (hub.Reply, error) {
	shown := req.URI
	s.mu.Lock()
	_, already := s.subscriptions[shown]
	isFull := len(s.subscriptions) >= hub.MaxSubscriptions
	s.mu.Unlock()
	switch {
	case already:
		return acknowledge(ctx, s, req)
	case isFull:
		return hub.Reply{}, hub.InvalidParams("too many resources are watched already")
	}
	size := subscriptionOverhead + int64(len(shown))
	if err := s.memory.Reserve(size); err != nil {
		return hub.Reply{}, err
	}
	unwatch, err := e.hub.Watch(ctx, req, shown, func(u *hub.ResourceUpdate) { s.sendUpdate(u, shown) })
	if err != nil {
		s.memory.Free(size)
		return hub.Reply{}, err
	}
	stop := sync.OnceFunc(func() {
		unwatch()
		s.memory.Free(size)
	})
	s.mu.Lock()
	twice, closed := s.subscriptions[shown] != nil, s.closed // by another request at the same moment
	if !twice && !closed {
		s.subscriptions[shown] = stop
	}
	s.mu.Unlock()
	if twice || closed {
		stop()
	}
	if closed {
		return hub.Reply{}, errNoSession
	}
	e.sessions.setSubscribed(s, true)
	s.NoteState(ctx)
	return acknowledge(ctx, s, req)
}

func (e *endpoint) unsubscribe(ctx context.Context, s *session, req *hub.Request) (hub.Reply, error) {
	s.mu.Lock()
	stop := s.subscriptions[req.URI]
	delete(s.subscriptions, req.URI)
	hasMore := len(s.subscriptions) > 0
	s.mu.Unlock()
	e.sessions.setSubscribed(s, hasMore)
	if stop != nil {
		stop()
	}
	return acknowledge(ctx, s, req)
}

// sendUpdate sends the update of a resource under the name that the client sees. Where the memory budget refuses it,
// the oldest messages of the session are dropped.
func (s *session) sendUpdate(u *hub.ResourceUpdate, shown string) {
	m, err := u.Message(shown)
	for err != nil && dropOldest([]*session{s}) {
		m, err = u.Message(shown)
	}
	if err != nil {
		slog.Debug("the update of a resource was dropped", "server", u.Server(), "error", err)
		return
	}
	_ = s.SendMessage(m)
}
