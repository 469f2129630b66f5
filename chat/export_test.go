package chat

import "net/http"

// Observe reads a reply in passing, in pieces of size bytes.
func Observe(path string, stream bool, text string, size int) (Usage, string, bool) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
	if stream {
		resp.Header.Set("Content-Type", "text/event-stream")
	}
	e := endpoints[path]
	e.talk = true
	o := newObserver(e, resp)
	for len(text) > 0 {
		n := min(size, len(text))
		o.write([]byte(text[:n]))
		text = text[n:]
	}
	used, ok := o.usage()
	return used, o.model(), ok
}

// Fits and RootOf are told here alone.
var (
	Fits   = fits
	RootOf = rootOf
	Status = status
)

// ErrorText is an error in one of the two forms.
var ErrorText = appendError
