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
	markersWanted = 1000 // before the gateway is killed
	markersLimit  = 3000 // per client
	markerClients = 16
)

// markerReceipt is a marker that a client has received.
type markerReceipt struct {
	seed int
	id   string
}

// TestGPlus1RecoveryAfterSIGKILL: the original of every received marker can be read although the gateway was
// killed with calls in flight and never restarted (G+1, G+2).
func TestGPlus1RecoveryAfterSIGKILL(t *testing.T) {
	up, err := startFakeServer(func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, c rpcCall) {
		seed := c.intArg("seed")
		replyText(w, c, encodeText(seededText(seed), seed))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer up.close()
	s := newSite(t, up.url, "")
	g := s.start(t)

	var (
		next, received, broken atomic.Int64
		enough                 = make(chan struct{})
		signalEnough           = sync.OnceFunc(func() { close(enough) })
		results                = make([][]markerReceipt, markerClients)
		clients                sync.WaitGroup
	)
	for n := range markerClients {
		clients.Go(func() {
			defer signalEnough() // a failed client must not block the test
			client, done := newClient()
			defer done()
			for range markersLimit {
				seed := int(next.Add(1))
				id, err := callMasked(client, g.RPC("up"), seed)
				if err != nil {
					if !errors.Is(err, syscall.ECONNREFUSED) {
						broken.Add(1)
					}
					if received.Load() < markersWanted {
						t.Errorf("before the kill: %v", err)
					}
					return
				}
				results[n] = append(results[n], markerReceipt{seed, id})
				if received.Add(1) == markersWanted {
					signalEnough()
				}
			}
		})
	}
	<-enough
	g.Kill()
	clients.Wait()

	var all []markerReceipt
	for _, r := range results {
		all = append(all, r...)
	}
	if len(all) < markersWanted || t.Failed() {
		t.Fatalf("only %d markers received", len(all))
	}
	if broken.Load() == 0 {
		t.Error("no call was in flight when the gateway was killed")
	}
	good := recoverAll(t, s, all)
	for _, r := range sampleReceipts(all, 20) {
		var text bytes.Buffer
		s.recoverText(t, &text, r.id)
		if text.String() != seededText(r.seed) {
			t.Errorf("seed %d: `ctxgate recover %s` prints another text", r.seed, r.id)
		}
	}
	t.Logf("recovered after SIGKILL: %d of %d received markers byte-exact, 20 of them with `ctxgate recover`; %d calls interrupted by the kill",
		good, len(all), broken.Load())
	if good != len(all) {
		t.Errorf("%d originals are lost", len(all)-good)
	}
}

// recoverAll reads every original from the killed gateway's store.
func recoverAll(t *testing.T, s site, all []markerReceipt) (good int) {
	t.Helper()
	loaded, problems := config.Load(s.config, nil)
	if err := errors.Join(problems.Err(), loaded.ResolveSecrets(nil).Err()); err != nil {
		t.Fatal(err)
	}
	vault, err := app.OpenStorage(t.Context(), loaded.Config)
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

func sampleReceipts(all []markerReceipt, n int) []markerReceipt {
	out := make([]markerReceipt, 0, n)
	for i := range n {
		out = append(out, all[i*len(all)/n])
	}
	return out
}

var maskMarkerPattern = regexp.MustCompile(`\n\.\.\. \[KIMI_PROXY_OBSERVATION_MASKED original_chars=(\d+) head=(\d+) tail=(\d+)\] \.\.\.\n\[recover: prune_id=(prn_[0-9a-z]{26}) chars=(\d+)-(\d+)\]\n`)

// callMasked makes a call and checks the cut against the original (G3).
func callMasked(client *http.Client, url string, seed int) (id string, err error) {
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
	m := maskMarkerPattern.FindStringSubmatch(got.Result.Content[0].Text)
	if m == nil {
		return "", fmt.Errorf("seed %d was not cut", seed)
	}
	text := []rune(seededText(seed))
	head, _ := strconv.Atoi(m[2])
	tail, _ := strconv.Atoi(m[3])
	// A cut may move by a few characters so as not to split a grapheme (G+3).
	if head > 2000 || head < 1990 || tail > 2000 || tail < 1990 {
		return "", fmt.Errorf("seed %d: head %d and tail %d are far from 2000", seed, head, tail)
	}
	want := fmt.Sprintf("%s\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=%d head=%d tail=%d] ...\n[recover: prune_id=%s chars=%d-%d]\n%s",
		string(text[:head]), len(text), head, tail, m[4], head+1, len(text)-tail, string(text[len(text)-tail:]))
	if got.Result.Content[0].Text != want {
		return "", fmt.Errorf("seed %d: the cut differs from the contract", seed)
	}
	return m[4], nil
}

var textParts = []string{
	"ok", "error: ", "\n", "\t", "\r\n", " ", `\n`, `"quoted"`, `\u0041`, "</script>", "&amp;", "été", "日本語", "🙂", "👩‍👩‍👧‍👦",
	"e\u0301", "\u2028", "\x7f", "\x01", "Привет", "🇫🇷", "한국어", "नमस्ते", "[KIMI_PROXY_OBSERVATION_MASKED", "/path/to/file.go:12", "0123456789",
}

var seededTexts sync.Map // by seed: server, client and check use the same text

// seededText returns a different text for each seed.
func seededText(seed int) string {
	text, ok := seededTexts.Load(seed)
	if !ok {
		text, _ = seededTexts.LoadOrStore(seed, generateText(seed))
	}
	return text.(string)
}

// generateText returns mostly short texts, some of 300 KB, and all over the limit.
func generateText(seed int) string {
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
		word := textParts[r.IntN(len(textParts))]
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

// encodeText encodes text as JSON in one of three styles.
func encodeText(text string, seed int) []byte {
	switch seed % 3 {
	case 0:
		return quoteJSON(text)
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
