package clients

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ctxgate/ctxgate/history"
	"github.com/ctxgate/ctxgate/internal/llmtest"
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

func single(int) int { return 1 }

func randomly(size int) func(int) int {
	return func(left int) int { return min(left, rand.IntN(size)+1) }
}

// everyTurn calls f with the replies of all turns in all shapes, streamed and not.
func everyTurn(t *testing.T, f func(t *testing.T, shape history.Shape, stream bool, want turn, replies [][]byte)) {
	for _, shape := range shapes {
		both(t, func(t *testing.T, stream bool) {
			for _, turn := range turns() {
				t.Run(shape.String()+" "+turn.name, func(t *testing.T) {
					f(t, shape, stream, turn, play(t, shape, stream, turn.most, turn.steps...).replies)
				})
			}
		})
	}
}

// How a reply is cut into pieces, and how its lines end, changes nothing.
func TestPiecesDoNotMatter(t *testing.T) {
	everyTurn(t, func(t *testing.T, shape history.Shape, stream bool, _ turn, replies [][]byte) {
		for _, lineEnd := range []string{"\n", "\r\n", "\r"} {
			var in [][]byte
			for _, r := range replies {
				in = append(in, bytes.ReplaceAll(r, []byte("\n"), []byte(lineEnd)))
			}
			want, said, err := joined(shape, stream, in, whole)
			if err != nil {
				t.Fatal(err)
			}
			for _, cut := range []func(int) int{single, randomly(50)} {
				got, again, err := joined(shape, stream, in, cut)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("line end %q: %v\n%q\n%q", lineEnd, err, got, want)
				}
				if d := cmp.Diff(said, again); d != "" {
					t.Error(d)
				}
			}
			if len(said) == 0 && !bytes.Equal(want, in[0]) {
				t.Errorf("not as it came: %q", want)
			}
		}
	})
}

func eventsOf(raw []byte) [][]byte {
	parts := bytes.SplitAfter(raw, []byte("\n\n"))
	return parts[:len(parts)-1]
}

// H10: an event comes out with the piece that ends it, or belongs to a hidden call or its end.
func TestEventsAreNotKept(t *testing.T) {
	for _, shape := range shapes {
		for _, turn := range turns() {
			replies := play(t, shape, true, turn.most, turn.steps...).replies
			j := rounds.NewJoin(shape, true)
			for i, reply := range replies {
				reading := slices.ContainsFunc(turn.steps[i].Calls, func(c llmtest.Call) bool { return c.Name == rounds.Tool })
				over := false
				for _, e := range eventsOf(reply) {
					for len(e) > 1 {
						n := rand.IntN(len(e)-1) + 1
						if out, err := j.Write(e[:n]); err != nil || len(out) > 0 {
							t.Fatalf("%s %s: %q came before its end: %v", shape, turn.name, out, err)
						}
						e = e[n:]
					}
					out, err := j.Write(e)
					if err != nil {
						t.Fatal(err)
					}
					over = over || len(out) == 0 && reading
					if len(out) == 0 && !over && i == 0 {
						t.Errorf("%s %s: an event was kept", shape, turn.name)
					}
				}
				if !reading && i == 0 && len(j.Finish()) > 0 {
					t.Errorf("%s %s: the end was kept", shape, turn.name)
				}
				j.End()
			}
		}
	}
}

// A text that comes after a hidden call, or in a later round, is streamed too.
func TestLaterRoundsStream(t *testing.T) {
	words := strings.Repeat("word ", 40)
	for _, shape := range shapes {
		steps := []llmtest.Step{{Text: "First. ", Think: "!", Calls: []llmtest.Call{recoverCall("r", "x")}}, {Think: "!", Text: words}}
		replies := play(t, shape, true, 0, steps...).replies
		j := rounds.NewJoin(shape, true)
		write(t, j, replies[0], 100)
		if j.End() == nil {
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
			t.Errorf("%s: the end of the last round was kept: %s", shape, end)
		}
	}
}

const garbage = "data: {\"unended\n\n: a comment\n\ndata\n\nfoo: bar\n\n"

// ends are in the event after which a round with calls is over.
var ends = map[history.Shape]string{
	history.Chat: `"finish_reason":"tool_calls"`, history.Messages: `"stop_reason":"tool_use"`, history.Responses: `"type":"response.completed"`,
}

// What goes wrong on the wire is passed on as it is, and nobody is asked again.
func TestBrokenStreams(t *testing.T) {
	call := llmtest.Step{Text: "Some text that is shown. ", Think: "!", Calls: []llmtest.Call{recoverCall("r", "x")}}
	for _, shape := range shapes {
		good := play(t, shape, true, 1, call).replies[0]
		p := llmtest.New(t, llmtest.Options{})
		for at := range len(eventsOf(good)) - 1 {
			bad := map[string]llmtest.Step{"cut": call, "failed": call, "garbled": call}
			for name, step := range bad {
				step.At = at + 1
				switch name {
				case "cut":
					step.Cut = true
				case "failed":
					step.Fail = &llmtest.Failure{Status: 529}
				case "garbled":
					step.Garbage = garbage
				}
				p.Script(step)
				raw := ask(t, p, shape, request(shape, true))
				broken(t, fmt.Sprintf("%s %s at %d", shape, name, at+1), shape, step.Cut, raw)
			}
		}
	}
}

func broken(t *testing.T, name string, shape history.Shape, cut bool, raw []byte) {
	t.Helper()
	out, said, err := joined(shape, true, [][]byte{raw}, randomly(40))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	hid := bytes.Contains(raw, []byte(`"type":"tool_use"`)) || bytes.Contains(raw, []byte(`"tool_calls":[`)) || bytes.Contains(raw, []byte(`"type":"function_call"`))
	if complete := cut && bytes.Contains(raw, []byte(ends[shape])); len(said) > 0 != complete {
		t.Errorf("%s: %d rounds of %s", name, len(said), raw)
	}
	if bytes.Contains(out, []byte(`"name":"`+rounds.Tool)) && !bytes.Contains(out, []byte(`"tools":`)) {
		t.Errorf("%s: a call is seen: %s", name, out)
	}
	for _, want := range []string{garbage, "overloaded"} {
		if bytes.Contains(raw, []byte(want)) && !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s: %q is lost:\n%s", name, want, out)
		}
	}
	if !hid && !bytes.Equal(out, raw) {
		t.Errorf("%s: not as it came:\n%s\n%s", name, raw, out)
	}
}
