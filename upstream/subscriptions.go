package upstream

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
)

// ackTimeout is how long a server may take to acknowledge the stream that replaces another.
const ackTimeout = time.Second

// subscriptions are what every connection of a ManagedConn asks its server for.
type subscriptions struct {
	uris         map[string]int // resources, and how many clients have subscribed to each
	logLevel     string         // the least severe level that any client asked for
	cancelListen context.CancelFunc

	replacing sync.Mutex // streams replace each other one at a time
}

// snapshot is what a legacy server is asked for; the connection's lock is held.
func (s *subscriptions) snapshot() (uris []string, logLevel string) {
	return slices.Sorted(maps.Keys(s.uris)), s.logLevel
}

// Subscribe subscribes to a resource. The server gets one subscription, however many clients subscribe, and
// again after every reconnect.
func (m *ManagedConn) Subscribe(ctx context.Context, uri string) error {
	conn, err := m.AwaitConn(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.wanted.uris == nil {
		m.wanted.uris = map[string]int{}
	}
	m.wanted.uris[uri]++
	isFirst := m.wanted.uris[uri] == 1
	m.mu.Unlock()
	if !isFirst {
		return nil
	}
	if conn.handshake.Protocol == mcp.Modern {
		m.replaceListenStream()
		return nil
	}
	if err := callWithURI(ctx, conn, mcp.ResourcesSubscribe, uri); err != nil {
		m.dropSubscription(uri)
		return err
	}
	return nil
}

// Unsubscribe takes one subscription back.
func (m *ManagedConn) Unsubscribe(ctx context.Context, uri string) error {
	if !m.dropSubscription(uri) {
		return nil
	}
	conn := m.CurrentConn()
	switch {
	case conn == nil:
		return nil
	case conn.handshake.Protocol == mcp.Modern:
		m.replaceListenStream()
		return nil
	}
	return callWithURI(ctx, conn, mcp.ResourcesUnsubscribe, uri)
}

// dropSubscription reports whether it was the last one to the resource.
func (m *ManagedConn) dropSubscription(uri string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wanted.uris[uri] == 0 {
		return false
	}
	m.wanted.uris[uri]--
	if m.wanted.uris[uri] > 0 {
		return false
	}
	delete(m.wanted.uris, uri)
	return true
}

func callWithURI(ctx context.Context, conn *Conn, method, uri string) error {
	m, err := conn.callEmpty(ctx, method, mcp.Client{}, jsonscan.Change{Key: "uri", Value: mcp.Quote(uri)})
	if err == nil && m.IsError {
		err = refusalError(method, m)
	}
	return err
}

// lowerLogLevel makes a legacy server send log messages of this level too. The level is never raised: the
// connection may be shared, and each client gets only what it asked for.
func (m *ManagedConn) lowerLogLevel(ctx context.Context, conn *Conn, level string) {
	if conn.handshake.Protocol == mcp.Modern || !conn.handshake.HasCapability("logging") {
		return
	}
	m.mu.Lock()
	isLower := m.wanted.logLevel == "" || mcp.LogSeverity(level) < mcp.LogSeverity(m.wanted.logLevel)
	if isLower {
		m.wanted.logLevel = level
	}
	m.mu.Unlock()
	if isLower {
		setLogLevel(ctx, conn, level)
	}
}

func setLogLevel(ctx context.Context, conn *Conn, level string) {
	ctx, cancel := context.WithTimeout(ctx, conn.limits.timeout)
	defer cancel()
	_, _ = conn.callEmpty(ctx, mcp.LoggingSetLevel, mcp.Client{}, jsonscan.Change{Key: "level", Value: mcp.Quote(level)})
}

// restoreSubscriptions asks a new connection for what its predecessor was asked for.
func (m *ManagedConn) restoreSubscriptions(conn *Conn, uris []string, level string) {
	if conn.handshake.Protocol == mcp.Modern {
		m.replaceListenStream()
		return
	}
	if len(uris) == 0 && level == "" {
		return
	}
	go func() {
		ctx := context.Background()
		if level != "" {
			setLogLevel(ctx, conn, level)
		}
		for _, uri := range uris {
			if err := callWithURI(ctx, conn, mcp.ResourcesSubscribe, uri); fault.KindOf(err) == fault.Unavailable {
				return
			}
		}
	}()
}

// replaceListenStream opens a subscriptions/listen stream at a modern server and then closes the previous one. The
// old stream stays until the new one is acknowledged, so that no change is missed. It uses the current connection:
// a subscriber may hold one that was lost since, and must not close the stream of its successor.
func (m *ManagedConn) replaceListenStream() {
	m.wanted.replacing.Lock()
	defer m.wanted.replacing.Unlock()
	conn := m.CurrentConn()
	if conn == nil || conn.handshake.Protocol != mcp.Modern {
		return // the next connection is asked for everything
	}
	filter := m.listenFilter(conn)
	ctx, cancel := context.WithCancel(context.Background())
	cancelPrevious := m.wanted.cancelListen
	m.wanted.cancelListen = cancel
	if filter == nil {
		cancel()
	} else {
		acked := make(chan struct{})
		go m.keepListening(ctx, conn, filter, sync.OnceFunc(func() { close(acked) }))
		select {
		case <-acked:
		case <-conn.Done():
		case <-time.After(ackTimeout):
		}
	}
	if cancelPrevious != nil {
		cancelPrevious()
	}
}

// keepListening keeps the stream open as long as the connection lasts.
func (m *ManagedConn) keepListening(ctx context.Context, conn *Conn, filter []byte, onReady func()) {
	for pause := minBackoff; ; pause = min(2*pause, maxBackoff) {
		params, _ := mcp.ParseParams(nil)
		reply, err := conn.Call(ctx, &Call{
			Method: mcp.SubscriptionsListen, Params: params, Client: m.client, Streaming: true, OnReady: onReady,
			Changes: []jsonscan.Change{{Key: "notifications", Value: filter}},
		})
		onReady() // also after a failure
		if err == nil && reply.IsError {
			return // the server does not offer it
		}
		select {
		case <-ctx.Done():
			return
		case <-conn.Done():
			return
		case <-time.After(pause):
		}
	}
}

// listenFilter is what to listen for; nil for nothing. Changed lists concern the shared connection only.
func (m *ManagedConn) listenFilter(conn *Conn) []byte {
	var changes []jsonscan.Change
	for _, kind := range []struct{ capability, key string }{
		{"tools", "toolsListChanged"}, {"prompts", "promptsListChanged"}, {"resources", "resourcesListChanged"},
	} {
		if conn.handshake.HasSubCapability(kind.capability, "listChanged") && m.IsShared() {
			changes = append(changes, jsonscan.Change{Key: kind.key, Value: []byte("true")})
		}
	}
	m.mu.Lock()
	uris, _ := m.wanted.snapshot()
	m.mu.Unlock()
	if len(uris) > 0 {
		changes = append(changes, jsonscan.Change{Key: "resourceSubscriptions", Value: mcp.QuoteAll(uris)})
	}
	if len(changes) == 0 {
		return nil
	}
	empty, _ := jsonscan.FieldsOf([]byte("{}"))
	return empty.With(changes...)
}
