// Package trajectories makes conversations of agents with models and replays them against a provider or
// a gateway in front of one.
//
// Files: trajectory.go defines a conversation and the uniform ones; synthetic.go generates varied ones
// from texts.go; replayer.go sends a conversation turn by turn; requests.go encodes its requests for each
// wire shape. Everything is deterministic: two runs make the same bytes.
package trajectories

import (
	"fmt"
	"strings"

	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// Trajectory is a conversation between an agent and a model, with the tools' results. It is independent
// of the wire shape.
type Trajectory struct {
	Name   string
	System string
	Tools  []Tool
	Task   string // the first user message
	Turns  []Turn
	Final  string // the model's last message
}

// Tool is a tool that the agent offers. Schema is the JSON Schema of its arguments.
type Tool struct{ Name, Description, Schema string }

// Turn is one turn in which the model calls tools, with their results.
type Turn struct {
	// Thinking is set in all turns of a trajectory or in none.
	Thinking string
	Text     string
	ToolUses []ToolUse
	// UserMessage follows the results; usually empty.
	UserMessage string
}

// ToolUse is a tool call and its result.
type ToolUse struct {
	fakeprovider.Call
	Result  string
	IsError bool
}

// Answer is the model's reply to a request of this trajectory: the turn after those that the request
// holds. Pass it to [fakeprovider.Provider.ScriptFunc].
func (t Trajectory) Answer(r fakeprovider.Request) fakeprovider.Step {
	if r.ToolTurns >= len(t.Turns) {
		return fakeprovider.ReplyText(t.Final)
	}
	return t.Turns[r.ToolTurns].reply()
}

func (t Turn) reply() fakeprovider.Step {
	s := fakeprovider.Step{Thinking: t.Thinking, Text: t.Text}
	for _, u := range t.ToolUses {
		s.Calls = append(s.Calls, u.Call)
	}
	return s
}

// ResultTokens adds up the tokens of all results.
func (t Trajectory) ResultTokens() int {
	n := 0
	for _, turn := range t.Turns {
		for _, u := range turn.ToolUses {
			n += fakeprovider.Tokens(u.Result)
		}
	}
	return n
}

// Uniform is a trajectory in which every turn reads a file and gets a result of the given size.
func Uniform(turns, tokens int) Trajectory {
	name := fmt.Sprintf("%d x %d", turns, tokens)
	w := newTextWriter(name)
	t := w.newTrajectory(name)
	for i := range turns {
		path := w.path()
		t.Turns = append(t.Turns, Turn{
			Text:     w.prose(50),
			ToolUses: []ToolUse{w.toolUse(i, 0, "read_file", fmt.Sprintf(`{"path":%q,"offset":%d}`, path, i*40), w.code(path, tokens))},
		})
	}
	return t
}

// UniformSet returns the trajectories that cost is measured with: short, medium and long results.
func UniformSet() []Trajectory {
	return []Trajectory{Uniform(58, 520), Uniform(120, 1500), Uniform(80, 4000)}
}

// FileReads is a session of Claude Code, as its recorded requests are, in which every turn reads a source file of 2
// to 12 KB: a long preamble of tools and instructions, reminders before the task, a little thinking.
func FileReads(turns int) Trajectory {
	name := fmt.Sprintf("%d file reads", turns)
	w := newTextWriter("file reads") // the first turns of all lengths are the same
	t := w.newTrajectory(name)
	t.System = w.prose(18_000)
	t.Task = w.prose(2700)
	for i := range turns {
		path := "/home/user/project/" + w.path()
		t.Turns = append(t.Turns, Turn{
			Thinking: w.prose(25),
			ToolUses: []ToolUse{w.toolUse(i, 0, "read_file", fmt.Sprintf(`{"path":%q}`, path), w.code(path, 500+w.rng.IntN(2500)))},
		})
	}
	return t
}

// newTrajectory returns a trajectory without turns.
func (w *textWriter) newTrajectory(name string) Trajectory {
	return Trajectory{
		Name:   name,
		System: "You are a careful software engineer working in a repository. " + w.prose(900),
		Tools:  agentTools(),
		Task:   "Please fix the failing test and explain what was wrong. " + w.prose(60),
		Final:  "Done. " + w.prose(80),
	}
}

// toolUse returns a tool use with an id that every wire shape accepts.
func (w *textWriter) toolUse(turn, n int, name, args, result string) ToolUse {
	id := fmt.Sprintf("call_%s%04d%02d", w.tag, turn, n)
	return ToolUse{Call: fakeprovider.Call{ID: id, Name: name, Args: args}, Result: result}
}

func agentTools() []Tool {
	var tools []Tool
	for _, line := range strings.Split(strings.TrimSpace(toolLines), "\n") {
		part := strings.Split(line, "|")
		tools = append(tools, Tool{part[0], part[1], schemaOf(part[2])})
	}
	return tools
}

// toolLines lists typical agent tools: name, description, arguments.
const toolLines = `
read_file|Read a file, or a part of it. Lines are numbered from one. Long files are cut; ask for a part by offset and limit.|path:string offset:integer limit:integer
search|Search file contents by a regular expression and list the matching lines with their paths and line numbers.|pattern:string path:string glob:string
list_dir|List the files of a folder, recursively to the given depth, leaving out what version control ignores.|path:string depth:integer
edit_file|Replace one exact piece of text in a file by another. The text must occur exactly once.|path:string old:string new:string
run_tests|Run the tests of a package and report the output, failures last.|package:string run:string race:boolean
shell|Run a command in the repository's root and report what it printed and its exit status.|command:string timeout:integer
fetch|Fetch a document or an API's answer from the network as text or JSON.|url:string accept:string
todo|Write down or tick off the steps of the plan.|items:string`

func schemaOf(args string) string {
	var props []string
	first := ""
	for _, arg := range strings.Fields(args) {
		name, kind, _ := strings.Cut(arg, ":")
		if first == "" {
			first = name
		}
		props = append(props, fmt.Sprintf(`%q:{"type":%q,"description":"The %s."}`, name, kind, name))
	}
	return fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%q]}`, strings.Join(props, ","), first)
}
