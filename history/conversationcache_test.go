package history

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/llm"
)

// I2, R23: a request read through the cache gives the same dialogue, plan and bytes as one read afresh, when a
// conversation grows, branches or shrinks and when its client moves marks, drops thinking or writes texts
// differently.
func TestI2CacheChangesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	for _, shape := range shapes {
		hits, requests := 0, 0
		for seed := range uint64(8) {
			h, n := runThroughCache(t, shape, seed)
			hits, requests = hits+h, requests+n
		}
		t.Logf("%s: %d of %d requests resumed from the cache", shape, hits, requests)
		if hits < requests/3 {
			t.Errorf("%s: %d of %d requests resumed from the cache", shape, hits, requests)
		}
	}
}

// runThroughCache sends requests of three conversations, two with a common beginning, and returns how many
// resumed from the cache.
func runThroughCache(t *testing.T, shape llm.Codec, seed uint64) (hits, requests int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 99))
	m := NewConversationCache(4<<20, 0)
	conversations := []transcript{randomTranscript(seed, 50), randomTranscript(seed, 50), randomTranscript(seed+100, 50)}
	branch := len(conversations[1]) * 3 / 4
	conversations[1] = append(slices.Clone(conversations[1][:branch]), conversations[2][branch:]...) // a branch of the first
	p, c := randomPolicy(rnd)
	l := renderOptions{}
	var events []Event
	for step := range 30 {
		if rnd.IntN(10) == 0 {
			p, c = randomPolicy(rnd)
		}
		if rnd.IntN(4) == 0 {
			l = renderOptions{thinking: rnd.IntN(8) == 0, lists: rnd.IntN(8) == 0, system: pick(rnd, "", "", "", "Another.")}
		}
		if shape == anthropicMessages {
			l.marks = pick(rnd, nil, []int{0}, []int{0, 2}, []int{step % 5})
		}
		full := conversations[rnd.IntN(len(conversations))]
		ends := full.requests()
		body := full[:ends[min(len(ends)-1, len(ends)/3+step+rnd.IntN(3))]].render(shape, l)
		less := rnd.IntN(40)
		got, err := m.Read("owner", shape, body, nil)
		if err != nil {
			t.Fatal(err)
		}
		if requests++; got.resumed {
			hits++
		}
		compareDialogues(t, got, mustRead(t, shape, body))
		if rnd.IntN(10) == 0 {
			events = append(events, got.SweepEvent())
		}
		if rnd.IntN(10) == 0 {
			events = nil
		}
		comparePlans(t, body, got, mustRead(t, shape, body), p, c, less, events)
		m.Put(got)
	}
	return hits, requests
}

func compareDialogues(t *testing.T, got, want *Dialogue) {
	t.Helper()
	if got.Model != want.Model || got.Stream != want.Stream || got.Breakpoint != want.Breakpoint || got.breakpointEnd != want.breakpointEnd ||
		got.CacheTTL != want.CacheTTL || got.BreakpointTTL != want.BreakpointTTL || got.base != want.base || got.tools != want.tools || !slices.Equal(got.front, want.front) {
		t.Fatalf("the request differs:\n%+v\n%+v", got, want)
	}
	if !slices.Equal(got.Messages, want.Messages) || !slices.Equal(got.Turns, want.Turns) || len(got.Results) != len(want.Results) {
		t.Fatalf("messages, turns or the number of results differ")
	}
	for i := range got.Results {
		a, b := got.Results[i], want.Results[i]
		for _, p := range []Policy{{}, {Agents: true}} {
			if got.looksFailed(p, i) != want.looksFailed(p, i) {
				t.Fatalf("result %d: looksFailed differs", i)
			}
		}
		a.failed, a.placeholder = b.failed, b.placeholder // lazily computed
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("result %d:\n%+v\n%+v", i, a, b)
		}
	}
	for _, turn := range []int{1, len(want.Turns) / 2, len(want.Turns)} {
		if got.PrefixHash(turn) != want.PrefixHash(turn) {
			t.Fatalf("the prefix of turn %d differs", turn)
		}
	}
	if got.PreambleHash() != want.PreambleHash() || got.Tokens() != want.Tokens() {
		t.Fatal("the preamble or the token count differs")
	}
}

// comparePlans compares the plans of two dialogues, with reduced results if less is below 10.
func comparePlans(t *testing.T, body []byte, got, want *Dialogue, p Policy, c CachePrices, less int, events []Event) {
	t.Helper()
	if less < 10 {
		for _, d := range []*Dialogue{got, want} {
			shorter := make([]int, len(d.Results))
			for i := range shorter {
				shorter[i] = min(less, d.Results[i].textBytes())
			}
			d.SetReductions(shorter)
		}
	}
	a, b := got.Plan(p, c, got.OwnEvents(events)), want.Plan(p, c, want.OwnEvents(events))
	before := slices.Clone(a.Cuts)
	events = append(slices.Clip(events), got.SweepEvent())
	swept, other := got.Plan(p, c, got.OwnEvents(events)), mustRead(t, want.Codec, body)
	if less >= 10 && !slices.Equal(swept.Cuts, other.Plan(p, c, other.OwnEvents(events)).Cuts) {
		t.Fatal("plans differ after a sweep")
	}
	if !slices.Equal(a.Cuts, b.Cuts) || !slices.Equal(a.Pins, b.Pins) || !slices.Equal(a.Cuts, before) {
		t.Fatalf("plans differ:\n%v\n%v", a.Cuts, b.Cuts)
	}
	spliced := func(p *Plan) []byte {
		var edits []jsonscan.Edit
		for i := range p.Cuts {
			edits = p.AppendEdits(edits, i, someID)
		}
		return jsonscan.AppendSpliced(nil, body, edits)
	}
	if x, y := spliced(a), spliced(b); !bytes.Equal(x, y) {
		t.Fatalf("masked bodies differ from byte %d on", commonPrefixLen(x, y))
	}
}

// I7: the part of a request after its cached prefix is validated as strictly as a request read afresh.
func TestI7CacheIsStrict(t *testing.T) {
	body := string(uniformTranscript(30, 50, 400).render(openAIChat, renderOptions{}))
	last := strings.LastIndex(body, "]")
	for name, bad := range map[string]string{
		"a key twice":                body[:len(body)-1] + `,"model":"m-2"}`,
		"messages twice":             body[:len(body)-1] + `,"messages":[]}`,
		"a key in other case":        body[:len(body)-1] + `,"Messages":[]}`,
		"trailing data":              body + "{}",
		"messages not closed":        body[:last],
		"request not closed":         body[:last+1],
		"trailing comma":             body[:last] + "," + body[last:],
		"message not an object":      body[:last] + ",7" + body[last:],
		"a key twice in a message":   body[:last] + `,{"role":"user","role":"tool"}` + body[last:],
		"invalid UTF-8 in a message": body[:last] + ",{\"content\":\"\xff\"}" + body[last:],
		"nested too deep":            body[:last] + `,{"content":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}" + body[last:],
	} {
		m := NewConversationCache(1<<20, 64)
		d, err := m.Read("", openAIChat, []byte(body), nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Put(d)
		_, want := Read(openAIChat, []byte(bad), 64)
		if _, got := m.Read("", openAIChat, []byte(bad), nil); want == nil || got == nil || got.Error() != want.Error() {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// I9: the cache stays within its limit, and never shares a conversation between owners.
func TestI9CacheIsBounded(t *testing.T) {
	m := NewConversationCache(256<<10, 0)
	for i := range 50 {
		body := uniformTranscript(30, 50, 400+i).render(openAIChat, renderOptions{})
		d, err := m.Read(fmt.Sprint(i%2), openAIChat, body, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Put(d)
		held := 0
		for _, half := range []map[conversationKey][]*cachedConversation{m.current, m.previous} {
			for _, list := range half {
				for _, s := range list {
					held += len(s.prefix)
				}
			}
		}
		if held > 256<<10 {
			t.Fatalf("the cache holds %d bytes, over its limit", held)
		}
		other, err := m.Read("another", openAIChat, body, nil)
		if err != nil || other.resumed {
			t.Fatalf("resumed another owner's conversation, or failed: %v", err)
		}
	}
}

// I9: the cache keeps as many conversations as fit, however often one of them is read.
func TestI9CacheUsesItsBudget(t *testing.T) {
	const conversations = 12
	body := func(number, turns int) []byte {
		return bytes.Replace(uniformTranscript(turns, 50, 400).render(openAIChat, renderOptions{}), []byte(`"user"`), fmt.Appendf(nil, `"user","name":"%d"`, number), 1)
	}
	size := len(body(0, 60)) + messageOverhead*2*60
	m := NewConversationCache(2*conversations*size, 0)
	readAgain := func(number, turns int) bool {
		d, err := m.Read("", openAIChat, body(number, turns), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Put(d)
		return d.resumed
	}
	for number := range conversations {
		readAgain(number, 30)
	}
	for turns := 30; turns < 60; turns++ {
		readAgain(0, turns)
	}
	for number := range conversations {
		if !readAgain(number, 59) {
			t.Errorf("conversation %d was evicted", number)
		}
	}
}

// Concurrent requests of the same conversations are safe.
func TestCacheConcurrently(t *testing.T) {
	m := NewConversationCache(4<<20, 0)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			full := randomTranscript(uint64(worker%3), 40)
			for _, end := range full.requests() {
				body := full[:end].render(openAIResponses, renderOptions{})
				d, err := m.Read("", openAIResponses, body, nil)
				if err != nil {
					t.Error(err)
					return
				}
				plan := d.Plan(DefaultPolicy(), CachePrices{}, nil)
				for i := range plan.Cuts {
					plan.Edits(i, someID)
				}
				m.Put(d)
				d.PrefixHash(len(d.Turns)) // d stays readable after Put
				d.Replies()
			}
		})
	}
	wg.Wait()
}

// Members before and after the messages are read from each request, never from the cache.
func TestCacheOtherMembers(t *testing.T) {
	m := NewConversationCache(1<<22, 0)
	for i := range 3 {
		body := randomTranscript(1, 40).render(openAIChat, renderOptions{})
		body = bytes.Replace(body, []byte(`"messages":`), []byte(`"n":2,"messages":`), 1)
		body = append(bytes.TrimSuffix(body, []byte("}")), fmt.Sprintf(`,"seed":%d,"user":null}`, i)...)
		d, err := m.Read("o", openAIChat, body, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, seed := string(d.Other("n")), string(d.Other("seed")); n != "2" || seed != fmt.Sprint(i) || d.Other("user") != nil || len(body) < minCachedBytes {
			t.Errorf("request %d of %d bytes: n is %s, seed is %s", i, len(body), n, seed)
		}
		m.Put(d)
	}
}

// I2: the same holds when calls share ids, results come late or without a call, and a client removes messages.
func TestI2CacheOfOddMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	hits := 0
	rapid.Check(t, func(t *rapid.T) {
		messages := append([]object{{"role": "user", "content": strings.Repeat("go ", minCachedBytes/2)}}, rapid.SliceOfN(malformedMessage(), 20, 80).Draw(t, "messages")...)
		p, c := randomPolicy(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "policy"), 0)))
		m := NewConversationCache(4<<20, 0)
		for end := 8; end <= len(messages); end += rapid.IntRange(-2, 4).Draw(t, "step") {
			end = max(end, 1)
			body, _ := json.Marshal(object{"messages": messages[:end], "model": "m"})
			got, err1 := m.Read("", openAIChat, body, nil)
			want, err2 := Read(openAIChat, body, 0)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			if got.resumed {
				hits++
			}
			a, b := got.Plan(p, c, nil), want.Plan(p, c, nil)
			if !slices.Equal(a.Cuts, b.Cuts) {
				t.Fatalf("%+v %v: plans differ:\n%v\n%v", p, c, a.Cuts, b.Cuts)
			}
			for i := range a.Cuts {
				if x, y := a.Edits(i, someID), b.Edits(i, someID); !reflect.DeepEqual(x, y) {
					t.Fatalf("%+v: edits differ:\n%s\n%s", p, x[0].Text, y[0].Text)
				}
			}
			m.Put(got)
		}
	})
	if hits == 0 {
		t.Error("no request resumed from the cache")
	}
}
