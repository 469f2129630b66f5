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

// watch is what a lane wants to be told of, whichever connection it has.
type watch struct {
	uris   map[string]int // subscriptions, and how many want each
	level  string         // the least severe log message anybody wanted
	listen context.CancelFunc

	turn sync.Mutex // streams take each other's place one after the other
}

// Subscribe asks to be told when a resource changes. It is asked of the server once, however
// many want it, and again after every reconnection.
func (l *Lane) Subscribe(ctx context.Context, uri string) error {
	conn, err := l.Conn(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	if l.watch.uris == nil {
		l.watch.uris = map[string]int{}
	}
	l.watch.uris[uri]++
	first := l.watch.uris[uri] == 1
	l.mu.Unlock()
	if !first {
		return nil
	}
	if conn.hello.Era == mcp.EraModern {
		l.listenAgain()
		return nil
	}
	if err := onURI(ctx, conn, mcp.Subscribe, uri); err != nil {
		l.forget(uri)
		return err
	}
	return nil
}

// Unsubscribe takes one subscription back.
func (l *Lane) Unsubscribe(ctx context.Context, uri string) error {
	if !l.forget(uri) {
		return nil
	}
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	switch {
	case conn == nil:
		return nil
	case conn.hello.Era == mcp.EraModern:
		l.listenAgain()
		return nil
	}
	return onURI(ctx, conn, mcp.Unsubscribe, uri)
}

// forget says whether nobody wants the resource any more.
func (l *Lane) forget(uri string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watch.uris[uri] == 0 {
		return false
	}
	l.watch.uris[uri]--
	if l.watch.uris[uri] > 0 {
		return false
	}
	delete(l.watch.uris, uri)
	return true
}

func onURI(ctx context.Context, conn *Conn, method, uri string) error {
	params, _ := mcp.ReadParams(nil)
	m, err := conn.Call(ctx, &Call{Method: method, Params: params, Changes: []jsonscan.Change{{Key: "uri", Value: mcp.Quote(uri)}}})
	if err == nil && m.IsError {
		err = refusal(method, m)
	}
	return err
}

// louder makes a server of the older era send log messages of this level. It is never made
// quieter: the lane may be shared, and who wants less hears less of it.
func (l *Lane) louder(ctx context.Context, conn *Conn, level string) {
	if conn.hello.Era == mcp.EraModern || !conn.hello.Offers("logging") {
		return
	}
	l.mu.Lock()
	more := l.watch.level == "" || mcp.Severity(level) < mcp.Severity(l.watch.level)
	if more {
		l.watch.level = level
	}
	l.mu.Unlock()
	if more {
		setLevel(ctx, conn, level)
	}
}

func setLevel(ctx context.Context, conn *Conn, level string) {
	ctx, cancel := context.WithTimeout(ctx, conn.limits.timeout)
	defer cancel()
	params, _ := mcp.ReadParams(nil)
	_, _ = conn.Call(ctx, &Call{Method: mcp.SetLevel, Params: params, Changes: []jsonscan.Change{{Key: "level", Value: mcp.Quote(level)}}})
}

// wishes are what a server of the older era is to be asked for; the lane's lock is held.
func (w *watch) wishes() (uris []string, level string) {
	return slices.Sorted(maps.Keys(w.uris)), w.level
}

// rewatch asks a new connection for what the lane wants to be told of.
func (l *Lane) rewatch(conn *Conn, uris []string, level string) {
	if conn.hello.Era == mcp.EraModern {
		l.listenAgain()
		return
	}
	if len(uris) == 0 && level == "" {
		return
	}
	go func() {
		ctx := context.Background()
		if level != "" {
			setLevel(ctx, conn, level)
		}
		for _, uri := range uris {
			if err := onURI(ctx, conn, mcp.Subscribe, uri); fault.KindOf(err) == fault.Unavailable {
				return
			}
		}
	}()
}

// listenAgain opens the stream on which a server of the newer era tells of changes, in place of
// the one that was open. That one goes when the new one is acknowledged, so that nothing falls
// between the two. It is the lane's own connection of now that is asked: who subscribes may hold one
// that was lost since, and must not end the stream of its successor.
func (l *Lane) listenAgain() {
	l.watch.turn.Lock()
	defer l.watch.turn.Unlock()
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil || conn.hello.Era != mcp.EraModern {
		return // the next connection is asked for everything
	}
	filter := l.filter(conn)
	ctx, cancel := context.WithCancel(context.Background())
	old := l.watch.listen
	l.watch.listen = cancel
	if filter == nil {
		cancel()
	} else {
		acked := make(chan struct{})
		go l.listen(ctx, conn, filter, sync.OnceFunc(func() { close(acked) }))
		select {
		case <-acked:
		case <-conn.Ended():
		case <-time.After(ackWait):
		}
	}
	if old != nil {
		old()
	}
}

// ackWait is how long a server may take to acknowledge a stream that another is given up for.
const ackWait = time.Second

// listen keeps the stream open for as long as the connection lasts.
func (l *Lane) listen(ctx context.Context, conn *Conn, filter []byte, ready func()) {
	pause := firstPause
	for {
		params, _ := mcp.ReadParams(nil)
		m, err := conn.Call(ctx, &Call{
			Method: mcp.Listen, Params: params, Client: l.client, Endless: true, Ready: ready, Changes: []jsonscan.Change{{Key: "notifications", Value: filter}},
		})
		ready() // whatever became of it
		if err == nil && m.IsError {
			return // it does not offer this
		}
		select {
		case <-ctx.Done():
			return
		case <-conn.Ended():
			return
		case <-time.After(pause):
			pause = min(2*pause, longPause)
		}
	}
}

func (l *Lane) filter(conn *Conn) []byte {
	var changes []jsonscan.Change
	for _, kind := range []struct{ capability, key string }{
		{"tools", "toolsListChanged"}, {"prompts", "promptsListChanged"}, {"resources", "resourcesListChanged"},
	} {
		if conn.hello.Notes(kind.capability, "listChanged") && l.Shared() {
			changes = append(changes, jsonscan.Change{Key: kind.key, Value: []byte("true")})
		}
	}
	l.mu.Lock()
	uris := slices.Sorted(maps.Keys(l.watch.uris))
	l.mu.Unlock()
	if len(uris) > 0 {
		changes = append(changes, jsonscan.Change{Key: "resourceSubscriptions", Value: mcp.QuoteAll(uris)})
	}
	if len(changes) == 0 {
		return nil
	}
	empty, _ := jsonscan.FieldsOf([]byte("{}"))
	return empty.With(changes...)
}
