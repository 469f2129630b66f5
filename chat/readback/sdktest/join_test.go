package sdktest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/chat/readback"
	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
	"github.com/ctxgate/ctxgate/llm"
)

var shapes = []llm.ReadbackCodec{openAIChat, anthropicMessages, openAIResponses}

// mergeReplies writes replies to a merger in chunks, as long as it needs more rounds.
func mergeReplies(shape llm.ReadbackCodec, stream bool, replies [][]byte, cut func(left int) int) (out []byte, said []llm.Round, err error) {
	j := readback.NewMerger(shape, stream)
	for _, raw := range replies {
		for len(raw) > 0 {
			n := cut(len(raw))
			more, err := j.Write(raw[:n])
			out, raw = append(out, more...), raw[n:]
			if err != nil {
				return out, said, err
			}
		}
		r := j.EndRound()
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

func allBytes(left int) int { return left }

func oneByte(int) int { return 1 }

func randomSize(size int) func(int) int {
	return func(left int) int { return min(left, rand.IntN(size)+1) }
}

// everyTurn calls f with the replies of all turns in all shapes, streamed and not.
func everyTurn(t *testing.T, f func(t *testing.T, shape llm.ReadbackCodec, stream bool, want readbackTurn, replies [][]byte)) {
	for _, shape := range shapes {
		forBothStreamings(t, func(t *testing.T, stream bool) {
			for _, turn := range readbackTurns() {
				t.Run(shape.Wire().Name+" "+turn.name, func(t *testing.T) {
					f(t, shape, stream, turn, runTurn(t, shape, stream, turn.maxRounds, turn.steps...).replies)
				})
			}
		})
	}
}

// Chunk sizes and line ends do not change the result.
func TestChunksDoNotMatter(t *testing.T) {
	everyTurn(t, func(t *testing.T, shape llm.ReadbackCodec, stream bool, _ readbackTurn, replies [][]byte) {
		for _, lineEnd := range []string{"\n", "\r\n", "\r"} {
			var in [][]byte
			for _, r := range replies {
				in = append(in, bytes.ReplaceAll(r, []byte("\n"), []byte(lineEnd)))
			}
			want, said, err := mergeReplies(shape, stream, in, allBytes)
			if err != nil {
				t.Fatal(err)
			}
			for _, cut := range []func(int) int{oneByte, randomSize(50)} {
				got, again, err := mergeReplies(shape, stream, in, cut)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("line end %q: %v\n%q\n%q", lineEnd, err, got, want)
				}
				if d := cmp.Diff(said, again); d != "" {
					t.Error(d)
				}
			}
			if len(said) == 0 && !bytes.Equal(want, in[0]) {
				t.Errorf("not unchanged: %q", want)
			}
		}
	})
}

func eventsOf(raw []byte) [][]byte {
	parts := bytes.SplitAfter(raw, []byte("\n\n"))
	return parts[:len(parts)-1]
}

// H10: an event is written with the chunk that completes it, unless it belongs to a hidden call or its end.
func TestEventsAreNotDelayed(t *testing.T) {
	for _, shape := range shapes {
		for _, turn := range readbackTurns() {
			replies := runTurn(t, shape, true, turn.maxRounds, turn.steps...).replies
			j := readback.NewMerger(shape, true)
			for i, reply := range replies {
				reading := slices.ContainsFunc(turn.steps[i].Calls, func(c fakeprovider.Call) bool { return c.Name == recovertool.Name })
				over := false
				for _, e := range eventsOf(reply) {
					for len(e) > 1 {
						n := rand.IntN(len(e)-1) + 1
						if out, err := j.Write(e[:n]); err != nil || len(out) > 0 {
							t.Fatalf("%s %s: %q was written before its end: %v", shape, turn.name, out, err)
						}
						e = e[n:]
					}
					out, err := j.Write(e)
					if err != nil {
						t.Fatal(err)
					}
					over = over || len(out) == 0 && reading
					if len(out) == 0 && !over && i == 0 {
						t.Errorf("%s %s: an event was delayed", shape, turn.name)
					}
				}
				if !reading && i == 0 && len(j.Finish()) > 0 {
					t.Errorf("%s %s: the end was delayed", shape, turn.name)
				}
				j.EndRound()
			}
		}
	}
}

// Text after a hidden call or in a later round is streamed too.
func TestLaterRoundsStream(t *testing.T) {
	words := strings.Repeat("word ", 40)
	for _, shape := range shapes {
		steps := []fakeprovider.Step{{Text: "First. ", Thinking: "!", Calls: []fakeprovider.Call{recoverCall("r", "x")}}, {Thinking: "!", Text: words}}
		replies := runTurn(t, shape, true, 0, steps...).replies
		j := readback.NewMerger(shape, true)
		writeChunks(t, j, replies[0], 100)
		if j.EndRound() == nil {
			t.Fatal("no round")
		}
		seen := 0
		for _, e := range eventsOf(replies[1]) {
			out, err := j.Write(e)
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(e, []byte("word")); n > 0 {
				seen += n
				if got := bytes.Count(out, []byte("word")); got != n {
					t.Errorf("%s: %d words of %d: %q", shape, got, n, out)
				}
			}
		}
		if seen < 20 {
			t.Errorf("%s: only %d words", shape, seen)
		}
		if end := j.Finish(); len(end) > 0 {
			t.Errorf("%s: the end of the last round was delayed: %s", shape, end)
		}
	}
}

const garbage = "data: {\"unended\n\n: a comment\n\ndata\n\nfoo: bar\n\n"

// roundEnds are parts of the event that ends a round with calls.
var roundEnds = map[llm.ReadbackCodec]string{
	openAIChat: `"finish_reason":"tool_calls"`, anthropicMessages: `"stop_reason":"tool_use"`, openAIResponses: `"type":"response.completed"`,
}

// Errors in a stream are passed on unchanged, without another round.
func TestBrokenStreams(t *testing.T) {
	call := fakeprovider.Step{Text: "Some text that is shown. ", Thinking: "!", Calls: []fakeprovider.Call{recoverCall("r", "x")}}
	for _, shape := range shapes {
		good := runTurn(t, shape, true, 1, call).replies[0]
		p := fakeprovider.New(t, fakeprovider.Options{})
		for at := range len(eventsOf(good)) - 1 {
			bad := map[string]fakeprovider.Step{"cut": call, "failed": call, "garbled": call}
			for name, step := range bad {
				step.AfterEvents = at + 1
				switch name {
				case "cut":
					step.Cut = true
				case "failed":
					step.Fail = &fakeprovider.Failure{Status: 529}
				case "garbled":
					step.Garbage = garbage
				}
				p.Script(step)
				raw := sendRequest(t, p, shape, request(shape, true))
				checkBroken(t, fmt.Sprintf("%s %s at %d", shape, name, at+1), shape, step.Cut, raw)
			}
		}
	}
}

func checkBroken(t *testing.T, name string, shape llm.ReadbackCodec, cut bool, raw []byte) {
	t.Helper()
	out, said, err := mergeReplies(shape, true, [][]byte{raw}, randomSize(40))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	hid := bytes.Contains(raw, []byte(`"type":"tool_use"`)) || bytes.Contains(raw, []byte(`"tool_calls":[`)) || bytes.Contains(raw, []byte(`"type":"function_call"`))
	if complete := cut && bytes.Contains(raw, []byte(roundEnds[shape])); len(said) > 0 != complete {
		t.Errorf("%s: %d rounds of %s", name, len(said), raw)
	}
	if bytes.Contains(out, []byte(`"name":"`+recovertool.Name)) && !bytes.Contains(out, []byte(`"tools":`)) {
		t.Errorf("%s: a hidden call is visible: %s", name, out)
	}
	for _, want := range []string{garbage, "overloaded"} {
		if bytes.Contains(raw, []byte(want)) && !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s: %q is lost:\n%s", name, want, out)
		}
	}
	if !hid && !bytes.Equal(out, raw) {
		t.Errorf("%s: not unchanged:\n%s\n%s", name, raw, out)
	}
}
