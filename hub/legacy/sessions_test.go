package legacy

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// openTestSession opens a session of a caller and returns its id; the session must be released.
func openTestSession(t *testing.T, e *endpoint, caller string) (*session, string) {
	t.Helper()
	s, id, err := e.openSession(auth.LocalCaller(), mcp.Client{Version: mcp.V20251125, Capabilities: []byte("{}")}, "", caller)
	if err != nil {
		t.Fatal(err)
	}
	return s, id
}

// expectRefused opens one session too many, which must be refused by a message that names the setting.
func expectRefused(t *testing.T, e *endpoint, caller string) {
	t.Helper()
	_, _, err := e.openSession(auth.LocalCaller(), mcp.Client{Capabilities: []byte("{}")}, "", caller)
	if fault.KindOf(err) != fault.Full || !strings.Contains(fault.PublicOf(err), "max_sessions = ") {
		t.Errorf("a session too many: %v", err)
	}
}

// Where there are too many sessions, the idle one that was used longest ago is evicted, and can be made again from
// its id. A session in use is not evicted, and when all are in use, another is refused.
func TestIdleSessionsAreEvicted(t *testing.T) {
	e := newTestEndpoint(t, hub.Deps{})
	e.hub.Plan().Hub.MaxSessions = 4
	var ids []string
	var held []*session
	for i := range 4 {
		s, id := openTestSession(t, e, fmt.Sprint(i))
		ids, held = append(ids, id), append(held, s)
	}
	expectRefused(t, e, "new")
	for _, s := range held {
		e.sessions.release(s)
	}
	again, err := e.findByID(ids[0], auth.LocalCaller(), "", "0") // session 1 was used longest ago
	if err != nil || again != held[0] {
		t.Fatal(err)
	}
	e.sessions.release(again)
	openTestSession(t, e, "new")
	if e.sessions.held[held[1].name] != nil || len(e.sessions.held) != 4 {
		t.Error("it was not the least recently used session that went")
	}
	e.sessions.setSubscribed(held[2], true)
	back, err := e.findByID(ids[1], auth.LocalCaller(), "", "1") // evicts 3: 2 has a subscription
	if err != nil || back == held[1] || back.name != held[1].name {
		t.Errorf("the id of an evicted session is not valid: %v", err)
	}
	if e.sessions.held[held[2].name] == nil || e.sessions.held[held[3].name] != nil {
		t.Error("a session with a subscription was evicted")
	}
	openTestSession(t, e, "newer") // evicts 0: all others are in use
	expectRefused(t, e, "newest")
	e.sessions.setSubscribed(held[2], false)
	openTestSession(t, e, "newest")
}

// One caller has at most half of the sessions, and makes room among its own.
func TestSessionsHaveAShareForEachCaller(t *testing.T) {
	e := newTestEndpoint(t, hub.Deps{})
	e.hub.Plan().Hub.MaxSessions = 8
	modest, _ := openTestSession(t, e, "modest")
	e.sessions.release(modest)
	var greedy []*session
	for range 4 {
		s, _ := openTestSession(t, e, "greedy")
		greedy = append(greedy, s)
	}
	expectRefused(t, e, "greedy")
	for _, s := range greedy {
		e.sessions.release(s)
	}
	for range 100 {
		s, _ := openTestSession(t, e, "greedy")
		e.sessions.release(s)
	}
	if e.sessions.held[modest.name] != modest || len(e.sessions.held) != 5 {
		t.Errorf("%d sessions are held; another caller's was evicted", len(e.sessions.held))
	}
	for range 3 {
		openTestSession(t, e, "third")
	}
	if len(e.sessions.callers) != 3 {
		t.Errorf("%d callers", len(e.sessions.callers))
	}
}

// Where there are several tenants, all callers of one have at most half of the sessions together, and make room among
// their own.
func TestSessionsHaveAShareForEachTenant(t *testing.T) {
	e := newTestEndpoint(t, hub.Deps{})
	e.hub.Plan().Hub.MaxSessions = 8
	var held []*session
	for i := range 6 { // a single tenant has more
		s, _ := openTestSession(t, e, fmt.Sprintf("greedy\x00\x00%d", i))
		held = append(held, s)
	}
	modest, _ := openTestSession(t, e, "modest\x00\x00one")
	e.sessions.release(modest)
	expectRefused(t, e, "greedy\x00\x00new")
	for _, s := range held {
		e.sessions.release(s)
	}
	for i := range 100 {
		s, _ := openTestSession(t, e, fmt.Sprintf("greedy\x00\x00%d", i))
		e.sessions.release(s)
	}
	if n := len(e.sessions.held); e.sessions.held[modest.name] != modest || n != 5 || e.sessions.tenants["greedy"].count != 4 {
		t.Errorf("%d sessions are held; another tenant's was evicted, or the share does not hold", n)
	}
	var calls pendingCalls
	calls.calls = map[string]*pendingCall{}
	insert := func(n int, tenant string) (added int) {
		for i := range n {
			if calls.insert(&pendingCall{name: fmt.Sprint(tenant, i), callerKey: fmt.Sprintf("%s\x00\x00%d", tenant, i%5)}) {
				added++
			}
		}
		return added
	}
	if a, b, c := insert(600, "a"), insert(300, "b"), insert(1000, "c"); a != 600 || b != 300 || c != maxPending-900 {
		t.Errorf("%d, %d and %d pending calls", a, b, c)
	}
	calls.calls = map[string]*pendingCall{}
	if n := insert(1000, "a"); n != maxPending/2 {
		t.Errorf("one of several tenants has %d pending calls", n)
	}
}

// A bounded number of ended sessions is remembered: the one that ended first is forgotten, and its id makes a new
// session.
func TestEndedSessionsAreBounded(t *testing.T) {
	e := newTestEndpoint(t, hub.Deps{})
	first, id := openTestSession(t, e, "")
	e.endSession(t.Context(), first)
	e.sessions.release(first)
	if _, err := e.findByID(id, auth.LocalCaller(), "", ""); fault.KindOf(err) != fault.NotFound {
		t.Errorf("an ended session: %v", err)
	}
	var last string
	for range maxEnded {
		s, id := openTestSession(t, e, "")
		e.endSession(t.Context(), s)
		e.sessions.release(s)
		last = id
	}
	if n := len(e.sessions.ended.names); n != maxEnded || e.sessions.ended.order.Len() != n {
		t.Errorf("%d ended sessions are remembered", n)
	}
	if _, err := e.findByID(last, auth.LocalCaller(), "", ""); fault.KindOf(err) != fault.NotFound {
		t.Errorf("the session that ended last: %v", err)
	}
	if _, err := e.findByID(id, auth.LocalCaller(), "", ""); err != nil {
		t.Errorf("a forgotten end: %v", err)
	}
	e.Sweep(time.Now().Add(25 * time.Hour))
	if n := len(e.sessions.ended.names); n != 0 {
		t.Errorf("%d ended sessions are remembered after their ids expired", n)
	}
}

// heap returns the size of what is reachable on the heap.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // no heap is so large
}

// 100,000 sessions that are never ended: no request is refused, memory stays bounded, and the first id is still
// valid.
func TestInitializeWithoutEnd(t *testing.T) {
	budget := membudget.New(256 << 20)
	e := newTestEndpoint(t, hub.Deps{Budget: budget})
	defer e.hub.Close()
	info := `{"name":"` + strings.Repeat("x", 1000) + `"}`
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":` + info + `}}`
	mux := http.NewServeMux()
	e.hub.Routes(mux)
	post := func(session, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
		r = r.WithContext(auth.WithCaller(r.Context(), auth.LocalCaller()))
		if session != "" {
			r.Header.Set(mcp.HeaderSession, session)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	before := heap()
	first := ""
	client := mcp.Client{Version: mcp.V20251125, Capabilities: []byte("{}"), Info: []byte(info)}
	for i := range 100_000 {
		if i >= 1000 { // HTTP adds the same for each of them
			s, _, err := e.openSession(auth.LocalCaller(), client, "", "caller")
			if err != nil {
				t.Fatalf("initialize %d: %v", i, err)
			}
			e.sessions.release(s)
			continue
		}
		w := post("", body)
		if w.Code != http.StatusOK {
			t.Fatalf("initialize %d: %d %s", i, w.Code, w.Body)
		}
		if i == 0 {
			first = w.Header().Get(mcp.HeaderSession)
		}
	}
	grown := heap() - before
	t.Logf("%d sessions are held, the heap grew by %d KiB, the budget holds %d KiB", len(e.sessions.held), grown>>10, budget.Stats().Held>>10)
	if grown > 32<<20 || len(e.sessions.held) > 6000 {
		t.Errorf("%d sessions are held and the heap grew by %d MiB", len(e.sessions.held), grown>>20)
	}
	if w := post(first, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); w.Code != http.StatusOK {
		t.Errorf("the first session: %d %s", w.Code, w.Body)
	}
}

// note returns a server's notification of so many bytes.
func note(t *testing.T, n, size int) rpc.Message {
	t.Helper()
	m, err := rpc.ParseMessage(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/odd","params":{"n":%d,"text":%q}}`, n, strings.Repeat("x", size)), 64, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A server's notification is held once, however many sessions have it queued, and released with the last of them.
func TestNotificationsAreHeldOnce(t *testing.T) {
	budget := membudget.New(256 << 20)
	e := newTestEndpoint(t, hub.Deps{Budget: budget})
	var all []*session
	for range 500 {
		s, _ := openTestSession(t, e, "")
		e.sessions.addUse(s, "a")
		all = append(all, s)
	}
	idle, before := budget.Stats().Held, heap()
	for n := range 250 {
		e.notifySessions("a", e.sessions.using("a"), note(t, n, 4000))
	}
	held, grown := budget.Stats().Held-idle, heap()-before
	t.Logf("250 notes for 500 sessions: the heap grew by %d KiB, the budget holds %d KiB", grown>>10, held>>10)
	if grown > 32<<20 || held < 250*4000 || held > 2<<20 {
		t.Errorf("the heap grew by %d KiB, the budget holds %d KiB", grown>>10, held>>10)
	}
	for i, s := range all {
		out := &full{}
		if err := s.attachStream(out); err != nil {
			t.Fatal(err)
		}
		if i == 0 && (len(out.sent) != 250 || !strings.Contains(out.sent[249], `"n":249,`)) {
			t.Errorf("%d notes came", len(out.sent))
		}
		s.detachStream(out)
	}
	if left := budget.Stats().Held; left != idle {
		t.Errorf("the budget holds %d bytes more than before", left-idle)
	}
	e.notifySessions("a", all, note(t, 0, 4096))
	e.hub.Close()
	if left := budget.Stats().Held; left != 0 {
		t.Errorf("the budget holds %d bytes of a hub that is closed", left)
	}
}

// Where the memory budget refuses a notification, the oldest queued ones are dropped for it.
func TestNotificationsDropTheOldest(t *testing.T) {
	budget := membudget.New(1 << 20)
	e := newTestEndpoint(t, hub.Deps{Budget: budget})
	defer e.hub.Close()
	s, _ := openTestSession(t, e, "")
	for n := range 250 { // 1 MiB: twice what one server may hold
		e.notifySessions("a", []*session{s}, note(t, n, 4096))
	}
	if held := budget.Stats().Held; held > 1<<20 {
		t.Errorf("the budget holds %d bytes", held)
	}
	out := &full{}
	if err := s.attachStream(out); err != nil {
		t.Fatal(err)
	}
	if n := len(out.sent); n == 0 || n > 130 || !strings.Contains(out.sent[n-1], `"n":249,`) || !strings.Contains(out.sent[0], fmt.Sprintf(`"n":%d,`, 250-n)) {
		t.Errorf("%d notes came: %.80q", n, out.sent)
	}
}

// What a session holds of its client does not hold the whole initialize request.
func TestSessionDoesNotKeepItsRequest(t *testing.T) {
	e := newTestEndpoint(t, hub.Deps{})
	before := heap()
	var all []mcp.Client
	for range 20 {
		body := []byte(`{"capabilities":{"roots":{}},"clientInfo":{"name":"x"},"pad":"` + strings.Repeat("x", 4<<20) + `"}`)
		params, err := mcp.ParseParams(body)
		if err != nil {
			t.Fatal(err)
		}
		client := clientOf(params)
		if _, _, err := e.openSession(auth.LocalCaller(), client, "", ""); err != nil {
			t.Fatal(err)
		}
		all = append(all, client)
	}
	if grown := heap() - before; grown > 4<<20 {
		t.Errorf("20 sessions keep %d MiB", grown>>20)
	}
	runtime.KeepAlive(all)
}

// A session that was evicted and made again is the same client for its servers.
func TestPeerOutlivesItsSession(t *testing.T) {
	e := newTestEndpoint(t, hub.Deps{})
	s, id := openTestSession(t, e, "")
	peer := s.Owner()
	e.sessions.release(s)
	e.sessions.removeIdle(time.Now().Add(time.Hour))
	peer.Notify("a", note(t, 1, 10)) // the session is gone
	if _, err := peer.Request(context.Background(), "a", rpc.Message{}); err == nil {
		t.Error("a session that is gone answered")
	}
	again, err := e.findByID(id, auth.LocalCaller(), "", "")
	if err != nil || again == s {
		t.Fatal(err)
	}
	select {
	case <-again.ready:
	default:
		t.Error("the client cannot be asked before it makes a request")
	}
	peer.Notify("a", note(t, 2, 10))
	if len(again.queue) != 1 {
		t.Errorf("%d notes", len(again.queue))
	}
}

// A session that was evicted or ended takes no message, stream or request that is on its way: nothing would ever
// release them.
func TestClosedSessionTakesNothing(t *testing.T) {
	budget := membudget.New(64 << 20)
	e := newTestEndpoint(t, hub.Deps{Budget: budget})
	s, _ := openTestSession(t, e, "")
	e.sessions.addUse(s, "a")
	users := e.sessions.using("a")
	e.endSession(t.Context(), s)
	e.notifySessions("a", users, note(t, 1, 4096))
	if held := budget.Stats().Held; held != 0 || len(s.queue) > 0 {
		t.Errorf("%d messages wait for a closed session, and the budget holds %d bytes", len(s.queue), held)
	}
	if err := s.attachStream(&full{}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a stream of a closed session: %v", err)
	}
	ctx, done := s.inFlight.Begin(t.Context(), rpc.ID{})
	defer done()
	if ctx.Err() == nil {
		t.Error("a request of a closed session goes on")
	}
}

// The array of a batch's answers is a copy, which is charged to the memory budget.
func TestBatchAnswersAreCounted(t *testing.T) {
	budget := membudget.New(64 << 20)
	scope := budget.Scope("caller")
	defer scope.Release()
	got, err := joinAnswers(scope, [][]byte{[]byte("1"), []byte("22")})
	if err != nil || string(got) != "[1,22]" || budget.Stats().Held != int64(cap(got)) {
		t.Errorf("got %s of %d bytes, %v; %d are held", got, cap(got), err, budget.Stats().Held)
	}
	large := bytes.Repeat([]byte("x"), 20<<20)
	if _, err := joinAnswers(scope, [][]byte{large, large}); fault.KindOf(err) != fault.Full {
		t.Errorf("more than a caller may hold: %v", err)
	}
}

// A question of a pending call is charged to the call's memory scope while it waits for the client.
func TestPendingQuestionsAreCounted(t *testing.T) {
	budget := membudget.New(64 << 20)
	p := &pendingCall{memory: budget.Scope("caller"), questions: make(chan *question, 1), done: make(chan struct{})}
	defer p.memory.Release()
	question, answered := note(t, 1, 100_000), make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = p.askClient(t.Context(), "a", question)
	}()
	q := <-p.questions
	if held := budget.Stats().Held; held < 100_000 {
		t.Errorf("%d bytes are held", held)
	}
	q.answer <- rpc.Reply{}
	<-answered
	if held := budget.Stats().Held; held != 0 {
		t.Errorf("%d bytes are held of a question that was answered", held)
	}
}
