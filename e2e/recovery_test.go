package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unicode/utf16"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/config"
)

const (
	markersWanted = 1000 // before the process is killed
	markersLimit  = 3000 // should it never be
	markerClients = 16
)

// receipt is a marker that a client has in its hands.
type receipt struct {
	seed int
	id   string
}

// TestGPlus1RecoveryAfterKill9 holds the gateway to G+1 and G+2: whoever has received a marker can
// have the original, though the process was killed with calls under way and never came back.
func TestGPlus1RecoveryAfterKill9(t *testing.T) {
	up, err := startUpstream(func(_ *upstream, w http.ResponseWriter, _ *http.Request, c call) {
		seed := c.int("seed")
		reply(w, c, spell(seededText(seed), seed))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer up.close()
	s := settle(t, up.url, "")
	g := s.start(t)

	var (
		next, received, broken atomic.Int64
		enough                 = make(chan struct{})
		signalEnough           = sync.OnceFunc(func() { close(enough) })
		results                = make([][]receipt, markerClients)
		clients                sync.WaitGroup
	)
	for n := range markerClients {
		clients.Go(func() {
			defer signalEnough() // a client that cannot go on must not keep the test waiting
			client, done := newClient()
			defer done()
			for range markersLimit {
				seed := int(next.Add(1))
				id, err := masked(client, g.rpc("up"), seed)
				if err != nil {
					if !errors.Is(err, syscall.ECONNREFUSED) {
						broken.Add(1)
					}
					if received.Load() < markersWanted {
						t.Errorf("before the kill: %v", err)
					}
					return
				}
				results[n] = append(results[n], receipt{seed, id})
				if received.Add(1) == markersWanted {
					signalEnough()
				}
			}
		})
	}
	<-enough
	g.kill()
	clients.Wait()

	var all []receipt
	for _, r := range results {
		all = append(all, r...)
	}
	if len(all) < markersWanted || t.Failed() {
		t.Fatalf("only %d markers received", len(all))
	}
	if broken.Load() == 0 {
		t.Error("no call was under way when the process was killed")
	}
	good := recoverAll(t, s, all)
	for _, r := range sample(all, 20) {
		var text bytes.Buffer
		s.recover(t, &text, r.id)
		if text.String() != seededText(r.seed) {
			t.Errorf("seed %d: `ctxgate recover %s` gives another text", r.seed, r.id)
		}
	}
	t.Logf("recovered after SIGKILL: %d of %d received markers byte-exact, 20 of them with `ctxgate recover`; %d calls broken off by the kill",
		good, len(all), broken.Load())
	if good != len(all) {
		t.Errorf("%d originals are lost", len(all)-good)
	}
}

// recoverAll reads every original from the dead gateway's store.
func recoverAll(t *testing.T, s site, all []receipt) (good int) {
	t.Helper()
	loaded, problems := config.Load(s.config, nil)
	if err := errors.Join(problems.Err(), loaded.Resolve(nil).Err()); err != nil {
		t.Fatal(err)
	}
	vault, err := app.OpenVault(t.Context(), loaded.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer vault.Close()
	for _, r := range all {
		original, err := vault.Recall.Open(t.Context(), auth.DefaultTenant, r.id)
		if err != nil {
			t.Errorf("seed %d, %s: %v", r.seed, r.id, err)
			continue
		}
		var text bytes.Buffer
		if err := original.WriteText(t.Context(), &text); err != nil || text.String() != seededText(r.seed) {
			t.Errorf("seed %d, %s: another text, %v", r.seed, r.id, err)
			continue
		}
		good++
	}
	return good
}

func sample(all []receipt, n int) []receipt {
	out := make([]receipt, 0, n)
	for i := range n {
		out = append(out, all[i*len(all)/n])
	}
	return out
}

var marker = regexp.MustCompile(`\n\.\.\. \[KIMI_PROXY_OBSERVATION_MASKED original_chars=(\d+) head=(\d+) tail=(\d+)\] \.\.\.\n\[recover: prune_id=(prn_[0-9a-z]{26}) chars=(\d+)-(\d+)\]\n`)

// masked makes a call and checks the cut against the text it was made from (G3).
func masked(client *http.Client, url string, seed int) (id string, err error) {
	status, body, err := post(client, url, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"t","arguments":{"seed":%d}}}`, seed, seed), nil)
	if err != nil {
		return "", err
	}
	var got struct {
		ID     int
		Result struct{ Content []struct{ Text string } }
	}
	if err := json.Unmarshal(body, &got); err != nil || status != http.StatusOK || got.ID != seed || len(got.Result.Content) != 1 {
		return "", fmt.Errorf("seed %d: HTTP %d, %.200s", seed, status, body)
	}
	m := marker.FindStringSubmatch(got.Result.Content[0].Text)
	if m == nil {
		return "", fmt.Errorf("seed %d was not cut", seed)
	}
	text := []rune(seededText(seed))
	head, _ := strconv.Atoi(m[2])
	tail, _ := strconv.Atoi(m[3])
	// A cut may give way by a few characters so as not to split one that a reader sees (G+3).
	if head > 2000 || head < 1990 || tail > 2000 || tail < 1990 {
		return "", fmt.Errorf("seed %d: head %d and tail %d are far from 2000", seed, head, tail)
	}
	want := fmt.Sprintf("%s\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=%d head=%d tail=%d] ...\n[recover: prune_id=%s chars=%d-%d]\n%s",
		string(text[:head]), len(text), head, tail, m[4], head+1, len(text)-tail, string(text[len(text)-tail:]))
	if got.Result.Content[0].Text != want {
		return "", fmt.Errorf("seed %d: the cut is not the contract's", seed)
	}
	return m[4], nil
}

var words = []string{
	"ok", "error: ", "\n", "\t", "\r\n", " ", `\n`, `"quoted"`, `\u0041`, "</script>", "&amp;", "été", "日本語", "🙂", "👩‍👩‍👧‍👦",
	"e\u0301", "\u2028", "\x7f", "\x01", "Привет", "🇫🇷", "한국어", "नमस्ते", "[KIMI_PROXY_OBSERVATION_MASKED", "/path/to/file.go:12", "0123456789",
}

var texts sync.Map // by seed: each is needed by the server, the client and the check

// seededText is a text of its own for each seed.
func seededText(seed int) string {
	text, ok := texts.Load(seed)
	if !ok {
		text, _ = texts.LoadOrStore(seed, makeText(seed))
	}
	return text.(string)
}

// makeText makes most texts short and some of 300 KB, and all longer than the limit.
func makeText(seed int) string {
	r := rand.New(rand.NewPCG(uint64(seed), 7))
	size := 4001
	switch seed % 10 {
	case 0:
		size = 300_000
	case 1, 2, 3:
		size = 4001 + r.IntN(60_000)
	case 4, 5, 6, 7:
		size = 4001 + r.IntN(4000)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d ", seed)
	chars := b.Len()
	for chars < size {
		word := words[r.IntN(len(words))]
		for _, c := range word {
			if chars == size || b.Len() >= 300_000 && chars > 4000 {
				return b.String()
			}
			b.WriteRune(c)
			chars++
		}
	}
	return b.String()
}

// spell writes text as JSON, in one of the ways that servers do.
func spell(text string, seed int) []byte {
	switch seed % 3 {
	case 0:
		return quote(text)
	case 1:
		b, _ := json.Marshal(text) // text is always JSON
		return b
	}
	b := []byte{'"'}
	for _, c := range utf16.Encode([]rune(text)) {
		if c >= ' ' && c < 0x7f && c != '"' && c != '\\' {
			b = append(b, byte(c))
		} else {
			const hex = "0123456789ABCDEF"
			b = append(b, '\\', 'u', hex[c>>12], hex[c>>8&15], hex[c>>4&15], hex[c&15])
		}
	}
	return append(b, '"')
}
