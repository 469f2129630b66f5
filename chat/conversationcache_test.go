package chat_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// R23, I2: a gateway that has cached a conversation sends the same bytes as one that sees it for the
// first time, whether or not the client moves its cache marks.
func TestR23CachedConversationsAreMaskedTheSame(t *testing.T) {
	forEachWire(t, func(t *testing.T, w wire) {
		f := newStubProvider(t, respond(http.StatusOK, w.reply))
		r := newRecall(t, nil)
		policy := func(p *history.Policy) { twoTurnWindow(p); p.KeepHandles, p.PastBreakpoints = 2, true }
		p := []chat.Provider{providerConfig("p", w.kind, f.URL)}
		send := func(g *gateway, body string) string {
			g.post(t, w.path, body, nil)
			calls := f.requests()
			return string(calls[len(calls)-1].body)
		}
		offering := func(s *chat.Settings, d *chat.Deps) { s.Chat.ObservationMasking.Recovery.Offer, d.Recall = true, r }
		old := newGateway(t, p, withMasking(r, policy), offering) // the requests have no tools, so recover_text is not added
		for _, turns := range []int{20, 21, 22, 22, 25, 40, 41, 30, 42} {
			body := requestBodies[w.path](turns)
			if w.kind == "anthropic" && turns%3 > 0 {
				body = markLast(body)
			}
			got, want := send(old, body), send(newGateway(t, p, withMasking(r, policy), offering), body)
			if got != want {
				t.Fatalf("%d turns: got\n%s\nwant\n%s", turns, got, want)
			}
			if n := strings.Count(got, "[masqué"); n != turns-2 || len(body) < 8<<10 {
				t.Fatalf("%d turns, %d bytes: %d results masked", turns, len(body), n)
			}
		}
	})
}

// I9: the conversation cache never changes what is masked, whatever its configured size.
func TestConversationCacheIsBounded(t *testing.T) {
	for name, size := range map[string]unit.Bytes{"no cache": 0, "small cache": 1 << 10, "large cache": 1 << 20} {
		f, r := newStubProvider(t, respond(http.StatusOK, `{}`)), newRecall(t, nil)
		g := newGateway(t, []chat.Provider{providerConfig("p", "openai", f.URL)}, withMasking(r, twoTurnWindow), withLimits(func(l *chat.Limits) { l.RecentBytes = size }))
		for _, n := range []int{30, 60, 60} {
			g.post(t, "/v1/chat/completions", requestBodies["/v1/chat/completions"](n), nil)
		}
		calls := f.requests()
		if masks := placeholder.FindAllString(string(calls[2].body), -1); len(masks) != 58 || string(calls[1].body) != string(calls[2].body) {
			t.Errorf("%s: %d results masked", name, len(masks))
		}
	}
}
