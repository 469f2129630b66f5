package chat_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/unit"
)

// R23, I2: a gateway that has seen a conversation grow sends what one sends that sees it for the
// first time, whether its client moves marks or not.
func TestR23LongConversationsAreRememberedAsTheyAre(t *testing.T) {
	inEachShape(t, func(t *testing.T, w wire) {
		f := newFar(t, says(http.StatusOK, w.whole))
		r := keeper(t, nil)
		policy := func(p *history.Policy) { rolling(p); p.KeepHandles, p.PastBreakpoints = 2, true }
		p := []chat.Provider{provider("p", w.kind, f.URL)}
		send := func(g *gate, body string) string {
			g.post(t, w.path, body, nil)
			calls := f.calls()
			return string(calls[len(calls)-1].body)
		}
		offering := func(s *chat.Settings, d *chat.Deps) { s.Chat.Observation.Recovery.Offer, d.Recall = true, r }
		old := open(t, p, masking(r, policy), offering) // but there are no tools to which to add another
		for _, turns := range []int{20, 21, 22, 22, 25, 40, 41, 30, 42} {
			body := talks[w.path](turns)
			if w.kind == "anthropic" && turns%3 > 0 {
				body = markLast(body)
			}
			got, want := send(old, body), send(open(t, p, masking(r, policy), offering), body)
			if got != want {
				t.Fatalf("%d turns: got\n%s\nwant\n%s", turns, got, want)
			}
			if n := strings.Count(got, "[masqué"); n != turns-2 || len(body) < 8<<10 {
				t.Fatalf("%d turns, %d bytes: %d are masked", turns, len(body), n)
			}
		}
	})
}

// I9: how much is remembered is the configuration's to say; with nothing it works as well.
func TestRecentIsBounded(t *testing.T) {
	for name, size := range map[string]unit.Bytes{"none": 0, "little": 1 << 10, "much": 1 << 20} {
		f, r := newFar(t, says(http.StatusOK, `{}`)), keeper(t, nil)
		g := open(t, []chat.Provider{provider("p", "openai", f.URL)}, masking(r, rolling), llm(func(l *chat.Limits) { l.RecentBytes = size }))
		for _, n := range []int{30, 60, 60} {
			g.post(t, "/v1/chat/completions", talks["/v1/chat/completions"](n), nil)
		}
		calls := f.calls()
		if masks := placeholder.FindAllString(string(calls[2].body), -1); len(masks) != 58 || string(calls[1].body) != string(calls[2].body) {
			t.Errorf("%s: %d results masked", name, len(masks))
		}
	}
}
