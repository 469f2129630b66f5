package chat_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/chat"
	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/recall"
	"github.com/ctxgate/ctxgate/state"
	"github.com/ctxgate/ctxgate/state/memory"
)

var wireShapes = []chat.Shape{chat.Completions, chat.Messages, chat.Responses}

// G3, P4, I1, I3: a long result is shortened in the first request that has it, in each shape and in
// each of its texts, and every id gives its original back, byte for byte.
func TestBirthShortensAndGivesBack(t *testing.T) {
	for _, shape := range wireShapes {
		for _, how := range []string{"mask", "prune"} {
			r := keeper(t, nil)
			two := used{id: "b", name: "fetch", args: `{}`, texts: []string{source(2, 3000), source(3, 4000)}}
			if shape == chat.Completions {
				two.texts = two.texts[:1] // a list is left alone there (H7)
			}
			talk := []said{{user: "Where is the cache?"}, {uses: []used{{id: "a", name: "read", args: `{"path":"x"}`, texts: []string{source(1, 5000)}}, two, {id: "c", name: "ls", args: `{}`, texts: []string{source(4, 1000)}}}}}
			body := written(shape, recoverTool, talk)
			got, done := sent(chat.Midwife(r, time.Now), going(shape, body, young(how)))
			before, after := textsOf(t, shape, body), textsOf(t, shape, got)
			shortened := 0
			for i, text := range after {
				ids := marker.FindAllStringSubmatch(text, -1)
				if len(before[i]) <= 2000 {
					if text != before[i] {
						t.Errorf("%s, %s: a short result became %q", shape, how, text)
					}
					continue
				}
				if shortened++; len(ids) == 0 || len(text) >= len(before[i]) {
					t.Fatalf("%s, %s: %q", shape, how, text)
				}
				for _, id := range ids {
					if original(t, r, id[1]) != before[i] {
						t.Errorf("%s, %s: %s gives something else", shape, how, id[1])
					}
				}
			}
			if shortened != results(done) || done.Moved {
				t.Errorf("%s, %s: %d shortened, %+v", shape, how, shortened, done)
			}
			for _, c := range done.Cleared {
				if !c.Born || c.Tokens <= 0 || c.Tool == "" {
					t.Errorf("cleared %+v", c)
				}
			}
		}
	}
}

// I4, H+1: with new results shortened and old ones masked, each request extends the one before but
// where the window moves; and a process that has seen none of it makes the same bytes.
func TestBirthGrowsByItsEnd(t *testing.T) {
	for _, shape := range wireShapes {
		moves, born := 0, 0
		for seed := range uint64(4) {
			how := []string{"mask", "prune"}[seed%2]
			talk := anyTalk(seed, 16)
			store := state.New(memory.New(), state.Default(), time.Now)
			defer store.Close()
			one, tools := fresh(t, store), recoverTool
			if seed%3 == 0 {
				tools = ""
			}
			last := ""
			for n := 1; n <= len(talk); n++ {
				body := stillMark(shape, written(shape, tools, talk[:n]))
				o := going(shape, body, young(how))
				o.Policy = history.DefaultPolicy()
				o.Policy.WindowTurns, o.Policy.TriggerTokens = 3, 0
				o.Cache = chat.Cache{Write: 1.25, Read: .1}
				got, done := sent(one, o)
				if !done.Moved && !strings.HasPrefix(got, last) {
					t.Fatalf("%s, seed %d: the prefix changed without a move at %d:\n%s\n%s", shape, seed, n, last, got)
				}
				if n%6 == 0 {
					if other, _ := sent(fresh(t, store), o); other != got {
						t.Fatalf("%s, seed %d: another process makes other bytes at %d", shape, seed, n)
					}
				}
				last = strings.TrimSuffix(got, "]}")
				born += results(done)
				if done.Moved {
					moves++
				}
			}
		}
		if moves < 4 || born < 100 {
			t.Errorf("%s: %d moves and %d results shortened: the test tests nothing", shape, moves, born)
		}
	}
}

func fresh(t testing.TB, store *state.Store) func(chat.Birth) chat.Shrink {
	t.Helper()
	r, err := recall.New(store, []byte(strings.Repeat("s", recall.MinSecret)), recall.Default())
	if err != nil {
		t.Fatal(err)
	}
	return chat.Midwife(r, time.Now)
}

// stillMark puts a cache_control on the first message. Without any, nothing is cached at
// /v1/messages, and the window moves at every turn.
func stillMark(shape chat.Shape, body string) string {
	if shape != chat.Messages {
		return body
	}
	before, rest, _ := strings.Cut(body, `"content":`)
	text, after, _ := strings.Cut(rest, `}`)
	return before + `"content":[{"type":"text","text":` + text + `,"cache_control":{"type":"ephemeral"}}]}` + after
}

// H+1: a client that marks its last block at every turn, and writes the text of a result as a list
// when it does: no text changes that was sent before.
func TestBirthBeforeBreakpoints(t *testing.T) {
	shrink := chat.Midwife(keeper(t, nil), time.Now)
	talk := anyTalk(3, 20)
	var before []string
	for n := 2; n <= len(talk); n++ {
		body := written(chat.Messages, recoverTool, talk[:n])
		if last := talk[n-1]; last.user == "" && len(last.uses[len(last.uses)-1].texts) == 1 && !last.uses[len(last.uses)-1].image {
			at := strings.LastIndex(body, `"content":"`) + len(`"content":`)
			body = body[:at] + `[{"type":"text","text":` + strings.TrimSuffix(body[at:], `}]}]}`) + `,"cache_control":{"type":"ephemeral"}}]}]}]}`
		}
		o := going(chat.Messages, body, young("prune"))
		o.Policy, o.Cache = history.DefaultPolicy(), chat.Cache{Write: 1.25, Read: .1}
		o.Policy.WindowTurns = 50
		got, _ := sent(shrink, o)
		after := textsOf(t, chat.Messages, got)
		if strings.Join(after[:len(before)], "\x00") != strings.Join(before, "\x00") {
			t.Fatalf("turn %d: a text changed", n)
		}
		before = after
	}
}

// The same bytes, whoever asks at the same time.
func TestBirthAtTheSameTime(t *testing.T) {
	shrink := chat.Midwife(keeper(t, nil), time.Now)
	o := going(chat.Messages, written(chat.Messages, recoverTool, anyTalk(5, 30)), young("prune"))
	var got [4]string
	var busy sync.WaitGroup
	for i := range got {
		busy.Go(func() { got[i], _ = sent(shrink, o) })
	}
	busy.Wait()
	for _, g := range got {
		if g != got[0] || g == string(o.Body) {
			t.Error("not the same bytes")
		}
	}
}

// H7, H10, I1: what goes as it came.
func TestBirthLeavesAlone(t *testing.T) {
	long := source(1, 5000)
	one := func(u used) []said {
		u.id, u.args = "a", `{}`
		if u.texts == nil {
			u.texts = []string{long}
		}
		if u.name == "" {
			u.name = "read"
		}
		return []said{{user: "Where?"}, {uses: []used{u}}}
	}
	off := func(c *recall.Config) { c.Enabled = false }
	for name, c := range map[string]struct {
		talk   []said
		change func(*chat.Birth)
		kept   func(*recall.Config)
	}{
		"off by default":    {one(used{}), func(b *chat.Birth) { *b = chat.DefaultBirth(); b.MaxChars = 100 }, nil},
		"nothing is kept":   {one(used{}), nil, off},
		"an image":          {one(used{image: true}), nil, nil},
		"an orphan":         {one(used{orphan: true}), nil, nil},
		"not this tool":     {one(used{}), func(b *chat.Birth) { b.Tools = []string{"write", "re"} }, nil},
		"but not this tool": {one(used{}), func(b *chat.Birth) { b.Except = []string{"r*d"} }, nil},
		"read back":         {one(used{name: "mcp__gate__recover_text"}), nil, nil},
		"of the very limit": {one(used{texts: []string{strings.Repeat("é", 2000)}}), nil, nil},
		"hardly over it":    {one(used{texts: []string{strings.Repeat("x", 2001)}}), func(b *chat.Birth) { b.HeadChars, b.TailChars = 1000, 1000 }, nil},
	} {
		for _, shape := range wireShapes {
			for _, how := range []string{"mask", "prune"} {
				birth := young(how)
				if c.change != nil {
					c.change(&birth)
				}
				body := written(shape, recoverTool, c.talk)
				if got, done := sent(chat.Midwife(keeper(t, c.kept), time.Now), going(shape, body, birth)); got != body || len(done.Cleared) > 0 {
					t.Errorf("%s, %s, %s: got %s", name, shape, how, got)
				}
			}
		}
	}
}

// I1: what cannot be kept goes whole, and is shortened once it can be.
func TestBirthWithoutAStore(t *testing.T) {
	driver := &moody{Driver: memory.New()}
	store := state.New(driver, state.Default(), time.Now)
	defer store.Close()
	shrink := fresh(t, store)
	o := going(chat.Responses, written(chat.Responses, "", anyTalk(2, 9)), young("prune"))
	driver.down.Store(true)
	if got, done := sent(shrink, o); got != string(o.Body) || len(done.Cleared) > 0 {
		t.Error("cut without an original")
	}
	driver.down.Store(false)
	if got, _ := sent(shrink, o); got == string(o.Body) {
		t.Error("not cut")
	}
}

// H8, P8: an error is not masked; pruned, all lines that tell of it stay.
func TestBirthKeepsErrors(t *testing.T) {
	text := "Error: the build failed\n" + source(1, 4000) + "Traceback (most recent call last):\nValueError: exit status 7\n" + source(2, 4000)
	talk := []said{{user: "Build it."}, {uses: []used{{id: "a", name: "sh", args: `{"command":"make"}`, texts: []string{text}}}}}
	line := []said{{user: "Build it."}, {uses: []used{{id: "a", name: "sh", args: `{}`, texts: []string{"Error: " + strings.Repeat("x", 5000)}, failed: true}}}}
	for _, shape := range wireShapes {
		shrink := chat.Midwife(keeper(t, nil), time.Now)
		for how, talk := range map[string][]said{"mask": talk, "prune": line} {
			body := written(shape, recoverTool, talk)
			if got, _ := sent(shrink, going(shape, body, young(how))); got != body {
				t.Errorf("%s, %s: an error was masked: %s", shape, how, got)
			}
			any := young(how)
			any.KeepErrors = false
			if got, _ := sent(shrink, going(shape, body, any)); got == body {
				t.Errorf("%s, %s: an error was kept", shape, how)
			}
		}
		body := written(shape, recoverTool, talk)
		got, _ := sent(shrink, going(shape, body, young("prune")))
		for _, line := range []string{"Error: the build failed", "Traceback (most", "ValueError: exit status 7"} {
			if !strings.Contains(got, line) || got == body {
				t.Errorf("%s: %q is lost, or nothing was pruned", shape, line)
			}
		}
	}
}

// H+5: recovery is named only where it works.
func TestBirthNamesRecoveryWhereItWorks(t *testing.T) {
	shrink := chat.Midwife(keeper(t, nil), time.Now)
	for tools, want := range map[string]bool{"": false, recoverTool: true} {
		got, _ := sent(shrink, going(chat.Messages, written(chat.Messages, tools, anyTalk(2, 9)), young("mask")))
		if !strings.Contains(got, "KIMI_PROXY_OBSERVATION_MASKED") || strings.Contains(got, "[recover: ") != want {
			t.Errorf("with tools %q: %s", tools, got)
		}
	}
}

// What a call says it looks for decides; else what its arguments and the user say.
func TestBirthGoals(t *testing.T) {
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
	for name, c := range map[string]struct{ args, user, want, gone string }{
		"arguments": {`{"pattern":"payment|declined"}`, "go on", payment, parcel},
		"the user":  {`{"n":3}`, "Where is my parcel, who got it delivered?", parcel, payment},
		"the call":  {`{"q":"parcel delivered","context_focus_question":"why was the payment declined?"}`, "parcel?", payment, parcel},
	} {
		for _, shape := range wireShapes {
			birth := young("prune")
			birth.PruneRatio, birth.PruneType = .97, "docs"
			talk := []said{{user: c.user}, {uses: []used{{id: "a", name: "sh", args: c.args, texts: []string{b.String()}}}}}
			got, _ := sent(chat.Midwife(keeper(t, nil), time.Now), going(shape, written(shape, recoverTool, talk), birth))
			if !strings.Contains(got, c.want) || strings.Contains(got, c.gone) {
				t.Errorf("%s, %s: got %s", name, shape, got)
			}
		}
	}
}

func TestBirthConfig(t *testing.T) {
	if problems := chat.DefaultBirth().Validate(); len(problems) > 0 {
		t.Error(problems)
	}
	bad := chat.Birth{Reduce: "shrink", Tools: []string{""}, Except: []string{strings.Repeat("x", 999)}, MaxChars: 10, HeadChars: 9, TailChars: 9, PruneType: "prose", PruneRatio: 2, PruneMinKeep: -1}
	if problems := bad.Validate(); len(problems) != 7 {
		t.Errorf("%d: %v", len(problems), problems)
	}
}

// results is from how many something was taken out.
func results(done chat.Shrunk) int {
	n := 0
	for _, c := range done.Cleared {
		n += c.Results
	}
	return n
}
