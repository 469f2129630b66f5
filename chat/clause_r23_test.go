package chat_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
)

// fakeTransport is a provider without a network, for thousands of requests in one test. It records the last
// request and answers with events, one for each read.
type fakeTransport struct {
	lastBody string
	events   []string
}

func (f *fakeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	f.lastBody = string(body)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, ContentLength: -1,
		Body: io.NopCloser(&eventReader{left: f.events}), Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, err
}

type eventReader struct {
	left []string
	read int // bytes of left[0] that were read
}

func (o *eventReader) Read(p []byte) (int, error) {
	if len(o.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, o.left[0][o.read:])
	if o.read += n; o.read == len(o.left[0]) {
		o.left, o.read = o.left[1:], 0
	}
	return n, nil
}

// inProcessProxy is a proxy in front of a fakeTransport.
type inProcessProxy struct {
	*fakeTransport
	path        string
	handler     http.Handler
	windowMoved bool // by the last request, as the masker reports
}

// r23Meter is shared by all proxies of the test.
var r23Meter = meter.New("test", func() (meter.StoreStats, bool) { return meter.StoreStats{}, true })

// newInProcessProxy returns a proxy with an optional shrinker.
func newInProcessProxy(d *dialogue, events []string, p history.Policy, c masking.CachePrices, mask chat.Shrinker) *inProcessProxy {
	s := &inProcessProxy{fakeTransport: &fakeTransport{events: events}, path: d.path}
	cfg := chat.Settings{Chat: chat.Default(), HTTP: front.Default().HTTP}
	cfg.Chat.ObservationMasking.Schema1 = p
	cfg.Chat.Providers = []chat.Provider{providerConfig("p", d.kind, "http://provider.invalid", func(p *chat.Provider) { p.Cache = c })}
	deps := chat.Deps{Transport: s.fakeTransport, Meter: r23Meter}
	if mask != nil {
		deps.Shrink = func(ctx context.Context, o masking.Request) masking.Result {
			out := mask(ctx, o)
			s.windowMoved = out.BoundaryMoved
			return out
		}
	}
	s.handler = chat.New(cfg, deps).Handler(front.NewGuard("127.0.0.1:8000", front.HTTP{}))
	return s
}

// send sends a request, checks that the reply has the provider's bytes, and returns what the provider got.
func (s *inProcessProxy) send(t *testing.T, body string) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:8000"+s.path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:9"
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	if want := strings.Join(s.events, ""); w.Code != http.StatusOK || w.Body.String() != want {
		t.Fatalf("got %d %s, want %s", w.Code, w.Body, want)
	}
	return s.lastBody
}

// randomPolicy returns a policy with limits that short conversations reach, and the cache prices of a provider.
func randomPolicy(rnd *rand.Rand) (history.Policy, masking.CachePrices) {
	p := history.DefaultPolicy()
	p.Advance = []string{history.AdvanceEachTurn, history.AdvanceStride, history.AdvancePressure, history.AdvanceAuto}[rnd.IntN(4)]
	p.WindowTurns, p.Stride = 1+rnd.IntN(3), 1+rnd.IntN(4)
	p.TriggerTokens, p.ClearAtLeast = 250*rnd.IntN(3), 80*rnd.IntN(3)
	p.KeepLastK, p.KeepHandles, p.KeepErrors = rnd.IntN(3)*rnd.IntN(2), 4*rnd.IntN(2), rnd.IntN(2) == 0
	p.PastBreakpoints, p.Agents = rnd.IntN(3) == 0, rnd.IntN(2) == 0
	if rnd.IntN(2) == 0 {
		p.Template = "[{prune_id} {tool_name} {original_chars}]"
	}
	prices := [][2]float64{{1, 1}, {1.25, .1}, {1, .1}, {1, .5}}[rnd.IntN(4)]
	return p, masking.CachePrices{Write: prices[0], Read: prices[1], TTL: unitDuration(5 * time.Minute)}
}

// R23: more than a thousand random dialogues, as many in each wire format, are sent as they grow. (Package history
// tests a thousand in each format without a proxy.) With masking off, requests and replies keep their bytes. With
// masking on, a request is valid by a checker that shares no code with the product, only tool results differ from
// the client's bytes, each request extends the last one unless the window moved, a mask never changes, and handles
// are kept. A masker that panics changes nothing.
func TestR23Dialogues(t *testing.T) {
	const dialogues, batches = 360, 2 // in each wire format
	for _, w := range wires {
		for batch := range uint64(batches) {
			t.Run(fmt.Sprint(w.path, " ", batch), func(t *testing.T) {
				t.Parallel()
				var n coverage
				store := newRecall(t, nil)
				for seed := batch; seed < dialogues; seed += batches {
					n.sendGrowing(t, store, w, seed)
				}
				n.wantEnough(t, dialogues/batches)
			})
		}
	}
}

// coverage counts what occurred, so that a test that checks too little fails.
type coverage struct{ requests, masked, moves, unmoved, handles int }

func (n coverage) wantEnough(t *testing.T, dialogues int) {
	t.Helper()
	if n.requests < 3*dialogues || n.masked < dialogues/2 || n.moves < dialogues/2 || n.unmoved < dialogues || n.handles < dialogues/20 {
		t.Errorf("the test covers too little: %+v of %d dialogues", n, dialogues)
	}
	t.Logf("%d dialogues: %+v", dialogues, n)
}

// sendGrowing sends one dialogue as it grows and compares each request with the one before.
func (n *coverage) sendGrowing(t *testing.T, store *recall.Recall, w wire, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 29))
	d := newDialogue(w.path, seed, 3+rnd.IntN(4))
	p, c := randomPolicy(rnd)
	s := newInProcessProxy(d, w.events, p, c, masking.New(store, time.Now).Shrink)
	var last exchange
	for i := 1; i <= len(d.steps); i++ {
		if i < len(d.steps) && d.turnCount(i+1) <= p.WindowTurns {
			continue // nothing is old enough to be masked
		}
		request := d.request(i)
		last = n.compare(t, d, i, p, last, exchange{request: request, got: s.send(t, joinPieces(request)), moved: s.windowMoved})
		if t.Failed() {
			t.Fatalf("seed %d, step %d, policy %+v, prices %+v, marks %v", seed, i, p, c, d.markPlacement)
		}
	}
	whole := joinPieces(last.request)
	if err := checkPairing(d.path, last.got); err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, last.got)
	}
	p.Enabled = false
	if got := newInProcessProxy(d, w.events, p, c, masking.New(store, time.Now).Shrink).send(t, whole); got != whole {
		t.Fatalf("seed %d: masking is off, and the request became %s", seed, got)
	}
	p.Enabled = true
	if got := newInProcessProxy(d, w.events, p, c, func(context.Context, masking.Request) masking.Result { panic(seed) }).send(t, whole); got != whole {
		t.Fatalf("seed %d: the masker panicked, and the request became %s", seed, got)
	}
}

// exchange is a client's request, what the provider got for it, and the masks in it by call id.
type exchange struct {
	request []piece
	got     string
	moved   bool
	masks   map[string]string
}

// compare checks what the provider got against what the client sent and against the exchange before.
func (n *coverage) compare(t *testing.T, d *dialogue, steps int, p history.Policy, before, now exchange) exchange {
	t.Helper()
	n.requests++
	plain, err := withoutOwnMark(d, now, p)
	if err == nil {
		now.masks, err = findMasks(now.request, plain, p)
	}
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, joinPieces(now.request), now.got)
		return now
	}
	n.masked += len(now.masks)
	for id, text := range before.masks {
		if now.masks[id] != text {
			t.Errorf("the mask of %s changed from %s to %s", id, text, now.masks[id])
		}
	}
	prefix := strings.TrimSuffix(strings.ReplaceAll(before.got, ephemeral, ""), d.foot)
	extends := strings.HasPrefix(strings.ReplaceAll(now.got, ephemeral, ""), prefix)
	switch {
	case !extends && !now.moved:
		t.Errorf("the prefix changed, but the window did not move:\n%s\n%s", before.got, now.got)
	case !extends && !mayMove(p, d.turnCount(steps)):
		t.Errorf("the window moved at turn %d, which the policy does not allow", d.turnCount(steps))
	case extends:
		n.unmoved++
	default:
		n.moves++
	}
	n.wantHandles(t, d, steps, p, before, now)
	return now
}

// mayMove reports whether the policy lets the window move at a turn; true where that depends on sizes.
func mayMove(p history.Policy, turns int) bool {
	if p.Advance != history.AdvanceStride || p.KeepLastK > 0 { // results that leave the last K are masked in between
		return true
	}
	return turns > p.WindowTurns && (turns-p.WindowTurns)%p.Stride == 0
}

// mayGrow reports whether a mask may be longer than its text: the document's window masks short results too (H2),
// every other policy never does (I5).
func mayGrow(p history.Policy) bool {
	return !p.Agents && (p.Advance == history.AdvanceEachTurn || p.Advance == history.AdvanceAuto)
}

// withoutOwnMark takes out the one cache_control that advance = "auto" may add, on the call for a result, where the
// client marks something behind it and leaves a mark free.
func withoutOwnMark(d *dialogue, now exchange, p history.Policy) (string, error) {
	client := strings.Count(joinPieces(now.request), ephemeral)
	switch own := strings.Count(now.got, ephemeral) - client; {
	case own == 0:
		return now.got, nil
	case own != 1 || d.path != "/v1/messages" || p.Advance != history.AdvanceAuto || !p.PastBreakpoints || client == 0 || client > 3:
		return "", fmt.Errorf("%d cache_control were added to %d", own, client)
	}
	var at int
	for _, q := range now.request {
		rest := now.got[at:]
		if strings.HasPrefix(rest, q.raw) {
			at += len(q.raw)
			continue
		}
		i := strings.Index(rest, ephemeral)
		if cut := now.got[:at+i] + now.got[at+i+len(ephemeral):]; i >= 0 && strings.HasPrefix(cut[at:], q.raw) && strings.HasSuffix(now.got[:at+i], `"input":{}`) {
			return cut, nil
		}
		if q.result == "" {
			return "", fmt.Errorf("piece %.80q is missing at %.80q", q.raw, rest)
		}
		at += strings.Index(rest, `"`) + 1 // a masked result: its text ends before the next piece
		for now.got[at] != '"' {
			if now.got[at] == '\\' {
				at++
			}
			at++
		}
		at++
	}
	return "", errors.New("the cache_control that was added is not on a call")
}

// findMasks returns the masks by call id, or an error if any byte outside the results changed.
func findMasks(request []piece, got string, policy history.Policy) (map[string]string, error) {
	masks := map[string]string{}
	for i, p := range request {
		rest, same := strings.CutPrefix(got, p.raw)
		// A mask may start like the text, so what follows must match too.
		if _, masked := masks[p.result]; same && masked {
			return nil, fmt.Errorf("result %s is masked only in part", p.result)
		}
		if same && (p.result == "" || i+1 == len(request) || strings.HasPrefix(rest, request[i+1].raw)) {
			got = rest
			continue
		}
		mayMask := p.maskable || p.isList && policy.Agents || strings.Contains(p.raw, "Error: ") && !p.isList
		if p.result == "" || !mayMask {
			return nil, fmt.Errorf("piece %d, %.80q, is missing at %.80q", i, p.raw, got)
		}
		dec := json.NewDecoder(strings.NewReader(got))
		var text string
		if err := dec.Decode(&text); err != nil || text == "" {
			return nil, fmt.Errorf("result %s was replaced by %.80q: %w", p.result, got, err)
		}
		raw := got[:dec.InputOffset()]
		if len(raw) >= len(p.raw) && p.first && !mayGrow(policy) {
			return nil, fmt.Errorf("the mask of %s is longer than its text: %s", p.result, raw)
		}
		masks[p.result] += raw
		got = got[len(raw):]
	}
	if got != "" {
		return nil, fmt.Errorf("unexpected bytes after the end: %.80q", got)
	}
	return masks, nil
}

// wantHandles checks that a new mask names the path of its result if later messages used it (H+4).
func (n *coverage) wantHandles(t *testing.T, d *dialogue, steps int, p history.Policy, before, now exchange) {
	t.Helper()
	if p.KeepHandles == 0 {
		return
	}
	for i, s := range d.steps[:steps] {
		for _, q := range s.pieces {
			text, masked := now.masks[q.result]
			if _, old := before.masks[q.result]; !masked || old || q.result == "" || !q.first || !strings.Contains(q.raw, q.path) {
				continue
			}
			used := slices.ContainsFunc(d.steps[i+1:steps], func(later step) bool { return strings.Contains(later.text+" ", q.path+" ") })
			if used && !strings.Contains(text, q.path) {
				t.Errorf("%s was used later, but the mask of %s does not name it: %s", q.path, q.result, text)
			}
			if used {
				n.handles++
			}
		}
	}
}

// checkPairing returns an error unless every call has its result where the wire format requires it.
func checkPairing(path, body string) error {
	var r struct{ Messages, Input, Contents []message }
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return err
	}
	var unanswered []string
	for i, m := range slices.Concat(r.Messages, r.Input, r.Contents) {
		calls, results, err := m.callIDs(path)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if path != "/v1/responses" && len(unanswered) > 0 && len(results) == 0 {
			return fmt.Errorf("message %d comes before the results of %v", i, unanswered)
		}
		for _, id := range results {
			at := slices.Index(unanswered, id)
			if at < 0 {
				return fmt.Errorf("message %d: a result of %s, which was not called", i, id)
			}
			unanswered = slices.Delete(unanswered, at, at+1)
		}
		unanswered = append(unanswered, calls...)
	}
	if len(unanswered) > 0 {
		return fmt.Errorf("no results of %v", unanswered)
	}
	return nil
}

// message has the fields of a message or an item that pairing needs.
type message struct {
	Role, Type string
	ToolCalls  []struct{ ID string } `json:"tool_calls"`
	ToolCallID string                `json:"tool_call_id"`
	CallID     string                `json:"call_id"`
	Content    json.RawMessage
	Parts      []struct {
		FunctionCall, FunctionResponse *struct{ ID, Name string }
	}
}

// callIDs returns the ids of its calls and of its results.
func (m message) callIDs(path string) (calls, results []string, err error) {
	switch {
	case path == "/v1/responses" && m.Type == "function_call":
		return []string{m.CallID}, nil, nil
	case path == "/v1/responses" && m.Type == "function_call_output":
		return nil, []string{m.CallID}, nil
	case m.Role == "tool":
		return nil, []string{m.ToolCallID}, nil
	}
	for _, c := range m.ToolCalls {
		calls = append(calls, c.ID)
	}
	for _, p := range m.Parts { // half of them have no id
		if c := p.FunctionCall; c != nil {
			calls = append(calls, c.Name+c.ID)
		}
		if r := p.FunctionResponse; r != nil {
			results = append(results, r.Name+r.ID)
		}
	}
	if path != "/v1/messages" || len(m.Content) == 0 || m.Content[0] != '[' {
		return calls, results, nil
	}
	var blocks []struct {
		Type, ID, Text string
		ToolUseID      string `json:"tool_use_id"`
	}
	if err := json.Unmarshal(m.Content, &blocks); err != nil {
		return nil, nil, err
	}
	for _, b := range blocks {
		switch b.Type {
		case "tool_use":
			calls = append(calls, b.ID)
		case "tool_result":
			results = append(results, b.ToolUseID)
		case "text":
			if b.Text == "" {
				return nil, nil, errors.New("an empty text block")
			}
		}
	}
	return calls, results, nil
}
