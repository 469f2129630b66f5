package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// flakyStore is a store that tests take down; it counts reads.
type flakyStore struct {
	state.Driver
	isDown   atomic.Bool
	getCount atomic.Int64
}

var errDown = errors.New("down")

func (b *flakyStore) Get(ctx context.Context, group, key string, now time.Time) ([]byte, error) {
	if !strings.HasPrefix(key, "tenant/") { // whether the tenant was forgotten, which every read of an original asks
		b.getCount.Add(1)
	}
	if b.isDown.Load() {
		return nil, errDown
	}
	return b.Driver.Get(ctx, group, key, now)
}

func (b *flakyStore) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	if b.isDown.Load() {
		return false, errDown
	}
	return b.Driver.PutIf(ctx, cond, items, lease)
}

func newFlakyRecall(t *testing.T) (*recall.Recall, *flakyStore) {
	t.Helper()
	b := &flakyStore{Driver: memory.New()}
	store := state.New(b, patientStore(), time.Now)
	t.Cleanup(func() { _ = store.Close() })
	r, err := recall.New(store, bytes.Repeat([]byte("s"), recall.MinSecretBytes), recall.Default())
	if err != nil {
		t.Fatal(err)
	}
	return r, b
}

// messagesSent is the list of messages that a provider received, without the closing bracket.
func messagesSent(t *testing.T, body []byte) string {
	t.Helper()
	var f map[string]json.RawMessage
	if err := json.Unmarshal(body, &f); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(slices.Concat(f["messages"], f["input"], f["contents"])), "]")
}

// H+5: hidden recover_text calls, parallel or beside a call of the client's own, are restored in every
// later request: each request extends the previous one.
func TestHiddenCallsAreRestored(t *testing.T) {
	eachWire(t, func(t *testing.T, d apiDialect, p *fakeprovider.Provider, stream bool) {
		r := newRecall(t, nil)
		id, err := r.StoreText(t.Context(), auth.DefaultTenant, "one\ntwo\n", recall.Origin{Server: masking.ProviderOrigin("p")})
		if err != nil {
			t.Fatal(err)
		}
		p.Script(
			fakeprovider.Step{Thinking: "hm", Text: "Let me see. ", Calls: []fakeprovider.Call{recoverCall(id, ""), recoverCall(id, `,"pattern":"w"`)}},
			fakeprovider.Step{Thinking: "so", Text: "And now. ", Calls: []fakeprovider.Call{recoverCall(id, `,"chars":"1-3"`), {ID: "mine", Name: "read", Args: `{}`}}},
			fakeprovider.Step{Thinking: "ah", Text: "It is 7."},
			fakeprovider.Step{Thinking: "again", Calls: []fakeprovider.Call{recoverCall(id, "")}},
			fakeprovider.Step{Thinking: "yes", Text: "Still 7."},
			fakeprovider.ReplyText("Bye."),
		)
		g := gatewayTo(t, d, p, withRecovery(r, withoutMasking))
		d = d.thinking()
		messages := append(d.conversation(2), `{"role":"assistant","content":"so"}`, `{"role":"user","content":"and?"}`)
		send := func(texts ...string) clientReply {
			t.Helper()
			got, err := d.send(t.Context(), t, g.URL, d.request(stream, messages...), stream)
			if err != nil {
				t.Fatal(err)
			}
			if got.text != strings.Join(texts, "") {
				t.Errorf("got %q", got.text)
			}
			messages = append(messages, got.elements...)
			return got
		}
		if got := send("Let me see. ", "And now. "); !slices.Equal(got.calls, []string{"read mine"}) {
			t.Errorf("got %v", got.calls)
		}
		messages = append(messages, d.result("mine", "my result"))
		send("It is 7.")
		messages = append(messages, `{"role":"user","content":"sure?"}`)
		send("Still 7.")
		messages = append(messages, `{"role":"user","content":"bye"}`)
		send("Bye.")
		all := requireAccepted(t, p, 6)
		for i := 1; i < len(all); i++ {
			now, before := messagesSent(t, all[i].Body), messagesSent(t, all[i-1].Body)
			if !strings.HasPrefix(now, before) {
				t.Errorf("request %d:\n%s\ndoes not extend\n%s", i, now, before)
			}
		}
		texts := []string{}
		for _, one := range all[5].Results[2:] {
			texts = append(texts, one.Text)
		}
		slices.Sort(texts)
		if want := []string{"my result", "one", "one\ntwo\n", "one\ntwo\n", "two\n"}; !slices.Equal(texts, want) {
			t.Errorf("the model got %q", texts)
		}
	})
}

// H+5: if the provider stores the conversation, recover_text calls that are still pending there are
// answered with the client's next request.
func TestPendingCallsAtTheProviderAreAnswered(t *testing.T) {
	d := dialects[fakeprovider.Responses]
	for _, stream := range []bool{false, true} {
		p, r := fakeprovider.New(t, fakeprovider.Options{}), newRecall(t, nil)
		id, _ := r.StoreText(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: masking.ProviderOrigin("p")})
		read := recoverCall(id, "")
		p.Script(fakeprovider.CallTools(read), fakeprovider.CallTools(read, fakeprovider.Call{ID: "mine", Name: "read", Args: `{}`}),
			fakeprovider.CallTools(read), fakeprovider.CallTools(read), fakeprovider.ReplyText("Done."))
		g := gatewayTo(t, d, p, withRecovery(r, withoutMasking), func(s *chat.Settings, _ *chat.Deps) { s.Chat.ObservationMasking.Recovery.MaxRounds = 1 })
		previous, last := "", clientReply{}
		for _, message := range []string{`{"role":"user","content":"go"}`, d.result("mine", "my result"), `{"role":"user","content":"and?"}`} {
			body := strings.Replace(d.request(stream, message), `{`, `{`+previous, 1)
			got, err := d.send(t.Context(), t, g.URL, body, stream)
			if err != nil {
				t.Fatal(err)
			}
			previous, last = fmt.Sprintf(`"previous_response_id":%q,`, got.id), got
		}
		if all := requireAccepted(t, p, 5); last.text != "Done." || len(all[4].Results) != 5 {
			t.Errorf("got %+v, %+v", last, all[4].Results)
		}
	}
}

// H+5: of two replies to the same request, each is restored with its own hidden calls only, and a reply
// that failed leaves no hidden calls.
func TestHiddenCallsBelongToTheirReply(t *testing.T) {
	eachWire(t, func(t *testing.T, d apiDialect, p *fakeprovider.Provider, stream bool) {
		r := newRecall(t, nil)
		id, _ := r.StoreText(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: masking.ProviderOrigin("p")})
		read := fakeprovider.CallTools(recoverCall(id, ""))
		p.Script(read, fakeprovider.ReplyText("A"), fakeprovider.ReplyText("B"), fakeprovider.ReplyText("C"), fakeprovider.ReplyText("D"), read, fakeprovider.FailWith(400), fakeprovider.ReplyText("E"), fakeprovider.ReplyText("F"))
		g := gatewayTo(t, d, p, withRecovery(r, withoutMasking))
		send := func(messages ...string) []string {
			t.Helper()
			got, err := d.send(t.Context(), t, g.URL, d.request(stream, messages...), stream)
			if err != nil && len(p.Requests()) != 7 {
				t.Fatal(err)
			}
			return append(messages, append(got.elements, `{"role":"user","content":"and?"}`)...)
		}
		firstRequest := d.conversation(1)
		a, b := send(firstRequest...), send(firstRequest...)
		send(a...)
		send(b...)
		send(b...)          // fails in its second round
		send(send(b...)...) // succeeds
		for i, want := range []int{1, 2, 1, 2, 1, 1, 2, 1, 1} {
			if n := len(p.Requests()[i].Results); n != want {
				t.Errorf("request %d has %d results, not %d", i, n, want)
			}
		}
	})
}

// A conversation costs one store read per request, however long it is, until it has hidden calls; then
// each reply is looked up once.
func TestHiddenCallsCostFewStoreReads(t *testing.T) {
	const turns = 100
	d, p := dialects[fakeprovider.Chat], fakeprovider.New(t, fakeprovider.Options{})
	r, store := newFlakyRecall(t)
	id, _ := r.StoreText(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: masking.ProviderOrigin("p")})
	g := gatewayTo(t, d, p, withRecovery(r, withoutMasking))
	messages := d.conversation(turns)
	send := func() int64 {
		t.Helper()
		before := store.getCount.Load()
		got, err := d.send(t.Context(), t, g.URL, d.request(false, messages...), false)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, append(got.elements, `{"role":"user","content":"and?"}`)...)
		return store.getCount.Load() - before
	}
	p.Script(fakeprovider.ReplyText("a"), fakeprovider.ReplyText("b"), fakeprovider.CallTools(recoverCall(id, "")), fakeprovider.ReplyText("c"))
	got := []int64{send(), send(), send(), send(), send()}
	// The third also reads the original; the fourth looks up every reply for the first time.
	if want := []int64{1, 1, 2, 1 + turns + 3, 1 + 1 + 1}; !slices.Equal(got, want) {
		t.Errorf("%v store reads, not %v", got, want)
	}
	if n := len(p.Requests()[5].Results); n != turns+1 {
		t.Errorf("%d results", n)
	}
}

// H+1, H+5: in a long conversation with masked results and hidden calls, alone and beside calls of the
// client's own, each request extends the previous one except where a result is newly masked.
func TestPrefixesAreStableWithHiddenCalls(t *testing.T) {
	const turns = 20
	eachWire(t, func(t *testing.T, d apiDialect, p *fakeprovider.Provider, stream bool) {
		if stream {
			t.Skip("the requests are the same")
		}
		turn := 0
		p.ScriptFunc(func(r fakeprovider.Request) fakeprovider.Step {
			mine := fakeprovider.Call{ID: fmt.Sprintf("c%d", turn), Name: "read", Args: `{}`}
			last := r.Results[len(r.Results)-1].Text
			masked := ""
			for _, one := range r.Results {
				if id := maskedID.FindString(one.Text); id != "" && masked == "" {
					masked = id
				}
			}
			switch {
			case masked == "" || turn%3 > 0 || !strings.HasPrefix(last, "line of result"):
				return fakeprovider.CallTools(mine)
			case turn%2 == 0:
				return fakeprovider.Step{Text: "See. ", Calls: []fakeprovider.Call{recoverCall(masked, `,"chars":"2-99"`)}}
			}
			return fakeprovider.CallTools(recoverCall(masked, `,"chars":"2-99"`), mine)
		})
		r := newRecall(t, nil)
		entry := providerConfig("p", d.kind, p.URL, withAPIKey("k"), func(p *chat.Provider) { p.Cache.Write, p.Cache.Read = 1.25, .1 })
		g := newGateway(t, []chat.Provider{entry}, withRecovery(r, func(p *history.Policy) { twoTurnWindow(p); p.Advance = history.AdvanceAuto }))
		messages := d.conversation(1)
		for turn = 1; turn < turns; turn++ {
			got, err := d.send(t.Context(), t, g.URL, d.request(stream, messages...), stream)
			if err != nil {
				t.Fatal(err)
			}
			messages = append(messages, append(got.elements, d.result(fmt.Sprintf("c%d", turn), strings.Repeat(resultText(turn), 10)))...)
		}
		all := p.Requests()
		for i := 1; i < len(all); i++ {
			now, before := messagesSent(t, all[i].Body), messagesSent(t, all[i-1].Body)
			n := 0
			for n < len(before) && now[n] == before[n] {
				n++
			}
			if n < len(before) && !strings.Contains(now[n-len("[masqué"):n+len("[masqué")], "[masqué") {
				t.Errorf("request %d: %q was %q", i, now[n-20:n+50], before[n-20:n+50])
			}
		}
		if hidden := len(all[len(all)-1].Results) - (turns - 1); hidden < 3 {
			t.Errorf("%d hidden results", hidden)
		}
	})
}
