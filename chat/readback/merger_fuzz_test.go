package readback_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/chat/readback"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/llm"
	"github.com/ctxgate/ctxgate/llm/anthropic"
	"github.com/ctxgate/ctxgate/llm/gemini"
	"github.com/ctxgate/ctxgate/llm/openaichat"
	"github.com/ctxgate/ctxgate/llm/responses"
)

var shapes = []llm.ReadbackCodec{openaichat.Codec{}, anthropic.Codec{}, responses.Codec{}, gemini.Codec{}}

// mergeAll writes replies to a merger in chunks of the size that cut returns, until no further round is needed.
func mergeAll(shape llm.ReadbackCodec, stream bool, replies [][]byte, cut func(left int) int) (out []byte, said []llm.Round, err error) {
	m := readback.NewMerger(shape, stream)
	for _, raw := range replies {
		for len(raw) > 0 {
			n := cut(len(raw))
			more, err := m.Write(raw[:n])
			out, raw = append(out, more...), raw[n:]
			if err != nil {
				return out, said, err
			}
		}
		r := m.EndRound()
		if r == nil {
			break
		}
		said = append(said, *r)
		if r.Mixed {
			break
		}
	}
	return append(out, m.Finish()...), said, nil
}

func wholeReply(left int) int { return left }

func randomChunk(left int) int { return min(left, rand.IntN(20)+1) }

// For any two replies the merger does not panic, does not depend on how they are chunked, leaves a reply without
// recover_text unchanged, and returns rounds that are valid JSON.
func FuzzMerger(f *testing.F) {
	for _, s := range mergeCases {
		f.Add(uint8(slices.Index(shapes, s.shape)), s.stream, []byte(s.first), []byte(s.second), uint64(len(s.first)))
	}
	f.Fuzz(func(t *testing.T, kind uint8, stream bool, first, second []byte, seed uint64) {
		shape := shapes[int(kind)%len(shapes)]
		replies := [][]byte{first, second}
		want, said, err := mergeAll(shape, stream, replies, wholeReply)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		got, again, err := mergeAll(shape, stream, replies, func(left int) int { return min(left, rng.IntN(9)+1) })
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("merged in chunks: %q (error %v)\nat once: %q", got, err, want)
		}
		if d := cmp.Diff(said, again); d != "" {
			t.Fatalf("rounds depend on the chunks: %s", d)
		}
		if unnamed := !bytes.Contains(first, []byte(recovertool.Name)) && !bytes.Contains(first, []byte(`\u`)); unnamed && !bytes.Equal(got, first) {
			t.Fatalf("a reply without recover_text changed from %q to %q", first, got)
		}
		for _, r := range said {
			if !json.Valid(r.Said) || len(r.Calls) == 0 || len(r.Calls[0].Args) == 0 || r.Mixed != (len(r.Others) > 0) {
				t.Fatalf("invalid round: %+v", r)
			}
		}
	})
}

// mergeCase has handwritten replies of one or two rounds and their merged reply.
type mergeCase struct {
	name          string
	shape         llm.ReadbackCodec
	stream        bool
	first, second string
	said          string // the first round, as a request repeats it
	out           string
}

// Unusual replies of real providers, which the fake provider does not produce, are merged.
func TestMergeCases(t *testing.T) {
	for _, s := range mergeCases {
		t.Run(s.shape.Wire().Name+" "+s.name, func(t *testing.T) {
			out, said, err := mergeAll(s.shape, s.stream, [][]byte{[]byte(s.first), []byte(s.second)}, randomChunk)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if len(said) > 0 {
				got = string(said[0].Said)
			}
			if d := cmp.Diff(s.said, got); d != "" {
				t.Errorf("first round: %s", d)
			}
			if d := cmp.Diff(s.out, string(out)); d != "" {
				t.Errorf("merged reply: %s", d)
			}
		})
	}
}

// Duplicate, missing and reordered events do not cause a panic, and the client gets valid events.
func TestShuffledEvents(t *testing.T) {
	for _, s := range mergeCases {
		if !s.stream {
			continue
		}
		for range 300 {
			replies := [][]byte{shuffled(s.first), shuffled(s.second)}
			out, said, err := mergeAll(s.shape, true, replies, randomChunk)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range said {
				if !json.Valid(r.Said) {
					t.Fatalf("round %s is not JSON, from %q", r.Said, replies)
				}
			}
			for _, e := range bytes.Split(out, []byte("\n\n")) {
				if data, ok := bytes.CutPrefix(e, []byte("data: {")); ok && !json.Valid(append([]byte{'{'}, bytes.ReplaceAll(data, []byte("\ndata: "), nil)...)) {
					t.Fatalf("event %q is not JSON, from %q", e, replies)
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
		case 3: // replace a value by one of another type
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
