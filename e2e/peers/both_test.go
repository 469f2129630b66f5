package peers

import (
	"os"
	"path/filepath"
	"testing"
)

// Servers that speak both eras, of two SDKs (one lists its older revisions, the other does not), ask
// clients of either era what they need: each in the way that it would without the gateway. Over stdio
// the gateway has one client, over HTTP any number.
func TestServersOfBothErasAsk(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		for _, transport := range []string{"stdio", "http"} {
			t.Run(string(e)+"/"+transport, func(t *testing.T) { asksInBothEras(t, e, transport) })
		}
	}
}

func asksInBothEras(t *testing.T, e era, transport string) {
	golang := both.reference(t, "stdio")
	golang.ID = "golang"
	servers := []server{golang, {ID: "typescript", Command: append(npmModern(t), "both")}}
	w := world{Era: e, Version: e.version(), Gateway: true, Root: filepath.Clean(t.TempDir())}
	if transport == "http" {
		w.Target = target{URL: serve(t, servers...)}
		complete(t, w.Target.URL, "golang::test_simple_text", "typescript::echo")
	} else {
		command, home := stdio(t, servers...)
		w.Target = target{Command: command[0], Args: command[1:], Env: map[string]string{"HOME": home, "PATH": os.Getenv("PATH")}}
	}
	v := visit(t, w)
	v.says(t, "golang::test_simple_text", args{}, "simple text")
	for _, tool := range []string{"typescript::trigger-elicitation-request", "golang::test_input_required_result_elicitation"} {
		v.forget()
		v.says(t, tool, args{}, "Ada")
		v.listened(t, "elicitation")
	}
	if e == legacy { // in the newer era this tool has no way to ask
		v.says(t, "golang::test_sampling", args{"prompt": "hello"}, "sampled by peers")
		v.listened(t, "sampling for golang")
	}
}
