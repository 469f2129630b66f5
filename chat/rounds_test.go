package chat_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/llmtest"
	"github.com/ctxgate/ctxgate/recall"
)

// recovering offers the tool, and masks by the policy.
func recovering(r *recall.Recall, change func(*history.Policy)) option {
	return func(s *chat.Settings, d *chat.Deps) {
		d.Shrink, d.Recall = chat.Mask(r, time.Now), r
		s.Chat.Observation.Recovery.Offer = true
		change(&s.Chat.Observation.Schema1)
	}
}

func unmasked(p *history.Policy) { p.Enabled = false }

// eachWire plays something before a fake provider in each shape, streamed and not.
func eachWire(t *testing.T, do func(t *testing.T, d dialect, p *llmtest.Provider, stream bool)) {
	t.Helper()
	for shape, d := range dialects {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stream %v", shape, stream), func(t *testing.T) {
				t.Parallel()
				do(t, d, llmtest.New(t, llmtest.Options{MinCache: 64}), stream)
			})
		}
	}
}

func doorTo(t *testing.T, d dialect, p *llmtest.Provider, options ...option) *gate {
	t.Helper()
	entry := provider("p", d.kind, p.URL, keyed("k"), func(p *chat.Provider) { p.Retries = 0 })
	return open(t, []chat.Provider{entry}, options...)
}

var maskedID = regexp.MustCompile(`prn_[0-9a-z]{26}`)

// readBack is a call of the tool.
func readBack(id, args string) llmtest.Call {
	return llmtest.Call{Name: "recover_text", Args: `{"prune_id":"` + id + `"` + args + `}`}
}

// conversation are n tool turns, with one result each.
func (d dialect) conversation(n int) []string {
	out := []string{`{"role":"user","content":"go"}`}
	for i := range n {
		out = append(out, d.turn(fmt.Sprintf("c%d", i), result(i)))
	}
	return out
}

// charged is what the provider charged for all requests.
func charged(p *llmtest.Provider) (in, out int64) {
	total := p.Bill().Total()
	return int64(total.Input()), int64(total.Output)
}

// accepted checks that the provider refused nothing.
func accepted(t *testing.T, p *llmtest.Provider, n int) []llmtest.Request {
	t.Helper()
	all := p.Requests()
	for _, r := range all {
		if r.Status >= http.StatusBadRequest { // one that is still being answered has none
			t.Errorf("the provider refused %s", r.Body)
		}
	}
	if len(all) != n {
		t.Fatalf("%d requests, not %d", len(all), n)
	}
	return all
}

// H+5: the model reads two masked results back, one after the other; the client's SDK sees one
// reply, without a call that it does not know, and with the usage of all rounds.
func TestModelReadsBackTwice(t *testing.T) {
	eachWire(t, func(t *testing.T, d dialect, p *llmtest.Provider, stream bool) {
		p.ScriptFunc(func(r llmtest.Request) llmtest.Step {
			at := len(r.Results) - 4
			if at == 2 {
				if r.Results[4].Text != result(0) || r.Results[5].Text != "line of result 1 é\n" {
					t.Errorf("read back %q", r.Results[4:])
				}
				return llmtest.Say("It is 7.")
			}
			id := maskedID.FindString(r.Results[at].Text)
			return llmtest.Step{Text: []string{"Let me see. ", ""}[at], Calls: []llmtest.Call{readBack(id, []string{"", `,"chars":"1-19"`}[at])}}
		})
		g := doorTo(t, d, p, recovering(keeper(t, nil), rolling))
		got, err := d.ask(t.Context(), t, g.URL, d.request(stream, d.conversation(4)...), stream)
		if err != nil {
			t.Fatal(err)
		}
		in, out := charged(p)
		if got.text != "Let me see. It is 7." || len(got.calls) > 0 || got.in != in || got.out != out {
			t.Errorf("got %+v, charged %d and %d", got, in, out)
		}
		if why := []string{"stop", "end_turn", "completed"}; !slices.Contains(why, got.why) {
			t.Errorf("it ended for %s", got.why)
		}
		for _, r := range accepted(t, p, 3) {
			if n := len(r.Tools); n != 2 || !slices.Contains(r.Tools, "recover_text") {
				t.Errorf("tools %v", r.Tools)
			}
		}
		settled(t, g, 3)
		if booked := g.meter.Savings().Total; booked.Requests != 3 || booked.Recoveries != 2 {
			t.Errorf("booked %+v", booked)
		}
	})
}

// H+5: where a client has its messages cached, what the model reads back is cached with them: the next
// round finds all of the one before, and so does the client's next request.
func TestRoundsAreCached(t *testing.T) {
	d, p := dialects[llmtest.Messages], llmtest.New(t, llmtest.Options{MinCache: 64})
	rounds := 0
	p.ScriptFunc(func(r llmtest.Request) llmtest.Step {
		if rounds++; rounds > 2 {
			return llmtest.Say("It is 7.")
		}
		return llmtest.Use(readBack(maskedID.FindString(string(r.Body)), ""))
	})
	g := doorTo(t, d, p, recovering(keeper(t, nil), func(p *history.Policy) {
		rolling(p)
		p.Advance, p.Stride, p.PastBreakpoints = history.Stride, 4, true
	}))
	const mark = `"cache_control":{"type":"ephemeral"}`
	talk := d.conversation(6)
	ask := func() llmtest.Request {
		last := len(talk) - 1
		body := d.request(false, append(slices.Clone(talk[:last]), strings.TrimSuffix(talk[last], `}]}`)+`,`+mark+`}]}`)...)
		if _, err := d.ask(t.Context(), t, g.URL, body, false); err != nil {
			t.Fatal(err)
		}
		all := p.Requests()
		return all[len(all)-1]
	}
	ask()
	bill := p.Bill()
	if first, second, third := bill[0], bill[1], bill[2]; second.Cached != first.Input() || second.Fresh > 8 || third.Cached != second.Input()-second.Fresh {
		t.Errorf("billed %+v", bill)
	}
	for i, r := range accepted(t, p, 3) {
		if n := strings.Count(string(r.Body), mark); n != min(2, i+1) {
			t.Errorf("round %d has %d marks", i, n)
		}
	}
	talk = append(talk, `{"role":"assistant","content":[{"type":"text","text":"It is 7."}]}`, `{"role":"user","content":[{"type":"text","text":"More"}]}`)
	if r := ask(); strings.Count(string(r.Body), mark) != 1 {
		t.Errorf("the client's own marks are not the only ones: %s", r.Body)
	}
	if next := p.Bill()[3]; next.Cached != bill[2].Input()-bill[2].Fresh {
		t.Errorf("billed %+v after %+v", next, bill[2])
	}
}

// H+5: after max_rounds the reply ends as it is; the model is told before its last round.
func TestRoundsAreBounded(t *testing.T) {
	eachWire(t, func(t *testing.T, d dialect, p *llmtest.Provider, stream bool) {
		r := keeper(t, nil)
		id, _ := r.Keep(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: chat.OriginOf("p")})
		p.ScriptFunc(func(llmtest.Request) llmtest.Step {
			return llmtest.Step{Text: "More. ", Calls: []llmtest.Call{readBack(id, "")}}
		})
		g := doorTo(t, d, p, recovering(r, unmasked), func(s *chat.Settings, _ *chat.Deps) { s.Chat.Observation.Recovery.MaxRounds = 2 })
		got, err := d.ask(t.Context(), t, g.URL, d.request(stream, d.conversation(1)...), stream)
		if err != nil {
			t.Fatal(err)
		}
		if got.text != "More. More. More. " || len(got.calls) > 0 || got.why == "tool_calls" || got.why == "tool_use" {
			t.Errorf("got %+v", got)
		}
		all := accepted(t, p, 3)
		if last := all[2].Results; last[1].Text != "text" || !strings.HasPrefix(last[2].Text, "text\n[You have read back") {
			t.Errorf("got %q", last)
		}
	})
}

// H+5: what cannot be read is told to the model, and the request goes on.
func TestModelIsToldWhatItCannotRead(t *testing.T) {
	eachWire(t, func(t *testing.T, d dialect, p *llmtest.Provider, stream bool) {
		r, store := brittle(t)
		id, _ := r.Keep(t.Context(), auth.DefaultTenant, strings.Repeat("x", 5000), recall.Origin{Server: chat.OriginOf("p")})
		p.ScriptFunc(func(req llmtest.Request) llmtest.Step {
			switch len(req.Results) {
			case 1:
				return llmtest.Use(readBack("prn_00000000000000000000000000", ""), readBack(id, `,"chars":"x"`), readBack(id, ""), llmtest.Call{Name: "recover_text", Args: `{}`})
			case 5:
				store.down.Store(true)
				return llmtest.Use(readBack(id, ""))
			}
			return llmtest.Say("No.")
		})
		g := doorTo(t, d, p, recovering(r, unmasked), func(s *chat.Settings, _ *chat.Deps) { s.Chat.Observation.Recovery.MaxChars = 4000 })
		got, err := d.ask(t.Context(), t, g.URL, d.request(stream, d.conversation(1)...), stream)
		if err != nil || got.text != "No." {
			t.Fatalf("got %+v, %v", got, err)
		}
		results := accepted(t, p, 3)[2].Results
		for i, want := range []string{"nothing is kept under", "chars must be", "[cut after", "prune_id is missing", "cannot be had now"} {
			if text := results[i+1].Text; !strings.Contains(text, want) || len(text) > 1000 {
				t.Errorf("got %q, want %q", text, want)
			}
		}
	})
}

// H+5, H10: where the client has the hub's tool, has no tools at all, or nothing is offered, the
// request goes as it came, and so does the reply, whatever is called in it.
func TestNothingIsAdded(t *testing.T) {
	eachWire(t, func(t *testing.T, d dialect, p *llmtest.Provider, stream bool) {
		body := d.request(stream, d.conversation(1)...)
		has := strings.Replace(body, `"read"`, `"hub__recover_text","description":"wants a prune_id"`, 1)
		for name, c := range map[string]struct {
			body  string
			offer bool
			tool  string
		}{
			"has it":   {has, true, "hub__recover_text"},
			"not here": {body, false, "recover_text"},
		} {
			p.Reset()
			p.Script(llmtest.Use(llmtest.Call{ID: "x", Name: c.tool, Args: `{"prune_id":"p"}`}))
			g := doorTo(t, d, p, recovering(keeper(t, nil), unmasked), func(s *chat.Settings, _ *chat.Deps) { s.Chat.Observation.Recovery.Offer = c.offer })
			got, err := d.ask(t.Context(), t, g.URL, c.body, stream)
			if err != nil {
				t.Fatal(err)
			}
			if all := accepted(t, p, 1); string(all[0].Body) != c.body || !slices.Equal(got.calls, []string{c.tool + " x"}) {
				t.Errorf("%s: got %v for %s", name, got.calls, all[0].Body)
			}
		}
	})
}

// H+5, H10: a reply in which the model does not read back is passed on byte for byte, and of the
// request nothing changes but its tools.
func TestOfferedToolChangesNothingElse(t *testing.T) {
	for name, w := range wires {
		for _, stream := range []bool{false, true} {
			want, kind := w.whole, "application/json"
			if stream {
				want, kind = strings.Join(w.events, ""), "text/event-stream"
			}
			f := newFar(t, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", kind)
				for chunk := range slices.Chunk([]byte(want), 11) {
					_, _ = rw.Write(chunk)
					_ = http.NewResponseController(rw).Flush()
				}
			})
			g := open(t, []chat.Provider{provider("p", w.kind, f.URL)}, recovering(keeper(t, nil), unmasked))
			const tools = `{"tools":[{"name":"a","type":"function","function":{"name":"a"}}],`
			body := strings.Replace(w.request(stream), "{", tools, 1)
			resp, got := g.post(t, w.path, body, nil)
			if got != want || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != kind {
				t.Errorf("%s: stream %v: got %q", name, stream, got)
			}
			if !stream && resp.ContentLength != int64(len(want)) {
				t.Errorf("%s: length %d", name, resp.ContentLength)
			}
			sent := string(f.calls()[0].body)
			_, before, _ := strings.Cut(body, tools)
			if !strings.HasSuffix(sent, before) || strings.Count(sent, `"recover_text"`) != 1 {
				t.Errorf("%s: sent %s", name, sent)
			}
		}
	}
}

// H+5: a provider that fails in a later round: its answer is passed on while the client has
// nothing, and else the reply breaks off.
func TestLaterRoundFails(t *testing.T) {
	eachWire(t, func(t *testing.T, d dialect, p *llmtest.Provider, stream bool) {
		r := keeper(t, nil)
		id, _ := r.Keep(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: chat.OriginOf("p")})
		for _, step := range []llmtest.Step{llmtest.Fail(http.StatusServiceUnavailable), llmtest.Cut("", 0)} {
			p.Script(llmtest.Step{Text: "Let me see.", Calls: []llmtest.Call{readBack(id, "")}}, step)
			g := doorTo(t, d, p, recovering(r, unmasked))
			_, err := d.ask(t.Context(), t, g.URL, d.request(stream, d.conversation(1)...), stream)
			if err == nil {
				t.Fatal("half a reply looked whole")
			}
			status := 0
			if e := (&openai.Error{}); errors.As(err, &e) {
				status = e.StatusCode
			}
			if e := (&anthropic.Error{}); errors.As(err, &e) {
				status = e.StatusCode
			}
			want := map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusBadGateway}[step.Fail != nil]
			if !stream && status != want || stream && status != 0 {
				t.Errorf("got %d: %v", status, err)
			}
		}
	})
}

// A client that leaves in a later round ends the far call, and nothing is left behind (goleak).
func TestClientLeavesInALaterRound(t *testing.T) {
	eachWire(t, func(t *testing.T, d dialect, p *llmtest.Provider, stream bool) {
		r := keeper(t, nil)
		id, _ := r.Keep(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: chat.OriginOf("p")})
		p.Script(llmtest.Use(readBack(id, "")), llmtest.Step{Text: "Never said.", Delay: time.Minute})
		g := doorTo(t, d, p, recovering(r, unmasked))
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			for len(p.Requests()) < 2 {
				time.Sleep(time.Millisecond)
			}
			leave()
		}()
		if got, err := d.ask(ctx, t, g.URL, d.request(stream, d.conversation(1)...), stream); err == nil {
			t.Errorf("got %+v", got)
		}
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			if all := p.Requests(); len(all) == 2 && all[1].Gone {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the far call goes on")
			}
		}
	})
}

// The provider that answered goes on with its reply, and a fallback gets no credentials of the
// client's in any round.
func TestRoundsStayWithTheirProvider(t *testing.T) {
	r := keeper(t, nil)
	id, _ := r.Keep(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: chat.OriginOf("p")})
	d := dialects[llmtest.Chat]
	a, b := llmtest.New(t, llmtest.Options{}), llmtest.New(t, llmtest.Options{})
	a.Script(llmtest.Fail(http.StatusServiceUnavailable), llmtest.Say("wrong"))
	b.Script(llmtest.Use(readBack(id, "")), llmtest.Say("right"))
	one := provider("a", d.kind, a.URL, func(p *chat.Provider) { p.Retries, p.Fallback = 0, []string{"b"} })
	two := provider("b", d.kind, b.URL, keyed("theirs"))
	g := open(t, []chat.Provider{one, two}, recovering(r, unmasked))
	got, err := d.ask(t.Context(), t, g.URL, d.request(false, d.conversation(1)...), false)
	if err != nil || got.text != "right" || len(a.Requests()) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, req := range accepted(t, b, 2) {
		if key := req.Header.Get("Authorization"); key != "Bearer theirs" {
			t.Errorf("it got %s", key)
		}
	}
}
