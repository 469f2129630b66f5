package hub

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
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/internal/membudget"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/rpc"
)

// beginSession begins a session of a caller and gives its id; it is in use until it is released.
func beginSession(t *testing.T, h *Hub, caller string) (*session, string) {
	t.Helper()
	s, id, err := h.openSession(auth.Local(), mcp.Client{Version: mcp.V20251125, Capabilities: []byte("{}")}, "", caller)
	if err != nil {
		t.Fatal(err)
	}
	return s, id
}

// refused begins one session more, which must be refused by a message that names the setting.
func refused(t *testing.T, h *Hub, caller string) {
	t.Helper()
	_, _, err := h.openSession(auth.Local(), mcp.Client{Capabilities: []byte("{}")}, "", caller)
	if fault.KindOf(err) != fault.Full || !strings.Contains(fault.PublicOf(err), "max_sessions = ") {
		t.Errorf("a session too many: %v", err)
	}
}

// Where there are too many sessions, the idle one that was used longest ago is evicted; its id makes
// it again. One that is in use never is, and when all are, the newest is refused.
func TestIdleSessionsAreEvicted(t *testing.T) {
	h := newHub(t)
	h.plan.Load().Hub.MaxSessions = 4
	var ids []string
	var held []*session
	for i := range 4 {
		s, id := beginSession(t, h, fmt.Sprint(i))
		ids, held = append(ids, id), append(held, s)
	}
	refused(t, h, "new")
	for _, s := range held {
		h.sessions.release(s)
	}
	again, err := h.session(ids[0], auth.Local(), "", "0") // 1 is the one that was used longest ago
	if err != nil || again != held[0] {
		t.Fatal(err)
	}
	h.sessions.release(again)
	beginSession(t, h, "new")
	if h.sessions.held[held[1].name] != nil || len(h.sessions.held) != 4 {
		t.Error("it was not the least recently used session that went")
	}
	h.sessions.setSubscribed(held[2], true)
	back, err := h.session(ids[1], auth.Local(), "", "1") // makes 3 go: 2 is subscribed
	if err != nil || back == held[1] || back.name != held[1].name {
		t.Errorf("the id of an evicted session is not good: %v", err)
	}
	if h.sessions.held[held[2].name] == nil || h.sessions.held[held[3].name] != nil {
		t.Error("a session with a subscription was evicted")
	}
	beginSession(t, h, "newer") // makes 0 go: all others are in use
	refused(t, h, "newest")
	h.sessions.setSubscribed(held[2], false)
	beginSession(t, h, "newest")
}

// One caller has at most half of the sessions, and makes room among its own.
func TestSessionsHaveAShareForEachCaller(t *testing.T) {
	h := newHub(t)
	h.plan.Load().Hub.MaxSessions = 8
	modest, _ := beginSession(t, h, "modest")
	h.sessions.release(modest)
	var greedy []*session
	for range 4 {
		s, _ := beginSession(t, h, "greedy")
		greedy = append(greedy, s)
	}
	refused(t, h, "greedy")
	for _, s := range greedy {
		h.sessions.release(s)
	}
	for range 100 {
		s, _ := beginSession(t, h, "greedy")
		h.sessions.release(s)
	}
	if h.sessions.held[modest.name] != modest || len(h.sessions.held) != 5 {
		t.Errorf("%d sessions are held; another caller's was evicted", len(h.sessions.held))
	}
	for range 3 {
		beginSession(t, h, "third")
	}
	if len(h.sessions.callers) != 3 {
		t.Errorf("%d callers", len(h.sessions.callers))
	}
}

// Ended sessions are remembered, and no more of them than may be: the end that is longest ago is
// forgotten, and its id makes a new session.
func TestEndedSessionsAreBounded(t *testing.T) {
	h := newHub(t)
	first, id := beginSession(t, h, "")
	h.sessions.end(h, first)
	h.sessions.release(first)
	if _, err := h.session(id, auth.Local(), "", ""); fault.KindOf(err) != fault.NotFound {
		t.Errorf("an ended session: %v", err)
	}
	var last string
	for range maxEnded {
		s, id := beginSession(t, h, "")
		h.sessions.end(h, s)
		h.sessions.release(s)
		last = id
	}
	if n := len(h.sessions.ended.names); n != maxEnded || h.sessions.ended.order.Len() != n {
		t.Errorf("%d ended sessions are remembered", n)
	}
	if _, err := h.session(last, auth.Local(), "", ""); fault.KindOf(err) != fault.NotFound {
		t.Errorf("the session that ended last: %v", err)
	}
	if _, err := h.session(id, auth.Local(), "", ""); err != nil {
		t.Errorf("a forgotten end: %v", err)
	}
	h.Tidy(time.Now().Add(25 * time.Hour))
	if n := len(h.sessions.ended.names); n != 0 {
		t.Errorf("%d ended sessions are remembered after their ids expired", n)
	}
}

// heap is what is allocated and reachable.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // no heap is so large
}

// 100,000 times initialize without end: no request is refused, memory stays bounded, and the first
// id is still good.
func TestInitializeWithoutEnd(t *testing.T) {
	budget := membudget.New(256 << 20)
	h, err := New(Settings{Hub: Default(), HTTP: front.Default().HTTP}, Deps{Secret: bytes.Repeat([]byte("k"), 32), Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	info := `{"name":"` + strings.Repeat("x", 1000) + `"}`
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":` + info + `}}`
	post := func(session, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
		r = r.WithContext(auth.With(r.Context(), auth.Local()))
		if session != "" {
			r.Header.Set(mcp.HeaderSession, session)
		}
		w := httptest.NewRecorder()
		h.serveMCP(w, r)
		return w
	}
	before := heap()
	first := ""
	client := mcp.Client{Version: mcp.V20251125, Capabilities: []byte("{}"), Info: []byte(info)}
	for i := range 100_000 {
		if i >= 1000 { // what HTTP adds is the same for each of them
			s, _, err := h.openSession(auth.Local(), client, "", "caller")
			if err != nil {
				t.Fatalf("initialize %d: %v", i, err)
			}
			h.sessions.release(s)
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
	t.Logf("%d sessions are held, the heap grew by %d KiB, the budget holds %d KiB", len(h.sessions.held), grown>>10, budget.Stats().Held>>10)
	if grown > 32<<20 || len(h.sessions.held) > 6000 {
		t.Errorf("%d sessions are held and the heap grew by %d MiB", len(h.sessions.held), grown>>20)
	}
	if w := post(first, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); w.Code != http.StatusOK {
		t.Errorf("the first session: %d %s", w.Code, w.Body)
	}
}

// note is a notification of so many bytes, as a server sends it.
func note(t *testing.T, n, size int) rpc.Message {
	t.Helper()
	m, err := rpc.ParseMessage(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/odd","params":{"n":%d,"text":%q}}`, n, strings.Repeat("x", size)), 64, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// What a server says is held once, however many sessions wait for it, and given back when the last of them
// has it or is gone.
func TestNotesAreHeldOnce(t *testing.T) {
	budget := membudget.New(256 << 20)
	h, err := New(Settings{Hub: Default()}, Deps{Secret: bytes.Repeat([]byte("k"), 32), Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	var all []*session
	for range 500 {
		s, _ := beginSession(t, h, "")
		h.sessions.use(s, "a")
		all = append(all, s)
	}
	idle, before := budget.Stats().Held, heap()
	for n := range 250 {
		h.passOn("a", h.sessions.using("a"), note(t, n, 4000))
	}
	held, grown := budget.Stats().Held-idle, heap()-before
	t.Logf("250 notes for 500 sessions: the heap grew by %d KiB, the budget holds %d KiB", grown>>10, held>>10)
	if grown > 32<<20 || held < 250*4000 || held > 2<<20 {
		t.Errorf("the heap grew by %d KiB, the budget holds %d KiB", grown>>10, held>>10)
	}
	for i, s := range all {
		out := &full{}
		if err := s.listen(out); err != nil {
			t.Fatal(err)
		}
		if i == 0 && (len(out.sent) != 250 || !strings.Contains(out.sent[249], `"n":249,`)) {
			t.Errorf("%d notes came", len(out.sent))
		}
		s.unlisten(out)
	}
	if left := budget.Stats().Held; left != idle {
		t.Errorf("the budget holds %d bytes more than before", left-idle)
	}
	h.passOn("a", all, note(t, 0, 4096))
	h.Close()
	if left := budget.Stats().Held; left != 0 {
		t.Errorf("the budget holds %d bytes of a hub that is closed", left)
	}
}

// Where the memory budget refuses a notification, what has waited longest is dropped for it.
func TestNotesDropTheOldest(t *testing.T) {
	budget := membudget.New(1 << 20)
	h, err := New(Settings{Hub: Default()}, Deps{Secret: bytes.Repeat([]byte("k"), 32), Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s, _ := beginSession(t, h, "")
	for n := range 250 { // 1 MiB: twice what one server may hold
		h.passOn("a", []*session{s}, note(t, n, 4096))
	}
	if held := budget.Stats().Held; held > 1<<20 {
		t.Errorf("the budget holds %d bytes", held)
	}
	out := &full{}
	if err := s.listen(out); err != nil {
		t.Fatal(err)
	}
	if n := len(out.sent); n == 0 || n > 130 || !strings.Contains(out.sent[n-1], `"n":249,`) || !strings.Contains(out.sent[0], fmt.Sprintf(`"n":%d,`, 250-n)) {
		t.Errorf("%d notes came: %.80q", n, out.sent)
	}
}

// What a session keeps of its client does not keep the request in which the client said it.
func TestSessionDoesNotKeepItsRequest(t *testing.T) {
	h := newHub(t)
	before := heap()
	var all []mcp.Client
	for range 20 {
		body := []byte(`{"capabilities":{"roots":{}},"clientInfo":{"name":"x"},"pad":"` + strings.Repeat("x", 4<<20) + `"}`)
		params, err := mcp.ReadParams(body)
		if err != nil {
			t.Fatal(err)
		}
		client := clientOf(params)
		if _, _, err := h.openSession(auth.Local(), client, "", ""); err != nil {
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
	h := newHub(t)
	s, id := beginSession(t, h, "")
	peer := s.peer()
	h.sessions.release(s)
	h.sessions.sweep(time.Now().Add(time.Hour))
	peer.Notify("a", note(t, 1, 10)) // nobody is there
	if _, err := peer.Ask(context.Background(), "a", rpc.Message{}); err == nil {
		t.Error("nobody was asked, and answered")
	}
	again, err := h.session(id, auth.Local(), "", "")
	if err != nil || again == s {
		t.Fatal(err)
	}
	select {
	case <-again.ready:
	default:
		t.Error("the client cannot be asked before it makes a request")
	}
	peer.Notify("a", note(t, 2, 10))
	if len(again.backlog) != 1 {
		t.Errorf("%d notes", len(again.backlog))
	}
}

// A session that was evicted or ended while a message, a stream or a request was on its way to it takes none
// of them: nobody would ever give the memory back, or end what was begun.
func TestClosedSessionTakesNothing(t *testing.T) {
	budget := membudget.New(64 << 20)
	h, err := New(Settings{Hub: Default()}, Deps{Secret: bytes.Repeat([]byte("k"), 32), Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := beginSession(t, h, "")
	h.sessions.use(s, "a")
	users := h.sessions.using("a")
	h.sessions.end(h, s)
	h.passOn("a", users, note(t, 1, 4096))
	if held := budget.Stats().Held; held != 0 || len(s.backlog) > 0 {
		t.Errorf("%d messages wait for a closed session, and the budget holds %d bytes", len(s.backlog), held)
	}
	if err := s.listen(&full{}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a stream of a closed session: %v", err)
	}
	ctx, done := s.begin(t.Context(), rpc.ID{})
	defer done()
	if ctx.Err() == nil {
		t.Error("a request of a closed session goes on")
	}
}

// An array of answers is a copy of all of them, which is asked for like everything else.
func TestBatchAnswersAreCounted(t *testing.T) {
	budget := membudget.New(64 << 20)
	scope := budget.Scope("caller")
	defer scope.Release()
	got, err := joinBatch(scope, [][]byte{[]byte("1"), []byte("22")})
	if err != nil || string(got) != "[1,22]" || budget.Stats().Held != int64(cap(got)) {
		t.Errorf("got %s of %d bytes, %v; %d are held", got, cap(got), err, budget.Stats().Held)
	}
	large := bytes.Repeat([]byte("x"), 20<<20)
	if _, err := joinBatch(scope, [][]byte{large, large}); fault.KindOf(err) != fault.Full {
		t.Errorf("more than a caller may hold: %v", err)
	}
}

// A question that waits for its client to come back is held for the parked call.
func TestParkedQuestionsAreCounted(t *testing.T) {
	budget := membudget.New(64 << 20)
	p := &parked{memory: budget.Scope("caller"), questions: make(chan *question, 1), done: make(chan struct{})}
	defer p.memory.Release()
	question, answered := note(t, 1, 100_000), make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = p.ask(t.Context(), "a", question)
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
