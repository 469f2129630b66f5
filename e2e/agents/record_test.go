//go:build unix

package agents_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/agents"
	"github.com/ctxgate/ctxgate/internal/testkit/recordings"
)

// TestRecord records each agent for the tests of the LLM proxy and the hub, if CTXGATE_AGENTS_RECORD is set to the
// folder of the recordings (`make agents-record`).
func TestRecord(t *testing.T) {
	dir := os.Getenv("CTXGATE_AGENTS_RECORD")
	if dir == "" {
		t.Skip("make agents-record records agents")
	}
	for _, a := range chosen() {
		t.Run(a.ID, func(t *testing.T) {
			in, err := agents.FindInstall()
			if err != nil {
				t.Fatal(err)
			}
			version, err := in.Version(a)
			if err != nil {
				t.Fatal(err)
			}
			r := recordings.Recording{Agent: a.ID, Version: version}
			recordStdio(t, a, &r)
			recordHTTP(t, a, &r)
			data, err := recordings.Encode(r)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %d model requests, %d messages over stdio, %d requests over HTTP, %d bytes", a.Name, len(r.Model), len(r.Stdio), len(r.HTTP), len(data))
			if err := os.WriteFile(filepath.Join(dir, a.ID+".jsonl.zst"), data, 0o644); err != nil { //nolint:gosec // a fixture
				t.Fatal(err)
			}
		})
	}
}

func newRedactor(s *setup) *recordings.Redactor {
	in, _ := agents.FindInstall()
	self, _ := os.Executable()
	return &recordings.Redactor{Texts: [][2]string{
		{self, "/usr/bin/server"}, {binary, "/usr/bin/ctxgate"},
		{s.sandbox.Home, "/home/user"}, {strings.ReplaceAll(s.sandbox.Home, "/", "-"), "-home-user"},
		{in.Dir, "/usr/lib/agents"}, {filepath.Base(s.sandbox.Home), "user"},
		{time.Now().UTC().Format(time.DateOnly), recordings.Date},
	}}
}

// recordStdio records a conversation with the MCP server on stdio: what the client wrote, and the model requests.
func recordStdio(t *testing.T, a agents.Agent, r *recordings.Recording) {
	t.Helper()
	s := newSetup(t, a, ownLoop)
	recorder := agents.NewRecorder(t, s.model)
	s.model = recorder.URL
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.sandbox.Home, "stdin")
	server := &agents.Server{Command: append([]string{self, "tee", file}, s.stdio().Command...)}
	converse(s, server)
	redactor := newRedactor(s)
	for _, one := range recorder.Requests() {
		if strings.Contains(one.Body, `"tools"`) {
			r.Model = append(r.Model, redactor.Request(one))
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		if line = bytes.TrimSpace(line); json.Valid(line) {
			r.Stdio = append(r.Stdio, redactor.JSON(line))
		}
	}
}

// recordHTTP records the MCP requests of a conversation over HTTP.
func recordHTTP(t *testing.T, a agents.Agent, r *recordings.Recording) {
	t.Helper()
	s := newSetup(t, a, ownLoop)
	recorder := agents.NewRecorder(t, s.gateway.URL)
	converse(s, &agents.Server{URL: recorder.URL + "/mcp"})
	redactor := newRedactor(s)
	for _, one := range recorder.Requests() {
		if one.Is("/mcp") {
			r.HTTP = append(r.HTTP, redactor.Request(one))
		}
	}
}

// converse has the conversation of TestRoles; the Inspector, which has no model, calls one tool.
func converse(s *setup, server *agents.Server) {
	s.t.Helper()
	if s.agent.HasLoop() {
		s.ask(server, conversation()...)
		return
	}
	s.agent.Run(s.sandbox, agents.InspectorArgs(server, "tools/list")...)
	s.agent.Run(s.sandbox, agents.InspectorArgs(server, "tools/call", "--tool-name", "logs__read_log", "--tool-arg", "name=alpha", "--tool-arg", "size=40000")...)
}
