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

// fakeServer is a plain JSON-RPC server behind the gateway.
type fakeServer struct {
	url       string
	server    *http.Server
	closed    chan struct{}
	released  chan struct{}
	release   func()
	heldCount atomic.Int64
}

// rpcCall is the part of a request that handlers use.
type rpcCall struct {
	Method string
	ID     json.RawMessage `json:"id"`
	Params struct {
		Arguments map[string]json.RawMessage `json:"arguments"`
	} `json:"params"`
}

func (c rpcCall) intArg(name string) int {
	n, _ := strconv.Atoi(string(c.Params.Arguments[name]))
	return n
}

// handler replies to a call. If it waits, it must also wait for closed.
type handler func(u *fakeServer, w http.ResponseWriter, r *http.Request, c rpcCall)

// startFakeServer serves all calls with one handler.
func startFakeServer(m handler) (*fakeServer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &fakeServer{url: "http://" + ln.Addr().String(), closed: make(chan struct{}), released: make(chan struct{})}
	u.release = sync.OnceFunc(func() { close(u.released) })
	u.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != "/rpc" {
			http.Error(w, "only POST /rpc is served", http.StatusTeapot)
			return
		}
		var c rpcCall
		_ = json.Unmarshal(body, &c) // invalid JSON has no id either
		if c.Method == "initialize" || c.Method == "tools/list" {
			// The gateway's own requests: this server has no MCP methods but calls.
			sendBody(w, "application/json", []byte(`{"jsonrpc":"2.0","id":`+string(c.ID)+`,"error":{"code":-32601,"message":"Method not found"}}`))
			return
		}
		m(u, w, r, c)
	})}
	go func() { _ = u.server.Serve(ln) }()
	return u, nil
}

func (u *fakeServer) close() {
	close(u.closed)
	_ = u.server.Close()
}

// waitForRelease holds a call until release.
func (u *fakeServer) waitForRelease(r *http.Request) {
	u.heldCount.Add(1)
	defer u.heldCount.Add(-1)
	select {
	case <-u.released:
	case <-u.closed:
	case <-r.Context().Done():
	}
}

// replyText replies with one text, given as JSON.
func replyText(w http.ResponseWriter, c rpcCall, text []byte) {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","id":`)
	b.Write(c.ID)
	b.WriteString(`,"result":{"content":[{"type":"text","text":`)
	b.Write(text)
	b.WriteString(`}]}}`)
	sendBody(w, "application/json", b.Bytes())
}

func sendBody(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

// quoteJSON encodes text as JSON with as few escapes as possible.
func quoteJSON(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // text can always be encoded
	return bytes.TrimRight(b.Bytes(), "\n")
}

// handlerTable are the modes of `upstream NAME MODE [ARGUMENT]` in scripts.
var handlerTable = map[string]func(argument string) (handler, error){
	// The text of the call's arguments, byte for byte.
	"echo": func(string) (handler, error) {
		return func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, c rpcCall) {
			replyText(w, c, c.Params.Arguments["text"])
		}, nil
	},
	// The same after `release`.
	"hold": func(string) (handler, error) {
		return func(u *fakeServer, w http.ResponseWriter, r *http.Request, c rpcCall) {
			u.waitForRelease(r)
			replyText(w, c, c.Params.Arguments["text"])
		}, nil
	},
	// A file's text.
	"file": func(file string) (handler, error) {
		text, err := os.ReadFile(file)
		return func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, c rpcCall) {
			replyText(w, c, quoteJSON(string(text)))
		}, err
	},
	// A file as the whole body.
	"raw": func(file string) (handler, error) {
		body, err := os.ReadFile(file)
		return func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, _ rpcCall) {
			sendBody(w, "application/json", body)
		}, err
	},
	"big": func(chars string) (handler, error) {
		n, err := strconv.Atoi(chars)
		return func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, c rpcCall) {
			replyText(w, c, quoteJSON(strings.Repeat("x", n)))
		}, err
	},
	"html": func(string) (handler, error) {
		return func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, _ rpcCall) {
			sendBody(w, "text/html", []byte("<!doctype html><title>Welcome</title>"))
		}, nil
	},
	"notjson": func(string) (handler, error) {
		return func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, _ rpcCall) {
			sendBody(w, "application/json", []byte("soon"))
		}, nil
	},
	// An error with long data.
	"error": func(string) (handler, error) {
		return func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, c rpcCall) {
			story := quoteJSON(strings.Repeat("and then it failed again. ", 400))
			sendBody(w, "application/json", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32050,"message":"the tool failed","data":{"story":%s,"try":400}}}`, c.ID, story))
		}, nil
	},
	"hang": func(string) (handler, error) {
		return func(u *fakeServer, _ http.ResponseWriter, r *http.Request, _ rpcCall) { u.waitForRelease(r) }, nil
	},
}
