package chat_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/chat"
)

// H10, G3: the config decides what goes to the provider: nothing is shortened by default, and with
// birth alone nothing is masked.
func TestBirthAtTheDoor(t *testing.T) {
	for path, shape := range map[string]chat.Shape{"/v1/chat/completions": chat.Completions, "/v1/responses": chat.Responses, "/v1/messages": chat.Messages} {
		for how, want := range map[string]bool{"none": false, "mask": true, "prune": true} {
			f, r := newFar(t, says(http.StatusOK, `{}`)), keeper(t, nil)
			kind := map[bool]string{true: "anthropic", false: "openai"}[shape == chat.Messages]
			g := open(t, []chat.Provider{provider("p", kind, f.URL)}, func(s *chat.Settings, d *chat.Deps) {
				d.Shrink = chat.Mask(r, time.Now)
				s.Chat.Observation.Schema1.Enabled = false
				s.Chat.Observation.Birth = young(how)
			})
			body := written(shape, recoverTool, anyTalk(1, 12))
			g.post(t, path, body, nil)
			got := string(f.calls()[0].body)
			ids := marker.FindAllStringSubmatch(got, -1)
			if (got != body) != want || want != (len(ids) > 0) || strings.Contains(got, "Observation masquée") {
				t.Fatalf("%s, %s: %d ids in %s", path, how, len(ids), got)
			}
			for _, id := range ids {
				if _, err := r.Open(t.Context(), auth.DefaultTenant, id[1]); err != nil {
					t.Errorf("%s, %s: %s: %v", path, how, id[1], err)
				}
			}
		}
	}
}
