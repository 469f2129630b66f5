package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The suite starts this test binary, the adapter, as its client. The adapter runs a gateway with the suite's
// server behind it and the Go SDK's everything-client, which knows all scenarios, in front.
const (
	adapterRole          = "adapter"
	gatewayVariable      = "CTXGATE_PEERS_GATEWAY" // the ctxgate to run
	clientVariable       = "CTXGATE_PEERS_CLIENT"  // the everything-client to run
	revisionVariable     = "CTXGATE_PEERS_ERA"     // the client's revision
	scenarioKindVariable = "CTXGATE_PEERS_ONLY"    // the scenarios to run: auth or plain
	adapterLimit         = 25 * time.Second        // the suite's own limit is 30
	adapterError         = "the adapter failed: "
)

// runAdapter gets the URL of the suite's server as its last argument.
func runAdapter(args []string) int {
	if scenarioKind(os.Getenv("MCP_CONFORMANCE_SCENARIO")) != os.Getenv(scenarioKindVariable) {
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, adapterLimit)
	defer cancel()
	err := runAdapterWith(ctx, args[len(args)-1])
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, adapterError+err.Error())
		return 1
	}
	return 0
}

// scenarioKind separates the scenarios with authorization from all others.
func scenarioKind(scenario string) string {
	if strings.HasPrefix(scenario, "auth/") {
		return "auth"
	}
	return "plain"
}

func runAdapterWith(ctx context.Context, upstream string) error {
	home, err := os.MkdirTemp("", "ctxgate-adapter-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	up := server{ID: "up", URL: upstream, Transport: "http", Prefix: "never"}
	if os.Getenv(scenarioKindVariable) == "auth" {
		if up.OAuth, err = oauthConfig(home); err != nil {
			return err
		}
	}
	if len(subjects()) > 0 {
		up.Credentials = "caller"
	}
	s, err := newSite(home, []server{up})
	if err != nil {
		return err
	}
	log := filepath.Join(home, "ctxgate.log")
	g, err := startGateway(os.Getenv(gatewayVariable), log, s)
	if err != nil {
		return err
	}
	defer func() {
		_ = g.Terminate(exitLimit) // other tests check how it exits
		fmt.Fprintf(os.Stderr, "output of ctxgate:\n%s\n", g.Tail(logTail))
	}()
	if len(subjects()) > 0 {
		return runClients(ctx, g.URL)
	}
	go openInvitations(ctx, log)
	return runClient(ctx, g.URL+"/mcp")
}

// The suite passes with the Go SDK's own client in both revisions.
func TestClientSuiteDirect(t *testing.T) {
	for _, e := range []revision{legacy, modern} {
		t.Run(e.version(), func(t *testing.T) {
			f := runSuite(t, "client", e, nil, "--command", everythingClient.path(t))
			f.requireKnownOnly(t, nil)
		})
	}
}

// The gateway is a conforming client (A13). Handshake, headers, metadata and reconnection are the gateway's
// own; defaults of an elicitation and the echo of a request state are the client's, and the gateway must not
// change them.
func TestClientConformance(t *testing.T) { testClientConformance(t, "plain") }

// The same with a server that requires a token, which only the gateway can get.
func TestClientConformanceAuth(t *testing.T) {
	testClientConformance(t, "auth")
}

func testClientConformance(t *testing.T, only string) {
	for _, upstream := range []revision{legacy, modern} {
		for _, client := range []revision{legacy, modern} {
			t.Run(upstream.version()+"/"+string(client), func(t *testing.T) {
				f := runSuite(t, "client", upstream, adapterEnv(t, client, only), "--command", self(t))
				f.keepScenarios(func(s string) bool { return scenarioKind(s) == only })
				var allowed map[string]string
				if client != upstream {
					allowed = knownFailures(t, client, upstream, "http")
				}
				f.requireKnownOnly(t, allowed)
			})
		}
	}
}

func adapterEnv(t *testing.T, e revision, only string) []string {
	t.Helper()
	return []string{
		roleVariable + "=" + adapterRole,
		gatewayVariable + "=" + ctxgate.path(t),
		clientVariable + "=" + everythingClient.path(t),
		revisionVariable + "=" + string(e),
		scenarioKindVariable + "=" + only,
		"GORACE=" + quickExit,
	}
}

// self is the test binary.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
