//go:build linux

package chaos

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/mcpserver"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/sqlite"
)

// freshText is a unique text of the length of a source file.
func freshText() string {
	noise := make([]byte, 9<<10)
	_, _ = crand.Read(noise) // never fails
	return base64.StdEncoding.EncodeToString(noise)
}

// startTextServer starts a JSON-RPC server that replies with the text in the params, or a fresh one.
func startTextServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			ID     json.RawMessage
			Params struct{ Text string }
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if req.Params.Text == "" {
			req.Params.Text = freshText()
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"text":%q}}`, req.ID, req.Params.Text)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// storeSite has an SQLite store with the given cap.
func storeSite(t *testing.T, upstream string, cap int64) *site {
	t.Helper()
	s := newSite(t, mcpserver.NewEventLog(t))
	s.state = fmt.Sprintf("driver = \"sqlite\"\npath = %q\nmax_bytes = %d", s.storePath(), cap)
	s.topLevel = "rate_limit_per_minute = 0"
	s.servers = []server{{id: "up", extraTOML: fmt.Sprintf("rpc = %q", upstream)}}
	return s
}

func (s *site) storePath() string { return filepath.Join(s.dir, "store.db") }

// fill puts old originals and their shown texts into the store, as a gateway did hours ago.
func (s *site) fill(t *testing.T, bytes int64) {
	t.Helper()
	d := s.openStore(t)
	defer d.Close()
	seen := time.Now().Add(-3 * time.Hour).Truncate(time.Millisecond)
	noise := make([]byte, 9<<10)
	_, _ = crand.Read(noise)
	for n := 0; bytes > 0; {
		var items []state.Item
		for range 256 {
			group := fmt.Sprintf("cut/old/%026d", n)
			items = append(items, state.Item{Key: group, Group: group, Value: noise}, state.Item{Key: fmt.Sprintf("made/old/%026d", n), Group: group, Value: []byte(group)})
			bytes -= items[len(items)-1].Size() + items[len(items)-2].Size()
			n++
		}
		seen = seen.Add(time.Millisecond)
		if err := d.Put(t.Context(), items, state.Lease{LastUsed: seen, Expires: seen.Add(7 * 24 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
}

// callWindow is the result of some seconds of calls.
type callWindow struct {
	mu           sync.Mutex
	took         []time.Duration
	whole, wrong int
}

var recoverMark = regexp.MustCompile(`\[recover: prune_id=(prn_[0-9a-z]{26}) `)

// textCall requests a text and returns the id under which it was cut; "" if it was not.
func (g *testGateway) textCall(ctx context.Context, client *http.Client, text string) (id string, err error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","text":%q}}`, text)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+"/api/mcp-gateway/up/rpc", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Contains(got, []byte(`"result"`)) {
		return "", fmt.Errorf("%d %.200s: %w", resp.StatusCode, got, err)
	}
	if found := recoverMark.FindSubmatch(got); found != nil {
		return string(found[1]), nil
	}
	return "", nil
}

// run makes calls at a fixed rate.
func (w *callWindow) run(g *testGateway, client *http.Client, rate int, length time.Duration) {
	var flying sync.WaitGroup
	begin := time.Now()
	for n := 0; time.Since(begin) < length; n++ {
		due := begin.Add(time.Duration(n) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(due))
		flying.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			id, err := g.textCall(ctx, client, "")
			took := time.Since(due)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.took = append(w.took, took)
			switch {
			case err != nil:
				w.wrong++
			case id == "":
				w.whole++
			}
		})
	}
	flying.Wait()
}

// TestStoreAtItsCap: a full store accepts new texts like one that is not full. Two gateways with files of the
// same size, one at its cap, are called in turn, so that other load affects both. No reply is uncut because
// of eviction, and the median p99 at the cap is at most twice that below it.
func TestStoreAtItsCap(t *testing.T) {
	up := startTextServer(t)
	size := int64(shortOrFull(24, 512)) << 20
	windows, length := shortOrFull(4, 60), time.Duration(shortOrFull(1, 2))*time.Second
	below, at := storeSite(t, up, 4*size), storeSite(t, up, size)
	if !fullRun { // a busy machine must not make the store too slow to cut
		for _, s := range []*site{below, at} {
			s.state += "\ntimeout = \"1m\""
			s.sections = "[recall]\nkeep_timeout = \"1m\""
		}
	}
	below.fill(t, size/100*99)
	at.fill(t, size/100*99)
	sides := []*struct {
		*testGateway
		p99   []time.Duration
		calls int
		whole int
	}{{testGateway: below.start(t)}, {testGateway: at.start(t)}}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	defer client.CloseIdleConnections()
	for range windows {
		for _, s := range sides {
			var w callWindow
			w.run(s.testGateway, client, 100, length)
			if w.wrong > 0 {
				t.Errorf("%d of %d calls failed", w.wrong, len(w.took))
			}
			s.calls += len(w.took)
			s.whole += w.whole
			s.p99 = append(s.p99, quantile(w.took, 0.99))
		}
	}
	under, full99 := quantile(sides[0].p99, .5), quantile(sides[1].p99, .5)
	t.Logf("p99 %s below the cap, %s at it (%.2f×); %d and %d of %d replies whole", short(under), short(full99),
		float64(full99)/float64(under), sides[0].whole, sides[1].whole, sides[1].calls)
	if sides[1].whole > 0 {
		t.Errorf("%d of %d replies were whole at the cap; below it %d", sides[1].whole, sides[1].calls, sides[0].whole)
	}
	if fullRun && full99 > 2*under {
		t.Errorf("p99 is %s at the cap, %s below", full99, under)
	}
	if taken := at.taken(t); taken > size {
		t.Errorf("%d bytes are stored; the cap is %d", taken, size)
	}
}

// openStore opens the store's file like another process.
func (s *site) openStore(t *testing.T) *sqlite.Driver {
	t.Helper()
	d, err := sqlite.Open(t.Context(), s.storePath())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// taken is the number of bytes that count towards the cap.
func (s *site) taken(t *testing.T) int64 {
	t.Helper()
	stat, err := s.openStore(t).Stat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stat.Bytes
}

// TestStoreEmptiedUnderGateway: under a running gateway another process evicts everything from the store;
// then the file is removed. A text shown again is cut under the same id and can be recovered.
func TestStoreEmptiedUnderGateway(t *testing.T) {
	s := storeSite(t, startTextServer(t), 64<<20)
	g := s.start(t)
	other := s.openStore(t)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	text := freshText()
	first := ""
	for round := range 5 {
		id, err := g.textCall(t.Context(), client, text)
		if err != nil || id == "" || first != "" && id != first {
			t.Fatalf("round %d: cut as %q, before as %q: %v", round, id, first, err)
		}
		if got := g.recoverText(t, client, id); got != text {
			t.Errorf("round %d: %d characters of %d came back", round, len(got), len(text))
		}
		first = id
		if round == 3 {
			for _, end := range []string{"", "-wal", "-shm"} {
				_ = os.Remove(s.storePath() + end) // the WAL may be merged already
			}
			continue
		}
		if round == 4 {
			break
		}
		all := state.SweepRequest{Now: time.Now(), SpareAfter: time.Now().Add(time.Hour), MaxBytes: 0, Need: 1}
		if swept, err := other.Sweep(t.Context(), all); err != nil || swept.Groups == 0 {
			t.Fatalf("%+v, %v", swept, err)
		}
	}
	if s.taken(t) == 0 {
		t.Error("the new file does not contain the texts shown since")
	}
}

// recoverText reads an original at the MCP endpoint.
func (g *testGateway) recoverText(t *testing.T, client *http.Client, id string) string {
	t.Helper()
	text, err := g.recoverByID(client, id)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (g *testGateway) recoverByID(client *http.Client, id string) (string, error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"recover_text","arguments":{"prune_id":%q},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, id)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+"/mcp", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "recover_text",
	} {
		req.Header.Set(k, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var reply struct {
		Result struct{ Content []struct{ Text string } }
	}
	raw, _ := io.ReadAll(resp.Body)
	if err := json.Unmarshal(raw, &reply); err != nil || len(reply.Result.Content) != 1 {
		return "", fmt.Errorf("%d %.300s: %w", resp.StatusCode, raw, err)
	}
	return reply.Result.Content[0].Text, nil
}
