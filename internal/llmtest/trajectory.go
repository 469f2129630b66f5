package llmtest

import (
	"fmt"
	"strings"
)

// Trajectory is a conversation of an agent with a model: what both said, and what the tools
// answered. It is the same in every shape.
type Trajectory struct {
	Name   string
	System string
	Tools  []Tool
	Task   string // what the user asks for
	Turns  []Turn
	Final  string // what the model says when it is done
}

// Tool is a tool that the agent offers. Schema is a JSON Schema of its arguments.
type Tool struct{ Name, Description, Schema string }

// Turn is one turn of the model in which it calls tools, and what came of it.
type Turn struct {
	// Think is there in all turns of a trajectory or in none: a model thinks or does not.
	Think string
	Say   string
	Uses  []Exchange
	// User is what the user says after the results, most often nothing.
	User string
}

// Exchange is one call of a tool and what the tool answered.
type Exchange struct {
	Call
	Result string
	Failed bool
}

// Answer is what the model says to a request of this trajectory: the turn that follows the tool
// turns which it holds. Give it to [Provider.ScriptFunc].
func (t Trajectory) Answer(r Request) Step {
	if r.ToolTurns >= len(t.Turns) {
		return Say(t.Final)
	}
	return t.Turns[r.ToolTurns].step()
}

func (t Turn) step() Step {
	s := Step{Think: t.Think, Text: t.Say}
	for _, u := range t.Uses {
		s.Calls = append(s.Calls, u.Call)
	}
	return s
}

// ResultTokens adds up the tokens of all results.
func (t Trajectory) ResultTokens() int {
	n := 0
	for _, turn := range t.Turns {
		for _, u := range turn.Uses {
			n += Tokens(u.Result)
		}
	}
	return n
}

// Uniform is a trajectory whose every turn reads a file and gets a result of so many tokens.
func Uniform(turns, tokens int) Trajectory {
	name := fmt.Sprintf("%d x %d", turns, tokens)
	w := newWriter(name)
	t := w.begin(name)
	for i := range turns {
		path := w.path()
		t.Turns = append(t.Turns, Turn{
			Say:  w.prose(50),
			Uses: []Exchange{w.use(i, 0, "read_file", fmt.Sprintf(`{"path":%q,"offset":%d}`, path, i*40), w.code(path, tokens))},
		})
	}
	return t
}

// Uniforms are the shapes that cost is measured with: short, middling and long results.
func Uniforms() []Trajectory {
	return []Trajectory{Uniform(58, 520), Uniform(120, 1500), Uniform(80, 4000)}
}

// begin is a trajectory before its first turn.
func (w *writer) begin(name string) Trajectory {
	return Trajectory{
		Name:   name,
		System: "You are a careful software engineer working in a repository. " + w.prose(900),
		Tools:  toolbox(),
		Task:   "Please fix the failing test and explain what was wrong. " + w.prose(60),
		Final:  "Done. " + w.prose(80),
	}
}

// use is one use of a tool, with an id that every shape takes.
func (w *writer) use(turn, n int, name, args, result string) Exchange {
	id := fmt.Sprintf("call_%s%04d%02d", w.tag, turn, n)
	return Exchange{Call: Call{ID: id, Name: name, Args: args}, Result: result}
}

func toolbox() []Tool {
	var tools []Tool
	for _, line := range strings.Split(strings.TrimSpace(toolLines), "\n") {
		part := strings.Split(line, "|")
		tools = append(tools, Tool{part[0], part[1], schemaOf(part[2])})
	}
	return tools
}

// toolLines are tools as agents have them: name, description, arguments.
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
