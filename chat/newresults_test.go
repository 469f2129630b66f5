package chat_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/chat/masking"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/reduce"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

var wireShapes = []llm.Codec{openaichat.Codec{}, anthropic.Codec{}, responses.Codec{}}

// G3, P4, I1, I3: a long result is shortened in the first request that has it, on every wire and in
// each of its texts, and every id gives its original back, byte for byte.
func TestNewResultsAreShortenedAndRecoverable(t *testing.T) {
	for _, shape := range wireShapes {
		for _, reducer := range []string{"mask", "prune"} {
			r := newRecall(t, nil)
			two := toolUse{id: "b", name: "fetch", args: `{}`, texts: []string{sourceText(2, 3000), sourceText(3, 4000)}}
			if shape == (openaichat.Codec{}) {
				two.texts = two.texts[:1] // lists are not changed on this wire (H7)
			}
			dialogue := []dialogueStep{{user: "Where is the cache?"}, {uses: []toolUse{{id: "a", name: "read", args: `{"path":"x"}`, texts: []string{sourceText(1, 5000)}}, two, {id: "c", name: "ls", args: `{}`, texts: []string{sourceText(4, 1000)}}}}}
			body := encodeRequest(shape, recoverTool, dialogue)
			got, done := shrunkBody(chat.NewResultsMasker(r, time.Now), withNewResults(shape, body, shortenOver2000(reducer)))
			before, after := resultTexts(t, shape, body), resultTexts(t, shape, got)
			shortened := 0
			for i, text := range after {
				ids := marker.FindAllStringSubmatch(text, -1)
				if len(before[i]) <= 2000 {
					if text != before[i] {
						t.Errorf("%s, %s: a short result became %q", shape, reducer, text)
					}
					continue
				}
				if shortened++; len(ids) == 0 || len(text) >= len(before[i]) {
					t.Fatalf("%s, %s: %q", shape, reducer, text)
				}
				for _, id := range ids {
					if readOriginal(t, r, id[1]) != before[i] {
						t.Errorf("%s, %s: %s gives another text", shape, reducer, id[1])
					}
				}
			}
			if shortened != countResults(done) || done.BoundaryMoved {
				t.Errorf("%s, %s: %d shortened, %+v", shape, reducer, shortened, done)
			}
			for _, c := range done.Cuts {
				if !c.NeverSent || c.Tokens <= 0 || c.Tool == "" {
					t.Errorf("cleared %+v", c)
				}
			}
		}
	}
}

// I4, H+1: with new results shortened and old ones masked, each request extends the previous one unless
// the window moves, and a process that has not seen the conversation sends the same bytes.
func TestNewResultsKeepPrefixesStable(t *testing.T) {
	for _, shape := range wireShapes {
		moves, shortened := 0, 0
		for seed := range uint64(4) {
			reducer := []string{"mask", "prune"}[seed%2]
			dialogue := randomDialogue(seed, 16)
			store := state.New(memory.New(), patientStore(), time.Now)
			defer store.Close()
			one, tools := newMasker(t, store), recoverTool
			if seed%3 == 0 {
				tools = ""
			}
			last := ""
			for n := 1; n <= len(dialogue); n++ {
				body := markFirst(shape, encodeRequest(shape, tools, dialogue[:n]))
				o := withNewResults(shape, body, shortenOver2000(reducer))
				o.Policy = history.DefaultPolicy()
				o.Policy.WindowTurns, o.Policy.TriggerTokens = 3, 0
				o.CachePrices = masking.CachePrices{Write: 1.25, Read: .1}
				got, done := shrunkBody(one, o)
				if !done.BoundaryMoved && !strings.HasPrefix(got, last) {
					t.Fatalf("%s, seed %d: the prefix changed without a move at %d:\n%s\n%s", shape, seed, n, last, got)
				}
				if n%6 == 0 {
					if other, _ := shrunkBody(newMasker(t, store), o); other != got {
						t.Fatalf("%s, seed %d: another process sends other bytes at %d", shape, seed, n)
					}
				}
				last = strings.TrimSuffix(got, "]}")
				shortened += countResults(done)
				if done.BoundaryMoved {
					moves++
				}
			}
		}
		if moves < 4 || shortened < 100 {
			t.Errorf("%s: %d moves and %d results shortened: the test covers too little", shape, moves, shortened)
		}
	}
}

func newMasker(t testing.TB, store *state.Store) func(masking.NewResults) chat.Shrinker {
	t.Helper()
	r, err := recall.New(store, []byte(strings.Repeat("s", recall.MinSecretBytes)), recall.Default())
	if err != nil {
		t.Fatal(err)
	}
	return chat.NewResultsMasker(r, time.Now)
}

// markFirst puts a cache_control on the first message of a /v1/messages request: without one nothing
// is cached, and the window moves at every turn.
func markFirst(shape llm.Codec, body string) string {
	if shape != (anthropic.Codec{}) {
		return body
	}
	before, rest, _ := strings.Cut(body, `"content":`)
	text, after, _ := strings.Cut(rest, `}`)
	return before + `"content":[{"type":"text","text":` + text + `,"cache_control":{"type":"ephemeral"}}]}` + after
}

// H+1: no text that was sent before changes when the client marks its last block at every turn and
// writes that result as a list.
func TestNewResultsBeforeBreakpoints(t *testing.T) {
	shrink := chat.NewResultsMasker(newRecall(t, nil), time.Now)
	dialogue := randomDialogue(3, 20)
	var before []string
	for n := 2; n <= len(dialogue); n++ {
		body := encodeRequest(anthropic.Codec{}, recoverTool, dialogue[:n])
		if last := dialogue[n-1]; last.user == "" && len(last.uses[len(last.uses)-1].texts) == 1 && !last.uses[len(last.uses)-1].hasImage {
			at := strings.LastIndex(body, `"content":"`) + len(`"content":`)
			body = body[:at] + `[{"type":"text","text":` + strings.TrimSuffix(body[at:], `}]}]}`) + `,"cache_control":{"type":"ephemeral"}}]}]}]}`
		}
		o := withNewResults(anthropic.Codec{}, body, shortenOver2000("prune"))
		o.Policy, o.CachePrices = history.DefaultPolicy(), masking.CachePrices{Write: 1.25, Read: .1}
		o.Policy.WindowTurns = 50
		got, _ := shrunkBody(shrink, o)
		after := resultTexts(t, anthropic.Codec{}, got)
		if strings.Join(after[:len(before)], "\x00") != strings.Join(before, "\x00") {
			t.Fatalf("turn %d: a text changed", n)
		}
		before = after
	}
}

// Concurrent requests get the same bytes.
func TestNewResultsConcurrently(t *testing.T) {
	shrink := chat.NewResultsMasker(newRecall(t, nil), time.Now)
	o := withNewResults(anthropic.Codec{}, encodeRequest(anthropic.Codec{}, recoverTool, randomDialogue(5, 30)), shortenOver2000("prune"))
	var got [4]string
	var requests sync.WaitGroup
	for i := range got {
		requests.Go(func() { got[i], _ = shrunkBody(shrink, o) })
	}
	requests.Wait()
	for _, g := range got {
		if g != got[0] || g == string(o.Body) {
			t.Error("concurrent requests got different bytes, or nothing was shortened")
		}
	}
}

// H7, H10, I1: the requests that are sent unchanged.
func TestNewResultsSentUnchanged(t *testing.T) {
	long := sourceText(1, 5000)
	one := func(u toolUse) []dialogueStep {
		u.id, u.args = "a", `{}`
		if u.texts == nil {
			u.texts = []string{long}
		}
		if u.name == "" {
			u.name = "read"
		}
		return []dialogueStep{{user: "Where?"}, {uses: []toolUse{u}}}
	}
	off := func(c *recall.Config) { c.Enabled = false }
	for name, c := range map[string]struct {
		dialogue []dialogueStep
		change   func(*masking.NewResults)
		recall   func(*recall.Config)
	}{
		"off by default":            {one(toolUse{}), func(b *masking.NewResults) { *b = masking.DefaultNewResults(); b.MaxChars = 100 }, nil},
		"recall disabled":           {one(toolUse{}), nil, off},
		"an image":                  {one(toolUse{hasImage: true}), nil, nil},
		"a result without its call": {one(toolUse{withoutCall: true}), nil, nil},
		"tool not listed":           {one(toolUse{}), func(b *masking.NewResults) { b.Tools = []string{"write", "re"} }, nil},
		"tool excepted":             {one(toolUse{}), func(b *masking.NewResults) { b.Except = []string{"r*d"} }, nil},
		"a recover_text result":     {one(toolUse{name: "mcp__gate__recover_text"}), nil, nil},
		"exactly at the limit":      {one(toolUse{texts: []string{strings.Repeat("é", 2000)}}), nil, nil},
		"just over the limit": {one(toolUse{texts: []string{strings.Repeat("x", 2001)}}), func(b *masking.NewResults) {
			b.HeadChars, b.TailChars, b.Reduce = 1000, 1000, "mask" // prune keeps the limit, also by one character
		}, nil},
	} {
		for _, shape := range wireShapes {
			for _, reducer := range []string{"mask", "prune"} {
				policy := shortenOver2000(reducer)
				if c.change != nil {
					c.change(&policy)
				}
				body := encodeRequest(shape, recoverTool, c.dialogue)
				if got, done := shrunkBody(chat.NewResultsMasker(newRecall(t, c.recall), time.Now), withNewResults(shape, body, policy)); got != body || len(done.Cuts) > 0 {
					t.Errorf("%s, %s, %s: got %s", name, shape, reducer, got)
				}
			}
		}
	}
}

// I1: a result whose original cannot be stored is sent whole, and shortened once it can be stored.
func TestNewResultsWhileTheStoreIsDown(t *testing.T) {
	driver := &failingStore{Driver: memory.New()}
	store := state.New(driver, patientStore(), time.Now)
	defer store.Close()
	shrink := newMasker(t, store)
	o := withNewResults(responses.Codec{}, encodeRequest(responses.Codec{}, "", randomDialogue(2, 9)), shortenOver2000("prune"))
	driver.isDown.Store(true)
	if got, done := shrunkBody(shrink, o); got != string(o.Body) || len(done.Cuts) > 0 {
		t.Error("shortened without a stored original")
	}
	driver.isDown.Store(false)
	if got, _ := shrunkBody(shrink, o); got == string(o.Body) {
		t.Error("not shortened")
	}
}

// H8, P8: an error is not masked; when it is pruned, its error lines stay.
func TestNewResultsKeepsErrors(t *testing.T) {
	text := "Error: the build failed\n" + sourceText(1, 4000) + "Traceback (most recent call last):\nValueError: exit status 7\n" + sourceText(2, 4000)
	dialogue := []dialogueStep{{user: "Build it."}, {uses: []toolUse{{id: "a", name: "sh", args: `{"command":"make"}`, texts: []string{text}}}}}
	line := []dialogueStep{{user: "Build it."}, {uses: []toolUse{{id: "a", name: "sh", args: `{}`, texts: []string{"Error: " + strings.Repeat("x", 5000)}, isError: true}}}}
	for _, shape := range wireShapes {
		shrink := chat.NewResultsMasker(newRecall(t, nil), time.Now)
		for reducer, dialogue := range map[string][]dialogueStep{"mask": dialogue, "prune": line} {
			body := encodeRequest(shape, recoverTool, dialogue)
			if got, _ := shrunkBody(shrink, withNewResults(shape, body, shortenOver2000(reducer))); got != body {
				t.Errorf("%s, %s: an error was masked: %s", shape, reducer, got)
			}
			withErrors := shortenOver2000(reducer)
			withErrors.KeepErrors = false
			if got, _ := shrunkBody(shrink, withNewResults(shape, body, withErrors)); got == body {
				t.Errorf("%s, %s: with keep_errors = false the error was not shortened", shape, reducer)
			}
		}
		body := encodeRequest(shape, recoverTool, dialogue)
		got, _ := shrunkBody(shrink, withNewResults(shape, body, shortenOver2000("prune")))
		for _, line := range []string{"Error: the build failed", "Traceback (most", "ValueError: exit status 7"} {
			if !strings.Contains(got, line) || got == body {
				t.Errorf("%s: %q is lost, or nothing was pruned", shape, line)
			}
		}
		long, _, err := jsonscan.New([]byte(got), 0).LongStrings(nil, 2000)
		if err != nil || len(long) > 0 {
			t.Errorf("%s: max_chars is 2000: %v, %v", shape, long, err)
		}
	}
}

// H+5: the marker names recover_text only if the model has it.
func TestNewResultsNameRecoveryIfOffered(t *testing.T) {
	shrink := chat.NewResultsMasker(newRecall(t, nil), time.Now)
	for tools, want := range map[string]bool{"": false, recoverTool: true} {
		got, _ := shrunkBody(shrink, withNewResults(anthropic.Codec{}, encodeRequest(anthropic.Codec{}, tools, randomDialogue(2, 9)), shortenOver2000("mask")))
		if !strings.Contains(got, "KIMI_PROXY_OBSERVATION_MASKED") || strings.Contains(got, "[recover: ") != want {
			t.Errorf("with tools %q: %s", tools, got)
		}
	}
}

// Pruning keeps the lines that match the call's context_focus_question, else its arguments and the
// user's message.
func TestNewResultsGoals(t *testing.T) {
	var b strings.Builder
	for i := range 400 {
		switch i {
		case 130:
			b.WriteString("the payment of order 4711 was declined: card expired\n")
		case 270:
			b.WriteString("the parcel was delivered to the neighbour\n")
		default:
			fmt.Fprintf(&b, "worker %d has fetched page %d of the catalogue in %d ms\n", i%7, i*i, i%90)
		}
	}
	payment, parcel := "card expired", "the neighbour"
	for name, c := range map[string]struct{ args, user, want, dropped string }{
		"from the arguments":          {`{"pattern":"payment|declined"}`, "go on", payment, parcel},
		"from the user":               {`{"n":3}`, "Where is my parcel, who got it delivered?", parcel, payment},
		"from context_focus_question": {`{"q":"parcel delivered","context_focus_question":"why was the payment declined?"}`, "parcel?", payment, parcel},
	} {
		for _, shape := range wireShapes {
			policy := shortenOver2000("prune")
			policy.Prune.Ratio, policy.Prune.Type = .97, "docs"
			dialogue := []dialogueStep{{user: c.user}, {uses: []toolUse{{id: "a", name: "sh", args: c.args, texts: []string{b.String()}}}}}
			got, _ := shrunkBody(chat.NewResultsMasker(newRecall(t, nil), time.Now), withNewResults(shape, encodeRequest(shape, recoverTool, dialogue), policy))
			if !strings.Contains(got, c.want) || strings.Contains(got, c.dropped) {
				t.Errorf("%s, %s: got %s", name, shape, got)
			}
		}
	}
}

func TestNewResultsConfig(t *testing.T) {
	if problems := masking.DefaultNewResults().Validate(); len(problems) > 0 {
		t.Error(problems)
	}
	bad := masking.NewResults{Reduce: "shrink", Tools: []string{""}, Except: []string{strings.Repeat("x", 999)}, MaxChars: 10, HeadChars: 9, TailChars: 9, Prune: reduce.PruneOptions{Type: "prose", Ratio: 2, MinKeep: -1}}
	if problems := bad.Validate(); len(problems) != 7 {
		t.Errorf("%d: %v", len(problems), problems)
	}
}

// countResults is the number of results that were shortened.
func countResults(done masking.Result) int {
	n := 0
	for _, c := range done.Cuts {
		n += c.Results
	}
	return n
}
