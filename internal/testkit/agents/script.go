//go:build unix

package agents

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// Turn is one tool call of the scripted model.
type Turn struct {
	// Tool is the end of the tool's name; what the agent puts before it is found in the request.
	Tool string
	// Args are its arguments, given the text of the previous result.
	Args func(previous string) string

	isOfFirst bool // Args gets the first result instead, as this request has it
}

// CallTool calls a tool with fixed arguments.
func CallTool(tool, args string) Turn {
	return Turn{Tool: tool, Args: func(string) string { return args }}
}

var pruneID = regexp.MustCompile(`prune_id[=:"\s]+([A-Za-z0-9_-]{6,})`)

// PruneID is the id in a marker; empty if there is none.
func PruneID(text string) string {
	if m := pruneID.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

// ReadBack calls recover_text with the id in the previous result, and more arguments: members of a JSON object,
// each with a leading comma.
func ReadBack(more string) Turn {
	return Turn{Tool: recovertool.Name, Args: func(previous string) string {
		return fmt.Sprintf(`{"prune_id":%q%s}`, PruneID(previous), more)
	}}
}

// ReadBackFirst calls recover_text with the id in the first result, which is masked by then.
func ReadBackFirst(more string) Turn {
	turn := ReadBack(more)
	turn.isOfFirst = true
	return turn
}

// Answer is the scripted model's last message.
const Answer = "The scripted model has finished."

// Script is the model's side of a conversation with an agent. It calls one tool per turn, by the names that
// the agent offers, and at last answers in text. If a tool is not offered, it looks for it with the agent's own
// search tool. Requests without tools, such as those for a title, are answered shortly.
type Script struct {
	agent Agent
	turns []Turn

	mu       sync.Mutex
	calls    []fakeprovider.Call // made so far, one per turn
	results  []string            // of each finished turn, as the provider first received it
	offered  [][]string          // tool names in each request of the conversation
	searched map[string]bool
	searches int
	waits    int
	last     fakeprovider.Request
	problem  string
}

// NewScript makes the provider follow the turns.
func NewScript(p *fakeprovider.Provider, a Agent, turns ...Turn) *Script {
	s := &Script{agent: a, turns: turns, searched: map[string]bool{}}
	p.ScriptFunc(s.reply)
	return s
}

func (s *Script) reply(r fakeprovider.Request) fakeprovider.Step {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(r.Tools) == 0 {
		return fakeprovider.ReplyText("A title")
	}
	s.last = r
	s.offered = append(s.offered, r.Tools)
	if n := len(s.calls); n > len(s.results) {
		at := slices.IndexFunc(r.Results, func(one fakeprovider.Result) bool { return isResultOf(one, s.calls[n-1]) })
		if at < 0 { // the agent has sent the same request again
			return s.call(s.calls[n-1])
		}
		s.results = append(s.results, r.Results[at].Text)
	}
	n := len(s.results)
	if n == len(s.turns) {
		return fakeprovider.Step{Text: Answer, ChunkSize: len(Answer)} // some agents print each part on its own
	}
	turn := s.turns[n]
	name := s.findTool(r, turn.Tool)
	if name == "" {
		if search, ok := s.search(r, turn.Tool); ok {
			return s.call(search)
		}
		if wait, ok := s.wait(r); ok {
			return s.call(wait)
		}
		s.problem = fmt.Sprintf("no tool %s was offered in turn %d: %s", turn.Tool, n+1, strings.Join(r.Tools, " "))
		return fakeprovider.ReplyText(s.problem)
	}
	previous := ""
	if n > 0 {
		previous = s.results[n-1]
	}
	if turn.isOfFirst {
		for _, one := range r.Results {
			if isResultOf(one, s.calls[0]) {
				previous = one.Text
			}
		}
	}
	c := fakeprovider.Call{ID: fmt.Sprintf("call_turn%02d", n+1), Name: name, Args: turn.Args(previous)}
	s.calls = append(s.calls, c)
	return s.call(c)
}

// isResultOf reports whether a result belongs to a call. Gemini CLI puts the tool's name before the id.
func isResultOf(r fakeprovider.Result, c fakeprovider.Call) bool {
	return strings.HasSuffix(r.ID, c.ID)
}

// call replies with a tool call. Messages with thinking require a thinking block before it.
func (s *Script) call(c fakeprovider.Call) fakeprovider.Step {
	step := fakeprovider.CallTools(c)
	if s.last.Shape == fakeprovider.Messages {
		step.Thinking = "Let me see."
	}
	return step
}

// findTool returns the name of a tool in a request: among those that are offered or, after a search,
// anywhere in its text.
func (s *Script) findTool(r fakeprovider.Request, tool string) string {
	isTool := func(name string) bool {
		return recovertool.IsName(name) && tool == recovertool.Name || name == tool || strings.HasSuffix(name, "_"+tool) || strings.HasSuffix(name, "."+tool)
	}
	best := "" // a server may have a tool of the same name; the gateway's own is the shorter
	for _, name := range r.Tools {
		if isTool(name) && (best == "" || len(name) < len(best)) {
			best = name
		}
	}
	if best != "" {
		return best
	}
	if s.searched[tool] {
		return deferredName(r, tool)
	}
	return ""
}

// deferredName finds the full name of a tool in the text of a request.
func deferredName(r fakeprovider.Request, tool string) string {
	names := regexp.MustCompile(`mcp__ctxgate__(?:[A-Za-z0-9-]+_+)?`+regexp.QuoteMeta(tool)+`\b`).FindAllString(string(r.Body), -1)
	if len(names) == 0 {
		return ""
	}
	return slices.MinFunc(names, func(a, b string) int { return len(a) - len(b) })
}

// search calls the agent's own search tool, once for each tool.
func (s *Script) search(r fakeprovider.Request, tool string) (fakeprovider.Call, bool) {
	if s.searched[tool] {
		return fakeprovider.Call{}, false
	}
	for _, name := range r.Tools {
		args := fmt.Sprintf(`{"query":%q}`, strings.ReplaceAll(tool, "_", " "))
		switch name {
		case "ToolSearch":
			args = fmt.Sprintf(`{"query":"select:%s","max_results":5}`, deferredName(r, tool))
		case "tool_search":
		default:
			continue
		}
		s.searched[tool] = true
		s.searches++
		return fakeprovider.Call{ID: fmt.Sprintf("call_search%02d", s.searches), Name: name, Args: args}, true
	}
	return fakeprovider.Call{}, false
}

// maxWaits is how often the model waits a second for a tool.
const maxWaits = 30

// wait lets the agent's shell sleep for a second, if it offers one: its MCP servers may still be starting.
func (s *Script) wait(r fakeprovider.Request) (fakeprovider.Call, bool) {
	for name, args := range map[string]string{"Bash": `{"command":"sleep 1","description":"Wait"}`, "exec_command": `{"cmd":"sleep 1"}`} {
		if slices.Contains(r.Tools, name) && s.waits < maxWaits {
			s.waits++
			clear(s.searched)
			return fakeprovider.Call{ID: fmt.Sprintf("call_wait%02d", s.waits), Name: name, Args: args}, true
		}
	}
	return fakeprovider.Call{}, false
}

// Waits is how many seconds the model waited for tools that the agent did not offer yet.
func (s *Script) Waits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits
}

// Done reports whether every turn has its result; if not, why.
func (s *Script) Done() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.problem != "":
		return fmt.Errorf("%s", s.problem)
	case len(s.offered) == 0:
		return fmt.Errorf("the agent sent no request with tools")
	case len(s.results) < len(s.turns):
		return fmt.Errorf("the agent ended after %d of %d turns", len(s.results), len(s.turns))
	}
	return nil
}

// Name is the tool's name in a turn, as the agent offered it.
func (s *Script) Name(turn int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if turn >= len(s.calls) {
		return ""
	}
	return s.calls[turn].Name
}

// Result is the result of a turn, as the provider first received it from the agent.
func (s *Script) Result(turn int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if turn >= len(s.results) {
		return ""
	}
	return s.results[turn]
}

// LastResult is the result of a turn in the agent's last request.
func (s *Script) LastResult(turn int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if turn >= len(s.calls) {
		return ""
	}
	for _, one := range s.last.Results {
		if isResultOf(one, s.calls[turn]) {
			return one.Text
		}
	}
	return ""
}

// Offered are the tool names in each request of the conversation.
func (s *Script) Offered() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.offered)
}

// Searches is how often the model had to use the agent's own search tool.
func (s *Script) Searches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.searches
}
