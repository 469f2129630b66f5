// Package recordings holds what real agents sent to ctxgate, so that the LLM proxy and the hub are tested against it
// without the agents. `make agents-record` writes the recordings.
//
// redact.go replaces keys, ids, times, paths and facts of the machine, and the letters of long texts, which are the
// agents' own prompts. Structure, sizes, order and escapes are as they were. Two recordings of an agent differ only in
// what the agent itself does differently, such as the order of concurrent requests.
package recordings

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Recording is what one agent sent in one conversation with four tool calls.
type Recording struct {
	Agent   string
	Version string
	// Model are the requests of the conversation at a model API, in order.
	Model []Request
	// Stdio are the messages that its MCP client wrote to the gateway over stdio.
	Stdio []json.RawMessage
	// HTTP are the requests that its MCP client sent over HTTP. Where a session id belongs, there is [SessionID].
	HTTP []Request
}

// Request is an HTTP request.
type Request struct {
	Method string      `json:"method"`
	Path   string      `json:"path"` // with the query
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
}

// SessionID stands for the id of an MCP session.
const SessionID = "SESSION"

// line is a line of the file: one of its members.
type line struct {
	Agent   string          `json:"agent,omitempty"`
	Version string          `json:"version,omitempty"`
	Model   *Request        `json:"model,omitempty"`
	Stdio   json.RawMessage `json:"stdio,omitempty"`
	HTTP    *Request        `json:"http,omitempty"`
}

//go:embed testdata
var files embed.FS

// maxBytes is the most that a recording may have without compression.
const maxBytes = 4 << 20

// All returns every recording.
func All() ([]Recording, error) {
	names, err := files.ReadDir("testdata")
	if err != nil {
		return nil, err
	}
	var all []Recording
	for _, name := range names {
		if !strings.HasSuffix(name.Name(), ".zst") {
			continue
		}
		data, err := files.ReadFile("testdata/" + name.Name())
		if err != nil {
			return nil, err
		}
		one, err := Decode(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name.Name(), err)
		}
		all = append(all, one)
	}
	return all, nil
}

// Encode returns a recording as a file.
func Encode(r Recording) ([]byte, error) {
	lines := []line{{Agent: r.Agent, Version: r.Version}}
	for i := range r.Model {
		lines = append(lines, line{Model: &r.Model[i]})
	}
	for _, message := range r.Stdio {
		lines = append(lines, line{Stdio: message})
	}
	for i := range r.HTTP {
		lines = append(lines, line{HTTP: &r.HTTP[i]})
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, one := range lines {
		if err := e.Encode(one); err != nil {
			return nil, err
		}
	}
	if b.Len() > maxBytes {
		return nil, fmt.Errorf("the recording of %s has %d bytes, more than %d", r.Agent, b.Len(), maxBytes)
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(maxBytes), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	return w.EncodeAll(b.Bytes(), nil), w.Close()
}

// Decode reads a file.
func Decode(data []byte) (Recording, error) {
	var r Recording
	d, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderMaxMemory(2*maxBytes), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return r, err
	}
	defer d.Close()
	lines := bufio.NewScanner(d)
	lines.Buffer(nil, maxBytes)
	for lines.Scan() {
		var one line
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return r, err
		}
		switch {
		case one.Agent != "":
			r.Agent, r.Version = one.Agent, one.Version
		case one.Model != nil:
			r.Model = append(r.Model, *one.Model)
		case one.Stdio != nil:
			r.Stdio = append(r.Stdio, slices.Clone(one.Stdio))
		case one.HTTP != nil:
			r.HTTP = append(r.HTTP, *one.HTTP)
		}
	}
	return r, lines.Err()
}

// Is reports whether the request has this path, whatever its query.
func (r Request) Is(path string) bool {
	got, _, _ := strings.Cut(r.Path, "?")
	return got == path
}
