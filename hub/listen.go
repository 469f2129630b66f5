package hub

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// maxEarly is how many notifications wait for a listen stream to be acknowledged.
const maxEarly = 256

// listChangedFlags is the members of params.notifications by which a client asks for changes of a list.
var listChangedFlags = map[catalog.Kind]string{
	catalog.Tools: "toolsListChanged", catalog.Prompts: "promptsListChanged", catalog.Resources: "resourcesListChanged",
}

// listenStreams is the open streams of subscriptions/listen, by which modern clients are notified of changes.
type listenStreams struct {
	mu      sync.Mutex
	all     map[*listenStream]bool
	callers map[string]int // how many streams a caller has
	tenants map[string]int // and a tenant
	seen    membudget.Tenants
}

// listenStream is one of them. Nothing is sent before what will be sent is acknowledged.
type listenStream struct {
	hub   *Hub
	req   *Request
	out   Sender
	flags map[string]bool
	lists catalog.SeenLists
	stops []func() // end the subscriptions to resources

	mu    sync.Mutex
	acked bool
	early []*Message
}

// openListenStream starts to notify a client of changes. Resources that could not be watched are not acknowledged.
func (h *Hub) openListenStream(ctx context.Context, out Sender, req *Request) (*listenStream, error) {
	flags, uris, err := parseListenParams(req)
	if err != nil {
		return nil, err
	}
	l := &listenStream{hub: h, req: req, out: out, flags: flags}
	if class := h.catalog.ClassOf(req.UpstreamCaller()); h.catalog.IsServed(class) { // else no client knows a list that could change
		l.lists.SetAll(req.Plan.visibleTo(req.Caller, h.catalog.Current(class, req.Server)))
	}
	if err := h.listenStreams.addStream(l, req.Plan.Hub); err != nil {
		return nil, err
	}
	var watched []string
	for _, shown := range uris {
		stop, err := h.Watch(ctx, req, shown, func(u *ResourceUpdate) { l.sendUpdate(u, shown) })
		if err == nil {
			l.stops = append(l.stops, stop)
			watched = append(watched, shown)
		}
	}
	if err := l.acknowledge(watched); err != nil {
		l.stop()
		return nil, err
	}
	return l, nil
}

// parseListenParams reads what a client wants to be notified of.
func parseListenParams(req *Request) (flags map[string]bool, uris []string, err error) {
	raw, ok := req.Params.Get("notifications")
	if !ok || raw[0] != '{' {
		return nil, nil, InvalidParams("params.notifications is missing")
	}
	fields, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return nil, nil, InvalidParams("params.notifications cannot be read")
	}
	flags = map[string]bool{}
	for _, f := range fields.All() {
		value, _ := fields.Get(f.Key)
		if strings.HasSuffix(f.Key, "ListChanged") && string(value) == "true" {
			flags[f.Key] = true
		}
		if f.Key == "resourceSubscriptions" {
			err = jsonscan.EachElement(value, jsonscan.Span{End: len(value)}, func(s jsonscan.Span) error {
				uris = append(uris, jsonscan.DecodeString(s.Of(value)))
				return nil
			})
		}
	}
	if err != nil || slices.Contains(uris, "") || len(uris) > MaxSubscriptions {
		return nil, nil, InvalidParams("params.notifications.resourceSubscriptions must be a list of addresses")
	}
	return flags, uris, nil
}

// addStream adds a stream, unless there are too many, or its caller has its share.
func (s *listenStreams) addStream(l *listenStream, cfg Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	caller := l.req.CallerKey
	tenant := membudget.TenantOf(caller)
	switch {
	case s.callers[caller] >= cfg.MaxSessionsPerCaller():
		return fault.New(fault.Full, fmt.Sprintf("this caller has %d streams open, which is its share; see max_sessions = %d", s.callers[caller], cfg.MaxSessions))
	case s.seen.AreSeveral(tenant) && s.tenants[tenant] >= cfg.MaxSessionsPerCaller():
		return fault.New(fault.Full, fmt.Sprintf("this tenant has %d streams open, which is its share; see max_sessions = %d", s.tenants[tenant], cfg.MaxSessions))
	case len(s.all) >= cfg.MaxSessions:
		return fault.New(fault.Full, fmt.Sprintf("too many streams are open; see max_sessions = %d", cfg.MaxSessions))
	}
	if s.all == nil {
		s.all, s.callers, s.tenants = map[*listenStream]bool{}, map[string]int{}, map[string]int{}
	}
	s.all[l] = true
	s.callers[caller]++
	s.tenants[tenant]++
	return nil
}

// stop ends the stream's subscriptions.
func (l *listenStream) stop() {
	s := &l.hub.listenStreams
	s.mu.Lock()
	if s.all[l] {
		delete(s.all, l)
		caller := l.req.CallerKey
		if s.callers[caller]--; s.callers[caller] == 0 {
			delete(s.callers, caller)
		}
		tenant := membudget.TenantOf(caller)
		if s.tenants[tenant]--; s.tenants[tenant] == 0 {
			delete(s.tenants, tenant)
		}
	}
	s.mu.Unlock()
	for _, stop := range l.stops {
		stop()
	}
}

// acknowledge says what will be sent, and then sends what has happened meanwhile.
func (l *listenStream) acknowledge(uris []string) error {
	filter := []jsonscan.Change{}
	for _, k := range []catalog.Kind{catalog.Tools, catalog.Prompts, catalog.Resources} {
		if l.flags[listChangedFlags[k]] {
			filter = append(filter, jsonscan.Change{Key: listChangedFlags[k], Value: []byte("true")})
		}
	}
	if len(uris) > 0 {
		filter = append(filter, jsonscan.Change{Key: "resourceSubscriptions", Value: mcp.QuoteAll(uris)})
	}
	object, _ := jsonscan.FieldsOf([]byte("{}"))
	msg := []byte(`{"jsonrpc":"2.0","method":"` + mcp.NotifySubscriptionsAcknowledged + `","params":{"_meta":{"` + mcp.MetaSubscriptionID + `":`)
	msg = append(append(msg, l.req.ID.Raw()...), `},"notifications":`...)
	msg = append(append(msg, object.With(filter...)...), `}}`...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked = true
	early := l.early
	l.early = nil
	defer func() {
		for _, m := range early {
			m.Release()
		}
	}()
	if err := l.out.Send(msg); err != nil {
		return err
	}
	for _, m := range early {
		if err := l.out.SendMessage(m); err != nil {
			return err
		}
	}
	return nil
}

// sendAcked sends a message once the stream is acknowledged.
func (l *listenStream) sendAcked(m *Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.acked:
		_ = l.out.SendMessage(m)
	case len(l.early) < maxEarly:
		m.Retain()
		l.early = append(l.early, m)
	}
}

// sendUpdate sends the update of a resource, which names the stream.
func (l *listenStream) sendUpdate(u *ResourceUpdate, shown string) {
	m, err := l.hub.NewServerMessage(u.server, u.encode(shown, l.req.ID.Raw()))
	if err != nil {
		slog.Debug("the update of a resource was dropped", "server", u.server, "error", err)
		return
	}
	defer m.Release()
	l.sendAcked(m)
}

// notifyListChanged notifies the clients of a class that a list changed: those who would get another list now, at the
// endpoint that they use.
func (h *Hub) notifyListChanged(class *catalog.Class, k catalog.Kind) {
	h.legacy.ListChanged(class, k)
	h.listenStreams.mu.Lock()
	all := slices.Collect(maps.Keys(h.listenStreams.all))
	h.listenStreams.mu.Unlock()
	for _, l := range all {
		if l.flags[listChangedFlags[k]] && h.catalog.IsOf(class, l.req.UpstreamCaller()) && l.lists.Update(k, h.VisibleTo(l.req.Caller, h.catalog.Current(class, l.req.Server))) {
			msg := []byte(`{"jsonrpc":"2.0","method":"` + k.ChangedMethod() + `","params":{"_meta":{"` + mcp.MetaSubscriptionID + `":`)
			m, _ := NewMessage(nil, append(append(msg, l.req.ID.Raw()...), `}}}`...)) // small, and not counted
			l.sendAcked(m)
		}
	}
}

// lastMessage returns the reply that ends the stream in good order.
func (l *listenStream) lastMessage() []byte {
	raw := append([]byte(`{"resultType":"complete","_meta":{"`+mcp.MetaSubscriptionID+`":`), l.req.ID.Raw()...)
	return rpc.AppendResult(nil, l.req.ID, append(raw, `}}`...))
}

// listenHTTP serves subscriptions/listen over HTTP.
func (h *Hub) listenHTTP(ctx context.Context, s *Stream, req *Request) {
	err := h.Admit(req)
	if err == nil {
		err = h.KeepOpen(ctx, s, req.Caller, func() (func(), func() []byte, error) {
			l, err := h.openListenStream(ctx, s, req)
			if err != nil {
				return nil, nil, err
			}
			req.releasePlan() // the stream may outlive many plans
			return l.stop, l.lastMessage, nil
		})
	}
	if err != nil {
		s.finishError(ctx, req, err)
	}
}
