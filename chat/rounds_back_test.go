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
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/llmtest"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// brittleStore can be taken down.
type brittleStore struct {
	state.Driver
	down atomic.Bool
	gets atomic.Int64
}

var errDown = errors.New("down")

func (b *brittleStore) Get(ctx context.Context, key string, now time.Time) ([]byte, error) {
	b.gets.Add(1)
	if b.down.Load() {
		return nil, errDown
	}
	return b.Driver.Get(ctx, key, now)
}

func (b *brittleStore) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	if b.down.Load() {
		return errDown
	}
	return b.Driver.Put(ctx, items, lease)
}

func brittle(t *testing.T) (*recall.Recall, *brittleStore) {
	t.Helper()
	b := &brittleStore{Driver: memory.New()}
	store := state.New(b, state.Default(), time.Now)
	t.Cleanup(func() { _ = store.Close() })
	r, err := recall.New(store, bytes.Repeat([]byte("s"), recall.MinSecret), recall.Default())
	if err != nil {
		t.Fatal(err)
	}
	return r, b
}

// listOf is the conversation that a provider got, without its end.
func listOf(t *testing.T, body []byte) string {
	t.Helper()
	var f map[string]json.RawMessage
	if err := json.Unmarshal(body, &f); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(append(f["messages"], f["input"]...)), "]")
}

// H+5: parallel calls of the tool, then one beside a call of the client's own. When the client
// answers its call, the provider gets all that was said, and so it does in every later turn: what
// was sent before is the beginning of what is sent next.
func TestHiddenCallsComeBack(t *testing.T) {
	eachWire(t, func(t *testing.T, d dialect, p *llmtest.Provider, stream bool) {
		r := keeper(t, nil)
		id, err := r.Keep(t.Context(), auth.DefaultTenant, "one\ntwo\n", recall.Origin{Server: chat.OriginOf("p")})
		if err != nil {
			t.Fatal(err)
		}
		p.Script(
			llmtest.Step{Think: "hm", Text: "Let me see. ", Calls: []llmtest.Call{readBack(id, ""), readBack(id, `,"pattern":"w"`)}},
			llmtest.Step{Think: "so", Text: "And now. ", Calls: []llmtest.Call{readBack(id, `,"chars":"1-3"`), {ID: "mine", Name: "read", Args: `{}`}}},
			llmtest.Step{Think: "ah", Text: "It is 7."},
			llmtest.Step{Think: "again", Calls: []llmtest.Call{readBack(id, "")}},
			llmtest.Step{Think: "yes", Text: "Still 7."},
			llmtest.Say("Bye."),
		)
		g := doorTo(t, d, p, recovering(r, unmasked))
		d = d.thinking()
		talk := append(d.conversation(2), `{"role":"assistant","content":"so"}`, `{"role":"user","content":"and?"}`)
		ask := func(texts ...string) heardReply {
			t.Helper()
			got, err := d.ask(t.Context(), t, g.URL, d.request(stream, talk...), stream)
			if err != nil {
				t.Fatal(err)
			}
			if got.text != strings.Join(texts, "") {
				t.Errorf("got %q", got.text)
			}
			talk = append(talk, got.elements...)
			return got
		}
		if got := ask("Let me see. ", "And now. "); !slices.Equal(got.calls, []string{"read mine"}) {
			t.Errorf("got %v", got.calls)
		}
		talk = append(talk, d.result("mine", "my result"))
		ask("It is 7.")
		talk = append(talk, `{"role":"user","content":"sure?"}`)
		ask("Still 7.")
		talk = append(talk, `{"role":"user","content":"bye"}`)
		ask("Bye.")
		all := accepted(t, p, 6)
		for i := 1; i < len(all); i++ {
			now, before := listOf(t, all[i].Body), listOf(t, all[i-1].Body)
			if !strings.HasPrefix(now, before) {
				t.Errorf("request %d:\n%s\ndoes not go on with\n%s", i, now, before)
			}
		}
		texts := []string{}
		for _, one := range all[5].Results[2:] {
			texts = append(texts, one.Text)
		}
		slices.Sort(texts)
		if want := []string{"my result", "one", "one\ntwo\n", "one\ntwo\n", "two\n"}; !slices.Equal(texts, want) {
			t.Errorf("the model knows %q", texts)
		}
	})
}

// H+5: a client that leaves the conversation with the provider does not know of calls that wait
// there; they are answered with its next request.
func TestCallsAtTheProviderAreAnswered(t *testing.T) {
	d := dialects[llmtest.Responses]
	for _, stream := range []bool{false, true} {
		p, r := llmtest.New(t, llmtest.Options{}), keeper(t, nil)
		id, _ := r.Keep(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: chat.OriginOf("p")})
		read := readBack(id, "")
		p.Script(llmtest.Use(read), llmtest.Use(read, llmtest.Call{ID: "mine", Name: "read", Args: `{}`}),
			llmtest.Use(read), llmtest.Use(read), llmtest.Say("Done."))
		g := doorTo(t, d, p, recovering(r, unmasked), func(s *chat.Settings, _ *chat.Deps) { s.Chat.Observation.Recovery.MaxRounds = 1 })
		previous, last := "", heardReply{}
		for _, said := range []string{`{"role":"user","content":"go"}`, d.result("mine", "my result"), `{"role":"user","content":"and?"}`} {
			body := strings.Replace(d.request(stream, said), `{`, `{`+previous, 1)
			got, err := d.ask(t.Context(), t, g.URL, body, stream)
			if err != nil {
				t.Fatal(err)
			}
			previous, last = fmt.Sprintf(`"previous_response_id":%q,`, got.id), got
		}
		if all := accepted(t, p, 5); last.text != "Done." || len(all[4].Results) != 5 {
			t.Errorf("got %+v, %+v", last, all[4].Results)
		}
	}
}

// H+5: of two replies to the same request, each goes out with what was hidden of it and nothing of
// the other; and a reply that failed leaves nothing behind.
func TestHiddenCallsOfAnotherReply(t *testing.T) {
	eachWire(t, func(t *testing.T, d dialect, p *llmtest.Provider, stream bool) {
		r := keeper(t, nil)
		id, _ := r.Keep(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: chat.OriginOf("p")})
		read := llmtest.Use(readBack(id, ""))
		p.Script(read, llmtest.Say("A"), llmtest.Say("B"), llmtest.Say("C"), llmtest.Say("D"), read, llmtest.Fail(400), llmtest.Say("E"), llmtest.Say("F"))
		g := doorTo(t, d, p, recovering(r, unmasked))
		ask := func(talk ...string) []string {
			t.Helper()
			got, err := d.ask(t.Context(), t, g.URL, d.request(stream, talk...), stream)
			if err != nil && len(p.Requests()) != 7 {
				t.Fatal(err)
			}
			return append(talk, append(got.elements, `{"role":"user","content":"and?"}`)...)
		}
		begun := d.conversation(1)
		a, b := ask(begun...), ask(begun...)
		ask(a...)
		ask(b...)
		ask(b...)         // fails
		ask(ask(b...)...) // does not
		for i, want := range []int{1, 2, 1, 2, 1, 1, 2, 1, 1} {
			if n := len(p.Requests()[i].Results); n != want {
				t.Errorf("request %d has %d results, not %d", i, n, want)
			}
		}
	})
}

// A conversation costs the store one question, also a long one, until something is hidden in it; and
// then one for each reply, once.
func TestStoreIsAskedLittle(t *testing.T) {
	const turns = 100
	d, p := dialects[llmtest.Chat], llmtest.New(t, llmtest.Options{})
	r, store := brittle(t)
	id, _ := r.Keep(t.Context(), auth.DefaultTenant, "text", recall.Origin{Server: chat.OriginOf("p")})
	g := doorTo(t, d, p, recovering(r, unmasked))
	talk := d.conversation(turns)
	ask := func() int64 {
		t.Helper()
		before := store.gets.Load()
		got, err := d.ask(t.Context(), t, g.URL, d.request(false, talk...), false)
		if err != nil {
			t.Fatal(err)
		}
		talk = append(talk, append(got.elements, `{"role":"user","content":"and?"}`)...)
		return store.gets.Load() - before
	}
	p.Script(llmtest.Say("a"), llmtest.Say("b"), llmtest.Use(readBack(id, "")), llmtest.Say("c"))
	got := []int64{ask(), ask(), ask(), ask(), ask()}
	// In the third it is the original that is read; in the fourth every reply is new to the door.
	if want := []int64{1, 1, 2, 1 + turns + 3, 1 + 1 + 1}; !slices.Equal(got, want) {
		t.Errorf("asked %v times, not %v", got, want)
	}
	if n := len(p.Requests()[5].Results); n != turns+1 {
		t.Errorf("%d results", n)
	}
}

// H+1, H+5: over a long conversation, in which results are masked and read back, alone and beside
// calls of the client's own, the provider refuses nothing, and what was sent before is the beginning
// of what is sent next but for what is masked then.
func TestPrefixesHoldWithHiddenCalls(t *testing.T) {
	const turns = 20
	eachWire(t, func(t *testing.T, d dialect, p *llmtest.Provider, stream bool) {
		if stream {
			t.Skip("the requests are the same")
		}
		turn := 0
		p.ScriptFunc(func(r llmtest.Request) llmtest.Step {
			mine := llmtest.Call{ID: fmt.Sprintf("c%d", turn), Name: "read", Args: `{}`}
			last := r.Results[len(r.Results)-1].Text
			masked := ""
			for _, one := range r.Results {
				if id := maskedID.FindString(one.Text); id != "" && masked == "" {
					masked = id
				}
			}
			switch {
			case masked == "" || turn%3 > 0 || !strings.HasPrefix(last, "line of result"):
				return llmtest.Use(mine)
			case turn%2 == 0:
				return llmtest.Step{Text: "See. ", Calls: []llmtest.Call{readBack(masked, `,"chars":"2-99"`)}}
			}
			return llmtest.Use(readBack(masked, `,"chars":"2-99"`), mine)
		})
		r := keeper(t, nil)
		entry := provider("p", d.kind, p.URL, keyed("k"), func(p *chat.Provider) { p.Cache.Write, p.Cache.Read = 1.25, .1 })
		g := open(t, []chat.Provider{entry}, recovering(r, func(p *history.Policy) { rolling(p); p.Advance = history.Auto }))
		talk := d.conversation(1)
		for turn = 1; turn < turns; turn++ {
			got, err := d.ask(t.Context(), t, g.URL, d.request(stream, talk...), stream)
			if err != nil {
				t.Fatal(err)
			}
			talk = append(talk, append(got.elements, d.result(fmt.Sprintf("c%d", turn), strings.Repeat(result(turn), 10)))...)
		}
		all := p.Requests()
		for i := 1; i < len(all); i++ {
			now, before := listOf(t, all[i].Body), listOf(t, all[i-1].Body)
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
