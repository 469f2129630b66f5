package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	mib       = 1 << 20
	bodyBytes = 64 * mib
	factor    = 2.5 // of the body, over idle
)

// TestG7PeakMemory holds the gateway to G7: a large reply is in memory once, and what the rest
// of the path needs is less than that again. Each case has a process of its own, and its text
// can be read back.
func TestG7PeakMemory(t *testing.T) {
	random := incompressible()
	log := logText()
	for _, c := range []struct {
		name    string
		block   []byte // as JSON, without its quotes
		chunked bool
	}{
		{"base64 with Content-Length", random, false},
		{"base64 chunked", random, true},
		{"log text with escapes", log, false},
		{"log text chunked", log, true},
	} {
		t.Run(c.name, func(t *testing.T) { peakMemory(t, c.block, c.chunked) })
	}
}

func peakMemory(t *testing.T, block []byte, chunked bool) {
	up, err := startUpstream(func(_ *upstream, w http.ResponseWriter, _ *http.Request, c call) {
		if c.int("big") == 0 {
			reply(w, c, []byte(`"small"`))
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
	s := settle(t, up.url, "")
	g := s.start(t)
	client, done := newClient()
	defer done()
	ask := func(big int) []byte {
		status, body, err := post(client, g.rpc("up"), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"big":%d}}}`, big), nil)
		if err != nil || status != http.StatusOK {
			t.Fatalf("HTTP %d, %v, %.200s", status, err, body)
		}
		return body
	}
	ask(0)
	resetPeak(t, g)
	idle := memory(t, g, "VmRSS")
	body := ask(1)
	peak := memory(t, g, "VmHWM")

	used := float64(peak-idle) / float64(bodyBytes)
	_, name, _ := strings.Cut(strings.ReplaceAll(t.Name(), "_", " "), "/")
	t.Logf("peak memory for a 64 MiB reply, %s: idle %d MiB, peak %d MiB, %.2f times the body over idle (at most %.1f)",
		name, idle/mib, peak/mib, used, factor)
	if used > factor {
		t.Errorf("%.2f times the body, want at most %.1f", used, factor)
	}
	id := pruneID.FindSubmatch(body)
	if id == nil {
		t.Fatalf("the reply of %d bytes has no marker", len(body))
	}
	got, want := sha256.New(), sha256.New()
	s.recover(t, got, string(id[1]))
	var original string
	if err := json.Unmarshal(slices.Concat([]byte{'"'}, block, []byte{'"'}), &original); err != nil {
		t.Fatal(err)
	}
	for range blocks {
		_, _ = want.Write([]byte(original))
	}
	if !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Error("what is read back is another text")
	}
}

// memory is a line of /proc/PID/status, in bytes.
func memory(t *testing.T, g *gateway, name string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}

// resetPeak makes VmHWM begin anew. Where that is not permitted, the peak of the start counts
// too, which makes the test stricter and no weaker.
func resetPeak(t *testing.T, g *gateway) {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", g.cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Logf("the peak could not be reset: %v", err)
	}
}

// A block is larger than the parts that a store may compress one by one, so that repeating it
// makes none of them smaller.
const (
	blockBytes = 4 * mib
	blocks     = bodyBytes / blockBytes
)

// incompressible is text that a store cannot make smaller by much.
func incompressible() []byte {
	r := rand.NewChaCha8([32]byte{7})
	raw := make([]byte, blockBytes/4*3)
	_, _ = r.Read(raw)
	return base64.StdEncoding.AppendEncode(nil, raw)
}

// logText is what most long replies are.
func logText() []byte {
	var b []byte
	r := rand.New(rand.NewPCG(7, 7))
	for n := 0; len(b) < blockBytes; n++ {
		b = fmt.Appendf(b, `2026-01-02T03:04:05.%06dZ INFO caf\u00e9 worker=%d path=\"\/srv\/data\/%x\" msg=\"step %d done \ud83d\ude42\"\n`, n%1e6, r.IntN(64), r.Uint64(), n)
	}
	return b
}
