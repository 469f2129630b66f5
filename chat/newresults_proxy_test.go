package chat_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
)

// H10, G3: through the proxy, new results are shortened only if the config says so, and without
// masking of old results.
func TestNewResultsThroughTheProxy(t *testing.T) {
	for path, shape := range map[string]llm.Codec{"/v1/chat/completions": openaichat.Codec{}, "/v1/responses": responses.Codec{}, "/v1/messages": anthropic.Codec{}} {
		for reducer, want := range map[string]bool{"none": false, "mask": true, "prune": true} {
			f, r := newStubProvider(t, respond(http.StatusOK, `{}`)), newRecall(t, nil)
			kind := map[bool]string{true: "anthropic", false: "openai"}[shape == (anthropic.Codec{})]
			g := newGateway(t, []chat.Provider{providerConfig("p", kind, f.URL)}, func(s *chat.Settings, d *chat.Deps) {
				d.Shrink = masking.New(r, time.Now).Shrink
				s.Chat.ObservationMasking.Schema1.Enabled = false
				s.Chat.ObservationMasking.NewResults = shortenOver2000(reducer)
			})
			body := encodeRequest(shape, recoverTool, randomDialogue(1, 12))
			g.post(t, path, body, nil)
			got := string(f.requests()[0].body)
			ids := marker.FindAllStringSubmatch(got, -1)
			if (got != body) != want || want != (len(ids) > 0) || strings.Contains(got, "Observation masquée") {
				t.Fatalf("%s, %s: %d ids in %s", path, reducer, len(ids), got)
			}
			for _, id := range ids {
				if _, err := r.Open(t.Context(), auth.DefaultTenant, id[1]); err != nil {
					t.Errorf("%s, %s: %s: %v", path, reducer, id[1], err)
				}
			}
		}
	}
}
