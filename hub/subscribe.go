package hub

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/upstream"
)

// subscriptions are the resources that clients watch.
type subscriptions struct {
	mu  sync.Mutex
	all map[watched][]*watcher
}

// watched is a resource on the lane by which its server tells of it.
type watched struct {
	lane *upstream.Lane
	uri  string
}

// watcher is one who wants to know.
type watcher struct {
	who  upstream.Who
	tell func(news *update)
	at   watched // where it is told from; the table's lock holds it
	gone bool    // it does not want to know any more
}

func (s *subscriptions) init() { s.all = map[watched][]*watcher{} }

// put gives a watcher its place, or another one; false when it is gone.
func (s *subscriptions) put(w *watcher, at watched) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(w)
	if w.gone {
		return false
	}
	w.at = at
	s.all[at] = append(s.all[at], w)
	return true
}

// end takes a watcher away and says where it was.
func (s *subscriptions) end(w *watcher) watched {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.take(w)
	w.gone = true
	return w.at
}

// take takes a watcher from its place; the lock is held.
func (s *subscriptions) take(w *watcher) {
	left := slices.DeleteFunc(s.all[w.at], func(o *watcher) bool { return o == w })
	if s.all[w.at] = left; len(left) == 0 {
		delete(s.all, w.at)
	}
}

func (s *subscriptions) tell(l *upstream.Lane, uri string, news *update) {
	s.mu.Lock()
	all := slices.Clone(s.all[watched{l, uri}])
	s.mu.Unlock()
	for _, w := range all {
		w.tell(news)
	}
	news.release()
}

// update is the news of a resource while it goes to those who watch it. Most of them know the
// resource by the same name: what they get is encoded once, and held once.
type update struct {
	hub    *Hub
	server string
	note   rpc.Message
	shown  string   // the name that was last encoded
	last   *message // and the message
}

// passOn takes the news to a session under the name that the resource has there.
func (u *update) passOn(to *session, shown string) {
	if u.last == nil || u.shown != shown {
		u.release()
		body := updated(u.note, shown, nil)
		m, err := u.hub.notes.message(u.hub.deps.Budget, u.server, body)
		for err != nil && dropOldest([]*session{to}) {
			m, err = u.hub.notes.message(u.hub.deps.Budget, u.server, body)
		}
		if err != nil {
			slog.Debug("the news of a resource was dropped", "server", u.server, "error", err)
			return
		}
		u.shown, u.last = shown, m
	}
	_ = to.pass(u.last)
}

// deliver takes the news to a stream of the newer era, where each names its own request.
func (u *update) deliver(to *listening, shown string) {
	m, err := u.hub.notes.message(u.hub.deps.Budget, u.server, updated(u.note, shown, to.req.ID.Raw()))
	if err != nil {
		slog.Debug("the news of a resource was dropped", "server", u.server, "error", err)
		return
	}
	defer m.release()
	to.deliver(m)
}

func (u *update) release() {
	if u.last != nil {
		u.last.release()
		u.last = nil
	}
}

// watch subscribes to a resource by the name it has here. The function it gives ends that.
func (h *Hub) watch(ctx context.Context, req *request, shown string, tell func(*update)) (func(), error) {
	to, err := h.byURI(ctx, req, "uri", shown)
	if err != nil {
		return nil, err
	}
	if req.held != nil {
		h.sessions.use(req.held, to.server())
	}
	lane, release, err := to.remote.Pick(ctx, req.from())
	if err != nil {
		return nil, err
	}
	defer release()
	w := &watcher{who: req.from(), tell: tell}
	h.subs.put(w, watched{lane, to.name})
	if err := lane.Subscribe(ctx, to.name); err != nil {
		h.subs.end(w)
		return nil, err
	}
	return sync.OnceFunc(func() {
		at := h.subs.end(w)
		_ = at.lane.Unsubscribe(context.WithoutCancel(ctx), at.uri)
	}), nil
}

// rehome lets who watches resources of a server that a plan replaced go on watching.
func (h *Hub) rehome(p *plan) {
	h.subs.mu.Lock()
	defer h.subs.mu.Unlock()
	for at, all := range h.subs.all {
		r := p.remotes[at.lane.Server()]
		if r == nil || r == at.lane.Remote() {
			continue
		}
		for _, w := range all {
			go h.move(w, r, at.uri)
		}
	}
}

// move subscribes again at the server that took the place of another.
func (h *Hub) move(w *watcher, r *upstream.Remote, uri string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lane, release, err := r.Pick(ctx, w.who)
	if err == nil {
		defer release()
		err = lane.Subscribe(ctx, uri)
	}
	if err != nil {
		slog.Warn("a subscription was lost with its server", "server", r.ID(), "error", err)
		return
	}
	if !h.subs.put(w, watched{lane, uri}) {
		_ = lane.Unsubscribe(ctx, uri)
	}
}

// subscribe is resources/subscribe of the older era.
func (h *Hub) subscribe(ctx context.Context, req *request) (reply, error) {
	held, shown := req.held, req.URI
	held.mu.Lock()
	_, already := held.subs[shown]
	full := len(held.subs) >= maxSubscriptions
	held.mu.Unlock()
	switch {
	case already:
		return empty(req), nil
	case full:
		return reply{}, invalidParams("too many resources are watched already")
	}
	size := subscriptionOverhead + int64(len(shown))
	if err := held.memory.Take(size); err != nil {
		return reply{}, err
	}
	unwatch, err := h.watch(ctx, req, shown, func(news *update) { news.passOn(held, shown) })
	if err != nil {
		held.memory.Give(size)
		return reply{}, err
	}
	stop := sync.OnceFunc(func() {
		unwatch()
		held.memory.Give(size)
	})
	held.mu.Lock()
	twice, ended := held.subs[shown] != nil, held.closed // by another request at the same moment
	if !twice && !ended {
		held.subs[shown] = stop
	}
	held.mu.Unlock()
	if twice || ended {
		stop()
	}
	if ended {
		return reply{}, errNoSession
	}
	h.sessions.setSubscribed(held, true)
	return empty(req), nil
}

// subscriptionOverhead is what a subscription costs beside its address.
const subscriptionOverhead = 1 << 10

func (h *Hub) unsubscribe(_ context.Context, req *request) (reply, error) {
	req.held.mu.Lock()
	stop := req.held.subs[req.URI]
	delete(req.held.subs, req.URI)
	some := len(req.held.subs) > 0
	req.held.mu.Unlock()
	h.sessions.setSubscribed(req.held, some)
	if stop != nil {
		stop()
	}
	return empty(req), nil
}

// updated is the news of a resource, under the name it has here and with the id of the stream it
// goes to, if there is one.
func updated(note rpc.Message, shown string, id []byte) []byte {
	params, err := mcp.ReadParams(note.Params.Of(note.Body))
	if err != nil {
		return note.Body
	}
	meta := []jsonscan.Change{{Key: mcp.KeySubscription, Value: id}} // nil takes the server's own away
	if _, ok := params.Meta(mcp.KeySubscription); !ok && id == nil {
		meta = nil
	}
	raw := params.With([]jsonscan.Change{{Key: "uri", Value: mcp.Quote(shown)}}, meta)
	return jsonscan.AppendSpliced(nil, note.Body, []jsonscan.Edit{{Span: note.Params, Text: raw}})
}

// listens are the streams of the newer era that tell of changes.
type listens struct {
	mu      sync.Mutex
	all     map[*listening]bool
	callers map[string]int // how many of them a caller has
}

// add adds a stream, unless there are too many, or its caller has its share.
func (l *listens) add(one *listening, most int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	caller := one.req.via.caller
	switch {
	case l.callers[caller] >= shareOf(most):
		return fault.New(fault.Full, fmt.Sprintf("this caller has %d streams open, which is its share; see max_sessions = %d", l.callers[caller], most))
	case len(l.all) >= most:
		return fault.New(fault.Full, fmt.Sprintf("too many streams are open; see max_sessions = %d", most))
	}
	if l.all == nil {
		l.all, l.callers = map[*listening]bool{}, map[string]int{}
	}
	l.all[one] = true
	l.callers[caller]++
	return nil
}

func (l *listens) remove(one *listening) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.all[one] {
		return
	}
	delete(l.all, one)
	caller := one.req.via.caller
	if l.callers[caller]--; l.callers[caller] == 0 {
		delete(l.callers, caller)
	}
}

// listening is one of them. Nothing is told before what will be told is acknowledged.
type listening struct {
	req   *request
	out   outlet
	flags map[string]bool
	lists shownLists // as they were when it began, or was told
	hub   *Hub
	stops []func()

	mu    sync.Mutex
	acked bool
	early []*message
}

func (l *listens) each(f func(*listening)) {
	l.mu.Lock()
	all := make([]*listening, 0, len(l.all))
	for one := range l.all {
		all = append(all, one)
	}
	l.mu.Unlock()
	for _, one := range all {
		f(one)
	}
}

// listen begins to tell a client of changes. What could not be watched is not acknowledged.
func (h *Hub) listen(ctx context.Context, out outlet, req *request) (*listening, error) {
	flags, uris, err := req.wants()
	if err != nil {
		return nil, err
	}
	l := &listening{hub: h, req: req, out: out, flags: flags}
	if c := h.shelves.of(req); h.shelves.isServed(c) { // else nobody knows a list that could change
		l.lists.setAll(h.shelves.door(c, req.only))
	}
	if err := h.listens.add(l, req.plan.Hub.MaxSessions); err != nil {
		return nil, err
	}
	var honoured []string
	for _, shown := range uris {
		stop, err := h.watch(ctx, req, shown, func(news *update) { news.deliver(l, shown) })
		if err == nil {
			l.stops = append(l.stops, stop)
			honoured = append(honoured, shown)
		}
	}
	if err := l.acknowledge(honoured); err != nil {
		l.stop()
		return nil, err
	}
	return l, nil
}

// acknowledge says what will be told, and then what happened meanwhile.
func (l *listening) acknowledge(uris []string) error {
	filter := []jsonscan.Change{}
	for _, key := range []string{"toolsListChanged", "promptsListChanged", "resourcesListChanged"} {
		if l.flags[key] {
			filter = append(filter, jsonscan.Change{Key: key, Value: []byte("true")})
		}
	}
	if len(uris) > 0 {
		filter = append(filter, jsonscan.Change{Key: "resourceSubscriptions", Value: mcp.QuoteAll(uris)})
	}
	object, _ := jsonscan.FieldsOf([]byte("{}"))
	msg := []byte(`{"jsonrpc":"2.0","method":"` + mcp.Acknowledged + `","params":{"_meta":{"` + mcp.KeySubscription + `":`)
	msg = append(append(msg, l.req.ID.Raw()...), `},"notifications":`...)
	msg = append(append(msg, object.With(filter...)...), `}}`...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = true
	early := l.early
	l.early = nil
	defer func() {
		for _, m := range early {
			m.release()
		}
	}()
	if err := l.out.send(msg); err != nil {
		return err
	}
	for _, m := range early {
		if err := l.out.pass(m); err != nil {
			return err
		}
	}
	return nil
}

// deliver sends a message once the stream is acknowledged.
func (l *listening) deliver(m *message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.acked:
		_ = l.out.pass(m)
	case len(l.early) < maxBacklog:
		m.hold()
		l.early = append(l.early, m)
	}
}

// changed tells that a list is not what it was.
func (l *listening) changed(method string) {
	msg := []byte(`{"jsonrpc":"2.0","method":"` + method + `","params":{"_meta":{"` + mcp.KeySubscription + `":`)
	l.deliver(uncounted([][]byte{append(append(msg, l.req.ID.Raw()...), `}}}`...)}))
}

// farewell is the reply that ends the stream in good order.
func (l *listening) farewell() []byte {
	raw := append([]byte(`{"resultType":"complete","_meta":{"`+mcp.KeySubscription+`":`), l.req.ID.Raw()...)
	return rpc.AppendResult(nil, l.req.ID, append(raw, `}}`...))
}

func (l *listening) stop() {
	l.hub.listens.remove(l)
	for _, stop := range l.stops {
		stop()
	}
}
