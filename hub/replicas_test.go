package hub_test

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/front"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/state/memory"
)

// replicaGateway is a gateway that is one of several.
type replicaGateway struct {
	*mcpGateway
	listener *http.Server // of the replicas
}

// startReplicas starts replicas of one gateway over one store.
func startReplicas(t testing.TB, n int, configure func(*setup), servers ...*fakeServer) []*replicaGateway {
	t.Helper()
	leases := memory.New()
	var all []*replicaGateway
	for range n {
		gw := startGateway(t, func(s *setup) {
			s.leases = leases
			if configure != nil {
				configure(s)
			}
		}, servers...)
		mux := http.NewServeMux()
		gw.hub.Routes(mux)
		handler := gw.replica.Accept(front.Wrap(mux, front.ForwardedChain(gw.gate, gw.setup.http, gw.budget, hub.WriteError)...))
		server := &http.Server{Handler: handler, TLSConfig: gw.replica.ServerTLS(), ReadHeaderTimeout: patience}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = server.ServeTLS(ln, "", "") }()
		gw.replica.Announce(t.Context(), ln.Addr().String())
		t.Cleanup(func() {
			gw.hub.EndStreams()
			_ = server.Close()
			gw.replica.Close()
		})
		all = append(all, &replicaGateway{gw, server})
	}
	return all
}

// kill cuts everything off that others or clients have of a replica, as the end of its process does. Its lease stays.
func (r *replicaGateway) kill() {
	_ = r.listener.Close()
	r.CloseClientConnections()
}

// A question that is parked on one replica is answered at another: every time, and the call is made once.
func TestParkedElsewhere(t *testing.T) {
	t.Parallel()
	const clients, rounds = 20, 50
	a := newAskingServer(t, false)
	all := startReplicas(t, 3, nil, a)
	var wg sync.WaitGroup
	var answered atomic.Int64
	for range clients {
		wg.Go(func() {
			c := all[0].connect(t, "/mcp", mcp.Modern, allCapabilities)
			params := askParams(mcp.ElicitationCreate + ` {"message":"?"}`)
			for i := range rounds {
				c.gateway = all[0].mcpGateway
				state, _ := parseInputRequired(t, c.callResult(t, mcp.ToolsCall, params))
				c.gateway = all[1+i%2].mcpGateway
				got := c.callResult(t, mcp.ToolsCall, withInput(params, `{"q1":{"action":"accept"}}`, state))
				if strings.Contains(got, `\"result\":{\"action\":\"accept\"}`) {
					answered.Add(1)
				} else {
					t.Errorf("got %s", got)
				}
			}
		})
	}
	wg.Wait()
	if n := answered.Load(); n != clients*rounds {
		t.Errorf("%d of %d were answered", n, clients*rounds)
	}
	if n := len(a.messagesOf(mcp.ToolsCall)); n != clients*rounds {
		t.Errorf("the tool was called %d times", n)
	}
}

// The replica that a question is parked on is killed meanwhile, before its lease ends and after: the client learns
// within a second that it has to make the request again.
func TestParkedOnKilledReplica(t *testing.T) {
	t.Parallel()
	for name, released := range map[string]bool{"lease held": false, "lease ended": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := startReplicas(t, 2, nil, newAskingServer(t, false))
			c := all[0].connect(t, "/mcp", mcp.Modern, allCapabilities)
			params := askParams(mcp.ElicitationCreate + ` {"message":"?"}`)
			state, _ := parseInputRequired(t, c.callResult(t, mcp.ToolsCall, params))
			all[0].kill()
			if released {
				all[0].replica.Close()
			}
			c.gateway = all[1].mcpGateway
			shortest := time.Hour
			for range 3 { // once is enough on a machine that is busy with other things
				began := time.Now()
				if got := c.callResult(t, mcp.ToolsCall, withInput(params, `{"q1":{"action":"accept"}}`, state)); got != staleState {
					t.Errorf("got %s", got)
				}
				shortest = min(shortest, time.Since(began))
			}
			if shortest > time.Second {
				t.Errorf("it took %v", shortest)
			}
			if state, _ := parseInputRequired(t, c.callResult(t, mcp.ToolsCall, params)); state == "" {
				t.Error("the request cannot be made again")
			}
		})
	}
}
