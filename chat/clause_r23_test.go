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
	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
)

// fake is a provider without a network: thousands of requests are made in one test. It keeps the last
// request and answers with the events of its shape, one for each read.
type fake struct {
	got    string
	events []string
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	f.got = string(body)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, ContentLength: -1,
		Body: io.NopCloser(&oneByOne{left: f.events}), Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, err
}

type oneByOne struct {
	left []string
	read int // of the first of them
}

func (o *oneByOne) Read(p []byte) (int, error) {
	if len(o.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, o.left[0][o.read:])
	if o.read += n; o.read == len(o.left[0]) {
		o.left, o.read = o.left[1:], 0
	}
	return n, nil
}

// shortcut is a door in front of a fake provider.
type shortcut struct {
	*fake
	path    string
	handler http.Handler
	moved   bool // what the last request's masking said: that it moved the window
}

// r23Meter counts for all of them.
var r23Meter = meter.New("test", func() (meter.Store, bool) { return meter.Store{}, true })

// newShortcut makes a door. mask is its hook; nil for none.
func newShortcut(d *dialogue, events []string, p history.Policy, c chat.Cache, mask chat.Shrink) *shortcut {
	s := &shortcut{fake: &fake{events: events}, path: d.path}
	cfg := chat.Settings{Chat: chat.Default(), HTTP: front.Default().HTTP}
	cfg.Chat.Observation.Schema1 = p
	cfg.Chat.Providers = []chat.Provider{provider("p", d.kind, "http://provider.invalid", func(p *chat.Provider) { p.Cache = c })}
	deps := chat.Deps{Transport: s.fake, Meter: r23Meter}
	if mask != nil {
		deps.Shrink = func(ctx context.Context, o chat.Outgoing) chat.Shrunk {
			out := mask(ctx, o)
			s.moved = out.Moved
			return out
		}
	}
	s.handler = chat.New(cfg, deps).Handler(front.NewGuard("127.0.0.1:8000", front.HTTP{}))
	return s
}

// send makes a request, and holds the reply to being the provider's, event for event.
func (s *shortcut) send(t *testing.T, body string) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:8000"+s.path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:9"
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	if want := strings.Join(s.events, ""); w.Code != http.StatusOK || w.Body.String() != want {
		t.Fatalf("got %d %s, want %s", w.Code, w.Body, want)
	}
	return s.got
}

// anyPolicy is a policy small enough that short conversations meet it, and the prices of a provider.
func anyPolicy(rnd *rand.Rand) (history.Policy, chat.Cache) {
	p := history.DefaultPolicy()
	p.Advance = []string{history.EachTurn, history.Stride, history.Pressure, history.Auto}[rnd.IntN(4)]
	p.WindowTurns, p.Stride = 1+rnd.IntN(3), 1+rnd.IntN(4)
	p.TriggerTokens, p.ClearAtLeast = 250*rnd.IntN(3), 80*rnd.IntN(3)
	p.KeepLastK, p.KeepHandles, p.KeepErrors = rnd.IntN(3)*rnd.IntN(2), 4*rnd.IntN(2), rnd.IntN(2) == 0
	p.PastBreakpoints, p.Agents = rnd.IntN(3) == 0, rnd.IntN(2) == 0
	if rnd.IntN(2) == 0 {
		p.Template = "[{prune_id} {tool_name} {original_chars}]"
	}
	prices := [][2]float64{{1, 1}, {1.25, .1}, {1, .1}, {1, .5}}[rnd.IntN(4)]
	return p, chat.Cache{Write: prices[0], Read: prices[1], TTL: seconds(5 * time.Minute)}
}

// R23: more than a thousand dialogues, a third of them in each shape, sent as they grow. (A thousand
// in each are in package history, without a door.) Masking off:
// the bytes are the client's, and the events the provider's. On: valid by a checker that shares
// nothing with the product, every byte but those of tool results the client's, what was sent a
// prefix of what is sent next unless the window moved, what was masked masked with the same bytes,
// handles kept. A masker that panics changes nothing.
func TestR23Dialogues(t *testing.T) {
	const dialogues, batches = 360, 2 // in each shape
	for _, w := range wires {
		for batch := range uint64(batches) {
			t.Run(fmt.Sprint(w.path, " ", batch), func(t *testing.T) {
				t.Parallel()
				var n tally
				kept := keeper(t, nil)
				for seed := batch; seed < dialogues; seed += batches {
					n.grow(t, kept, w, seed)
				}
				n.enough(t, dialogues/batches)
			})
		}
	}
}

// tally counts what was seen, so that a test that tests nothing is noticed.
type tally struct{ requests, masked, moves, still, handles int }

func (n tally) enough(t *testing.T, dialogues int) {
	t.Helper()
	if n.requests < 3*dialogues || n.masked < dialogues/2 || n.moves < dialogues/2 || n.still < dialogues || n.handles < dialogues/20 {
		t.Errorf("the test tests little: %+v of %d dialogues", n, dialogues)
	}
	t.Logf("%d dialogues: %+v", dialogues, n)
}

// grow sends one dialogue as it grows.
func (n *tally) grow(t *testing.T, kept *recall.Recall, w wire, seed uint64) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 29))
	d := newDialogue(w.path, seed, 3+rnd.IntN(4))
	p, c := anyPolicy(rnd)
	s := newShortcut(d, w.events, p, c, chat.Mask(kept, time.Now))
	var last seen
	for i := 1; i <= len(d.steps); i++ {
		if i < len(d.steps) && d.turns(i+1) <= p.WindowTurns {
			continue // as in the next request, nothing is old yet
		}
		request := d.request(i)
		last = n.compare(t, d, i, p, last, seen{request: request, got: s.send(t, join(request)), moved: s.moved})
		if t.Failed() {
			t.Fatalf("seed %d, step %d, policy %+v, prices %+v, marks %v", seed, i, p, c, d.habit)
		}
	}
	whole := join(last.request)
	if err := paired(d.path, last.got); err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, last.got)
	}
	p.Enabled = false
	if got := newShortcut(d, w.events, p, c, chat.Mask(kept, time.Now)).send(t, whole); got != whole {
		t.Fatalf("seed %d: masking is off, and it became %s", seed, got)
	}
	p.Enabled = true
	if got := newShortcut(d, w.events, p, c, func(context.Context, chat.Outgoing) chat.Shrunk { panic(seed) }).send(t, whole); got != whole {
		t.Fatalf("seed %d: the masker panicked, and it became %s", seed, got)
	}
}

// seen is a request of the client, what the provider got for it, and what stands there for results.
type seen struct {
	request []piece
	got     string
	moved   bool
	masks   map[string]string
}

// compare holds what the provider got against what the client sent, and against the request before.
func (n *tally) compare(t *testing.T, d *dialogue, steps int, p history.Policy, before, now seen) seen {
	t.Helper()
	n.requests++
	var err error
	if now.masks, err = align(now.request, now.got, mayGrow(p)); err != nil {
		t.Errorf("%v\n%s\n%s", err, join(now.request), now.got)
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
		t.Errorf("the prefix changed, and nothing moved:\n%s\n%s", before.got, now.got)
	case !extends && !scheduled(p, d.turns(steps)):
		t.Errorf("the window moved at turn %d", d.turns(steps))
	case extends:
		n.still++
	default:
		n.moves++
	}
	n.named(t, d, steps, p, before, now)
	return now
}

// scheduled says whether the window may move at a turn, by the policies of which that can be said
// without looking at sizes.
func scheduled(p history.Policy, turns int) bool {
	if p.Advance != history.Stride || p.KeepLastK > 0 { // what was among the last K becomes free between
		return true
	}
	return turns > p.WindowTurns && (turns-p.WindowTurns)%p.Stride == 0
}

// mayGrow says whether a mask may be longer than what it stands for: the document's window masks short
// results too (H2), every other policy never does (I5).
func mayGrow(p history.Policy) bool {
	return !p.Agents && (p.Advance == history.EachTurn || p.Advance == history.Auto)
}

// align says which results are masked, by what; an error where a byte of anything else is another.
func align(request []piece, got string, mayGrow bool) (map[string]string, error) {
	masks := map[string]string{}
	for i, p := range request {
		rest, same := strings.CutPrefix(got, p.raw)
		// A text may begin as its mask does, so what follows must fit too.
		if _, half := masks[p.result]; same && half {
			return nil, fmt.Errorf("of result %s only a part is masked", p.result)
		}
		if same && (p.result == "" || i+1 == len(request) || strings.HasPrefix(rest, request[i+1].raw)) {
			got = rest
			continue
		}
		if p.result == "" || !p.plain && !strings.Contains(p.raw, "Error: ") {
			return nil, fmt.Errorf("piece %d, %.80q, is not there: %.80q", i, p.raw, got)
		}
		dec := json.NewDecoder(strings.NewReader(got))
		var text string
		if err := dec.Decode(&text); err != nil || text == "" {
			return nil, fmt.Errorf("in the place of result %s stands %.80q: %w", p.result, got, err)
		}
		raw := got[:dec.InputOffset()]
		if len(raw) >= len(p.raw) && p.first && !mayGrow {
			return nil, fmt.Errorf("the mask of %s is longer than its text: %s", p.result, raw)
		}
		masks[p.result] += raw
		got = got[len(raw):]
	}
	if got != "" {
		return nil, fmt.Errorf("behind the end stands %.80q", got)
	}
	return masks, nil
}

// named: the path that a newly masked result names stands in its mask, if the conversation used it
// since (H+4).
func (n *tally) named(t *testing.T, d *dialogue, steps int, p history.Policy, before, now seen) {
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
			used := slices.ContainsFunc(d.steps[i+1:steps], func(later step) bool { return strings.Contains(later.said+" ", q.path+" ") })
			if used && !strings.Contains(text, q.path) {
				t.Errorf("%s was used, and the mask of %s does not name it: %s", q.path, q.result, text)
			}
			if used {
				n.handles++
			}
		}
	}
}

// paired is nil for a request whose every call has its result, where its shape wants it.
func paired(path, body string) error {
	var r struct{ Messages, Input []utterance }
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		return err
	}
	var open []string
	for i, m := range append(r.Messages, r.Input...) {
		calls, results, err := m.read(path)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if path != "/v1/responses" && len(open) > 0 && len(results) == 0 {
			return fmt.Errorf("message %d comes before the results of %v", i, open)
		}
		for _, id := range results {
			at := slices.Index(open, id)
			if at < 0 {
				return fmt.Errorf("message %d: a result of %s, which nobody called", i, id)
			}
			open = slices.Delete(open, at, at+1)
		}
		open = append(open, calls...)
	}
	if len(open) > 0 {
		return fmt.Errorf("no results of %v", open)
	}
	return nil
}

// utterance is a message or an item, as far as pairing goes.
type utterance struct {
	Role, Type string
	ToolCalls  []struct{ ID string } `json:"tool_calls"`
	ToolCallID string                `json:"tool_call_id"`
	CallID     string                `json:"call_id"`
	Content    json.RawMessage
}

// read gives the ids of its calls, and those of its results.
func (m utterance) read(path string) (calls, results []string, err error) {
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
	if path != "/v1/messages" || len(m.Content) == 0 || m.Content[0] != '[' {
		return calls, nil, nil
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
				return nil, nil, errors.New("an empty block")
			}
		}
	}
	return calls, results, nil
}
