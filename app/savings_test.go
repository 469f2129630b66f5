package app

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpclient"
	"github.com/ctxgate/ctxgate/internal/testkit/mcpwire"
	"github.com/ctxgate/ctxgate/internal/testkit/trajectories"
)

var update = flag.Bool("update", false, "write the worked conversation of docs/savings.md")

// savings is the part of /savings that the test reads.
type savings struct {
	Total savingsAccount `json:"total"`
	Hub   struct {
		Texts  int64 `json:"texts_cut"`
		Tokens int64 `json:"tokens_cut_estimate"`
	} `json:"hub"`
}

type savingsAccount struct {
	Requests   int64 `json:"requests"`
	Recoveries int64 `json:"recovery_requests"`
	Fresh      int64 `json:"fresh"`
	Cached     int64 `json:"cached"`
	Created    int64 `json:"created"`
	Output     int64 `json:"output"`
	Billed     int64 `json:"billed"`
	Unmasked   int64 `json:"unmasked"`
	Recovery   int64 `json:"recovery"`
	Saved      int64 `json:"saved"`
	Parts      struct {
		Hub       int64 `json:"hub"`
		Shortened int64 `json:"shortened"`
		Masked    int64 `json:"masked"`
		Steps     int64 `json:"steps"`
		Cache     int64 `json:"cache"`
	} `json:"parts"`
	Money struct {
		Billed   json.Number `json:"billed"`
		Unmasked json.Number `json:"unmasked"`
		Saved    json.Number `json:"saved"`
		Recovery json.Number `json:"recovery"`
		Parts    struct {
			Hub       json.Number `json:"hub"`
			Shortened json.Number `json:"shortened"`
			Masked    json.Number `json:"masked"`
			Steps     json.Number `json:"steps"`
			Cache     json.Number `json:"cache"`
		} `json:"parts"`
	} `json:"money"`
	NotMasking string `json:"not_masking"`
}

// minus is what was added since an earlier reading.
func (a savingsAccount) minus(b savingsAccount) savingsAccount {
	a.Requests, a.Recoveries = a.Requests-b.Requests, a.Recoveries-b.Recoveries
	a.Fresh, a.Cached, a.Created, a.Output = a.Fresh-b.Fresh, a.Cached-b.Cached, a.Created-b.Created, a.Output-b.Output
	a.Billed, a.Unmasked, a.Recovery, a.Saved = a.Billed-b.Billed, a.Unmasked-b.Unmasked, a.Recovery-b.Recovery, a.Saved-b.Saved
	a.Parts.Hub, a.Parts.Masked, a.Parts.Cache = a.Parts.Hub-b.Parts.Hub, a.Parts.Masked-b.Parts.Masked, a.Parts.Cache-b.Parts.Cache
	return a
}

// toolServer is an MCP server over plain JSON-RPC that answers the calls of a conversation, by their arguments.
func toolServer(t *testing.T, tr trajectories.Trajectory) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"params"`
		}
		_ = json.NewDecoder(r.Body).Decode(&m)
		result := `{"tools":[`
		for i, tool := range tr.Tools {
			if i > 0 {
				result += ","
			}
			result += fmt.Sprintf(`{"name":%q,"inputSchema":%s}`, tool.Name, tool.Schema)
		}
		result += `]}`
		if m.Method == "tools/call" {
			for _, turn := range tr.Turns {
				for _, u := range turn.ToolUses {
					if u.Name == m.Params.Name && u.Args == string(m.Params.Arguments) {
						text, _ := json.Marshal(u.Result)
						result = `{"content":[{"type":"text","text":` + string(text) + `}]}`
					}
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+result+`}`)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// workedRun is one agent with and without the gateway.
type workedRun struct {
	with, without fakeprovider.Bill
	requests      []savingsAccount // what /savings says of each request
	total         savings
	readBackAt    int // the request that carries what was read back
}

const (
	workedRead, workedWrite     = .1, 1.25
	workedInput, workedOutput   = 3, 15 // per million
	workedWindow, workedStride  = 4, 6
	workedReadBack              = 6 // the turn whose result is read back
	workedTurns, workedResult   = 16, 3000
	workedBegin, workedEnd      = "<!-- what go test ./app -run TestSavingsOfToolsAndModel prints -->\n", "<!-- end of the worked conversation -->\n"
	workedPage, workedGoCommand = "../docs/savings.md", "go test ./app -run TestSavingsOfToolsAndModel -update"
)

var shownID = regexp.MustCompile(`prune_id=(prn_[0-9a-z]{26})`)

// workedPrices are the prices of a provider: Gemini charges nothing for writing to its cache.
func workedPrices(s fakeprovider.Shape) fakeprovider.Prices {
	if s == fakeprovider.Gemini {
		return fakeprovider.Prices{Write: 1, Read: workedRead}
	}
	return fakeprovider.Prices{Write: workedWrite, Read: workedRead}
}

// runWorked runs an agent in a wire shape: its tools are called through the MCP endpoint, its model through the LLM
// endpoint, of one gateway. Then it runs the same agent without the gateway.
func runWorked(t *testing.T, shape fakeprovider.Shape) workedRun {
	t.Helper()
	tr := trajectories.Uniform(workedTurns, workedResult)
	prices := workedPrices(shape)
	direct := fakeprovider.New(t, fakeprovider.Options{Prices: prices, DiscardBodies: true})
	direct.ScriptFunc(tr.Answer)
	if _, err := (trajectories.Replayer{URL: direct.URL, Shape: shape}).Run(t.Context(), tr); err != nil {
		t.Fatal(err)
	}

	p := fakeprovider.New(t, fakeprovider.Options{Prices: prices, DiscardBodies: true})
	kind := map[fakeprovider.Shape]string{fakeprovider.Chat: "openai", fakeprovider.Responses: "openai", fakeprovider.Messages: "anthropic", fakeprovider.Gemini: "gemini"}[shape]
	dir := t.TempDir()
	r := start(t, load(t, dir, fmt.Sprintf(`profile = 'agents'
%s
[[providers]]
name = 'p'
kind = '%s'
base_url = '%s'
cache = { write = %g, read = %g }
price = { input = %d, output = %d }
[observation_masking.schema1]
window_turns = %d
advance = 'stride'
stride = %d
[state]
driver = 'memory'
`, server("files", toolServer(t, tr)), kind, p.URL, prices.Write, prices.Read, workedInput, workedOutput, workedWindow, workedStride)))
	token, err := os.ReadFile(filepath.Join(dir, "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	run := workedRun{without: direct.Bill()}
	seen := savingsAccount{}
	readSavings := func(requests int) savings {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			_, body := r.do(t, http.MethodGet, r.admin+"/savings", strings.TrimSpace(string(token)), "")
			var s savings
			if err := json.Unmarshal([]byte(body), &s); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			if s.Total.Requests == int64(requests) {
				return s
			}
			if time.Now().After(end) {
				t.Fatalf("the ledger has %d requests, not %d", s.Total.Requests, requests)
			}
		}
	}
	tr = run.callTools(t, r, tr)
	p.ScriptFunc(tr.Answer)
	_, err = trajectories.Replayer{URL: r.main, Shape: shape, BeforeTurn: func(n int) {
		if n > 0 {
			now := readSavings(n).Total
			run.requests = append(run.requests, now.minus(seen))
			seen = now
		}
	}}.Run(t.Context(), tr)
	if err != nil {
		t.Fatal(err)
	}
	run.total = readSavings(len(tr.Turns) + 1)
	run.requests = append(run.requests, run.total.Total.minus(seen))
	run.with = p.Bill()
	r.end(t)
	return run
}

// callTools calls the tools of a conversation through the MCP endpoint, and reads one result back.
func (w *workedRun) callTools(t *testing.T, r *running, tr trajectories.Trajectory) trajectories.Trajectory {
	t.Helper()
	c, err := mcpclient.ConnectHTTP(t.Context(), r.client, r.main+"/mcp", mcpwire.Legacy, mcpclient.NoCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	call := func(name, args string) string {
		calls++
		got, err := c.Call(t.Context(), mcpclient.Request{ID: fmt.Sprint(calls), Method: "tools/call", Params: fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args)})
		if err != nil || got.Result == nil {
			t.Fatalf("%s: %v, %s", name, err, got.Error)
		}
		return mcpclient.ResultText(got.Message)
	}
	list, err := c.Call(t.Context(), mcpclient.Request{ID: `"list"`, Method: "tools/list"})
	if err != nil {
		t.Fatal(err)
	}
	var tools struct {
		Tools []struct {
			Name, Description string
			InputSchema       json.RawMessage
		}
	}
	if err := json.Unmarshal(list.Result, &tools); err != nil {
		t.Fatal(err)
	}
	out := tr
	out.Tools = append([]trajectories.Tool(nil), tr.Tools...)
	for _, tool := range tools.Tools {
		if tool.Name == "recover_text" {
			out.Tools = append(out.Tools, trajectories.Tool{Name: "mcp__ctxgate__recover_text", Description: tool.Description, Schema: string(tool.InputSchema)})
		}
	}
	if len(out.Tools) != len(tr.Tools)+1 {
		t.Fatalf("recover_text is not listed: %s", list.Result)
	}
	out.Turns = nil
	for i, turn := range tr.Turns {
		use := turn.ToolUses[0]
		use.Result = call("files__"+use.Name, use.Args)
		turn.ToolUses = []trajectories.ToolUse{use}
		out.Turns = append(out.Turns, turn)
		if i+1 == workedReadBack {
			args := `{"prune_id":"` + shownID.FindStringSubmatch(use.Result)[1] + `"}`
			back := trajectories.ToolUse{Call: fakeprovider.Call{ID: "call_back", Name: "mcp__ctxgate__recover_text", Args: args}, Result: call("recover_text", args)}
			if back.Result != tr.Turns[i].ToolUses[0].Result {
				t.Errorf("read back: %.200s", back.Result)
			}
			out.Turns = append(out.Turns, trajectories.Turn{ToolUses: []trajectories.ToolUse{back}})
			w.readBackAt = len(out.Turns) + 1
		}
	}
	return out
}

// page is the part of docs/savings.md with the figures of a run, given what the provider charged without and with the
// gateway.
func (w workedRun) page(whole, paid float64) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("\n**1. What the provider reports.** The `usage` of each reply, in tokens. `billed` is the input at its prices, in tokens of fresh input:")
	line("written × %g + read × %g + fresh × 1. The other columns are the ledger's: what the request would have cost without ctxgate, and why it", workedWrite, workedRead)
	line("did not. In every line, without ctxgate − hub − masked − cache + recovery = billed.\n")
	line("| request | read | written | fresh | output | billed | without ctxgate | hub | masked | cache | recovery |")
	line("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	moves := 0
	for i, a := range w.requests {
		note := ""
		if i+1 == w.readBackAt {
			note = " ¹"
		}
		if a.Parts.Cache < 0 {
			note, moves = " ²", moves+1
		}
		line("| %d%s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |", i+1, note, digits(a.Cached), digits(a.Created), digits(a.Fresh), digits(a.Output), digits(a.Billed), digits(a.Unmasked),
			digits(a.Parts.Hub), digits(a.Parts.Masked), digits(a.Parts.Cache), digits(a.Recovery))
	}
	a := w.total.Total
	line("| **sum** | **%s** | **%s** | **%s** | **%s** | **%s** | **%s** | **%s** | **%s** | **%s** | **%s** |\n", digits(a.Cached), digits(a.Created), digits(a.Fresh), digits(a.Output), digits(a.Billed), digits(a.Unmasked),
		digits(a.Parts.Hub), digits(a.Parts.Masked), digits(a.Parts.Cache), digits(a.Recovery))
	line("¹ The model read a result back. Without ctxgate there would be no such request: all of it is recovery, and so is the stay of the text in later")
	line("requests, and the definition of `recover_text` in all of them.")
	line("² The window moved (%d times): what follows the first masked result had to be written to the provider's cache again.\n", moves)

	line("**2. The sum**, as `/savings` has it, in tokens of fresh input and in money at %d and %d per million tokens of input and output. Money has the", workedInput, workedOutput)
	line("output too: %s tokens.\n", digits(a.Output))
	line("| | tokens | money | key in `total` |")
	line("|---|--:|--:|---|")
	m := a.Money
	row := func(name string, tokens int64, money json.Number, key string) {
		line("| %s | %s | %s | %s |", name, digits(tokens), strings.Replace(string(money), "-", "−", 1), key)
	}
	row("without ctxgate", a.Unmasked, m.Unmasked, "`unmasked`")
	row("− cut at the hub", a.Parts.Hub, m.Parts.Hub, "`parts.hub`")
	row("− shortened when new", a.Parts.Shortened, m.Parts.Shortened, "`parts.shortened`")
	row("− masked when old", a.Parts.Masked, m.Parts.Masked, "`parts.masked`")
	row("− below a price step", a.Parts.Steps, m.Parts.Steps, "`parts.steps`")
	row("− the provider's cache", a.Parts.Cache, m.Parts.Cache, "`parts.cache`")
	row("+ reading back", a.Recovery, m.Recovery, "`recovery`")
	row("**= billed**", a.Billed, m.Billed, "`billed`")
	row("**saved**: without − billed", a.Saved, m.Saved, "`saved`")
	line("\n**3. The proof.** The same agent was run without ctxgate against a provider of its own. The bills of both providers, input only, in the same unit:\n")
	line("| | tokens |")
	line("|---|--:|")
	line("| bill without ctxgate | %s |", digits(int64(math.Round(whole))))
	line("| bill with ctxgate | %s |", digits(int64(math.Round(paid))))
	line("| saved, by the bills | %s |", digits(int64(math.Round(whole-paid))))
	line("| saved, by the ledger | %s |", digits(a.Saved))
	line("| difference, of the bill without ctxgate | %.1f %% |\n", 100*math.Abs(float64(a.Saved)-(whole-paid))/whole)
	return b.String()
}

// digits is a number with commas between thousands.
func digits(n int64) string {
	sign, s := "", fmt.Sprint(n)
	if n < 0 {
		sign, s = "−", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// One agent runs behind one gateway, its tools at the MCP endpoint and its model at the LLM endpoint, in every wire
// shape. What /savings says is within 3 % of the bill from the truth: the same agent without the gateway.
func TestSavingsOfToolsAndModel(t *testing.T) {
	for _, shape := range append(fakeprovider.AllShapes(), fakeprovider.Gemini) {
		w := runWorked(t, shape)
		a, prices := w.total.Total, workedPrices(shape)
		paid, whole := w.with.Cost(prices), w.without.Cost(prices)
		off := (float64(a.Saved) - (whole - paid)) / whole
		t.Logf("%-9v without %.0f, with %.0f, saved %.0f, the ledger says %d: %.2f %% off; %+v, recovery %d", shape, whole, paid, whole-paid, a.Saved, 100*off, a.Parts, a.Recovery)
		if math.Abs(off) > .03 || a.Parts.Hub == 0 || a.Parts.Masked == 0 || a.Parts.Cache >= 0 || a.Recoveries != 1 || w.total.Hub.Texts != workedTurns {
			t.Errorf("%v: %.2f %% off: %+v", shape, 100*off, w.total)
		}
		if got := a.Unmasked - a.Parts.Hub - a.Parts.Shortened - a.Parts.Masked - a.Parts.Steps - a.Parts.Cache + a.Recovery; got != a.Billed {
			t.Errorf("%v: the sum is %d, billed %d", shape, got, a.Billed)
		}
		if shape == fakeprovider.Messages {
			checkWorkedPage(t, w.page(whole, paid))
		}
	}
}

// The page for people in finance shows these figures.
func checkWorkedPage(t *testing.T, block string) {
	t.Helper()
	page, err := os.ReadFile(workedPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), workedBegin)
	shown, after, closed := strings.Cut(rest, workedEnd)
	if !ok || !closed {
		t.Fatalf("%s has no place for the worked conversation", workedPage)
	}
	if *update {
		if err := os.WriteFile(workedPage, []byte(before+workedBegin+block+workedEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if shown != block {
		t.Errorf("%s is out of date; run `%s`. It should say\n%s", workedPage, workedGoCommand, block)
	}
}
