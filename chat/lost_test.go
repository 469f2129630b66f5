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
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/meter"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// trackedDriver is a driver that tracks its groups, so that a test can delete all of them.
type trackedDriver struct {
	state.Driver
	groups map[string]bool
}

func (d *trackedDriver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	for _, i := range items {
		d.groups[i.Group] = true
	}
	return d.Driver.PutIf(ctx, cond, items, lease)
}

func (d *trackedDriver) dropAll(t *testing.T) {
	t.Helper()
	for group := range d.groups {
		if err := d.Drop(t.Context(), group); err != nil {
			t.Fatal(err)
		}
	}
}

func newTrackedRecall(t *testing.T) (*recall.Recall, *trackedDriver) {
	t.Helper()
	d := &trackedDriver{memory.New(), map[string]bool{}}
	store := state.New(d, patientStore(), time.Now)
	t.Cleanup(func() { _ = store.Close() })
	r, err := recall.New(store, bytes.Repeat([]byte("s"), recall.MinSecretBytes), recall.Default())
	if err != nil {
		t.Fatal(err)
	}
	return r, d
}

// After the store lost its contents, no request shows an id that cannot be read back, also in a
// conversation whose masks are cached.
func TestLostIDsAreNotShown(t *testing.T) {
	forEachWire(t, func(t *testing.T, w wire) {
		f := newStubProvider(t, respond(http.StatusOK, w.reply))
		r, store := newTrackedRecall(t)
		template := func(p *history.Policy) { twoTurnWindow(p); p.Template = "[masked {prune_id}]" }
		g := newGateway(t, []chat.Provider{providerConfig("p", w.kind, f.URL)}, withMasking(r, template))
		for _, turns := range []int{20, 21, 21, 22} {
			g.post(t, w.path, requestBodies[w.path](turns), nil)
			calls := f.requests()
			body := string(calls[len(calls)-1].body)
			ids := strings.Split(body, "[masked ")[1:]
			if len(ids) < turns/2 {
				t.Fatalf("%d turns: %d results masked", turns, len(ids))
			}
			for _, rest := range ids {
				id, _, _ := strings.Cut(rest, "]")
				if n := originalLen(t, r, id); n == 0 {
					t.Fatalf("%d turns: %s is shown and cannot be read back", turns, id)
				}
			}
			store.dropAll(t)
		}
	})
}

// originalLen is the length of an original in bytes, 0 if there is none.
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

// A model may read back originals only of providers that are configured.
func TestKnowsOriginOfConfiguredProviders(t *testing.T) {
	f := newStubProvider(t, respond(http.StatusOK, `{}`))
	r := newRecall(t, nil)
	d := chat.New(chat.Settings{Chat: chat.Config{Providers: []chat.Provider{providerConfig("p", "openai", f.URL)}}}, chat.Deps{Recall: r, Meter: meter.New("test", nil)})
	for o, want := range map[recall.Origin]bool{
		{Server: masking.ProviderOrigin("p"), Tool: "read"}:    true,
		{Server: masking.ProviderOrigin("gone"), Tool: "read"}: false,
		{Server: "p", Tool: "read"}:                            false,
		{}:                                                     false,
	} {
		if got := d.CanRead(auth.LocalCaller(), o); got != want {
			t.Errorf("%+v: %v", o, got)
		}
	}
}

// A result that merely contains a marker's words is shortened; a result that the gateway has shortened
// before is not changed again.
func TestNewResultsRecognizeShortenedTextByTheStore(t *testing.T) {
	for _, shape := range wireShapes {
		r := newRecall(t, nil)
		shrink := func(text string) (before, after string) {
			dialogue := []dialogueStep{{user: "Where is the cache?"}, {uses: []toolUse{{id: "a", name: "read", args: `{}`, texts: []string{text}}}}}
			body := encodeRequest(shape, recoverTool, dialogue)
			got, _ := shrunkBody(chat.NewResultsMasker(r, time.Now), withNewResults(shape, body, shortenOver2000("mask")))
			return resultTexts(t, shape, body)[0], resultTexts(t, shape, got)[0]
		}
		for _, word := range []string{"KIMI_PROXY_OBSERVATION_MASKED", "[recover: prune_id=prn_00000000000000000000000000 chars=1-2]"} {
			if before, after := shrink(word + "\n" + sourceText(1, 5000)); len(after) >= len(before) {
				t.Errorf("%s: with %s in it, the text was not shortened", shape, word)
			}
		}
		text := sourceText(2, 9000)
		id, err := r.StoreText(t.Context(), "", text, recall.Origin{Server: "git", Tool: "show"})
		if err != nil {
			t.Fatal(err)
		}
		cut := text[:3000] + "\n... [KIMI_PROXY_OBSERVATION_MASKED] [recover: prune_id=" + id + "]\n"
		if err := r.MarkShortened(t.Context(), "", id, cut); err != nil {
			t.Fatal(err)
		}
		if before, after := shrink(cut); after != before {
			t.Errorf("%s: a shortened text was cut again: %q", shape, after)
		}
	}
}
