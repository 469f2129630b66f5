//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// options are what a fake is told to be.
type options struct {
	server string // its name, as the gateway's configuration has it
	ledger string
	gen    string // which generation of the configuration started it
	era    era
	tools  int    // how many tools it lists; 0: only those that do something
	page   int    // how many of them a page holds; 0: all
	hang   string // a method that is never answered
	mute   bool   // a legacy server that does not answer the probe for a modern one
	storm  int    // list changes a second
}

// fake is a server that notes what is asked of it, and holds its callers to the protocol.
type fake struct {
	options
	book *ledger

	mu       sync.Mutex
	watchers map[*watcher]bool
	changes  int // how often the list of tools changed
}

func newFake(o options, book *ledger) *fake {
	return &fake{options: o, book: book, watchers: map[*watcher]bool{}}
}

// link is where messages to the far side go.
type link interface{ send(message []byte) }

// watcher is somebody who wants to hear of changes.
type watcher struct {
	out   link
	tools bool
	uris  map[string]bool
	id    json.RawMessage // a modern subscription's
}

func (f *fake) watch(w *watcher, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if delete(f.watchers, w); on {
		f.watchers[w] = true
	}
}

// tell sends a notification to the watchers that want it.
func (f *fake) tell(method, params string, wants func(*watcher) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		if !wants(w) {
			continue
		}
		p := params
		if w.id != nil {
			p = into(p, fmt.Sprintf(`"_meta":{%q:%s}`, metaSubscription, w.id))
		}
		w.out.send(notification(method, p))
	}
}

func (f *fake) touch(uri string) {
	f.tell("notifications/resources/updated", `{"uri":`+quote(uri)+`}`, func(w *watcher) bool { return w.uris[uri] })
}

// change alters the list of tools and says so.
func (f *fake) change() {
	f.mu.Lock()
	f.changes++
	f.mu.Unlock()
	f.tell("notifications/tools/list_changed", `{}`, func(w *watcher) bool { return w.tools })
}

// storms changes the list at a steady rate until ctx ends.
func (f *fake) storms(ctx context.Context) {
	if f.storm <= 0 {
		return
	}
	tick := time.NewTicker(time.Second / time.Duration(f.storm))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f.change()
		case <-ctx.Done():
			return
		}
	}
}

func (f *fake) note(e event) {
	e.Server = f.server
	f.book.note(e)
}

func (f *fake) violation(format string, args ...any) {
	f.note(event{What: didViolate, Note: fmt.Sprintf(format, args...)})
}

// session is one far side: a process's pipe, or an Mcp-Session-Id, or one modern HTTP request.
type session struct {
	*fake
	watcher *watcher

	mu     sync.Mutex
	begun  bool // initialize was answered
	ready  bool // and the far side said that it knows
	used   map[string]bool
	flying map[string]context.CancelCauseFunc
	asks   map[string]chan frame // our own requests to the far side
	asked  int
}

func (f *fake) open(out link) *session {
	return &session{
		fake: f, watcher: &watcher{out: out, tools: true, uris: map[string]bool{}},
		used: map[string]bool{}, flying: map[string]context.CancelCauseFunc{}, asks: map[string]chan frame{},
	}
}

// close forgets the session; whatever it waits for is over.
func (s *session) close() {
	s.watch(s.watcher, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.flying {
		cancel(context.Canceled)
	}
}

// errTakenBack is why a call ends that its caller cancelled by name.
var errTakenBack = errors.New("taken back")

// take handles what is no request: the far side's notifications and answers.
func (s *session) take(f frame) {
	switch {
	case f.isResponse():
		s.mu.Lock()
		waiting := s.asks[string(f.ID)]
		delete(s.asks, string(f.ID))
		s.mu.Unlock()
		if waiting == nil {
			s.violation("an answer to %s, which nobody asked", f.ID)
			return
		}
		waiting <- f
	case f.Method == "notifications/initialized":
		s.mu.Lock()
		s.ready = true
		s.mu.Unlock()
		s.watch(s.watcher, true)
	case f.Method == "notifications/cancelled":
		id := string(f.read().RequestID)
		s.note(event{What: didCancel, ID: id})
		s.mu.Lock()
		cancel := s.flying[id]
		s.mu.Unlock()
		if cancel != nil {
			cancel(errTakenBack)
		}
	default:
		s.note(event{What: didMethod, Note: f.Method})
	}
}

// exchange is one request and where its answer goes.
type exchange struct {
	*session
	out link
	id  json.RawMessage
	params
}

// refused is an answer that is an error.
type refused struct {
	code int
	text string
}

func (r *refused) Error() string { return r.text }

// errSilent is for a request that gets no answer.
var errSilent = errors.New("no answer")

// method answers a request with the members of its result.
type method func(ctx context.Context, x *exchange) (string, error)

// serve answers one request.
func (s *session) serve(ctx context.Context, out link, f frame) {
	x := &exchange{session: s, out: out, id: f.ID, params: f.read()}
	ctx, done := s.begin(ctx, f)
	defer done()
	if f.Method != "tools/call" {
		s.note(event{What: didMethod, Note: f.Method, ID: string(f.ID)})
	}
	result, err := s.answer(ctx, x, f.Method)
	var no *refused
	switch {
	case ctx.Err() != nil || errors.Is(err, errSilent):
	case errors.As(err, &no):
		out.send(refusal(f.ID, no.code, no.text))
	case err != nil:
		out.send(refusal(f.ID, -32603, err.Error()))
	default:
		out.send(s.result(f.ID, f.Method, result))
	}
}

func (s *session) answer(ctx context.Context, x *exchange, name string) (string, error) {
	if s.hang == name {
		<-ctx.Done()
		return "", errSilent
	}
	if err := s.admit(x, name); err != nil {
		return "", err
	}
	do, ok := methods[name]
	if !ok {
		return "", &refused{-32601, "no such method"}
	}
	return do(ctx, x)
}

// begin keeps the request's cancel function while it is under way.
func (s *session) begin(ctx context.Context, f frame) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	id := string(f.ID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[id] {
		s.violation("request id %s was used before", id)
	}
	s.used[id], s.flying[id] = true, cancel
	return ctx, func() {
		s.mu.Lock()
		delete(s.flying, id)
		s.mu.Unlock()
		cancel(nil)
	}
}

// admit refuses what does not belong to the fake's era.
func (s *session) admit(x *exchange, name string) error {
	s.mu.Lock()
	begun, ready := s.begun, s.ready
	s.mu.Unlock()
	switch {
	case s.era == modern && name == "initialize":
		return &refused{-32022, "supported versions: " + string(modern)}
	case s.era == modern && (x.Meta.Version != string(modern) || x.Meta.Capabilities == nil):
		s.violation("%s without the modern metadata", name)
		return &refused{-32602, "the metadata is incomplete"}
	case s.era == modern, name == "ping":
		return nil
	case name == "server/discover" && s.mute:
		return errSilent
	case name == "server/discover":
		return &refused{-32601, "no such method"}
	case name == "initialize" && begun:
		s.violation("initialize a second time")
	case name != "initialize" && !ready:
		s.violation("%s before notifications/initialized", name)
		return &refused{-32600, "not initialized"}
	}
	return nil
}

// cacheable results say how long they last.
var cacheable = map[string]bool{
	"server/discover": true, "tools/list": true, "prompts/list": true, "resources/list": true,
	"resources/templates/list": true, "resources/read": true,
}

// result puts the members every result of the era has around those given.
func (s *session) result(id json.RawMessage, name, members string) []byte {
	object := "{" + members + "}"
	if s.era == modern {
		if cacheable[name] {
			object = into(object, `"ttlMs":60000,"cacheScope":"public"`)
		}
		if len(members) < 13 || members[:13] != `"resultType":` {
			object = into(object, `"resultType":"complete"`)
		}
	}
	return response(id, object)
}

// starts notes that this process is a fake now.
func (f *fake) starts() {
	born, _ := bornOf(os.Getpid())
	f.note(event{What: didStart, PPID: os.Getppid(), Born: born, Note: f.gen})
}
