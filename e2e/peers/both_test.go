package peers

import (
	"path/filepath"
	"testing"
)

// Servers of two SDKs that speak both revisions (one lists its older revisions, the other does not) elicit
// from clients of either revision as they would without the gateway, over stdio, through a bridge to a gateway in the
// background, and over HTTP.
func TestServersOfBothRevisionsElicit(t *testing.T) {
	for _, e := range []revision{legacy, modern} {
		for _, transport := range []string{"stdio", "bridge", "http"} {
			t.Run(string(e)+"/"+transport, func(t *testing.T) { testServerOfBothRevisions(t, e, transport) })
		}
	}
}

func testServerOfBothRevisions(t *testing.T, e revision, transport string) {
	golang := both.referenceServer(t, "stdio")
	golang.ID = "golang"
	servers := []server{golang, {ID: "typescript", Command: append(npmModern(t), "both")}}
	w := testSetup{Revision: e, Version: e.version(), Gateway: true, Root: filepath.Clean(t.TempDir())}
	if transport == "http" {
		w.Target = target{URL: serve(t, servers...)}
		waitForTools(t, w.Target.URL, "golang::test_simple_text", "typescript::echo")
	} else {
		command, home := stdioCommand(t, servers...)
		if transport == "bridge" {
			command, home = bridgeCommand(t, servers...)
		}
		w.Target = stdioTarget(command, home)
	}
	v := connectSetup(t, w)
	v.requireText(t, "golang::test_simple_text", args{}, "simple text")
	for _, tool := range []string{"typescript::trigger-elicitation-request", "golang::test_input_required_result_elicitation"} {
		v.clearEvents()
		v.requireText(t, tool, args{}, "Ada")
		v.waitForEvent(t, "elicitation")
	}
	if e == legacy { // in the modern revision this tool cannot send requests
		v.requireText(t, "golang::test_sampling", args{"prompt": "hello"}, "sampled by peers")
		v.waitForEvent(t, "sampling for golang")
	}
}
