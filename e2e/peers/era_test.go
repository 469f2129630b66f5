package peers

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// era is one of the two ways of speaking MCP: legacy begins with a handshake, modern says with
// every request what it needs to be understood.
type era string

const (
	legacy era = "legacy"
	modern era = "modern"

	both era = "both" // of a server: it speaks either, as it comes
)

func (e era) version() string {
	if e == modern {
		return "2026-07-28"
	}
	return "2025-11-25"
}

// envelope is what a filter needs to see of a message.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
}

// refuse is the answer of a server of one era to a message of the other; nil when the message is
// of its own. A legacy server does not know server/discover and has not been introduced to who
// sends anything with modern metadata; a modern one says which versions it has.
func (e era) refuse(message []byte) []byte {
	var m envelope
	if json.Unmarshal(message, &m) != nil || m.ID == nil {
		return nil
	}
	_, tagged := m.Params.Meta["io.modelcontextprotocol/protocolVersion"]
	switch {
	case e == modern && m.Method == "initialize":
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32022,"message":"Unsupported protocol version","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}}`, m.ID)
	case e == legacy && m.Method == "server/discover":
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)
	case e == legacy && tagged:
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"Invalid request parameters"}}`, m.ID)
	}
	return nil
}

var versions = regexp.MustCompile(`"supportedVersions":\[[^\]]*\]`)

// offer takes from an answer to server/discover the versions that the filter will not let pass.
func (e era) offer(message []byte) []byte {
	if e == legacy || !bytes.Contains(message, []byte(`"supportedVersions"`)) {
		return message
	}
	return versions.ReplaceAll(message, []byte(`"supportedVersions":["2026-07-28"]`))
}

const filterRole = "filter"

// quickExit is for our own programs when they are built with the race detector, which otherwise
// waits a second before it lets a process end.
const quickExit = "atexit_sleep_ms=0"

// only is a command that runs another one over stdio and lets it speak one era only.
func (e era) only(t *testing.T, command ...string) server {
	t.Helper()
	return server{
		Command: append([]string{self(t), string(e)}, command...),
		Env:     map[string]string{roleVariable: filterRole, "GORACE": quickExit},
	}
}

// filterProcess is that command. It ends when its stdin does, as a server over stdio must.
func filterProcess(args []string) int {
	e := era(args[0])
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 1
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var one sync.Mutex // stdout has two writers
	say := func(line []byte) {
		one.Lock()
		defer one.Unlock()
		_, _ = os.Stdout.Write(line) // nobody there: stdin will end too
	}
	go func() {
		defer in.Close()
		for line := range lines(os.Stdin) {
			if answer := e.refuse(line); answer != nil {
				say(append(answer, '\n'))
			} else if _, err := in.Write(line); err != nil {
				return
			}
		}
	}()
	for line := range lines(out) {
		say(e.offer(line))
	}
	_ = cmd.Wait()
	return 0
}

// lines are the lines of r, with their ends.
func lines(r io.Reader) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		b := bufio.NewReaderSize(r, 1<<20)
		for {
			line, err := b.ReadBytes('\n')
			if len(line) > 0 && !yield(line) || err != nil {
				return
			}
		}
	}
}

// door is the same over HTTP: a reverse proxy before a server.
func (e era) door(to string) (*httptest.Server, error) {
	target, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path = target.Scheme, target.Host, target.Path
			r.Out.Host = target.Host
		},
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Header.Get("Mcp-Method") != "server/discover" {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return err
			}
			body = e.offer(body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			r.ContentLength = int64(len(body))
			r.Header.Set("Content-Length", strconv.Itoa(len(body)))
			return nil
		},
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if answer := e.refuse(body); answer != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write(answer)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	})), nil
}

// reference is the Go SDK's everything-server over stdio or HTTP, in one era only or as it comes. As
// it comes over HTTP it is stateless, and cannot ask its clients in either era; "http with sessions" is how
// its SDK serves both eras in full: a handler with sessions for the older one beside it, at one address.
func (e era) reference(t *testing.T, transport string) server {
	t.Helper()
	switch {
	case e == both && transport == "stdio":
		return server{Command: []string{everythingServer.path(t)}}
	case transport == "stdio":
		return e.only(t, everythingServer.path(t))
	case e == both && transport == "http with sessions":
		return server{URL: besides(t, legacy.listening(t), modern.listening(t)), Transport: "http"}
	}
	to := e.listening(t)
	if e == modern {
		door, err := e.door(to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(door.Close)
		to = door.URL
	}
	return server{URL: to, Transport: "http"}
}

// listening is the address of an everything-server as it is. It speaks at least this era.
func (e era) listening(t *testing.T) string {
	t.Helper()
	address := "127.0.0.1:" + freePort(t)
	// Its stateful mode is its legacy one: it knows server/discover, but offers no modern version.
	cmd := exec.Command(everythingServer.path(t), "-http="+address, "-stateless="+strconv.FormatBool(e != legacy))
	p := start(t, "everything-server", cmd)
	to := "http://" + address + "/mcp"
	listening(t, p, to)
	return to
}

// besides is one address for two servers: requests of the newer era go to one, all else to the other.
func besides(t *testing.T, older, newer string) string {
	t.Helper()
	to := map[bool]*httputil.ReverseProxy{}
	for isNewer, address := range map[bool]string{false: older, true: newer} {
		target, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		to[isNewer] = &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL, r.Out.Host = target, target.Host
		}}
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A server that answers before it has read all would have its reply cut otherwise.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		to[r.Header.Get("Mcp-Protocol-Version") == modern.version()].ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	return front.URL
}

// transport reaches a server without a gateway.
func (s server) transport() mcp.Transport {
	if s.URL != "" {
		return &mcp.StreamableClientTransport{Endpoint: s.URL}
	}
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Env = os.Environ()
	for name, value := range s.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return &mcp.CommandTransport{Command: cmd}
}

// A server that a filter made speak one era does so, and does not speak the other.
func TestErasDirect(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		for _, kind := range []string{"stdio", "http"} {
			t.Run(string(e)+"/"+kind, func(t *testing.T) {
				up := e.reference(t, kind)
				session, err := connect(t.Context(), up.transport(), e, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "test_simple_text"})
				if err != nil || result.IsError {
					t.Fatalf("test_simple_text: %v, %v", result, err)
				}
				other := modern
				if e == modern {
					other = legacy
				}
				if wrong, err := connect(t.Context(), up.transport(), other, nil); err == nil {
					_ = wrong.Close()
					t.Errorf("it also speaks %s", other.version())
				}
			})
		}
	}
}
