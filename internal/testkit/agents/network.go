//go:build unix

package agents

import (
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
)

// network is the proxy for everything beyond loopback. It refuses every request and records its host.
type network struct {
	url  string
	mu   sync.Mutex
	seen map[string]bool
}

func newNetwork(tb testing.TB) *network {
	n := &network{seen: map[string]bool{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		n.mu.Lock()
		n.seen[host] = true
		n.mu.Unlock()
		http.Error(w, "tests have no network", http.StatusForbidden)
	}))
	tb.Cleanup(server.Close)
	n.url = server.URL
	return n
}

// environ are the variables that make a program use the proxy.
func (n *network) environ() []string {
	const local = "127.0.0.1,localhost,::1"
	return []string{
		"HTTP_PROXY=" + n.url, "HTTPS_PROXY=" + n.url, "http_proxy=" + n.url, "https_proxy=" + n.url,
		"NO_PROXY=" + local, "no_proxy=" + local,
	}
}

func (n *network) hosts() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.seen))
}
