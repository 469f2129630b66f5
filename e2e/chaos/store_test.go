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

	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/sqlite"
)

// freshText is as long as a page of code, and no other is like it.
func freshText() string {
	noise := make([]byte, 9<<10)
	_, _ = crand.Read(noise) // never fails
	return base64.StdEncoding.EncodeToString(noise)
}

// texter is a server of plain JSON-RPC whose every answer is a text: the one that the request has in
// its params, or a fresh one.
func texter(t *testing.T) string {
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

// storeSite is a gateway over an SQLite store with so large a cap.
func storeSite(t *testing.T, upstream string, cap int64) *site {
	t.Helper()
	s := newSite(t, newLedger(t))
	s.state = fmt.Sprintf("driver = \"sqlite\"\npath = %q\nmax_bytes = %d", s.storePath(), cap)
	s.head = "rate_limit_per_minute = 0"
	s.servers = []server{{id: "up", more: fmt.Sprintf("rpc = %q", upstream)}}
	return s
}

func (s *site) storePath() string { return filepath.Join(s.dir, "store.db") }

// fill puts so many bytes of old text into the store of a site, as a gateway would have done hours
// ago: an original and the text that was shown of it, in groups.
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
		if err := d.Put(t.Context(), items, state.Lease{Seen: seen, Expires: seen.Add(7 * 24 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
}

// window is what came of some seconds of calls.
type window struct {
	mu           sync.Mutex
	took         []time.Duration
	whole, wrong int
}

var recoverMark = regexp.MustCompile(`\[recover: prune_id=(prn_[0-9a-z]{26}) `)

// textCall asks for a text and says under which id it was cut; "" when it came whole.
func (g *gateway) textCall(ctx context.Context, client *http.Client, text string) (id string, err error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","text":%q}}`, text)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+"/api/mcp-gateway/up/rpc", strings.NewReader(body))
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

// run calls at a rate for some time.
func (w *window) run(g *gateway, client *http.Client, rate int, length time.Duration) {
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

// TestStoreAtItsCap: a store that is full takes fresh texts as one that is not. Two gateways, over
// files of the same size, one of which is at its cap, are called in turns, so that whatever else the
// machine does meets both. No reply is whole because of eviction, and of the windows' p99 the median
// at the cap is at most twice that below it.
func TestStoreAtItsCap(t *testing.T) {
	up := texter(t)
	size := int64(pick(24, 512)) << 20
	windows, length := pick(4, 60), time.Duration(pick(1, 2))*time.Second
	below, at := storeSite(t, up, 4*size), storeSite(t, up, size)
	below.fill(t, size/100*99)
	at.fill(t, size/100*99)
	sides := []*struct {
		*gateway
		p99   []time.Duration
		calls int
		whole int
	}{{gateway: below.start(t)}, {gateway: at.start(t)}}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}
	defer client.CloseIdleConnections()
	for range windows {
		for _, s := range sides {
			var w window
			w.run(s.gateway, client, 100, length)
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
	// On a machine that is too busy for either, texts go whole for another reason.
	if sides[1].whole > 0 && (full || sides[0].whole == 0) {
		t.Errorf("%d of %d replies were whole at the cap; below it %d", sides[1].whole, sides[1].calls, sides[0].whole)
	}
	if full && full99 > 2*under {
		t.Errorf("p99 is %s at the cap, %s below", full99, under)
	}
	if taken := at.taken(t); taken > size {
		t.Errorf("%d bytes are stored; the cap is %d", taken, size)
	}
}

// openStore opens the store's file as another process would.
func (s *site) openStore(t *testing.T) *sqlite.Driver {
	t.Helper()
	d, err := sqlite.Open(t.Context(), s.storePath())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// taken is how many bytes count towards the cap.
func (s *site) taken(t *testing.T) int64 {
	t.Helper()
	stat, err := s.openStore(t).Stat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stat.Bytes
}

// TestStoreIsEmptied: under a running gateway, another process that shares the store, and spares
// nothing, evicts all there is; then somebody removes the file. A text that is shown again afterwards
// is cut under the same id, and the id gives it back.
func TestStoreIsEmptied(t *testing.T) {
	s := storeSite(t, texter(t), 64<<20)
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
				_ = os.Remove(s.storePath() + end) // the log may have been folded in
			}
			continue
		}
		if round == 4 {
			break
		}
		all := state.Sweep{Now: time.Now(), SpareAfter: time.Now().Add(time.Hour), MaxBytes: 0, Need: 1}
		if swept, err := other.Sweep(t.Context(), all); err != nil || swept.Groups == 0 {
			t.Fatalf("%+v, %v", swept, err)
		}
	}
	if s.taken(t) == 0 {
		t.Error("the new file has nothing of what was shown since")
	}
}

// recoverText reads an original back at the door of all servers.
func (g *gateway) recoverText(t *testing.T, client *http.Client, id string) string {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"recover_text","arguments":{"prune_id":%q},`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, id)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.url+"/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "recover_text",
	} {
		req.Header.Set(k, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var reply struct {
		Result struct{ Content []struct{ Text string } }
	}
	raw, _ := io.ReadAll(resp.Body)
	if err := json.Unmarshal(raw, &reply); err != nil || len(reply.Result.Content) != 1 {
		t.Fatalf("%d %.300s: %v", resp.StatusCode, raw, err)
	}
	return reply.Result.Content[0].Text
}
