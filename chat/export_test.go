package chat

import (
	"net/http"
	"strings"

	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/wires"
)

// AllWires returns the wire formats of llm/wires; the tests use the name wires for something else.
var AllWires = wires.All

var allWires = newWireTable(AllWires())

// ServesPath and Refuse are those of a proxy for all wire formats.
var (
	ServesPath = allWires.serves
	Refuse     = allWires.refuse
)

// Observe feeds a reply to the usage observer in pieces of size bytes. A path that is not served has no
// usage.
func Observe(path string, stream bool, text string, size int) (llm.Usage, string, bool) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
	if stream {
		resp.Header.Set("Content-Type", "text/event-stream")
	}
	path, _, _ = strings.Cut(path, "?")
	e, _ := allWires.find(path)
	o := newObserver(e, resp)
	for len(text) > 0 {
		n := min(size, len(text))
		o.write([]byte(text[:n]))
		text = text[n:]
	}
	return o.usage()
}

// RootOf is where the paths of a v1 API begin.
func RootOf(base string) string {
	root, _ := apiRoot(base, "v1")
	return root
}

// Status is exported for the tests.
var Status = status
