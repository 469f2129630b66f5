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
)

// resumed says whether a conversation was read from where another ended.
func resumed(d *Dialogue) bool { return d.stands != nil && d.stands.text != nil }

// I2, R23: what is remembered of earlier requests changes nothing that comes of a later one: not
// when a conversation grows, branches, or shrinks, nor when its client moves marks, drops thinking,
// or writes texts in another way.
func TestI2RecentChangesNothing(t *testing.T) {
	for _, shape := range shapes {
		hits, asked := 0, 0
		for seed := range uint64(8) {
			h, n := playRecent(t, shape, seed)
			hits, asked = hits+h, asked+n
		}
		t.Logf("%s: %d of %d requests were read from where another ended", shape, hits, asked)
		if hits < asked/3 {
			t.Errorf("%s: %d of %d requests were read from where another ended", shape, hits, asked)
		}
	}
}

func playRecent(t *testing.T, shape Shape, seed uint64) (hits, asked int) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 99))
	m := NewRecent(4<<20, 0)
	talks := []talk{makeTalk(seed, 50), makeTalk(seed, 50), makeTalk(seed+100, 50)}
	branch := len(talks[1]) * 3 / 4
	talks[1] = append(slices.Clone(talks[1][:branch]), talks[2][branch:]...) // begins as the first
	p, c := anyPolicy(rnd)
	l := look{}
	var events []Event
	for step := range 30 {
		if rnd.IntN(10) == 0 {
			p, c = anyPolicy(rnd)
		}
		if rnd.IntN(4) == 0 {
			l = look{thinking: rnd.IntN(8) == 0, lists: rnd.IntN(8) == 0, system: pick(rnd, "", "", "", "Another.")}
		}
		if shape == Messages {
			l.marks = pick(rnd, nil, []int{0}, []int{0, 2}, []int{step % 5})
		}
		full := talks[rnd.IntN(len(talks))]
		ends := full.requests()
		body := full[:ends[min(len(ends)-1, len(ends)/3+step+rnd.IntN(3))]].render(shape, l)
		less := rnd.IntN(40)
		got, err := m.Read("owner", shape, body, nil)
		if err != nil {
			t.Fatal(err)
		}
		if asked++; resumed(got) {
			hits++
		}
		compareDialogues(t, got, mustRead(t, shape, body))
		if rnd.IntN(10) == 0 {
			events = append(events, got.SweepNow())
		}
		if rnd.IntN(10) == 0 {
			events = nil
		}
		comparePlans(t, body, got, mustRead(t, shape, body), p, c, less, events)
		m.Keep(got)
		clear(body) // the memory has its own
	}
	return hits, asked
}

func compareDialogues(t *testing.T, got, want *Dialogue) {
	t.Helper()
	if got.Model != want.Model || got.Stream != want.Stream || got.Breakpoint != want.Breakpoint || got.edge != want.edge ||
		got.Lasts != want.Lasts || got.MarkLasts != want.MarkLasts || got.base != want.base || got.tools != want.tools || !slices.Equal(got.front, want.front) {
		t.Fatalf("the request differs:\n%+v\n%+v", got, want)
	}
	if !slices.Equal(got.Messages, want.Messages) || !slices.Equal(got.Turns, want.Turns) || len(got.Results) != len(want.Results) {
		t.Fatalf("messages or turns differ")
	}
	for i := range got.Results {
		a, b := got.Results[i], want.Results[i]
		for _, p := range []Policy{{}, {Agents: true}} {
			if got.looksFailed(p, i) != want.looksFailed(p, i) {
				t.Fatalf("result %d looks failed, or not", i)
			}
		}
		a.failed, a.gained, a.placed = b.failed, b.gained, b.placed // what was found out
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("result %d:\n%+v\n%+v", i, a, b)
		}
	}
	for _, turn := range []int{1, len(want.Turns) / 2, len(want.Turns)} {
		if got.Prefix(turn) != want.Prefix(turn) {
			t.Fatalf("the prefix of turn %d differs", turn)
		}
	}
	if got.Front() != want.Front() || got.Tokens() != want.Tokens() {
		t.Fatal("the front, or the size, differs")
	}
}

// comparePlans plans with results that are sent shorter, or not.
func comparePlans(t *testing.T, body []byte, got, want *Dialogue, p Policy, c Cache, less int, events []Event) {
	t.Helper()
	if less < 10 {
		for _, d := range []*Dialogue{got, want} {
			shorter := make([]int, len(d.Results))
			for i := range shorter {
				shorter[i] = min(less, d.Results[i].raw())
			}
			d.Reduced(shorter)
		}
	}
	a, b := got.Plan(p, c, got.Own(events)), want.Plan(p, c, want.Own(events))
	before := slices.Clone(a.Cuts)
	events = append(slices.Clip(events), got.SweepNow())
	swept, other := got.Plan(p, c, got.Own(events)), mustRead(t, want.Shape, body)
	if less >= 10 && !slices.Equal(swept.Cuts, other.Plan(p, c, other.Own(events)).Cuts) {
		t.Fatal("plans differ when the cache is dead")
	}
	if !slices.Equal(a.Cuts, b.Cuts) || !slices.Equal(a.Latch, b.Latch) || !slices.Equal(a.Cuts, before) {
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
		t.Fatalf("masked bodies differ from byte %d on", common(x, y))
	}
}

// I7: what stands behind the part of a request that was read before is read as strictly as ever,
// also together with it.
func TestI7RecentIsStrict(t *testing.T) {
	body := string(even(30, 50, 400).render(Chat, look{}))
	last := strings.LastIndex(body, "]")
	for name, bad := range map[string]string{
		"a key twice":              body[:len(body)-1] + `,"model":"m-2"}`,
		"the list twice":           body[:len(body)-1] + `,"messages":[]}`,
		"a key in other letters":   body[:len(body)-1] + `,"Messages":[]}`,
		"data behind it":           body + "{}",
		"an end too early":         body[:last],
		"no end":                   body[:last+1],
		"a comma and nothing":      body[:last] + "," + body[last:],
		"a message that is none":   body[:last] + ",7" + body[last:],
		"a key twice in a message": body[:last] + `,{"role":"user","role":"tool"}` + body[last:],
		"bad text in a message":    body[:last] + ",{\"content\":\"\xff\"}" + body[last:],
		"nested too deep":          body[:last] + `,{"content":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}" + body[last:],
	} {
		m := NewRecent(1<<20, 64)
		d, err := m.Read("", Chat, []byte(body), nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Keep(d)
		_, want := Read(Chat, []byte(bad), 64)
		if _, got := m.Read("", Chat, []byte(bad), nil); want == nil || got == nil || got.Error() != want.Error() {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// I9: no more is remembered than was asked for, and nothing of one owner for another.
func TestI9RecentIsBounded(t *testing.T) {
	m := NewRecent(256<<10, 0)
	for i := range 50 {
		body := even(30, 50, 400+i).render(Chat, look{})
		d, err := m.Read(fmt.Sprint(i%2), Chat, body, nil)
		if err != nil {
			t.Fatal(err)
		}
		m.Keep(d)
		held := 0
		for _, half := range []map[beginning][]*standing{m.now, m.before} {
			for _, list := range half {
				for _, s := range list {
					held += s.text.size()
				}
			}
		}
		if held > 256<<10 {
			t.Fatalf("%d bytes are held", held)
		}
		other, err := m.Read("another", Chat, body, nil)
		if err != nil || resumed(other) {
			t.Fatalf("another owner's conversation was found: %v", err)
		}
	}
}

// I9: as many conversations are remembered as there is room for, however often each comes by.
func TestI9RecentHasRoom(t *testing.T) {
	const talks = 12
	body := func(talk, turns int) []byte {
		return bytes.Replace(even(turns, 50, 400).render(Chat, look{}), []byte(`"user"`), fmt.Appendf(nil, `"user","name":"%d"`, talk), 1)
	}
	size := len(body(0, 60)) + eachMessage*2*60
	m := NewRecent(2*talks*size, 0)
	ask := func(talk, turns int) bool {
		d, err := m.Read("", Chat, body(talk, turns), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Keep(d)
		return resumed(d)
	}
	for talk := range talks {
		ask(talk, 30)
	}
	for turns := 30; turns < 60; turns++ {
		ask(0, turns)
	}
	for talk := range talks {
		if !ask(talk, 59) {
			t.Errorf("conversation %d was forgotten", talk)
		}
	}
}

// Many requests of few conversations at once do not get into each other's way.
func TestRecentAtOnce(t *testing.T) {
	m := NewRecent(4<<20, 0)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			full := makeTalk(uint64(worker%3), 40)
			for _, end := range full.requests() {
				body := full[:end].render(Responses, look{})
				d, err := m.Read("", Responses, body, nil)
				if err != nil {
					t.Error(err)
					return
				}
				plan := d.Plan(DefaultPolicy(), Cache{}, nil)
				for i := range plan.Cuts {
					plan.Edits(i, someID)
				}
				m.Keep(d)
				d.Prefix(len(d.Turns)) // d can still be looked at
				d.Replies()
			}
		})
	}
	wg.Wait()
}

// What stands beside the messages is this request's own, before them and behind.
func TestRecentOthers(t *testing.T) {
	m := NewRecent(1<<22, 0)
	for i := range 3 {
		body := makeTalk(1, 40).render(Chat, look{})
		body = bytes.Replace(body, []byte(`"messages":`), []byte(`"n":2,"messages":`), 1)
		body = append(bytes.TrimSuffix(body, []byte("}")), fmt.Sprintf(`,"seed":%d,"user":null}`, i)...)
		d, err := m.Read("o", Chat, body, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, seed := string(d.Other("n")), string(d.Other("seed")); n != "2" || seed != fmt.Sprint(i) || d.Other("user") != nil || len(body) < leastRecent {
			t.Errorf("request %d of %d bytes: n is %s, seed is %s", i, len(body), n, seed)
		}
		m.Keep(d)
	}
}

// I2: nor does it where calls share their ids, results come late or unasked, and a client takes some
// of it back.
func TestI2RecentOfOddMessages(t *testing.T) {
	hits := 0
	rapid.Check(t, func(t *rapid.T) {
		messages := append([]object{{"role": "user", "content": strings.Repeat("go ", leastRecent/2)}}, rapid.SliceOfN(oddMessage(), 20, 80).Draw(t, "messages")...)
		p, c := anyPolicy(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "policy"), 0)))
		m := NewRecent(4<<20, 0)
		for end := 8; end <= len(messages); end += rapid.IntRange(-2, 4).Draw(t, "step") {
			end = max(end, 1)
			body, _ := json.Marshal(object{"messages": messages[:end], "model": "m"})
			got, err1 := m.Read("", Chat, body, nil)
			want, err2 := Read(Chat, body, 0)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			if resumed(got) {
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
			m.Keep(got)
		}
	})
	if hits == 0 {
		t.Error("no request was read from where another ended")
	}
}
