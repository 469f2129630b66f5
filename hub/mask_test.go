package hub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/fault"
	"github.com/ctxgate/ctxgate/hub"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/reduce"
	"github.com/ctxgate/ctxgate/rpc"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

// checkMask masks a reply as the gateway does, without the store.
func checkMask(t testing.TB, body []byte, m reduce.Mask) {
	reply, err := rpc.ParseReply(body, 128, m.MaxChars)
	if err != nil {
		t.Fatal(err)
	}
	var edits []jsonscan.Edit
	for _, s := range reply.LongStrings {
		if cut, ok := m.CutString(body, s); ok {
			edits = append(edits, cut.Edit("prn_00000000000000000000000000"))
		}
	}
	if err := jsonscan.Splice(io.Discard, body, edits); err != nil {
		t.Fatal(err)
	}
}

func wrap(result string) []byte { return []byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`) }

// texts returns a list of n short strings.
func texts(n int) string {
	return `["` + strings.Repeat(`a short string","`, n-1) + `the last"]`
}

// fastest returns the smallest of a few measurements.
func fastest[T int64 | uint64 | time.Duration](runs int, measure func() T) T {
	best := measure()
	for range runs - 1 {
		best = min(best, measure())
	}
	return best
}

// A large reply is masked in place: no second copy of it is made.
func TestG7NoSecondCopy(t *testing.T) {
	body := wrap(`{"big":"` + strings.Repeat("eight MiB ", 8<<20/10) + `","rest":` + texts(2<<20/17) + `}`)
	if len(body) < 10_000_000 {
		t.Fatalf("the body has only %d bytes", len(body))
	}
	got := fastest(5, func() uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		checkMask(t, body, reduce.DefaultMask())
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	})
	if got >= 64<<10 {
		t.Errorf("masking %d bytes allocated %d, want less than 64 KiB", len(body), got)
	}
}

func TestG7AllocationsDoNotGrowWithStrings(t *testing.T) {
	count := func(n int) float64 {
		body := wrap(texts(n))
		return testing.AllocsPerRun(5, func() { checkMask(t, body, reduce.DefaultMask()) })
	}
	if few, many := count(1_000), count(100_000); few != many {
		t.Errorf("%v allocations for 1,000 strings, %v for 100,000; want the same", few, many)
	}
}

var recoverLine = regexp.MustCompile(`\n\.\.\. \[KIMI_PROXY_OBSERVATION_MASKED original_chars=(\d+) head=4 tail=4\] \.\.\.\n\[recover: prune_id=(prn_[0-9a-z]{26}) chars=5-(\d+)\]\n`)

// textOf returns the string in result.t.
func textOf(t testing.TB, body string) string {
	t.Helper()
	var reply struct{ Result struct{ T string } }
	if err := json.Unmarshal([]byte(body), &reply); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return reply.Result.T
}

// tenant is the tenant of a caller without a token.
const tenant = auth.DefaultTenant

func (g *gateway) recover(t testing.TB, id string) string {
	t.Helper()
	original, err := g.recall.Open(context.Background(), tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := original.WriteText(context.Background(), &text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestGPlus1MaskedTextCanBeReadBack(t *testing.T) {
	for name, text := range map[string]string{
		"plain":       strings.Repeat("0123456789", 10),
		"escapes":     strings.Repeat("\"\\/\b\f\n\r\t\x00\x1f<&>", 9),
		"unicode":     strings.Repeat("é😀中\u2028", 20),
		"our marker":  "\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=9 head=4 tail=4] ...\n",
		"large":       strings.Repeat("a line of text\n", 200_000),
		"one too far": strings.Repeat("x", 21),
	} {
		t.Run(name, func(t *testing.T) {
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":{"t":`+string(quoted)+`,"again":`+string(quoted)+`}}`)
			g := startRPCGateway(t, up.URL, func(s *setup) { // a busy machine must not make the store too slow to cut
				maskSmall(s)
				s.state.Timeout, s.recall.KeepTimeout = unit.Duration(time.Minute), unit.Duration(time.Minute)
			})
			first := g.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read"}}`)
			got := textOf(t, first.body)
			m := recoverLine.FindStringSubmatch(got)
			if m == nil {
				t.Fatalf("no recover line in %.300q", got)
			}
			chars := len([]rune(text))
			if m[1] != fmt.Sprint(chars) || m[3] != fmt.Sprint(chars-4) {
				t.Errorf("%q is not about a text of %d characters", m[0], chars)
			}
			if back := g.recover(t, m[2]); back != text {
				t.Errorf("read back %.100q, want %.100q", back, text)
			}
			if n := strings.Count(first.body, m[2]); n != 2 {
				t.Errorf("the same text twice has the id %d times", n)
			}
			if second := g.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"m"}`); second.body != first.body {
				t.Error("the second reply differs from the first")
			}
		})
	}
}

// refusingDriver is a driver that refuses every Put, or delays it.
type refusingDriver struct {
	state.Driver
	refuse atomic.Bool
	gate   chan struct{} // Put waits for it, if there is one
}

func (r *refusingDriver) PutIf(ctx context.Context, cond state.Condition, items []state.Item, lease state.Lease) (bool, error) {
	if r.gate != nil {
		select {
		case <-r.gate:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if r.refuse.Load() {
		return false, fault.New(fault.Unavailable, "down")
	}
	return r.Driver.PutIf(ctx, cond, items, lease)
}

func TestGPlus2StoreThatRefusesLeavesTextWhole(t *testing.T) {
	reply := ` {"jsonrpc":"2.0", "result":["` + strings.Repeat("x", 50) + `",1.50,"` + strings.Repeat("y", 3<<20) + `"], "id":1}`
	up := rpcServerReplying(t, reply)
	driver := &refusingDriver{Driver: memory.New()}
	driver.refuse.Store(true)
	g := startRPCGateway(t, up.URL, func(s *setup) { maskSmall(s); s.driver = driver })
	got := g.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"m"}`)
	if got.status != 200 || got.body != reply {
		t.Errorf("got %d and %d bytes, want the reply as it came, %d bytes", got.status, len(got.body), len(reply))
	}
	if !strings.Contains(g.metrics(), `ctxgate_sent_whole_total{server="a"} 2`) {
		t.Error("the two strings are not counted as sent whole")
	}
	driver.refuse.Store(false)
	if got := g.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"m"}`); len(got.body) > 1000 {
		t.Errorf("with the store back, got %d bytes", len(got.body))
	}
}

func TestGPlus2HardLimit(t *testing.T) {
	up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":["`+strings.Repeat("x", 50)+`","`+strings.Repeat("y", 40)+`"]}`)
	driver := &refusingDriver{Driver: memory.New()}
	driver.refuse.Store(true)
	g := startRPCGateway(t, up.URL, func(s *setup) { maskSmall(s); s.driver = driver; s.hub.Masking.HardLimit = 45 })
	got := g.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"m"}`)
	want := masked(`{"jsonrpc":"2.0","id":1,"result":["` + strings.Repeat("x", 50) + `","` + strings.Repeat("y", 40) + `"]}`)
	if got.body != want {
		t.Errorf("got %s, want %s", got.body, want)
	}
	for _, line := range []string{`ctxgate_unrecoverable_total{server="a"} 1`, `ctxgate_sent_whole_total{server="a"} 1`} {
		if !strings.Contains(g.metrics(), line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

// Masked text is sent only after the store has acknowledged its original.
func TestGPlus2StoredBeforeSent(t *testing.T) {
	up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":"`+strings.Repeat("x", 50)+`"}`)
	driver := &refusingDriver{Driver: memory.New(), gate: make(chan struct{})}
	g := startRPCGateway(t, up.URL, func(s *setup) { maskSmall(s); s.driver = driver })
	done := make(chan relayReply, 1)
	go func() { done <- g.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"m"}`) }()
	select {
	case got := <-done:
		t.Fatalf("answered before the store: %s", got.body)
	case <-time.After(200 * time.Millisecond):
	}
	close(driver.gate)
	if got := <-done; !strings.Contains(got.body, "[recover: prune_id=") {
		t.Errorf("got %s", got.body)
	}
}

func TestGPlus2StoreThatHangsLeavesTextWhole(t *testing.T) {
	reply := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 50) + `"}`
	up := rpcServerReplying(t, reply)
	driver := &refusingDriver{Driver: memory.New(), gate: make(chan struct{})}
	g := startRPCGateway(t, up.URL, func(s *setup) { maskSmall(s); s.driver = driver; s.recall.KeepTimeout = seconds(0.1) })
	if got := g.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"m"}`); got.body != reply {
		t.Errorf("got %s, want %s", got.body, reply)
	}
}

// Text that passes two endpoints of one gateway is masked at the first and left alone at the second.
func TestMaskedOnceThroughTwoEndpoints(t *testing.T) {
	for _, line := range []bool{true, false} {
		t.Run(fmt.Sprintf("recover_line=%v", line), func(t *testing.T) {
			long, longer := strings.Repeat("é", 4001), strings.Repeat("line\\n", 5000)
			up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":{"t":"`+long+`","u":["`+longer+`","`+long+`"]}}`)
			g := startRPCGateway(t, up.URL, func(s *setup) {
				s.hub.Masking.RecoverLine = line
				s.addRPCServer("b", s.self+"/api/mcp-gateway/a")
			})
			const ask = `{"jsonrpc":"2.0","id":1,"method":"m"}`
			once, twice := g.post(t, "a", ask), g.post(t, "b", ask)
			if once.status != 200 || strings.Contains(once.body, "prune_id") != line || !strings.Contains(once.body, "MASKED") {
				t.Fatalf("got %d %.300s", once.status, once.body)
			}
			if twice.body != once.body {
				t.Errorf("the second endpoint changed the text:\n%.400q\n%.400q", once.body, twice.body)
			}
			if again := g.post(t, "b", ask); again.body != once.body {
				t.Error("the next call through both endpoints differs")
			}
		})
	}
}

// With recall off, cuts are final and markers do not mention recovery.
func TestRecallOff(t *testing.T) {
	reply := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 50) + `"}`
	g := startRPCGateway(t, rpcServerReplying(t, reply).URL, func(s *setup) { maskSmall(s); s.recall = recall.Config{} })
	if got := g.post(t, "a", `{"jsonrpc":"2.0","id":1,"method":"m"}`); got.body != masked(reply) {
		t.Errorf("got %s, want %s", got.body, masked(reply))
	}
}

func TestPolicies(t *testing.T) {
	num := func(n int) *int { return &n }
	no := false
	policy := func(configure func(*hub.Policy)) hub.Policy {
		var p hub.Policy
		p.SetDefaults()
		configure(&p)
		return p
	}
	text := strings.Repeat("x", 50)
	bareMark := func(head, tail int) string {
		return fmt.Sprintf("%s\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=50 head=%d tail=%d] ...\n%s",
			text[:head], head, tail, text[:tail])
	}
	up := rpcServerReplying(t, `{"jsonrpc":"2.0","id":1,"result":{"t":"`+text+`"}}`)
	g := startRPCGateway(t, up.URL, func(s *setup) {
		maskWithoutRecoverLine(s)
		s.addRPCServer("other", up.URL)
		s.hub.Policies = []hub.Policy{
			policy(func(p *hub.Policy) { p.Tool, p.Reduce = "raw_*", "none" }),
			policy(func(p *hub.Policy) { p.Tool, p.HeadChars = "raw_x", num(1) }), // never: the one before matches, too
			policy(func(p *hub.Policy) { p.Server, p.Tool, p.HeadChars, p.TailChars = "a", "read.*", num(0), num(2) }),
			policy(func(p *hub.Policy) { p.Server, p.MaxChars = "oth*", num(50) }),
			policy(func(p *hub.Policy) { p.Tool, p.RecoverLine, p.TailChars = "*\n*", &no, num(0) }),
		}
	})
	call := func(tool string) string {
		quoted, _ := json.Marshal(tool)
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":` + string(quoted) + `}}`
	}
	for name, tt := range map[string]struct{ server, request, want string }{
		"none":                         {"a", call("raw_x"), text},
		"none, on every server":        {"other", call("raw_"), text},
		"a glob is of the whole name":  {"a", call("draw_x"), bareMark(4, 4)},
		"a dot is a dot":               {"a", call("readXall"), bareMark(4, 4)},
		"overrides":                    {"a", call("read.all"), bareMark(0, 2)},
		"another server":               {"other", call("read.all"), text},
		"without a tool":               {"a", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, bareMark(4, 4)},
		"no tool fits *":               {"other", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, text},
		"a prompt's name is no tool's": {"a", `{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"raw_x"}}`, bareMark(4, 4)},
		"a name with a line break":     {"a", call("x\ny"), bareMark(4, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := textOf(t, g.post(t, tt.server, tt.request).body); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	many := strings.Repeat("x", 513)
	minus := -1
	for _, tt := range []struct {
		configure func(*hub.Config)
		want      string
	}{
		{func(*hub.Config) {}, ""},
		{func(c *hub.Config) { c.MaxDepth = 7 }, "max_depth: must be between 8 and 1024"},
		{func(c *hub.Config) { c.MaxDepth = 1025 }, "max_depth: must be between 8 and 1024"},
		{func(c *hub.Config) { c.Naming.Separator = "" }, "naming.separator: must not be empty"},
		{func(c *hub.Config) { c.Masking.HeadChars = -1 }, "masking.head_chars: must not be negative"},
		{func(c *hub.Config) { c.Policies = []hub.Policy{{}, {Server: many, Tool: many, TailChars: &minus}} },
			"policies[1].server: the pattern is longer than 512 bytes\npolicies[1].tool: the pattern is longer than 512 bytes\n" +
				"policies[1].tail_chars: must not be negative"},
	} {
		cfg := hub.Default()
		tt.configure(&cfg)
		var got []string
		for _, err := range cfg.Validate() {
			got = append(got, err.Error())
		}
		if strings.Join(got, "\n") != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
