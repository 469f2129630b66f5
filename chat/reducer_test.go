package chat_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/internal/testkit/stubreducer"
)

// A registered reducer can be chosen for new tool results, on every wire, and its originals can be read
// back.
func TestNewResultsWithARegisteredReducer(t *testing.T) {
	stubreducer.Register(t, stubreducer.Opening)
	for _, shape := range wireShapes {
		r := newRecall(t, nil)
		text := sourceText(1, 5000)
		body := encodeRequest(shape, recoverTool, []dialogueStep{{user: "Where?"}, {uses: []toolUse{{id: "a", name: "read", args: `{}`, texts: []string{text}}}}})
		got, _ := shrunkBody(chat.NewResultsMasker(r, time.Now), withNewResults(shape, body, shortenOver2000(string(stubreducer.Name))))
		after := resultTexts(t, shape, got)[0]
		ids := marker.FindAllStringSubmatch(after, -1)
		if !strings.HasPrefix(after, text[:40]) || !strings.Contains(after, "head=40 tail=0") || len(ids) != 1 {
			t.Fatalf("%s: %q", shape, after)
		}
		if readOriginal(t, r, ids[0][1]) != text {
			t.Errorf("%s: %s gives another text", shape, ids[0][1])
		}
	}
}
