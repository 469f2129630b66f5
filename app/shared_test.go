package app

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/redisserver"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

const replicaSigningKey = "0123456789abcdef0123456789abcdef"

// startReplicas starts gateways that share a store.
func startReplicas(t *testing.T, server *redisserver.Server, count int, text string) []*running {
	t.Helper()
	secrets := secretFile(t, strings.Repeat("s", 40))
	var all []*running
	for range count {
		cfg := load(t, t.TempDir(), fmt.Sprintf("secret = 'file:%s'\n%s\n[state]\ndriver = 'redis'\nurl = '%s'\ndurability = 'none'\n", secrets, text, server.URL()))
		// A busy machine must not look like a store that is away.
		all = append(all, startWith(t, cfg, Options{Version: "test", storeTimeout: 20 * time.Second}))
	}
	return all
}

// R13: a limit holds for all replicas together, over all their callers' requests at once.
func TestR13ReplicasOfTheGateway(t *testing.T) {
	server := redisserver.Start(t, redisserver.Single, redisserver.Options{AppendFsync: "off"})
	const limit = 40
	replicas := startReplicas(t, server, 4, fmt.Sprintf("auth_token = 'file:%s'\n[[limits]]\nrate = %d\nevery = '24h'\n%s", secretFile(t, "a-token-of-many-letters"), limit, pingServer(t)))
	var accepted, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 4 * len(replicas) {
		wg.Go(func() {
			r := replicas[i%len(replicas)]
			for range 10 {
				status, body := r.do(t, http.MethodPost, r.main+"/api/mcp-gateway/s/rpc", "a-token-of-many-letters", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
				if status == http.StatusTooManyRequests {
					refused.Add(1)
					continue
				}
				if status != http.StatusOK {
					t.Errorf("%d %s", status, body)
				}
				accepted.Add(1)
			}
		})
	}
	wg.Wait()
	if accepted.Load() != limit || refused.Load() != 160-limit {
		t.Errorf("%d calls were accepted and %d refused; the limit is %d", accepted.Load(), refused.Load(), limit)
	}
	for _, r := range replicas {
		r.end(t)
	}
}

// secretFile is the path of a file with a secret.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pingServer configures a server that answers.
func pingServer(t *testing.T) string {
	t.Helper()
	return server("s", upstreamOf(t, `{}`))
}

// A signed request is accepted by one replica, once; while the store is away, by none.
func TestSignedRequestsAtReplicas(t *testing.T) {
	store := redisserver.Start(t, redisserver.Single, redisserver.Options{AppendFsync: "off"})
	replicas := startReplicas(t, store, 2, "[[hmac]]\nkey_id = 'ci'\nsecret = 'file:"+secretFile(t, replicaSigningKey)+"'\n"+pingServer(t))
	send := func(r *running, nonce string) int {
		t.Helper()
		const path, body = "/api/mcp-gateway/s/rpc", `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		now := fmt.Sprint(time.Now().Unix())
		digest := sha256.Sum256([]byte(body))
		mac := hmac.New(sha256.New, []byte(replicaSigningKey))
		fmt.Fprintf(mac, "ctxgate-hmac-v1\nPOST\n%s\n%s\n%s\n%x", path, now, nonce, digest)
		req, err := http.NewRequest(http.MethodPost, r.main+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", fmt.Sprintf("HMAC-SHA256 key_id=ci,timestamp=%s,nonce=%s,digest=%x,signature=%x", now, nonce, digest, mac.Sum(nil)))
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	var accepted atomic.Int64
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			switch status := send(replicas[i%2], strings.Repeat("n", 32)); status {
			case http.StatusOK:
				accepted.Add(1)
			case http.StatusUnauthorized:
			default:
				t.Errorf("status %d", status)
			}
		})
	}
	wg.Wait()
	if accepted.Load() != 1 {
		t.Errorf("a signature was accepted %d times", accepted.Load())
	}
	store.Nodes[0].Kill()
	if status := send(replicas[0], strings.Repeat("m", 32)); status != http.StatusBadGateway {
		t.Errorf("without the store, a signed request is answered with %d", status)
	}
	if err := store.Nodes[0].Restart(); err != nil {
		t.Fatal(err)
	}
	tries := 0
	wait.For(t, "the store", func() bool {
		tries++
		return send(replicas[0], fmt.Sprintf("%032d", tries)) == http.StatusOK
	})
	for _, r := range replicas {
		r.end(t)
	}
}
