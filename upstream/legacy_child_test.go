package upstream_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/wait"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/upstream"
)

// clientOf is a client of a revision with capabilities.
func clientOf(version, capabilities string) mcp.Client {
	return mcp.Client{Version: version, Capabilities: []byte(capabilities)}
}

// handshakes are the words of a child's log about starts and handshakes.
func handshakes(t *testing.T, log string) string {
	t.Helper()
	wait.For(t, "it has begun", func() bool {
		_, err := os.Stat(log)
		return err == nil
	})
	var out []string
	for _, line := range readLog(t, log) {
		if line == "start" || line == "got "+mcp.Initialize || line == "got "+mcp.ServerDiscover {
			out = append(out, strings.TrimPrefix(line, "got "))
		}
	}
	return strings.Join(out, ", ")
}

func protocolOf(t *testing.T, managed *upstream.ManagedConn) mcp.Protocol {
	t.Helper()
	conn, err := managed.AwaitConn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn.Handshake().Protocol
}

// A child that speaks both protocols is started a second time for a legacy session that can answer requests, and for no
// other client.
func TestChildOfBothProtocols(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	n := launchChild(t, childEntry("modern", "log="+log), nil)
	protocolOf(t, n.SharedConn())
	for _, caller := range []upstream.Caller{
		{Client: clientOf(mcp.V20260728, `{"sampling":{}}`), Subject: "me"}, {Client: clientOf(mcp.V20251125, `{}`), SessionID: "1"},
	} {
		if conn, _, err := n.Acquire(t.Context(), caller); err != nil || !conn.IsShared() {
			t.Errorf("%+v does not share: %v", caller, err)
		}
	}
	caller := upstream.Caller{Client: clientOf(mcp.V20251125, `{"sampling":{}}`), SessionID: "1"}
	for range 2 {
		conn, _, err := n.Acquire(t.Context(), caller)
		if err != nil || conn.IsShared() || protocolOf(t, conn) != mcp.Legacy {
			t.Errorf("the session of the legacy protocol: %v", err)
		}
	}
	if got, want := handshakes(t, log), "start, server/discover, start, initialize"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A child that refuses initialize or crashes at it is tried once.
func TestModernOnlyChildIsTriedOnce(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"refuse", "faint"} {
		log := filepath.Join(t.TempDir(), "log")
		n := launchChild(t, childEntry("modern", how, "log="+log), nil)
		protocolOf(t, n.SharedConn())
		for _, session := range []string{"1", "2"} {
			conn, _, err := n.Acquire(t.Context(), upstream.Caller{Client: clientOf(mcp.V20251125, `{"sampling":{}}`), SessionID: session})
			if err != nil || !conn.IsShared() || protocolOf(t, conn) != mcp.Modern {
				t.Errorf("%s: the session does not share: %v", how, err)
			}
		}
		if got, want := handshakes(t, log), "start, server/discover, start, initialize"; got != want {
			t.Errorf("%s: got %s, want %s", how, got, want)
		}
		if n.count.Load() != 0 {
			t.Errorf("%s: %d connections were lost", how, n.count.Load())
		}
	}
}

// For the only client of a gateway, children get the handshake of its protocol, each in one start. A child that crashes at
// initialize gets server/discover at its next start.
func TestSingleClientOfChildren(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		flags    []string
		version  string
		protocol mcp.Protocol
		want     string
	}{
		"both protocols, legacy client": {[]string{"modern"}, mcp.V20251125, mcp.Legacy, "start, initialize"},
		"both protocols, modern client": {[]string{"modern"}, mcp.V20260728, mcp.Modern, "start, server/discover"},
		"legacy only, legacy client":    {nil, mcp.V20251125, mcp.Legacy, "start, initialize"},
		"legacy only, modern client":    {nil, mcp.V20260728, mcp.Legacy, "start, server/discover, initialize"},
		"modern only, legacy client":    {[]string{"modern", "refuse"}, mcp.V20251125, mcp.Modern, "start, initialize, server/discover"},
		"falls over initialize":         {[]string{"modern", "faint"}, mcp.V20251125, mcp.Modern, "start, initialize, start, server/discover"},
		"neither": {[]string{"refuse"}, mcp.V20251125, 0,
			"start, initialize, server/discover, start, server/discover, initialize"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "log")
			n := newChild(t, childEntry(slices.Concat(tt.flags, []string{"log=" + log})...), withStartStop(20*time.Second, time.Second))
			n.StartForClient(clientOf(tt.version, `{}`), &fakePeer{})
			if tt.protocol == 0 {
				wait.For(t, "it got both handshakes", func() bool { return strings.HasPrefix(handshakes(t, log), tt.want) })
				return
			}
			if got := protocolOf(t, n.SharedConn()); got != tt.protocol {
				t.Errorf("got %s, want %s", got, tt.protocol)
			}
			if got := handshakes(t, log); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// A session that ends while its child starts changes nothing for the sessions after it: they still get
// children of their own.
func TestSessionEndsDuringStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	log, mum := filepath.Join(dir, "log"), filepath.Join(dir, "mum")
	n := newChild(t, childEntry("log="+log, "mum="+mum), nil)
	n.NoteClient(mcp.Client{Capabilities: []byte(`{"roots":{}}`)})
	n.Start()
	call := func(session string) (string, error) {
		caller := upstream.Caller{SessionID: session}
		if session != "" {
			caller.Client = mcp.Client{Capabilities: []byte(`{"roots":{}}`)}
		}
		conn, release, err := n.Acquire(t.Context(), caller)
		if err != nil {
			return "", err
		}
		defer release()
		m, err := conn.Call(t.Context(), newCall(t, mcp.ToolsCall, `{"name":"pid"}`))
		return string(m.Result.Of(m.Body)), err
	}
	n.sendRequest(t, mcp.RootsList)
	shared, err := call("")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(mum, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = call("1") }()
	count := func(word string) int { return strings.Count(strings.Join(readLog(t, log), " "), word) }
	wait.For(t, "the session's child has been started", func() bool { return count("start") == 2 })
	n.CloseSession("1")
	wait.For(t, "it has ended", func() bool { return count("exit") == 1 })
	<-ended
	if err := os.Remove(mum); err != nil {
		t.Fatal(err)
	}
	if own, err := call("2"); err != nil || own == shared {
		t.Errorf("the next session shares %s: %v", own, err)
	}
}
