package chat_test

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// listing is a driver that knows the groups it has, so that it can be emptied.
type listing struct {
	state.Driver
	groups map[string]bool
}

func (d *listing) Put(ctx context.Context, items []state.Item, lease state.Lease) error {
	for _, i := range items {
		d.groups[i.Group] = true
	}
	return d.Driver.Put(ctx, items, lease)
}

func (d *listing) empty(t *testing.T) {
	t.Helper()
	for group := range d.groups {
		if err := d.Drop(t.Context(), group); err != nil {
			t.Fatal(err)
		}
	}
}

func listingKeeper(t *testing.T) (*recall.Recall, *listing) {
	t.Helper()
	d := &listing{memory.New(), map[string]bool{}}
	store := state.New(d, state.Default(), time.Now)
	t.Cleanup(func() { _ = store.Close() })
	r, err := recall.New(store, bytes.Repeat([]byte("s"), recall.MinSecret), recall.Default())
	if err != nil {
		t.Fatal(err)
	}
	return r, d
}

// An id that the store lost is not shown again: every id of a request can be read back, also in a
// conversation whose masks are remembered, after the store was emptied.
func TestLostIDsAreNotShown(t *testing.T) {
	inEachShape(t, func(t *testing.T, w wire) {
		f := newFar(t, says(http.StatusOK, w.whole))
		r, store := listingKeeper(t)
		template := func(p *history.Policy) { rolling(p); p.Template = "[masked {prune_id}]" }
		g := open(t, []chat.Provider{provider("p", w.kind, f.URL)}, masking(r, template))
		for _, turns := range []int{20, 21, 21, 22} {
			g.post(t, w.path, talks[w.path](turns), nil)
			calls := f.calls()
			body := string(calls[len(calls)-1].body)
			ids := strings.Split(body, "[masked ")[1:]
			if len(ids) < turns/2 {
				t.Fatalf("%d turns: %d masked", turns, len(ids))
			}
			for _, rest := range ids {
				id, _, _ := strings.Cut(rest, "]")
				if n := originalLen(t, r, id); n == 0 {
					t.Fatalf("%d turns: %s is shown and cannot be read back", turns, id)
				}
			}
			store.empty(t)
		}
	})
}

// originalLen is how long an original is; 0 when there is none.
func originalLen(t *testing.T, r *recall.Recall, id string) int {
	t.Helper()
	original, err := r.Open(t.Context(), auth.DefaultTenant, id)
	if err != nil {
		return 0
	}
	var text bytes.Buffer
	if err := original.WriteText(t.Context(), &text); err != nil {
		return 0
	}
	return text.Len()
}

// What a model may read back of other doors is what its caller may call there.
func TestModelReadsWhatItsCallerMayCall(t *testing.T) {
	f := newFar(t, says(http.StatusOK, `{}`))
	r := keeper(t, nil)
	d := chat.New(chat.Settings{Chat: chat.Config{Providers: []chat.Provider{provider("p", "openai", f.URL)}}}, chat.Deps{Recall: r, Meter: meter.New("test", nil)})
	for o, want := range map[recall.Origin]bool{
		{Server: chat.OriginOf("p"), Tool: "read"}:    true,
		{Server: chat.OriginOf("gone"), Tool: "read"}: false,
		{Server: "p", Tool: "read"}:                   false,
		{}:                                            false,
	} {
		if got := d.Calls(auth.Caller{}, o); got != want {
			t.Errorf("%+v: %v", o, got)
		}
	}
}

// Words of a marker in a result do not keep it from being shortened, in any shape; a result that the
// gateway has cut before stays as it is, and the ids in it with it.
func TestBirthKnowsItsOwnByTheStore(t *testing.T) {
	for _, shape := range wireShapes {
		r := keeper(t, nil)
		ask := func(text string) (before, after string) {
			talk := []said{{user: "Where is the cache?"}, {uses: []used{{id: "a", name: "read", args: `{}`, texts: []string{text}}}}}
			body := written(shape, recoverTool, talk)
			got, _ := sent(chat.Midwife(r, time.Now), going(shape, body, young("mask")))
			return textsOf(t, shape, body)[0], textsOf(t, shape, got)[0]
		}
		for _, word := range []string{"KIMI_PROXY_OBSERVATION_MASKED", "[recover: prune_id=prn_00000000000000000000000000 chars=1-2]"} {
			if before, after := ask(word + "\n" + source(1, 5000)); len(after) >= len(before) {
				t.Errorf("%s: with %s in it, a text stays as it is", shape, word)
			}
		}
		text := source(2, 9000)
		id, err := r.Keep(t.Context(), "", text, recall.Origin{Server: "git", Tool: "show"})
		if err != nil {
			t.Fatal(err)
		}
		cut := text[:3000] + "\n... [KIMI_PROXY_OBSERVATION_MASKED] [recover: prune_id=" + id + "]\n"
		if err := r.NoteMade(t.Context(), "", id, cut); err != nil {
			t.Fatal(err)
		}
		if before, after := ask(cut); after != before {
			t.Errorf("%s: a text of ours was cut again: %q", shape, after)
		}
	}
}
