// Package peers tests the real ctxgate binary between programs of others: the MCP conformance suite, the
// reference servers of npm, the TypeScript SDKs of both protocol revisions, the Go SDK and the Inspector; and
// the SDKs of OpenAI and Anthropic, for npm and for Go.
//
// Files: main_test.go builds and finds the programs; process_test.go and gateway_test.go run them and
// ctxgate. revision_test.go restricts the reference server to one revision. suite_test.go runs the conformance
// suite and reads its results; server_test.go tests the gateway as a server, client_test.go as a client
// (browser_test.go consents for it), known_test.go lists failures that are inherent in translating between
// revisions. document_test.go checks what the user's document asks for. setup_test.go sets up four servers for
// the MCP SDKs: script_test.go runs the TypeScript ones (their checks are in npm/), gosdk_test.go with
// gosdk_checks_test.go the Go one. model_test.go puts the gateway between model SDKs and a fake provider:
// modelscript_test.go runs those of npm, modelgo_test.go with modelopenai_test.go and modelanthropic_test.go
// those for Go, and modeljudge_test.go checks what the provider received.
//
// Each part has a test whose name ends in Direct and runs without the gateway: if it fails, the gateway is not
// to blame. `make peers` installs the npm programs; without them the tests fail and say so. Every process is
// ended by its pid, every wait has a limit, and nothing leaves loopback.
package peers

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
)

var scenario = flag.String("scenario", "", "run one scenario of the conformance suite only")

// roleVariable makes the test binary one of the helper programs, which ctxgate or the suite start with their
// own arguments.
const roleVariable = "CTXGATE_PEERS_ROLE"

// binDir holds the programs built for this run.
var binDir string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	switch os.Getenv(roleVariable) {
	case filterRole:
		return runFilter(os.Args[1:])
	case adapterRole:
		return runAdapter(os.Args[1:])
	}
	flag.Parse()
	dir, err := os.MkdirTemp("", "ctxgate-peers-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binDir = dir
	return m.Run()
}

// program is a Go command, built when the first test needs it.
type program struct {
	pkg  string
	once sync.Once
	file string
	err  error
}

var (
	ctxgate          = program{pkg: "github.com/ctxgate/ctxgate/cmd/ctxgate"}
	everythingServer = program{pkg: "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"}
	everythingClient = program{pkg: "github.com/modelcontextprotocol/go-sdk/conformance/everything-client"}
)

// path builds the program if necessary and returns its path.
func (p *program) path(t *testing.T) string {
	t.Helper()
	p.once.Do(func() { p.file, p.err = gateway.BuildCommand(binDir, p.pkg) })
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.file
}

// npm returns the absolute path of a file under npm/.
func npm(t *testing.T, elements ...string) string {
	t.Helper()
	dir, err := filepath.Abs("npm")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{dir}, elements...)...)
}

// module returns the path of a file of an installed npm package.
func module(t *testing.T, elements ...string) string {
	t.Helper()
	p := npm(t, append([]string{"node_modules"}, elements...)...)
	if _, err := os.Stat(p); err != nil {
		t.Fatalf("the npm programs these tests need are not installed: run make peers (%v)", err)
	}
	return p
}

// node returns the installed Node, independent of the machine's own.
func node(t *testing.T) string {
	t.Helper()
	return module(t, ".bin", "node")
}

// scoped returns the path of a file of an MCP project package.
func scoped(t *testing.T, elements ...string) string {
	t.Helper()
	return module(t, append([]string{"@modelcontextprotocol"}, elements...)...)
}

// The reference servers as stdio commands.
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
