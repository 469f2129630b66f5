package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// upstream is a plain JSON-RPC server for the gateway to call.
type upstream struct {
	url      string
	server   *http.Server
	quit     chan struct{}
	released chan struct{}
	release  func()
	held     atomic.Int64
}

// call is what a mode may want to know of a request.
type call struct {
	Method string
	ID     json.RawMessage `json:"id"`
	Params struct {
		Arguments map[string]json.RawMessage `json:"arguments"`
	} `json:"params"`
}

func (c call) int(name string) int {
	n, _ := strconv.Atoi(string(c.Params.Arguments[name]))
	return n
}

// mode answers a call. It may wait for quit, and must not wait without it.
type mode func(u *upstream, w http.ResponseWriter, r *http.Request, c call)

// startUpstream serves calls in one mode.
func startUpstream(m mode) (*upstream, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{url: "http://" + ln.Addr().String(), quit: make(chan struct{}), released: make(chan struct{})}
	u.release = sync.OnceFunc(func() { close(u.released) })
	u.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/rpc" {
			http.Error(w, "only POST /rpc is served here", http.StatusTeapot)
			return
		}
		var c call
		_ = json.Unmarshal(body, &c) // what is no JSON has no id either
		if c.Method == "initialize" || c.Method == "tools/list" {
			// The gateway's own questions: this server knows no MCP beside its calls.
			send(w, "application/json", []byte(`{"jsonrpc":"2.0","id":`+string(c.ID)+`,"error":{"code":-32601,"message":"Method not found"}}`))
			return
		}
		m(u, w, r, c)
	})}
	go func() { _ = u.server.Serve(ln) }()
	return u, nil
}

func (u *upstream) close() {
	close(u.quit)
	_ = u.server.Close()
}

// hold waits for the release.
func (u *upstream) hold(r *http.Request) {
	u.held.Add(1)
	defer u.held.Add(-1)
	select {
	case <-u.released:
	case <-u.quit:
	case <-r.Context().Done():
	}
}

// reply answers with one text, which is given as JSON.
func reply(w http.ResponseWriter, c call, text []byte) {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","id":`)
	b.Write(c.ID)
	b.WriteString(`,"result":{"content":[{"type":"text","text":`)
	b.Write(text)
	b.WriteString(`}]}}`)
	send(w, "application/json", b.Bytes())
}

func send(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// quote writes text as JSON with no more escapes than it needs.
func quote(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // text is always JSON
	return bytes.TrimRight(b.Bytes(), "\n")
}

// modes are what `upstream NAME MODE [ARGUMENT]` of a script can ask for.
var modes = map[string]func(argument string) (mode, error){
	// The text of the call's arguments, in the very bytes it was written.
	"echo": func(string) (mode, error) {
		return func(_ *upstream, w http.ResponseWriter, _ *http.Request, c call) {
			reply(w, c, c.Params.Arguments["text"])
		}, nil
	},
	// The same, but not before the script says `release`.
	"hold": func(string) (mode, error) {
		return func(u *upstream, w http.ResponseWriter, r *http.Request, c call) {
			u.hold(r)
			reply(w, c, c.Params.Arguments["text"])
		}, nil
	},
	// A file's text.
	"file": func(file string) (mode, error) {
		text, err := os.ReadFile(file)
		return func(_ *upstream, w http.ResponseWriter, _ *http.Request, c call) { reply(w, c, quote(string(text))) }, err
	},
	// A file as the whole body, whatever it is.
	"raw": func(file string) (mode, error) {
		body, err := os.ReadFile(file)
		return func(_ *upstream, w http.ResponseWriter, _ *http.Request, _ call) { send(w, "application/json", body) }, err
	},
	"big": func(chars string) (mode, error) {
		n, err := strconv.Atoi(chars)
		return func(_ *upstream, w http.ResponseWriter, _ *http.Request, c call) {
			reply(w, c, quote(strings.Repeat("x", n)))
		}, err
	},
	"html": func(string) (mode, error) {
		return func(_ *upstream, w http.ResponseWriter, _ *http.Request, _ call) {
			send(w, "text/html", []byte("<!doctype html><title>Welcome</title>"))
		}, nil
	},
	"notjson": func(string) (mode, error) {
		return func(_ *upstream, w http.ResponseWriter, _ *http.Request, _ call) {
			send(w, "application/json", []byte("soon"))
		}, nil
	},
	// An error of the server's own, with a long story in its data.
	"error": func(string) (mode, error) {
		return func(_ *upstream, w http.ResponseWriter, _ *http.Request, c call) {
			story := quote(strings.Repeat("and then it failed again. ", 400))
			send(w, "application/json", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32050,"message":"the tool failed","data":{"story":%s,"try":400}}}`, c.ID, story))
		}, nil
	},
	"hang": func(string) (mode, error) {
		return func(u *upstream, _ http.ResponseWriter, r *http.Request, _ call) { u.hold(r) }, nil
	},
}

// freeAddress is an address where nobody listens.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}
