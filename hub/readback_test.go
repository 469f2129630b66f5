//go:build unix

package hub_test

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/internal/testkit/cputime"
	"github.com/ctxgate/ctxgate/mcp"
	"github.com/ctxgate/ctxgate/recall"
)

// newGatewayWithOriginal returns a gateway that has stored a text, and the text's id.
func newGatewayWithOriginal(t *testing.T, text string, configure ...func(*setup)) (*mcpGateway, string) {
	t.Helper()
	gw := startGateway(t, func(s *setup) {
		for _, m := range append(configure, maskSmall) {
			m(s)
		}
	}, newFakeServer(t, "a", mcp.Modern, false))
	id, err := gw.recall.StoreText(t.Context(), auth.DefaultTenant, text, recall.Origin{Server: "a", Tool: "x"})
	if err != nil {
		t.Fatal(err)
	}
	return gw, id
}

func numberedLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d of a text that was kept\n", i+1)
	}
	return b.String()
}

// 1,500 overlapping ranges give each line once: a request of 60 KB cannot cause a reply of gigabytes.
func TestOverlappingRangesGiveEachLineOnce(t *testing.T) { // not parallel: it measures the process
	const lines = 30_000
	text := numberedLines(lines) // 1 MB
	gw, id := newGatewayWithOriginal(t, text)
	var ranges []string
	for i := range 1500 {
		ranges = append(ranges, fmt.Sprintf(`{"start_line":%d,"end_line":%d}`, i+1, lines))
	}
	args := `{"prune_id":"` + id + `","include_line_numbers":true,"ranges":[` + strings.Join(ranges, ",") + `]}`
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := cputime.Used()
	got := textOfResult(t, c.callResult(t, mcp.ToolsCall, `{"name":"recover_text","arguments":`+args+`}`))
	took := cputime.Used() - began
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d bytes of arguments, %d of text: %d in the reply; %v of processor time, %d MB allocated", len(args), len(text), len(got), took, allocated>>20)
	if n := strings.Count(got, "\n"); n != lines || !strings.HasPrefix(got, "1│ line 1 of") || !strings.HasSuffix(got, fmt.Sprintf("%d│ line %d of a text that was kept\n", lines, lines)) {
		t.Errorf("%d lines, %.100q", n, got)
	}
	if allocated > 100<<20 {
		t.Errorf("%d MB were allocated", allocated>>20)
	}
}

// A reply longer than recall.read_bytes is cut while it is written, and says how to ask for the rest; following
// that reads all of it.
func TestLongReadSaysHowToContinue(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	text := numberedLines(70_000) // 2.5 MB
	gw, id := newGatewayWithOriginal(t, text, func(s *setup) { s.recall.ReadBytes = limit })
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	for name, first := range map[string]string{"whole": "", "lines": `,"ranges":[{"start_line":1,"end_line":70001}]`, "search": `,"pattern":"kept$"`} {
		all, n := "", 0
		for more := first; ; n++ {
			got := textOfResult(t, c.callResult(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+id+`"`+more+`}}`))
			if len(got) > limit || n > 10 {
				t.Fatalf("%s: %d bytes in answer %d", name, len(got), n)
			}
			at := strings.LastIndexByte(got, '[')
			for at > 0 && got[at-1] == '=' { // ranges=[…]
				at = strings.LastIndexByte(got[:at], '[')
			}
			if at < 0 {
				all += got
				break
			}
			note := got[at:]
			all += got[:at]
			if _, chars, found := strings.Cut(note, "chars="); found {
				all = strings.TrimSuffix(all, "\n")
				more = `,"chars":"` + strings.TrimSuffix(chars, "]") + `"`
				continue
			}
			_, ranges, found := strings.Cut(note, "ranges=")
			if !found {
				t.Fatalf("%s: %q", name, note)
			}
			more = `,"ranges":` + strings.TrimSuffix(ranges, "]")
			if name == "search" {
				more += `,"pattern":"kept$"`
			}
		}
		if want := text; strings.TrimRight(all, "\n") != strings.TrimRight(want, "\n") || n < 2 {
			t.Errorf("%s: %d bytes in %d answers, want %d", name, len(all), n+1, len(want))
		}
	}
}

// Hostile patterns take little time at the endpoint, too: the tests of recall try each on more texts.
func TestHostilePatternsAtEndpoint(t *testing.T) { // not parallel: it measures the process
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	raw, err := os.ReadFile("../recall/testdata/patterns.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Name    string
		Pattern [][2]any
	}
	if err := json.Unmarshal(raw, &list); err != nil || len(list) < 50 {
		t.Fatal(len(list), err)
	}
	gw, id := newGatewayWithOriginal(t, strings.Repeat("ab", 2<<20/slower)+"\n"+strings.Repeat("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\n", 1000))
	c := gw.connect(t, "/mcp", mcp.Modern, "{}")
	var most time.Duration
	for _, p := range list {
		var expr strings.Builder
		for _, part := range p.Pattern {
			expr.WriteString(strings.Repeat(part[0].(string), int(part[1].(float64))))
		}
		pattern, _ := json.Marshal(expr.String())
		took := cputime.Least(20, slower*90*time.Millisecond, func() {
			g := c.call(t, mcp.ToolsCall, `{"name":"recover_text","arguments":{"prune_id":"`+id+`","pattern":`+string(pattern)+`}}`)
			if got := resultOrError(t, g.body); g.status != 200 || strings.HasPrefix(got, "!") && !strings.HasPrefix(got, `!{"code":-32602,`) {
				t.Errorf("%s: %d %.200s", p.Name, g.status, got)
			}
		})
		if most = max(most, took); took > slower*100*time.Millisecond { // with both ends of HTTP and JSON
			t.Errorf("%s: %v", p.Name, took)
		}
	}
	t.Logf("%d patterns: at most %v of processor time", len(list), most)
}
