//go:build unix

package agents

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/recordings"
)

// Recorder is a proxy that records requests in the order in which they come.
type Recorder struct {
	URL string

	mu       sync.Mutex
	requests []recordings.Request
}

// NewRecorder starts a recorder before a server.
func NewRecorder(tb testing.TB, target string) *Recorder {
	tb.Helper()
	to, err := url.Parse(target)
	if err != nil {
		tb.Fatal(err)
	}
	r := &Recorder{}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(to) },
		FlushInterval: -1,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		body, err := io.ReadAll(in.Body)
		if err != nil {
			return
		}
		in.Body = io.NopCloser(bytes.NewReader(body))
		r.mu.Lock()
		r.requests = append(r.requests, recordings.Request{Method: in.Method, Path: in.URL.RequestURI(), Header: in.Header.Clone(), Body: string(body)})
		r.mu.Unlock()
		proxy.ServeHTTP(w, in)
	}))
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	r.URL = server.URL
	return r
}

// Requests returns what was recorded.
func (r *Recorder) Requests() []recordings.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// RunTee runs a command and copies what it reads from stdin to a file. It returns the exit code. Test binaries call
// it for a child process that stands between an agent and its server.
func RunTee(file string, command []string) int {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	defer out.Close()
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...) // it ends with its stdin
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return 1
	}
	_, _ = io.Copy(io.MultiWriter(out, in), os.Stdin)
	_ = in.Close()
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode()
}
