package app

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// runCounter is an MCP server on stdin and stdout with one tool, which says in which process it was called how often.
func runCounter() {
	in := bufio.NewScanner(os.Stdin)
	count := 0
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		var result string
		switch m.Method {
		case "initialize":
			result = `"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"counter","version":"1"}}`
		case "tools/list":
			result = `"result":{"tools":[{"name":"count","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			count++
			result = fmt.Sprintf(`"result":{"content":[{"type":"text","text":"%d %d"}]}`, os.Getpid(), count)
		case "ping":
			result = `"result":{}`
		default:
			result = `"error":{"code":-32601,"message":"no"}`
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,%s}`+"\n", m.ID, result)
	}
	os.Exit(0)
}

// openMemory is a store that several gateways of a test share: none of them closes it.
type openMemory struct{ *memory.Driver }

func (openMemory) Close() error { return nil }

// startOverOneStore starts replicas of one gateway.
func startOverOneStore(t *testing.T, n int, text string) []*running {
	t.Helper()
	store := openMemory{memory.New()}
	var all []*running
	for range n {
		cfg := load(t, t.TempDir(), "[state]\ndriver = 'memory'\n[replicas]\nlisten = '127.0.0.1:0'\n"+text)
		cfg.Secret = secret.Literal(strings.Repeat("k", 32))
		ctx, stop := context.WithCancel(context.Background())
		a, err := New(ctx, cfg, Options{Version: "test", Env: os.Environ(), openDriver: func(context.Context, config.Config) (state.Driver, error) { return store, nil }})
		if err != nil {
			t.Fatal(err)
		}
		r := &running{main: "http://" + a.MainAddress(), stop: stop, done: make(chan error, 1)}
		go func() { r.done <- a.Run(ctx) }()
		t.Cleanup(stop)
		all = append(all, r)
	}
	return all
}

// count calls the counter at a replica until it answers, and returns in which process it was called how often.
func (r *running) count(t *testing.T, revision mcpwire.Revision) (pid, n int) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		reply, err := r.tryCount(t, revision)
		if err == nil {
			if _, err = fmt.Sscanf(reply, "%d %d", &pid, &n); err == nil {
				return pid, n
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the counter does not answer: %q, %v", reply, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (r *running) tryCount(t *testing.T, revision mcpwire.Revision) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := mcpclient.ConnectHTTP(ctx, http.DefaultClient, r.main+"/mcp", revision, mcpclient.NoCapabilities)
	if err != nil {
		return "", err
	}
	got, err := c.Call(ctx, mcpclient.Request{ID: "1", Method: "tools/call", Params: `{"name":"c::count"}`})
	if err != nil || got.Result == nil {
		return string(got.Error), err
	}
	return mcpclient.ResultText(got.Message), nil
}

// A server with replicas = "one" runs once: every replica, in both protocols, calls the same process. When its replica
// stops, another starts it.
func TestServerOnOneReplica(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := startOverOneStore(t, 3, "[[servers]]\nid = 'c'\ncommand = ['"+self+"', 'run:counter']\nreplicas = 'one'\n")
	first, calls := 0, 0
	for _, r := range all {
		for _, revision := range []mcpwire.Revision{mcpwire.Legacy, mcpwire.Modern} {
			pid, n := r.count(t, revision)
			if calls++; first != 0 && pid != first || n != calls {
				t.Fatalf("call %d was call %d of process %d, after process %d", calls, n, pid, first)
			}
			first = pid
		}
	}
	var wg sync.WaitGroup
	for _, r := range all { // concurrently
		wg.Go(func() {
			if pid, _ := r.count(t, mcpwire.Modern); pid != first {
				t.Errorf("process %d, want %d", pid, first)
			}
		})
	}
	wg.Wait()

	all[0].stop() // the first to start leads
	if err := <-all[0].done; err != nil {
		t.Error(err)
	}
	second, _ := all[1].count(t, mcpwire.Modern)
	if second == first {
		t.Errorf("process %d still runs", first)
	}
	if p, err := os.FindProcess(first); err == nil && p.Signal(syscall.Signal(0)) == nil {
		t.Errorf("process %d was not stopped", first)
	}
	for _, r := range all[1:] {
		if pid, _ := r.count(t, mcpwire.Legacy); pid != second {
			t.Errorf("process %d, want %d", pid, second)
		}
	}
}
