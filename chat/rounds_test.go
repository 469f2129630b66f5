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
	"google.golang.org/genai"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/recall"
)

// withRecovery offers recover_text, and masks by the policy.
func withRecovery(r *recall.Recall, change func(*history.Policy)) option {
	return func(s *chat.Settings, d *chat.Deps) {
		d.Shrink, d.Recall = masking.New(r, time.Now).Shrink, r
		s.Chat.ObservationMasking.Recovery.Offer = true
		change(&s.Chat.ObservationMasking.Schema1)
	}
}

func withoutMasking(p *history.Policy) { p.Enabled = false }

// eachWire runs a test against a fake provider on each wire, streamed and not.
func eachWire(t *testing.T, do func(t *testing.T, d apiDialect, p *fakeprovider.Provider, stream bool)) {
	t.Helper()
	for shape, d := range dialects {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s stream %v", shape, stream), func(t *testing.T) {
				t.Parallel()
				do(t, d, fakeprovider.New(t, fakeprovider.Options{MinCacheTokens: 64}), stream)
			})
		}
	}
}

func gatewayTo(t *testing.T, d apiDialect, p *fakeprovider.Provider, options ...option) *gateway {
	t.Helper()
	entry := providerConfig("p", d.kind, p.URL, withAPIKey("k"), func(p *chat.Provider) { p.Retries = 0 })
	return newGateway(t, []chat.Provider{entry}, options...)
}

var maskedID = regexp.MustCompile(`prn_[0-9a-z]{26}`)

// recoverCall is a call of recover_text.
func recoverCall(id, args string) fakeprovider.Call {
	return fakeprovider.Call{Name: "recover_text", Args: `{"prune_id":"` + id + `"` + args + `}`}
}

// conversation returns the messages of n tool turns, with one result each.
func (d apiDialect) conversation(n int) []string {
	out := []string{`{"role":"user","content":"go"}`}
	for i := range n {
		out = append(out, d.turn(fmt.Sprintf("c%d", i), resultText(i)))
	}
	return out
}

// chargedTokens returns the tokens that the provider charged for all requests.
func chargedTokens(p *fakeprovider.Provider) (in, out int64) {
	total := p.Bill().Total()
	return int64(total.Input()), int64(total.Output)
}

// requireAccepted requires n requests, none of them refused, and returns them.
func requireAccepted(t *testing.T, p *fakeprovider.Provider, n int) []fakeprovider.Request {
	t.Helper()
	all := p.Requests()
	for _, r := range all {
		if r.Status >= http.StatusBadRequest { // a request that is still being answered has no status
			t.Errorf("the provider refused %s", r.Body)
		}
	}
	if len(all) != n {
		t.Fatalf("%d requests, not %d", len(all), n)
	}
	return all
}

// H+5: the model reads two masked results back, one after the other; the client's SDK sees one reply,
// without recover_text calls, and with the usage of all rounds.
func TestModelReadsBackTwice(t *testing.T) {
	eachWire(t, func(t *testing.T, d apiDialect, p *fakeprovider.Provider, stream bool) {
		p.ScriptFunc(func(r fakeprovider.Request) fakeprovider.Step {
			at := len(r.Results) - 4
			if at == 2 {
				if r.Results[4].Text != resultText(0) || r.Results[5].Text != "line of result 1 é\n" {
					t.Errorf("read back %q", r.Results[4:])
				}
				return fakeprovider.ReplyText("It is 7.")
			}
			id := maskedID.FindString(r.Results[at].Text)
			return fakeprovider.Step{Text: []string{"Let me see. ", ""}[at], Calls: []fakeprovider.Call{recoverCall(id, []string{"", `,"chars":"1-19"`}[at])}}
		})
		g := gatewayTo(t, d, p, withRecovery(newRecall(t, nil), twoTurnWindow))
		got, err := d.send(t.Context(), t, g.URL, d.request(stream, d.conversation(4)...), stream)
		if err != nil {
			t.Fatal(err)
		}
		in, out := chargedTokens(p)
		if got.text != "Let me see. It is 7." || len(got.calls) > 0 || got.inputTokens != in || got.outputTokens != out {
			t.Errorf("got %+v, charged %d and %d", got, in, out)
		}
		if why := []string{"stop", "end_turn", "completed"}; !slices.Contains(why, got.stopReason) {
			t.Errorf("it ended with %s", got.stopReason)
		}
		for _, r := range requireAccepted(t, p, 3) {
			if n := len(r.Tools); n != 2 || !slices.Contains(r.Tools, "recover_text") {
				t.Errorf("tools %v", r.Tools)
			}
		}
		waitForReplies(t, g, 3)
		if booked := g.meter.Savings().Total; booked.Requests != 3 || booked.Recoveries != 2 {
			t.Errorf("the ledger has %+v", booked)
		}
	})
}

// H+5: if the client marks its messages for the cache, what the model reads back is cached too: the
// next round and the client's next request read all of the previous round from the cache.
func TestRoundsAreCached(t *testing.T) {
	d, p := dialects[fakeprovider.Messages], fakeprovider.New(t, fakeprovider.Options{MinCacheTokens: 64})
	rounds := 0
	p.ScriptFunc(func(r fakeprovider.Request) fakeprovider.Step {
		if rounds++; rounds > 2 {
			return fakeprovider.ReplyText("It is 7.")
		}
		return fakeprovider.CallTools(recoverCall(maskedID.FindString(string(r.Body)), ""))
	})
	g := gatewayTo(t, d, p, withRecovery(newRecall(t, nil), func(p *history.Policy) {
		twoTurnWindow(p)
		p.Advance, p.Stride, p.PastBreakpoints = history.AdvanceStride, 4, true
	}))
	const mark = `"cache_control":{"type":"ephemeral"}`
	messages := d.conversation(6)
	send := func() fakeprovider.Request {
		last := len(messages) - 1
		body := d.request(false, append(slices.Clone(messages[:last]), strings.TrimSuffix(messages[last], `}]}`)+`,`+mark+`}]}`)...)
		if _, err := d.send(t.Context(), t, g.URL, body, false); err != nil {
			t.Fatal(err)
		}
		all := p.Requests()
		return all[len(all)-1]
	}
	send()
	bill := p.Bill()
	if first, second, third := bill[0], bill[1], bill[2]; second.CacheRead != first.Input() || second.Uncached > 8 || third.CacheRead != second.Input()-second.Uncached {
		t.Errorf("billed %+v", bill)
	}
	for i, r := range requireAccepted(t, p, 3) {
		if n := strings.Count(string(r.Body), mark); n != min(2, i+1) {
			t.Errorf("round %d has %d marks", i, n)
		}
	}
	messages = append(messages, `{"role":"assistant","content":[{"type":"text","text":"It is 7."}]}`, `{"role":"user","content":[{"type":"text","text":"More"}]}`)
	if r := send(); strings.Count(string(r.Body), mark) != 1 {
		t.Errorf("the client's own marks are not the only ones: %s", r.Body)
	}
	if next := p.Bill()[3]; next.CacheRead != bill[2].Input()-bill[2].Uncached {
		t.Errorf("billed %+v after %+v", next, bill[2])
	}
}

// H+5: after max_rounds the reply ends as it is; the model is told so before its last round.
func TestRoundsAreBounded(t *testing.T) {
	eachWire(t, func(t *testing.T, d apiDialect, p *fakeprovider.Provider, stream bool) {
		r := newRecall(t, nil)
		id, _ := r.StoreText(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: masking.ProviderOrigin("p")})
		p.ScriptFunc(func(fakeprovider.Request) fakeprovider.Step {
			return fakeprovider.Step{Text: "More. ", Calls: []fakeprovider.Call{recoverCall(id, "")}}
		})
		g := gatewayTo(t, d, p, withRecovery(r, withoutMasking), func(s *chat.Settings, _ *chat.Deps) { s.Chat.ObservationMasking.Recovery.MaxRounds = 2 })
		got, err := d.send(t.Context(), t, g.URL, d.request(stream, d.conversation(1)...), stream)
		if err != nil {
			t.Fatal(err)
		}
		if got.text != "More. More. More. " || len(got.calls) > 0 || got.stopReason == "tool_calls" || got.stopReason == "tool_use" {
			t.Errorf("got %+v", got)
		}
		all := requireAccepted(t, p, 3)
		if last := all[2].Results; last[1].Text != "text" || !strings.HasPrefix(last[2].Text, "text\n[You have read back") {
			t.Errorf("got %q", last)
		}
	})
}

// H+5: if a recover_text call fails, the model is told why, and the request goes on.
func TestFailedReadBackIsAnsweredToTheModel(t *testing.T) {
	eachWire(t, func(t *testing.T, d apiDialect, p *fakeprovider.Provider, stream bool) {
		r, store := newFlakyRecall(t)
		id, _ := r.StoreText(t.Context(), auth.DefaultTenant, strings.Repeat("x", 5000), recall.Origin{Server: masking.ProviderOrigin("p")})
		p.ScriptFunc(func(req fakeprovider.Request) fakeprovider.Step {
			switch len(req.Results) {
			case 1:
				return fakeprovider.CallTools(recoverCall("prn_00000000000000000000000000", ""), recoverCall(id, `,"chars":"x"`), recoverCall(id, ""), fakeprovider.Call{Name: "recover_text", Args: `{}`})
			case 5:
				store.isDown.Store(true)
				return fakeprovider.CallTools(recoverCall(id, ""))
			}
			return fakeprovider.ReplyText("No.")
		})
		g := gatewayTo(t, d, p, withRecovery(r, withoutMasking), func(s *chat.Settings, _ *chat.Deps) { s.Chat.ObservationMasking.Recovery.MaxChars = 4000 })
		got, err := d.send(t.Context(), t, g.URL, d.request(stream, d.conversation(1)...), stream)
		if err != nil || got.text != "No." {
			t.Fatalf("got %+v, %v", got, err)
		}
		results := requireAccepted(t, p, 3)[2].Results
		for i, want := range []string{"nothing is kept under", "chars must be", "[cut after", "prune_id is missing", "cannot be had now"} {
			if text := results[i+1].Text; !strings.Contains(text, want) || len(text) > 1000 {
				t.Errorf("got %q, want %q", text, want)
			}
		}
	})
}

// H+5, H10: if the client has recover_text already, or the tool is not offered, the request and the
// reply are relayed unchanged, whatever the model calls.
func TestToolIsNotAddedWhenPresentOrOff(t *testing.T) {
	eachWire(t, func(t *testing.T, d apiDialect, p *fakeprovider.Provider, stream bool) {
		body := d.request(stream, d.conversation(1)...)
		withTool := strings.Replace(body, `"read"`, `"hub__recover_text","description":"wants a prune_id"`, 1)
		for name, c := range map[string]struct {
			body  string
			offer bool
			tool  string
		}{
			"client has the tool": {withTool, true, "hub__recover_text"},
			"not offered":         {body, false, "recover_text"},
		} {
			p.Reset()
			p.Script(fakeprovider.CallTools(fakeprovider.Call{ID: "x", Name: c.tool, Args: `{"prune_id":"p"}`}))
			g := gatewayTo(t, d, p, withRecovery(newRecall(t, nil), withoutMasking), func(s *chat.Settings, _ *chat.Deps) { s.Chat.ObservationMasking.Recovery.Offer = c.offer })
			got, err := d.send(t.Context(), t, g.URL, c.body, stream)
			if err != nil {
				t.Fatal(err)
			}
			if all := requireAccepted(t, p, 1); string(all[0].Body) != c.body || !slices.Equal(got.calls, []string{c.tool + " x"}) {
				t.Errorf("%s: got %v for %s", name, got.calls, all[0].Body)
			}
		}
	})
}

// H+5, H10: a reply in which the model does not read back is relayed byte for byte, and only the tools
// of the request change.
func TestOfferedToolChangesNothingElse(t *testing.T) {
	for name, w := range wires {
		for _, stream := range []bool{false, true} {
			want, kind := w.reply, "application/json"
			if stream {
				want, kind = strings.Join(w.events, ""), "text/event-stream"
			}
			f := newStubProvider(t, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", kind)
				for chunk := range slices.Chunk([]byte(want), 11) {
					_, _ = rw.Write(chunk)
					_ = http.NewResponseController(rw).Flush()
				}
			})
			g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL)}, withRecovery(newRecall(t, nil), withoutMasking))
			tools := `{"tools":[{"name":"a","type":"function","function":{"name":"a"}}],`
			if w.kind == "gemini" {
				tools = `{"tools":[{"functionDeclarations":[{"name":"a"}]}],`
			}
			body := strings.Replace(w.request(stream), "{", tools, 1)
			resp, got := g.post(t, w.path, body, nil)
			if got != want || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != kind {
				t.Errorf("%s: stream %v: got %q", name, stream, got)
			}
			if !stream && resp.ContentLength != int64(len(want)) {
				t.Errorf("%s: length %d", name, resp.ContentLength)
			}
			sent := string(f.requests()[0].body)
			_, before, _ := strings.Cut(body, tools)
			if !strings.HasSuffix(sent, before) || strings.Count(sent, `"recover_text"`) != 1 {
				t.Errorf("%s: sent %s", name, sent)
			}
		}
	}
}

// H+5: if the provider fails in a later round, its error is relayed if the client has received nothing
// yet; otherwise the reply breaks off.
func TestLaterRoundFails(t *testing.T) {
	eachWire(t, func(t *testing.T, d apiDialect, p *fakeprovider.Provider, stream bool) {
		r := newRecall(t, nil)
		id, _ := r.StoreText(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: masking.ProviderOrigin("p")})
		for _, step := range []fakeprovider.Step{fakeprovider.FailWith(http.StatusServiceUnavailable), fakeprovider.CutAfter("", 0)} {
			p.Script(fakeprovider.Step{Text: "Let me see.", Calls: []fakeprovider.Call{recoverCall(id, "")}}, step)
			g := gatewayTo(t, d, p, withRecovery(r, withoutMasking))
			_, err := d.send(t.Context(), t, g.URL, d.request(stream, d.conversation(1)...), stream)
			if err == nil {
				t.Fatal("a reply that broke off looked complete")
			}
			status := 0
			if e := (&openai.Error{}); errors.As(err, &e) {
				status = e.StatusCode
			}
			if e := (&anthropic.Error{}); errors.As(err, &e) {
				status = e.StatusCode
			}
			if e := (genai.APIError{}); errors.As(err, &e) {
				status = e.Code
			}
			want := map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusBadGateway}[step.Fail != nil]
			if !stream && status != want || stream && status != 0 {
				t.Errorf("got %d: %v", status, err)
			}
		}
	})
}

// A client that leaves in a later round ends the provider call, and no goroutine leaks (goleak).
func TestClientLeavesInALaterRound(t *testing.T) {
	eachWire(t, func(t *testing.T, d apiDialect, p *fakeprovider.Provider, stream bool) {
		r := newRecall(t, nil)
		id, _ := r.StoreText(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: masking.ProviderOrigin("p")})
		p.Script(fakeprovider.CallTools(recoverCall(id, "")), fakeprovider.Step{Text: "Never said.", Delay: time.Minute})
		g := gatewayTo(t, d, p, withRecovery(r, withoutMasking))
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			for len(p.Requests()) < 2 {
				time.Sleep(time.Millisecond)
			}
			leave()
		}()
		if got, err := d.send(ctx, t, g.URL, d.request(stream, d.conversation(1)...), stream); err == nil {
			t.Errorf("got %+v", got)
		}
		for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			if all := p.Requests(); len(all) == 2 && all[1].ClientGone {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the provider call goes on")
			}
		}
	})
}

// Later rounds go to the provider that answered the first, and a fallback gets none of the client's
// credentials in any round.
func TestRoundsStayWithTheirProvider(t *testing.T) {
	r := newRecall(t, nil)
	id, _ := r.StoreText(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: masking.ProviderOrigin("p")})
	d := dialects[fakeprovider.Chat]
	a, b := fakeprovider.New(t, fakeprovider.Options{}), fakeprovider.New(t, fakeprovider.Options{})
	a.Script(fakeprovider.FailWith(http.StatusServiceUnavailable), fakeprovider.ReplyText("wrong"))
	b.Script(fakeprovider.CallTools(recoverCall(id, "")), fakeprovider.ReplyText("right"))
	one := providerConfig("a", d.kind, a.URL, func(p *chat.Provider) { p.Retries, p.Fallback = 0, []string{"b"} })
	two := providerConfig("b", d.kind, b.URL, withAPIKey("theirs"))
	g := newGateway(t, []chat.Provider{one, two}, withRecovery(r, withoutMasking))
	got, err := d.send(t.Context(), t, g.URL, d.request(false, d.conversation(1)...), false)
	if err != nil || got.text != "right" || len(a.Requests()) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, req := range requireAccepted(t, b, 2) {
		if key := req.Header.Get("Authorization"); key != "Bearer theirs" {
			t.Errorf("the fallback got %s", key)
		}
	}
}
