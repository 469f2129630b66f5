//go:build linux

package chaos

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// numberedText is the text with a number, a little longer than what is not cut.
func numberedText(n int) string {
	var seed [32]byte
	copy(seed[:], fmt.Sprint(n))
	noise := make([]byte, 3200)
	_, _ = rand.NewChaCha8(seed).Read(noise) // never fails
	return base64.StdEncoding.EncodeToString(noise)
}

// startNumberServer starts a JSON-RPC server that replies with the text of the number in the params.
func startNumberServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID     json.RawMessage
			Params struct{ N int }
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"text":%q}}`, req.ID, numberedText(req.Params.N))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// keeping is a load of results that are kept, through two gateways with one store, and what was shown of them.
type keeping struct {
	upstream, state string
	repeats         int // after so many calls the texts are the same again; 0 is never
	gateways        []*testGateway
	client          *http.Client
	stop            context.CancelFunc
	stopped         chan struct{}

	mu     sync.Mutex
	shown  []shownText
	took   []tookAt
	failed []string // what failed calls were answered with
	kept   atomic.Int64
	whole  atomic.Int64
}

// shownText is a text that was cut, and the id that was shown.
type shownText struct {
	n   int
	id  string
	due time.Time // of the call
}

type tookAt struct {
	due  time.Time
	took time.Duration
	kept bool
}

// startKeeping starts the gateways and the load, in calls per second.
func startKeeping(t *testing.T, state string, rate, repeats int) *keeping {
	t.Helper()
	k := &keeping{upstream: startNumberServer(t), state: state, repeats: repeats, stopped: make(chan struct{})}
	k.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, Timeout: time.Minute}
	t.Cleanup(k.client.CloseIdleConnections)
	for range 2 {
		k.gateways = append(k.gateways, k.startReplica(t))
	}
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	go func() {
		defer close(k.stopped)
		k.run(ctx, rate)
	}()
	t.Cleanup(k.stopLoad)
	return k
}

// startReplica starts a gateway; all have the same secret and the same store.
func (k *keeping) startReplica(t *testing.T) *testGateway {
	t.Helper()
	s := newSite(t, mcpserver.NewEventLog(t))
	s.state = k.state
	secret := filepath.Join(s.dir, "shared-secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.topLevel = fmt.Sprintf("rate_limit_per_minute = 0\nhealthcheck_interval = \"0s\" # this test process may be slow\nsecret = %q", "file:"+secret)
	s.servers = []server{{id: "up", extraTOML: fmt.Sprintf("rpc = %q", k.upstream)}}
	return s.start(t)
}

func (k *keeping) stopLoad() {
	k.stop()
	<-k.stopped
}

func (k *keeping) run(ctx context.Context, rate int) {
	var flying sync.WaitGroup
	defer flying.Wait()
	begin := time.Now()
	for n := 0; ctx.Err() == nil; n++ {
		due := begin.Add(time.Duration(n) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(due))
		flying.Go(func() {
			number := n
			if k.repeats > 0 {
				number %= k.repeats
			}
			id, problem := k.callNumber(k.gateways[n%len(k.gateways)], number)
			took := tookAt{due, time.Since(due), id != ""}
			k.mu.Lock()
			defer k.mu.Unlock()
			k.took = append(k.took, took)
			switch {
			case problem != "":
				k.failed = append(k.failed, problem)
			case id == "":
				k.whole.Add(1)
			default:
				k.shown = append(k.shown, shownText{number, id, due})
				k.kept.Add(1)
			}
		})
	}
}

// callNumber requests a text and returns the id under which it was cut, or else what is wrong with the reply. A text that was
// not cut must be whole.
func (k *keeping) callNumber(g *testGateway, n int) (id, problem string) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","n":%d}}`, n)
	resp, err := k.client.Post(g.RPC("up"), "application/json", strings.NewReader(body))
	if err != nil {
		return "", err.Error()
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err.Error()
	}
	if found := recoverMark.FindSubmatch(got); found != nil && bytes.Contains(got, []byte(`"result"`)) {
		return string(found[1]), ""
	}
	if !bytes.Contains(got, []byte(numberedText(n))) {
		return "", fmt.Sprintf("%d %.200s", resp.StatusCode, got)
	}
	return "", ""
}

// waitKept waits until so many more results were kept.
func (k *keeping) waitKept(t *testing.T, more int) {
	t.Helper()
	want := k.kept.Load() + int64(more)
	if !wait.True(5*time.Minute, func() bool { return k.kept.Load() >= want }) {
		t.Fatalf("%s; wanted %d kept", k.progress(), want)
	}
}

func (k *keeping) progress() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return fmt.Sprintf("%d calls, %d kept, %d whole, %d failed", len(k.took), len(k.shown), k.whole.Load(), len(k.failed))
}

// finish stops the load and reads everything back through a new gateway. It wants as many losses, or more if that is not 0.
func (k *keeping) finish(t *testing.T, id, scenario string, wantLost int) {
	t.Helper()
	k.stopLoad()
	lost := k.readBack(k.startReplica(t), k.shown)
	summary := fmt.Sprintf("%s; %d of %d lost", k.progress(), len(lost), len(k.shown))
	t.Log(summary)
	for _, f := range k.failed[:min(5, len(k.failed))] {
		t.Errorf("a call failed: %s", f)
	}
	if wantLost == 0 {
		for _, l := range lost[:min(5, len(lost))] {
			t.Errorf("lost: %s", l)
		}
	} else if len(lost) < wantLost {
		t.Errorf("%d lost, want at least %d: this test does not find losses", len(lost), wantLost)
	}
	report(t, id, scenario, nil, "%s", summary)
}

// readBack returns what cannot be read back, and why.
func (k *keeping) readBack(reader *testGateway, shown []shownText) (lost []string) {
	next := make(chan shownText)
	var mu sync.Mutex
	var readers sync.WaitGroup
	for range 16 {
		readers.Go(func() {
			for s := range next {
				problem := ""
				for range 20 { // a busy machine may need longer than the store's time limit
					if problem = k.readOne(reader, s); problem == "" || strings.HasPrefix(problem, "gone") {
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
				if problem != "" {
					mu.Lock()
					lost = append(lost, fmt.Sprintf("%s of call %d: %s", s.id, s.n, problem))
					mu.Unlock()
				}
			}
		})
	}
	for _, s := range shown {
		next <- s
	}
	close(next)
	readers.Wait()
	return lost
}

func (k *keeping) readOne(g *testGateway, s shownText) (problem string) {
	text, err := g.recoverByID(k.client, s.id)
	switch want := numberedText(s.n); {
	case err != nil:
		return err.Error()
	case text == want:
		return ""
	default:
		return fmt.Sprintf("gone: %.120q", text)
	}
}
