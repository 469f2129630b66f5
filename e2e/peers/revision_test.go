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

// revision is a protocol revision: legacy (2025-11-25) starts with a handshake, modern (2026-07-28) is stateless.
type revision string

const (
	legacy revision = "legacy"
	modern revision = "modern"

	both revision = "both" // of a server: unrestricted
)

func (e revision) version() string {
	if e == modern {
		return "2026-07-28"
	}
	return "2025-11-25"
}

// envelope is the part of a message that the filter reads.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
}

// rejectOther returns the response of a server of this revision to a message of the other one, or nil. A
// legacy server does not know server/discover and rejects modern metadata; a modern one lists its versions.
func (e revision) rejectOther(message []byte) []byte {
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

// filterVersions removes from a response to server/discover the versions that the filter rejects.
func (e revision) filterVersions(message []byte) []byte {
	if e == legacy || !bytes.Contains(message, []byte(`"supportedVersions"`)) {
		return message
	}
	return versions.ReplaceAll(message, []byte(`"supportedVersions":["2026-07-28"]`))
}

const filterRole = "filter"

// quickExit is for programs built with the race detector, which sleeps for a second at exit by default.
const quickExit = "atexit_sleep_ms=0"

// onlyRevision wraps a stdio command in a filter for this revision.
func (e revision) onlyRevision(t *testing.T, command ...string) server {
	t.Helper()
	return server{
		Command: append([]string{self(t), string(e)}, command...),
		Env:     map[string]string{roleVariable: filterRole, "GORACE": quickExit},
	}
}

// runFilter is the filter process. It exits when stdin ends, as a stdio server must.
func runFilter(args []string) int {
	e := revision(args[0])
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
	var one sync.Mutex // for stdout
	say := func(line []byte) {
		one.Lock()
		defer one.Unlock()
		_, _ = os.Stdout.Write(line) // if the reader is gone, stdin ends too
	}
	go func() {
		defer in.Close()
		for line := range lines(os.Stdin) {
			if answer := e.rejectOther(line); answer != nil {
				say(append(answer, '\n'))
			} else if _, err := in.Write(line); err != nil {
				return
			}
		}
	}()
	for line := range lines(out) {
		say(e.filterVersions(line))
	}
	_ = cmd.Wait()
	return 0
}

// lines returns the lines of r with their ends.
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

// filterProxy is the filter over HTTP: a reverse proxy.
func (e revision) filterProxy(to string) (*httptest.Server, error) {
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
			body = e.filterVersions(body)
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
		if answer := e.rejectOther(body); answer != nil {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write(answer)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	})), nil
}

// referenceServer is the Go SDK's everything-server over stdio or HTTP, restricted to one revision or not.
// Unrestricted over HTTP it is stateless and cannot send requests to clients; "http with sessions" is how its
// SDK serves both revisions in full: with a stateful handler for the legacy one at the same address.
func (e revision) referenceServer(t *testing.T, transport string) server {
	t.Helper()
	switch {
	case e == both && transport == "stdio":
		return server{Command: []string{everythingServer.path(t)}}
	case transport == "stdio":
		return e.onlyRevision(t, everythingServer.path(t))
	case e == both && transport == "http with sessions":
		return server{URL: routeByRevision(t, legacy.startReference(t), modern.startReference(t)), Transport: "http"}
	}
	to := e.startReference(t)
	if e == modern {
		proxy, err := e.filterProxy(to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		to = proxy.URL
	}
	return server{URL: to, Transport: "http"}
}

// startReference starts an unfiltered everything-server that speaks at least this revision, and returns its URL.
func (e revision) startReference(t *testing.T) string {
	t.Helper()
	address := freeAddress(t)
	// Stateful mode is legacy: server/discover exists but offers no modern version.
	cmd := exec.Command(everythingServer.path(t), "-http="+address, "-stateless="+strconv.FormatBool(e != legacy))
	if err := startProcess(t, "everything-server", cmd).WaitListening(address); err != nil {
		t.Fatal(err)
	}
	return "http://" + address + "/mcp"
}

// routeByRevision is one URL for two servers: modern requests go to one, all others to the other.
func routeByRevision(t *testing.T, older, newer string) string {
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
		// Read first: a reply sent before the body is read would be cut.
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

// transport connects to a server without a gateway.
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

// A filtered server speaks its revision and not the other.
func TestRevisionsDirect(t *testing.T) {
	for _, e := range []revision{legacy, modern} {
		for _, kind := range []string{"stdio", "http"} {
			t.Run(string(e)+"/"+kind, func(t *testing.T) {
				up := e.referenceServer(t, kind)
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
					t.Errorf("it also accepts %s", other.version())
				}
			})
		}
	}
}
