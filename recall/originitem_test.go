package recall

import (
	"testing"

	"pgregory.net/rapid"
)

// An origin comes back as it was stored, and a tool without a scope is stored as its name, as before there were scopes.
func TestOriginItemRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[^\x00]{0,20}`)
		o := Origin{Server: "s", Tool: text.Draw(t, "tool"), Prompt: text.Draw(t, "prompt"), Resource: text.Draw(t, "resource"), Scope: text.Draw(t, "scope")}
		if got := newOrigin("s", o.item()); got != o {
			t.Fatalf("%+v became %+v", o, got)
		}
	})
	if got := (Origin{Server: "s", Tool: "t"}).item(); got != "t" {
		t.Errorf("got %q", got)
	}
}
