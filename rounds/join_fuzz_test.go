package rounds_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/rounds"
)

var shapes = []history.Shape{history.Chat, history.Messages, history.Responses}

// joined gives replies to a join, cut as cut says, as long as it asks for more.
func joined(shape history.Shape, stream bool, replies [][]byte, cut func(left int) int) (out []byte, said []rounds.Round, err error) {
	j := rounds.NewJoin(shape, stream)
	for _, raw := range replies {
		for len(raw) > 0 {
			n := cut(len(raw))
			more, err := j.Write(raw[:n])
			out, raw = append(out, more...), raw[n:]
			if err != nil {
				return out, said, err
			}
		}
		r := j.End()
		if r == nil {
			break
		}
		said = append(said, *r)
		if r.Mixed {
			break
		}
	}
	return append(out, j.Finish()...), said, nil
}

func whole(left int) int { return left }

func randomly(left int) int { return min(left, rand.IntN(20)+1) }

// FuzzJoin: whatever a provider says in two rounds, nothing panics; how it is cut changes nothing;
// what does not name the tool comes out as it went in; what a round says is JSON.
func FuzzJoin(f *testing.F) {
	for _, s := range spoken {
		f.Add(uint8(s.shape), s.stream, []byte(s.first), []byte(s.second), uint64(len(s.first)))
	}
	f.Fuzz(func(t *testing.T, kind uint8, stream bool, first, second []byte, seed uint64) {
		shape := shapes[int(kind)%len(shapes)]
		replies := [][]byte{first, second}
		want, said, err := joined(shape, stream, replies, whole)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		got, again, err := joined(shape, stream, replies, func(left int) int { return min(left, rng.IntN(9)+1) })
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("cut: %q\nwhole: %q", got, want)
		}
		if d := cmp.Diff(said, again); d != "" {
			t.Fatal(d)
		}
		if unnamed := !bytes.Contains(first, []byte(rounds.Tool)) && !bytes.Contains(first, []byte(`\u`)); unnamed && !bytes.Equal(got, first) {
			t.Fatalf("%q became %q", first, got)
		}
		for _, r := range said {
			if !json.Valid(r.Said) || len(r.Calls) == 0 || len(r.Calls[0].Args) == 0 || r.Mixed != (len(r.Others) > 0) {
				t.Fatalf("%+v", r)
			}
		}
	})
}

// speech is what a provider says in one or two rounds, written by hand.
type speech struct {
	name          string
	shape         history.Shape
	stream        bool
	first, second string
	said          string // the first round, as a request repeats it
	out           string
}

// TestSpeech: the ways of providers that the fake one does not have.
func TestSpeech(t *testing.T) {
	for _, s := range spoken {
		t.Run(s.shape.String()+" "+s.name, func(t *testing.T) {
			out, said, err := joined(s.shape, s.stream, [][]byte{[]byte(s.first), []byte(s.second)}, randomly)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if len(said) > 0 {
				got = string(said[0].Said)
			}
			if d := cmp.Diff(s.said, got); d != "" {
				t.Errorf("said: %s", d)
			}
			if d := cmp.Diff(s.out, string(out)); d != "" {
				t.Errorf("out: %s", d)
			}
		})
	}
}

// Events that come twice, not at all or in another order are no reason to panic, and what is given
// to the client are events that it can read.
func TestShuffledEvents(t *testing.T) {
	for _, s := range spoken {
		if !s.stream {
			continue
		}
		for range 300 {
			replies := [][]byte{shuffled(s.first), shuffled(s.second)}
			out, said, err := joined(s.shape, true, replies, randomly)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range said {
				if !json.Valid(r.Said) {
					t.Fatalf("%s of %q", r.Said, replies)
				}
			}
			for _, e := range bytes.Split(out, []byte("\n\n")) {
				if data, ok := bytes.CutPrefix(e, []byte("data: {")); ok && !json.Valid(append([]byte{'{'}, bytes.ReplaceAll(data, []byte("\ndata: "), nil)...)) {
					t.Fatalf("%q of %q", e, replies)
				}
			}
		}
	}
}

func shuffled(stream string) []byte {
	events := strings.SplitAfter(stream, "\n\n")
	for range rand.IntN(4) {
		i, j := rand.IntN(len(events)), rand.IntN(len(events))
		switch rand.IntN(4) {
		case 0:
			events = slices.Delete(events, i, i+1)
			if len(events) == 0 {
				return nil
			}
		case 1:
			events = slices.Insert(events, i, events[j])
		case 2:
			events[i], events[j] = events[j], events[i]
		case 3: // a value is gone, or of another kind
			words := strings.SplitAfter(events[i], ":")
			k := rand.IntN(len(words))
			if _, rest, ok := strings.Cut(words[k], ","); ok && k > 1 {
				words[k] = []string{"null,", "[],", "{},", "1,", `"",`}[rand.IntN(5)] + rest
			}
			if _, data, _ := strings.Cut(strings.Join(words, ""), "data: "); json.Valid([]byte(data)) {
				events[i] = strings.Join(words, "")
			}
		}
	}
	return []byte(strings.Join(events, ""))
}
