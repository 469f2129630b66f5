package history

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/llm"
)

func goalsOf(d *Dialogue) []string {
	var out []string
	g := d.Goals()
	for i := range d.Results {
		out = append(out, g.Of(i))
	}
	return out
}

// A goal is the focus question, or else the texts among the arguments and the user's last message.
func TestGoals(t *testing.T) {
	search := func(id, args string) toolCall {
		return toolCall{id: id, name: "grep", args: args, results: []string{"x"}}
	}
	full := transcript{
		{user: "Why is the \"cache\" slow?\n"},
		{calls: []toolCall{search("a", `{"pattern":"evict.*","n":3,"in":{"paths":["src/a.go","src/b.go"]}}`), search("b", `{}`)}},
		{model: "Because."},
		{user: strings.Repeat("é", maxGoal)},
		{calls: []toolCall{search("c", `{"path":"x","context_focus_question":" where is it \u00e9vict\u00e9? "}`)}},
		{calls: []toolCall{search("d", `not "JSON`), search("e", `{"old":"`+strings.Repeat("y", maxArg+1)+`","path":"/p/q"}`)}},
		{calls: []toolCall{search("f", strings.Repeat("z", maxArgs))}},
	}
	long := strings.Repeat("é", maxGoal/2)
	want := []string{
		"evict.*\nsrc/a.go\nsrc/b.go\nWhy is the \"cache\" slow?", "Why is the \"cache\" slow?",
		"where is it évicté?", "not \"JSON\n" + long, "/p/q\n" + long, long,
	}
	for _, shape := range []llm.Codec{openAIChat, openAIResponses} {
		if got := goalsOf(mustRead(t, shape, full.render(shape, renderOptions{}))); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Errorf("%s: got %.999q\nwant %.999q", shape, got, want)
		}
	}
	d := mustRead(t, anthropicMessages, []byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"<reminder>"},{"text":"Why?","type":"text"},{"type":"image","source":{}}]},`+
		`{"role":"assistant","content":[{"type":"text","text":"hm"},{"type":"tool_use","id":"a","name":"grep","input":{"pattern":"p","n":1}},{"type":"tool_use","id":"b","name":"grep","input":{"context_focus_question":"q"}}]},`+
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"},{"type":"tool_result","tool_use_id":"b","content":"x"},{"type":"text","text":"beside"}]},`+
		`{"content":[{"type":"tool_use","id":"c","name":"grep","input":{}}],"role":"assistant"},{"content":[{"type":"tool_result","tool_use_id":"c","content":"x"},{"type":"tool_result","tool_use_id":"orphan","content":"x"}],"role":"user"}]}`))
	if got, want := fmt.Sprintf("%q", goalsOf(d)), `["p\nWhy?" "q" "Why?" "Why?"]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// I4: a goal does not change with later messages, nor when a client changes cache_control, thinking or lists in
// old ones.
func TestGoalsDoNotChange(t *testing.T) {
	for _, shape := range shapes {
		for seed := range uint64(20) {
			rnd := rand.New(rand.NewPCG(seed, 13))
			full := randomTranscript(seed, 10)
			var before []string
			for i, n := range full.requests() {
				l := renderOptions{thinking: i%3 == 0, lists: i%2 == 0, marks: []int{rnd.IntN(n)}}
				got := goalsOf(mustRead(t, shape, full[:n].render(shape, l)))
				if len(got) < len(before) || strings.Join(got[:len(before)], "\x00") != strings.Join(before, "\x00") {
					t.Fatalf("%s, seed %d: goals changed from %q to %q", shape, seed, before, got)
				}
				before = got
			}
		}
	}
}
