package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Calls and results without ids are paired by name and order: the conversation reads as the one with ids, whose
// ids are unique, also where reading resumes in the middle of it.
func TestUnnamedCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("long, in one goroutine")
	}
	for seed := range uint64(60) {
		full := randomTranscript(seed, 30)
		number := 0
		for i := range full {
			for j := range full[i].calls {
				number++
				full[i].calls[j].id = fmt.Sprint("c", number)
			}
		}
		summarize := func(d *Dialogue) (out []string) {
			goals := d.Goals()
			for i, r := range d.Results {
				out = append(out, fmt.Sprint(r.Name, r.Turn, r.last, r.since, r.Maskable, string(d.Text(i)), goals.Of(i)))
			}
			return out
		}
		rnd := rand.New(rand.NewPCG(seed, 5))
		cache := NewConversationCache(4<<20, 0)
		resumed := 0
		for range 12 {
			ends := full.requests()
			part := full[:ends[3+rnd.IntN(len(ends)-3)]]
			if rnd.IntN(3) == 0 { // another end: reading resumes before it
				part = append(slices.Clone(part[:len(part)-1]), event{user: "something else"})
			}
			body := part.render(geminiContents, renderOptions{noIDs: true})
			want := mustRead(t, geminiContents, body)
			got, err := cache.Read("owner", geminiContents, body, nil)
			if err != nil {
				t.Fatal(err)
			}
			compareDialogues(t, got, want)
			if got.resumed {
				resumed++
			}
			named := mustRead(t, geminiContents, part.render(geminiContents, renderOptions{}))
			if a, b := summarize(want), summarize(named); !slices.Equal(a, b) {
				t.Fatalf("seed %d:\n%s\n%s", seed, strings.Join(a, "\n"), strings.Join(b, "\n"))
			}
			seen := map[string]bool{}
			for _, r := range want.Results {
				if r.CallID == "" || seen[r.CallID] {
					t.Fatalf("the id %q of %s", r.CallID, r.Name)
				}
				seen[r.CallID] = true
			}
			cache.Put(got)
		}
		if resumed == 0 {
			t.Errorf("seed %d: reading never resumed", seed)
		}
	}
}

// How calls and results are paired.
func TestUnnamedCallsPairing(t *testing.T) {
	call := func(s string) string { return `{"functionCall":{` + s + `,"args":{}}}` }
	result := func(s string) string { return `{"functionResponse":{` + s + `,"response":{"output":"x"}}}` }
	const a, b, id1, id2 = `"name":"a"`, `"name":"b"`, `"id":"1",`, `"id":"2",`
	for name, tt := range map[string]struct {
		calls, results []string
		want           string
	}{
		"by name":                  {[]string{call(a), call(b)}, []string{result(b), result(a)}, "b-1-1 a-1-0"},
		"by order":                 {[]string{call(a), call(b), call(a)}, []string{result(a), result(a), result(b)}, "a-1-0 a-1-2 b-1-1"},
		"by id":                    {[]string{call(id1 + a), call(id2 + a)}, []string{result(id2 + a), result(id1 + a)}, "2 1"},
		"the client's own ids":     {[]string{call(a), call(a)}, []string{result(id2 + a), result(id1 + a)}, "a-1-0 a-1-1"},
		"no ids in the results":    {[]string{call(id1 + a), call(id2 + a)}, []string{result(a), result(a)}, "1 2"},
		"one id":                   {[]string{call(a), call(id2 + a)}, []string{result(id2 + a), result(a)}, "2 a-1-0"},
		"no call, but an id":       {[]string{call(a)}, []string{result(id1 + b)}, "1"},
		"contents of events":       {[]string{call(a) + `]},{"role":"model","parts":[` + call(a), `{"text":""}]},{"role":"model","parts":[` + call(b)}, []string{result(a), result(b), result(a)}, "a-1-0 b-1.2-0 a-1.1-0"},
		"neither a call nor an id": {[]string{call(a)}, []string{result(b)}, ""},
	} {
		d := mustRead(t, geminiContents, []byte(`{"contents":[{"role":"model","parts":[`+strings.Join(tt.calls, ",")+`]},{"role":"user","parts":[`+strings.Join(tt.results, ",")+`]}]}`))
		var got []string
		for _, r := range d.Results {
			got = append(got, r.CallID)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
