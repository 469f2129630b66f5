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

// What the suite starts as "the client" is this test binary: the adapter. It runs a gateway whose
// one server is the suite's, and the Go SDK's everything-client, which knows what to do in each
// scenario, in front of it.
const (
	adapterRole     = "adapter"
	gatewayVariable = "CTXGATE_PEERS_GATEWAY" // the ctxgate to run
	clientVariable  = "CTXGATE_PEERS_CLIENT"  // the everything-client to run
	eraVariable     = "CTXGATE_PEERS_ERA"     // the era that client is to speak
	onlyVariable    = "CTXGATE_PEERS_ONLY"    // the scenarios to run: auth or plain
	adapterLimit    = 25 * time.Second        // the suite's own limit is 30
	adapterTrouble  = "the adapter failed: "
)

// adapterProcess gets the address of the suite's server as its last argument.
func adapterProcess(args []string) int {
	if kind(os.Getenv("MCP_CONFORMANCE_SCENARIO")) != os.Getenv(onlyVariable) {
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, adapterLimit)
	defer cancel()
	err := adapt(ctx, args[len(args)-1])
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, adapterTrouble+err.Error())
		return 1
	}
	return 0
}

// kind parts the scenarios in which the gateway has to authorize itself from all others.
func kind(scenario string) string {
	if strings.HasPrefix(scenario, "auth/") {
		return "auth"
	}
	return "plain"
}

func adapt(ctx context.Context, upstream string) error {
	home, err := os.MkdirTemp("", "ctxgate-adapter-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	up := server{ID: "up", URL: upstream, Transport: "http", Prefix: "never"}
	if os.Getenv(onlyVariable) == "auth" {
		if up.OAuth, err = credentials(home); err != nil {
			return err
		}
	}
	s, err := settle(home, []server{up})
	if err != nil {
		return err
	}
	log := filepath.Join(home, "ctxgate.log")
	p, url, err := launch(os.Getenv(gatewayVariable), log, s)
	if err != nil {
		return err
	}
	defer func() {
		_ = p.terminate() // how it ends is another test's question
		fmt.Fprintf(os.Stderr, "ctxgate said:\n%s\n", tail(log, tellMost))
	}()
	go browse(ctx, log)
	door, err := era(os.Getenv(eraVariable)).door(url)
	if err != nil {
		return err
	}
	defer door.Close()
	client := exec.CommandContext(ctx, os.Getenv(clientVariable), door.URL)
	client.Stdout, client.Stderr = os.Stdout, os.Stderr
	return client.Run()
}

// The suite finds nothing wrong with the Go SDK's own client, in neither era.
func TestClientSuiteDirect(t *testing.T) {
	for _, e := range []era{legacy, modern} {
		t.Run(e.version(), func(t *testing.T) {
			f := suite(t, "client", e, nil, "--command", everythingClient.path(t))
			f.judge(t, nil)
		})
	}
}

// The gateway is a conforming client (A13): it calls the suite's server as the suite wants to be
// called, and what the client in front of it says arrives. The gateway makes none of these
// scenarios void, but it changes who is examined: the handshake, the headers, the metadata and the
// reconnecting are the gateway's own; the defaults of an elicitation and the echo of a request
// state are the client's, and the gateway must not spoil them.
func TestClientConformance(t *testing.T) { clientLeg(t, "plain") }

// The same where the suite's server wants a token, which only the gateway can get.
func TestClientConformanceAuth(t *testing.T) {
	clientLeg(t, "auth")
}

func clientLeg(t *testing.T, only string) {
	for _, upstream := range []era{legacy, modern} {
		for _, client := range []era{legacy, modern} {
			t.Run(upstream.version()+"/"+string(client), func(t *testing.T) {
				f := suite(t, "client", upstream, adapterEnv(t, client, only), "--command", self(t))
				f.keep(func(s string) bool { return kind(s) == only })
				var allowed map[string]string
				if client != upstream {
					allowed = known(t, client, upstream, "http")
				}
				f.judge(t, allowed)
			})
		}
	}
}

func adapterEnv(t *testing.T, e era, only string) []string {
	t.Helper()
	return []string{
		roleVariable + "=" + adapterRole,
		gatewayVariable + "=" + ctxgate.path(t),
		clientVariable + "=" + everythingClient.path(t),
		eraVariable + "=" + string(e),
		onlyVariable + "=" + only,
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
