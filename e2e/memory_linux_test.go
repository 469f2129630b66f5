package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/process"
)

const (
	mib       = 1 << 20
	bodyBytes = 64 * mib
	maxFactor = 2.5 // times the body, above idle
)

// TestG7PeakMemory: a large reply is in memory once, and the rest of the path needs less than that again
// (G7). Each case has its own process, and the text can be recovered.
func TestG7PeakMemory(t *testing.T) {
	random := incompressibleText()
	log := logText()
	for _, c := range []struct {
		name    string
		block   []byte // JSON without its quotes
		chunked bool
	}{
		{"base64 with Content-Length", random, false},
		{"base64 chunked", random, true},
		{"log text with escapes", log, false},
		{"log text chunked", log, true},
	} {
		t.Run(c.name, func(t *testing.T) { testPeakMemory(t, c.block, c.chunked) })
	}
}

func testPeakMemory(t *testing.T, block []byte, chunked bool) {
	up, err := startFakeServer(func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, c rpcCall) {
		if c.intArg("big") == 0 {
			replyText(w, c, []byte(`"small"`))
			return
		}
		begin := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, c.ID)
		const end = `"}]}}`
		if !chunked {
			w.Header().Set("Content-Length", strconv.Itoa(len(begin)+blocks*len(block)+len(end)))
		}
		_, _ = w.Write(begin)
		for range blocks {
			_, _ = w.Write(block)
		}
		_, _ = w.Write([]byte(end))
	})
	if err != nil {
		t.Fatal(err)
	}
	defer up.close()
	s := newSite(t, up.url, "")
	g := s.start(t)
	client, done := newClient()
	defer done()
	ask := func(big int) []byte {
		status, body, err := post(client, g.RPC("up"), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"big":%d}}}`, big), nil)
		if err != nil || status != http.StatusOK {
			t.Fatalf("HTTP %d, %v, %.200s", status, err, body)
		}
		return body
	}
	ask(0)
	if err := process.ResetPeakMemory(g.PID()); err != nil {
		t.Logf("the peak includes the start, which only makes the test stricter: %v", err)
	}
	idle := memory(t, g, "VmRSS")
	body := ask(1)
	peak := memory(t, g, "VmHWM")

	used := float64(peak-idle) / float64(bodyBytes)
	_, name, _ := strings.Cut(strings.ReplaceAll(t.Name(), "_", " "), "/")
	t.Logf("peak memory for a 64 MiB reply, %s: idle %d MiB, peak %d MiB, %.2f times the body over idle (at most %.1f)",
		name, idle/mib, peak/mib, used, maxFactor)
	if used > maxFactor {
		t.Errorf("%.2f times the body, want at most %.1f", used, maxFactor)
	}
	id := pruneIDPattern.FindSubmatch(body)
	if id == nil {
		t.Fatalf("the reply of %d bytes has no marker", len(body))
	}
	got, want := sha256.New(), sha256.New()
	s.recoverText(t, got, string(id[1]))
	var original string
	if err := json.Unmarshal(slices.Concat([]byte{'"'}, block, []byte{'"'}), &original); err != nil {
		t.Fatal(err)
	}
	for range blocks {
		_, _ = want.Write([]byte(original))
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Error("the recovered text differs")
	}
}

// memory is a size from /proc/PID/status in bytes.
func memory(t *testing.T, g *testGateway, field string) int64 {
	t.Helper()
	n, err := process.Memory(g.PID(), field)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A block is larger than the store's compression unit, so that repeating it does not compress.
const (
	blockBytes = 4 * mib
	blocks     = bodyBytes / blockBytes
)

// incompressibleText hardly compresses.
func incompressibleText() []byte {
	r := rand.NewChaCha8([32]byte{7})
	raw := make([]byte, blockBytes/4*3)
	_, _ = r.Read(raw)
	return base64.StdEncoding.AppendEncode(nil, raw)
}

// logText is the most common kind of long reply.
func logText() []byte {
	var b []byte
	r := rand.New(rand.NewPCG(7, 7))
	for n := 0; len(b) < blockBytes; n++ {
		b = fmt.Appendf(b, `2026-01-02T03:04:05.%06dZ INFO caf\u00e9 worker=%d path=\"\/srv\/data\/%x\" msg=\"step %d done \ud83d\ude42\"\n`, n%1e6, r.IntN(64), r.Uint64(), n)
	}
	return b
}
