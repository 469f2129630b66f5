package recall

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/clients"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/reduce"
	"github.com/ctxgate/ctxgate/state"
)

// agentsPolicy is the policy of profile = "agents".
func agentsPolicy() Policy {
	p := DefaultPolicy()
	p.Markers = reduce.PlainMarkers
	return p
}

// shrinkFor cuts a reply for a client and returns what the client gets.
func shrinkFor(t testing.TB, r *Recall, body []byte, p Policy, limit clients.Result) []byte {
	t.Helper()
	strs, _, err := jsonscan.New(body, 0).LongStrings(nil, p.MaxChars)
	if err != nil {
		t.Fatal(err)
	}
	var whole []jsonscan.Span
	for at := 0; ; {
		n := bytes.Index(body[at:], []byte(`"data":"`))
		if n < 0 {
			break
		}
		at += n + len(`"data":`)
		whole = append(whole, jsonscan.Span{Start: at, End: at + 2 + bytes.IndexByte(body[at+1:], '"')})
	}
	strs = slices.DeleteFunc(strs, func(s jsonscan.Str) bool { return isWhole(whole, s.Span) })
	got := r.Shrink(t.Context(), ShrinkRequest{Tenant: "t", Origin: Origin{Server: "s", Tool: "x"}, Body: body, Strings: strs, Limit: limit, Whole: whole}, p)
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	return jsonscan.AppendSpliced(nil, body, got.Edits)
}

// countedBy counts a result as a client does, by other means than measureResult: all of it decoded.
func countedBy(t testing.TB, body []byte, l clients.Result) (chars, size, lines int) {
	t.Helper()
	var doc struct {
		Result struct {
			Content           []json.RawMessage
			StructuredContent json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatalf("%v: %.300s", err, body)
	}
	var texts []string
	if s := doc.Result.StructuredContent; len(s) > 0 {
		texts = append(texts, string(s))
	}
	if !l.StructuredInstead || len(texts) == 0 {
		if l.AsJSON {
			all, err := json.Marshal(doc.Result.Content)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(all))
		} else {
			for _, raw := range doc.Result.Content {
				var b struct{ Text string }
				if err := json.Unmarshal(raw, &b); err != nil {
					t.Fatal(err)
				}
				texts = append(texts, b.Text)
			}
		}
	}
	for _, text := range texts {
		chars += len(utf16.Encode([]rune(text)))
		size += len(text)
		lines += strings.Count(text, "\n") + 1
	}
	return chars, size, lines
}

func checkWithin(t testing.TB, body []byte, l clients.Result) {
	t.Helper()
	chars, size, lines := countedBy(t, body, l)
	if l.Chars > 0 && chars > l.Chars || l.Bytes > 0 && size > l.Bytes || l.Lines > 0 && lines > l.Lines {
		t.Fatalf("%d characters, %d bytes, %d lines; the client passes on %+v", chars, size, lines, l)
	}
}

// The markers of characters and of lines, in both wordings.
var (
	charMarkers = regexp.MustCompile(`\n(?:\[… [\d,]+ characters left out; call recover_text with |\.\.\. \[KIMI_PROXY_OBSERVATION_MASKED original_chars=\d+ head=\d+ tail=\d+\] \.\.\.\n\[recover: )` +
		`prune_id=(prn_\w+) chars=(\d+)-(\d+)\]\n`)
	lineMarkers = regexp.MustCompile(`(?m)^(?:\[lines? (\d+)(?:-(\d+))? left out; call recover_text with prune_id=(prn_\w+)\]|⟦PRUNÉ: prune_id=(prn_\w+) lignes (\d+)-(\d+) \(\d+\) raison=hors focus⟧)$`)
)

// readBack puts back what the markers of a text name.
func readBack(t testing.TB, r *Recall, text string) string {
	t.Helper()
	recover := func(id string, q ReadRequest) string {
		q.ID = id
		part, err := r.RecoverText(t.Context(), "t", q, anybody, 0)
		if err != nil {
			t.Fatal(err)
		}
		return string(part)
	}
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	text = lineMarkers.ReplaceAllStringFunc(text, func(marker string) string {
		m := lineMarkers.FindStringSubmatch(marker)
		lines := Range{First: number(m[1] + m[5]), Last: number(cmp.Or(m[2], m[1]) + m[6])}
		got := recover(m[3]+m[4], ReadRequest{Ranges: []Range{lines}})
		if n := strings.Count(got, "\n"); n != lines.Last-lines.First+1 {
			t.Fatalf("%s gives %d lines", marker, n)
		}
		return strings.TrimSuffix(got, "\n")
	})
	return charMarkers.ReplaceAllStringFunc(text, func(marker string) string {
		m := charMarkers.FindStringSubmatch(marker)
		return recover(m[1], ReadRequest{Chars: &Range{First: number(m[2]), Last: number(m[3])}})
	})
}

func anybody(Origin) bool { return true }

var fitLimits = map[string]clients.Result{
	"chars": {Chars: 5000}, "bytes": {Bytes: 6000}, "lines": {Lines: 60}, "bytes and lines": {Bytes: 8000, Lines: 40},
	"json": {Bytes: 5000, AsJSON: true, StructuredInstead: true},
}

func textBlocks(texts ...string) []byte {
	b := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[`)
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',', ' ')
		}
		b = append(append(append(b, `{"type":"text","text":`...), quote(text)...), '}')
	}
	return append(b, `]}}`...)
}

// The laws of a fit, for any texts and every kind of limit: never over the limit as the client counts; nothing lost, as
// what the markers name joins to the original; the same bytes each time.
func TestFitLaws(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	r, _ := open(t, nil)
	piece := rapid.SampledFrom([]string{
		"a line of words\n", "\n", "é汉字😀 ", "\"quoted\" \\ and\ttabs ", "x", strings.Repeat("word ", 300), "\x01\x02", "👩\u200d👧", strings.Repeat("\n", 50),
	})
	for name, limit := range fitLimits {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				var texts []string
				for range rapid.SampledFrom([]int{1, 2, 7, 60}).Draw(rt, "blocks") {
					texts = append(texts, strings.Join(rapid.SliceOfN(piece, 0, 60).Draw(rt, "pieces"), ""))
				}
				body := textBlocks(texts...)
				p := agentsPolicy()
				p.MaxChars = rapid.SampledFrom([]int{4000, 1000, 1 << 40}).Draw(rt, "max")
				p.HeadChars, p.TailChars = min(p.MaxChars/2, 2000), min(p.MaxChars/2, 2000)
				if rapid.Bool().Draw(rt, "prune") {
					p.Choice = pruneFor("a line of words")
				}
				out := shrinkFor(t, r, body, p, limit)
				checkWithin(t, out, limit)
				if !FitsClient(out, limit) {
					t.Fatalf("measured as too large: %+v", measureResult(out, limit))
				}
				if again := shrinkFor(t, r, body, p, limit); !bytes.Equal(out, again) {
					t.Fatal("not deterministic")
				}
				checkNothingLost(t, r, texts, out)
			})
		})
	}
}

var blocksMarker = regexp.MustCompile(`^\[… (\d+) of (\d+) content blocks left out; call recover_text with prune_id=(prn_\w+)\]$`)

// checkNothingLost reads everything back and compares it with the texts that the server sent.
func checkNothingLost(t testing.TB, r *Recall, texts []string, out []byte) {
	t.Helper()
	var got []string
	for _, b := range read(t, out).Result.Content {
		m := blocksMarker.FindStringSubmatch(b.Text)
		if m == nil {
			got = append(got, readBack(t, r, b.Text))
			continue
		}
		lines, err := r.RecoverText(t.Context(), "t", ReadRequest{ID: m[3]}, anybody, 0)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(lines)) {
			var left struct{ Text string }
			if err := json.Unmarshal([]byte(line), &left); err != nil {
				t.Fatal(err)
			}
			got = append(got, left.Text)
		}
	}
	if len(got) != len(texts) {
		t.Fatalf("%d blocks, sent %d", len(got), len(texts))
	}
	for i := range texts {
		if got[i] != strings.ToValidUTF8(texts[i], "\uFFFD") {
			t.Fatalf("block %d is %.200q, sent %.200q", i, got[i], texts[i])
		}
	}
}

// A result within the limit is not touched, and without a limit nothing changes.
func TestFitLeavesWhatFits(t *testing.T) {
	r, _ := open(t, nil)
	body := textBlocks(strings.Repeat("x", 3000), strings.Repeat("y", 1800))
	for _, limit := range []clients.Result{{}, {Chars: 5000}, {Bytes: 6000, Lines: 10}} {
		if out := shrinkFor(t, r, body, agentsPolicy(), limit); !bytes.Equal(out, body) {
			t.Errorf("%+v: %s", limit, out)
		}
	}
}

// The results of the field's reports: for every client of the table that has a limit, 350 KB, 40 KB and 12 KB, as one
// text, as many and as structuredContent, are within what it passes on, with a marker or whole.
func TestFitForEveryKnownClient(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	r, _ := open(t, nil)
	line := "2026-11-16T02:00:00Z INFO request 4711 took 12 ms \"GET /items?é=1\"\n"
	for _, id := range clients.IDs() {
		c, _ := clients.ByID(id)
		if c.Result.IsZero() {
			continue
		}
		for _, size := range []int{350_000, 40_000, 12_000} {
			text := strings.Repeat(line, size/len(line))
			rows := make([]string, size/80)
			for i := range rows {
				rows[i] = fmt.Sprintf(`{"id":%d,"name":"the name of something to list here"}`, i)
			}
			structured := `{"rows":[` + strings.Join(rows, ",") + `]}`
			wide := agentsPolicy()
			wide.Reducer, wide.MaxChars = reduce.None, 1<<40
			for name, body := range map[string][]byte{
				"one text": textBlocks(text), "lines": textBlocks(strings.SplitAfter(text, "\n")...), "both": toolReply(structured, structured, ""),
				"structured": toolReply("done", structured, ""),
			} {
				for _, p := range []Policy{agentsPolicy(), wide} {
					out := shrinkFor(t, r, body, p, c.Result)
					checkWithin(t, out, c.Result)
					if !bytes.Equal(out, body) && !bytes.Contains(out, []byte("call recover_text with prune_id=prn_")) {
						t.Errorf("%s, %s of %d: cut without a marker: %.300s", id, name, size, out)
					}
				}
			}
		}
	}
}

// Images stay, however many texts go, and what is marked as whole is not cut.
func TestFitKeepsImages(t *testing.T) {
	r, _ := open(t, nil)
	image := `{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("A", 20_000) + `"}`
	var blocks []string
	for i := range 200 {
		blocks = append(blocks, `{"type":"text","text":"`+strings.Repeat("t", 300)+strconv.Itoa(i)+`"}`)
		if i%50 == 0 {
			blocks = append(blocks, image)
		}
	}
	body := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[` + strings.Join(blocks, ",") + `]}}`)
	limit := clients.Result{Chars: 5000}
	out := shrinkFor(t, r, body, agentsPolicy(), limit)
	if n := bytes.Count(out, []byte(image)); n != 4 {
		t.Errorf("%d images", n)
	}
	if !json.Valid(out) || bytes.Count(out, []byte("content blocks left out")) != 1 {
		t.Errorf("got %.500s", out)
	}
	checkWithin(t, out, limit)
}

// With pruning the lines that matter stay, fewer of them.
func TestFitPrunesMoreBeforeItMasks(t *testing.T) {
	r, _ := open(t, nil)
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "2026-11-16 INFO step %d of the build is done\n", i)
	}
	b.WriteString("error: the order 4711 was declined\n")
	for i := range 3000 {
		fmt.Fprintf(&b, "2026-11-16 INFO cleaning %d is done\n", i)
	}
	p := agentsPolicy()
	p.Choice = reduce.Choice{Reducer: "prune", Goal: "why was the order 4711 declined", Prune: reduce.DefaultPruneOptions()}
	limit := clients.Result{Chars: 20_000}
	out := shrinkFor(t, r, textBlocks(b.String()), p, limit)
	checkWithin(t, out, limit)
	if !bytes.Contains(out, []byte("the order 4711 was declined")) {
		t.Errorf("the line is gone: %.300s", out)
	}
}

// While originals are not kept, nothing is cut for the client's sake.
func TestFitNeedsTheStore(t *testing.T) {
	r, _ := open(t, func(c *Config, _ *state.Config) { c.Enabled = false })
	p := agentsPolicy()
	p.MaxChars = 1 << 40
	body := textBlocks(strings.Repeat("x", 90_000))
	if out := shrinkFor(t, r, body, p, clients.Result{Chars: 5000}); !bytes.Equal(out, body) {
		t.Errorf("cut to %d bytes", len(out))
	}
}

// FuzzFit checks the laws for any text.
func FuzzFit(f *testing.F) {
	r, _ := open(f, nil)
	f.Add(strings.Repeat("line é\n", 2000), "short", uint8(0))
	f.Add(strings.Repeat("\"\\\x01", 3000), strings.Repeat("😀", 4000), uint8(4))
	f.Add(strings.Repeat("\n", 9000), "", uint8(2))
	f.Fuzz(func(t *testing.T, a, b string, kind uint8) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) || len(a)+len(b) > 1<<20 {
			return
		}
		names := []string{"chars", "bytes", "lines", "bytes and lines", "json"}
		limit := fitLimits[names[int(kind)%len(names)]]
		out := shrinkFor(t, r, textBlocks(a, b), agentsPolicy(), limit)
		checkWithin(t, out, limit)
		checkNothingLost(t, r, []string{a, b}, out)
	})
}
