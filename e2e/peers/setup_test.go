package peers

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// setupServer is a server of a setup, as npm/checks.mjs needs it: its kind selects the checks.
type setupServer struct {
	ID       string   `json:"id"`
	Kind     string   `json:"kind"`
	Revision revision `json:"revision"`
}

// testSetup is what a client connects to, and which servers are behind it.
type testSetup struct {
	Target   target        `json:"target"`
	Revision revision      `json:"revision"`
	Version  string        `json:"version"`
	Gateway  bool          `json:"gateway"`
	Root     string        `json:"root"` // a folder with big.txt
	Servers  []setupServer `json:"servers"`

	home     string // of `ctxgate stdio`
	isBridge bool   // to a gateway in the background
}

type target struct {
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
}

var allServers = []setupServer{
	{"everything", "everything", legacy},
	{"modern", "everything", modern},
	{"files", "filesystem", legacy},
	{"memory", "memory", legacy},
}

const bigLines = 10000

// newBigFolder makes a folder with a file that is too long for a model.
func newBigFolder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for i := range bigLines {
		fmt.Fprintf(&b, "%05d — the lazy dog counts lines, and this is one of them\n", i+1)
	}
	if err := os.WriteFile(filepath.Join(dir, "big.txt"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func readFile(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// newGatewaySetup is the setup behind a gateway: all servers over stdio for a stdio client and for one whose bridge starts
// a gateway in the background, and those that support it over HTTP for an HTTP client.
func newGatewaySetup(t *testing.T, e revision, transport string) testSetup {
	t.Helper()
	w := testSetup{Revision: e, Version: e.version(), Gateway: true, Root: newBigFolder(t), Servers: allServers}
	servers := []server{
		{ID: "everything", Command: npmEverything(t)},
		{ID: "modern", Command: npmModern(t)},
		{ID: "files", Command: npmFilesystem(t, w.Root)},
		{ID: "memory", Command: npmMemory(t), Env: map[string]string{"MEMORY_FILE_PATH": filepath.Join(w.Root, "memory.jsonl")}},
	}
	if transport == "http" {
		servers[0] = server{ID: "everything", URL: everythingHTTP(t), Transport: "http"}
		servers[1] = server{ID: "modern", URL: modernHTTP(t), Transport: "http"}
		w.Target = target{URL: serve(t, servers...)}
		return w
	}
	if transport == "bridge" {
		command, home := bridgeCommand(t, servers...)
		w.home, w.isBridge, w.Target = home, true, stdioTarget(command, home)
		return w
	}
	command, home := stdioCommand(t, servers...)
	w.home = home
	w.Target = target{Command: command[0], Args: command[1:], Env: map[string]string{"HOME": home, "PATH": os.Getenv("PATH")}}
	return w
}

// stdioTarget is a command with the whole environment of a gateway.
func stdioTarget(command []string, home string) target {
	out := target{Command: command[0], Args: command[1:], Env: map[string]string{}}
	for _, variable := range environ(home) {
		name, value, _ := strings.Cut(variable, "=")
		out.Env[name] = value
	}
	return out
}

// newDirectSetup is one server without a gateway.
func newDirectSetup(t *testing.T, client revision, m setupServer, transport string) testSetup {
	t.Helper()
	w := testSetup{Revision: client, Version: client.version(), Root: newBigFolder(t), Servers: []setupServer{m}}
	switch {
	case transport == "http" && m.Revision == modern:
		w.Target.URL = modernHTTP(t)
	case transport == "http":
		w.Target.URL = everythingHTTP(t)
	default:
		command := npmEverything(t)
		if m.Revision == modern {
			command = npmModern(t)
		}
		w.Target.Command, w.Target.Args = command[0], command[1:]
	}
	return w
}

func everythingHTTP(t *testing.T) string {
	t.Helper()
	address := freeAddress(t)
	command := npmEverything(t)
	cmd := exec.Command(command[0], command[1], "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+address[strings.LastIndex(address, ":")+1:])
	if err := startProcess(t, "everything", cmd).WaitListening(address); err != nil {
		t.Fatal(err)
	}
	return "http://" + address + "/mcp"
}

var modernPort = regexp.MustCompile(`listening on (\d+)`)

func modernHTTP(t *testing.T) string {
	t.Helper()
	command := npmModern(t)
	p := startProcess(t, "modern", exec.Command(command[0], command[1], "0"))
	port, err := p.FindOutput(modernPort)
	if err != nil {
		t.Fatal(err)
	}
	return "http://127.0.0.1:" + port + "/mcp"
}
