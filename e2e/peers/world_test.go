package peers

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// member is a server of a world, as the checks of npm/checks.mjs want to know it: kind says what
// can be asked of it, era which revision it speaks.
type member struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	Era  era    `json:"era"`
}

// world is where a client finds itself: what to connect to and what is there.
type world struct {
	Target  target   `json:"target"`
	Era     era      `json:"era"`
	Version string   `json:"version"`
	Gateway bool     `json:"gateway"`
	Root    string   `json:"root"` // a folder that holds big.txt
	Servers []member `json:"servers"`

	home string // of the gateway over stdio
}

type target struct {
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
}

var everybody = []member{
	{"everything", "everything", legacy},
	{"modern", "everything", modern},
	{"files", "filesystem", legacy},
	{"memory", "memory", legacy},
}

const bigLines = 10000

// folder is one with a file far too long for a model.
func folder(t *testing.T) string {
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

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// gated is the world behind a gateway: all servers over stdio when the client comes over stdio,
// and those that can over HTTP when it comes over HTTP.
func gated(t *testing.T, e era, transport string) world {
	t.Helper()
	w := world{Era: e, Version: e.version(), Gateway: true, Root: folder(t), Servers: everybody}
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
	command, home := stdio(t, servers...)
	w.home = home
	w.Target = target{Command: command[0], Args: command[1:], Env: map[string]string{"HOME": home, "PATH": os.Getenv("PATH")}}
	return w
}

// bare is the world of one server, without a gateway.
func bare(t *testing.T, client era, m member, transport string) world {
	t.Helper()
	w := world{Era: client, Version: client.version(), Root: folder(t), Servers: []member{m}}
	switch {
	case transport == "http" && m.Era == modern:
		w.Target.URL = modernHTTP(t)
	case transport == "http":
		w.Target.URL = everythingHTTP(t)
	default:
		command := npmEverything(t)
		if m.Era == modern {
			command = npmModern(t)
		}
		w.Target.Command, w.Target.Args = command[0], command[1:]
	}
	return w
}

func everythingHTTP(t *testing.T) string {
	t.Helper()
	port := freePort(t)
	command := npmEverything(t)
	cmd := exec.Command(command[0], command[1], "streamableHttp")
	cmd.Env = append(os.Environ(), "PORT="+port)
	url := "http://127.0.0.1:" + port + "/mcp"
	listening(t, start(t, "everything", cmd), url)
	return url
}

var modernPort = regexp.MustCompile(`listening on (\d+)`)

func modernHTTP(t *testing.T) string {
	t.Helper()
	command := npmModern(t)
	p := start(t, "modern", exec.Command(command[0], command[1], "0"))
	port, err := p.match(modernPort)
	if err != nil {
		t.Fatal(err)
	}
	return "http://127.0.0.1:" + port + "/mcp"
}
