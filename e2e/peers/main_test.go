// Package peers runs the real ctxgate between real programs that other people wrote: the MCP
// conformance suite, the reference servers of npm, the TypeScript SDKs of both eras, the Go SDK and
// the Inspector; and the SDKs of OpenAI and Anthropic, for npm and for Go.
//
// Path through the files: main_test.go builds and finds the programs, process_test.go runs them,
// gateway_test.go runs ctxgate among them. era_test.go has the reference server as it comes, and makes it speak
// one era only. suite_test.go runs the conformance suite and reads what it found; server_test.go puts
// it in front of the gateway, client_test.go behind it (browser_test.go is the user who lets the
// gateway in), known_test.go holds what one era cannot say in the other's words. document_test.go
// is the check that the user's document asks for. world_test.go gives four servers to the SDKs:
// script_test.go to the TypeScript ones (their checks are in npm/), gosdk_test.go with
// gosdk_checks_test.go to the Go one. model_test.go puts the gateway between the SDKs of models and a
// provider on loopback: modelscript_test.go runs those of npm, modelgo_test.go with
// modelopenai_test.go and modelanthropic_test.go those for Go, and modeljudge_test.go looks at what
// the provider saw.
//
// Each part has a test whose name ends in Direct, which runs it without the gateway: when that one
// fails, the gateway is not to blame. The npm programs are installed by `make peers`; without them
// the tests fail and say so. Every process is ended by its id, every wait has an end, and nothing
// leaves loopback.
package peers

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

var scenario = flag.String("scenario", "", "run one scenario of the conformance suite only")

// The test binary is also the small programs that stand between others. Which one it is to be, is
// in this variable: a program that ctxgate or the suite starts has its arguments from them.
const roleVariable = "CTXGATE_PEERS_ROLE"

// bin holds the programs built for one run.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	switch os.Getenv(roleVariable) {
	case filterRole:
		return filterProcess(os.Args[1:])
	case adapterRole:
		return adapterProcess(os.Args[1:])
	}
	flag.Parse()
	dir, err := os.MkdirTemp("", "ctxgate-peers-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	return m.Run()
}

// program is a Go command, built when the first test asks for it.
type program struct {
	pkg  string
	once sync.Once
	err  error
}

var (
	ctxgate          = program{pkg: "github.com/ctxgate/ctxgate/cmd/ctxgate"}
	everythingServer = program{pkg: "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"}
	everythingClient = program{pkg: "github.com/modelcontextprotocol/go-sdk/conformance/everything-client"}
)

// path is where the program is. It is built as released: without cgo and the race detector.
func (p *program) path(t *testing.T) string {
	t.Helper()
	out := filepath.Join(bin, filepath.Base(p.pkg))
	p.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "go", "build", "-o", out, p.pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if said, err := cmd.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("building %s: %w\n%s", p.pkg, err, said)
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return out
}

// npm is the absolute path of something under npm/.
func npm(t *testing.T, elements ...string) string {
	t.Helper()
	dir, err := filepath.Abs("npm")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{dir}, elements...)...)
}

// module is a file of an installed npm package.
func module(t *testing.T, elements ...string) string {
	t.Helper()
	p := npm(t, append([]string{"node_modules"}, elements...)...)
	if _, err := os.Stat(p); err != nil {
		t.Fatalf("the npm programs these tests need are not installed: run make peers (%v)", err)
	}
	return p
}

// node is the Node that came with them, whatever the machine has.
func node(t *testing.T) string {
	t.Helper()
	return module(t, ".bin", "node")
}

// scoped is a file of a package of the MCP project.
func scoped(t *testing.T, elements ...string) string {
	t.Helper()
	return module(t, append([]string{"@modelcontextprotocol"}, elements...)...)
}

// The reference servers, as commands that speak over stdio.
func npmEverything(t *testing.T) []string {
	return []string{node(t), scoped(t, "server-everything", "dist", "index.js")}
}

func npmMemory(t *testing.T) []string {
	return []string{node(t), scoped(t, "server-memory", "dist", "index.js")}
}

func npmFilesystem(t *testing.T, root string) []string {
	return []string{node(t), scoped(t, "server-filesystem", "dist", "index.js"), root}
}

func npmModern(t *testing.T) []string { return []string{node(t), npm(t, "modern.mjs")} }
