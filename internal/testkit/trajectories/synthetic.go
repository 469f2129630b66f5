package trajectories

import (
	"fmt"
	"strings"
)

// plan describes a synthetic trajectory.
type plan struct {
	name        string
	turns       int
	scale       float64 // multiplies the sizes of results
	maxCalls    int     // in one turn
	hasThinking bool
	userEvery   int // turns between user messages; 0: none
}

func plans() []plan {
	return []plan{
		{"one-line fix", 7, 0.5, 1, false, 0},
		{"typo in docs", 9, 0.4, 1, true, 0},
		{"flaky test", 24, 1, 2, false, 0},
		{"nil dereference", 18, 0.8, 2, true, 0},
		{"new endpoint", 42, 1, 3, false, 0},
		{"schema migration", 55, 1.2, 2, false, 20},
		{"rename across packages", 64, 0.7, 4, false, 0},
		{"slow query", 38, 1.6, 1, true, 0},
		{"dependency upgrade", 47, 1.4, 2, false, 0},
		{"race condition", 72, 1.1, 1, true, 0},
		{"log archaeology", 33, 2.5, 1, false, 0},
		{"read the whole module", 29, 3, 4, false, 0},
		{"port to another language", 96, 1.3, 3, false, 30},
		{"security review", 81, 1.5, 4, true, 0},
		{"refactor the parser", 110, 0.9, 2, false, 25},
		{"release notes", 15, 1.8, 4, false, 0},
		{"incident at night", 60, 2, 2, false, 8},
		{"write tests", 88, 0.6, 1, false, 0},
		{"pairing session", 40, 0.8, 2, false, 3},
		{"many small greps", 130, 0.25, 3, false, 0},
		{"big files, few turns", 12, 4, 2, false, 0},
		{"failing tools", 36, 0.7, 2, false, 0},
		{"build system", 50, 1.7, 1, false, 0},
		{"long haul", 160, 1, 2, false, 40},
	}
}

// Synthetic returns trajectories that resemble recorded ones: an agent explores, reads, edits and runs
// tests, with failures and parallel calls; results range from thirty tokens to several thousand.
func Synthetic() []Trajectory {
	var out []Trajectory
	for _, p := range plans() {
		out = append(out, p.generate())
	}
	return out
}

func (p plan) generate() Trajectory {
	w := newTextWriter(p.name)
	t := w.newTrajectory(p.name)
	for i := range p.turns {
		turn := Turn{ToolUses: p.toolUses(w, i)}
		if p.hasThinking {
			turn.Thinking = w.prose(w.between(40, 400))
		}
		if w.rng.IntN(3) > 0 {
			turn.Text = w.prose(w.between(10, 120))
		}
		if p.userEvery > 0 && i%p.userEvery == p.userEvery-1 {
			turn.UserMessage = "Good. Now " + w.prose(w.between(10, 80))
		}
		t.Turns = append(t.Turns, turn)
	}
	return t
}

// toolUses generates the tool uses of turn i. Only reads and searches run in parallel.
func (p plan) toolUses(w *textWriter, i int) []ToolUse {
	phase := 3 * i / p.turns // exploring, working, checking
	n := 1
	if p.maxCalls > 1 && w.rng.IntN(3) == 0 {
		n = 2 + w.rng.IntN(p.maxCalls-1)
	}
	var out []ToolUse
	for k := range n {
		out = append(out, p.toolUse(w, i, k, phase, n > 1))
	}
	return out
}

// activities lists what an agent does in each phase; repeated entries are more likely.
var activities = [3][]string{
	strings.Fields("read read search search list fetch read"),
	strings.Fields("read edit edit read search test edit shell"),
	strings.Fields("test test edit read shell test"),
}

func (p plan) toolUse(w *textWriter, i, k, phase int, parallel bool) ToolUse {
	acts := activities[phase]
	act := acts[w.rng.IntN(len(acts))]
	if parallel && act != "search" {
		act = "read"
	}
	size := func(lo, hi int) int { return max(int(p.scale*float64(w.between(lo, hi))), 8) }
	path := w.path()
	var e ToolUse
	switch act {
	case "read":
		e = w.toolUse(i, k, "read_file", fmt.Sprintf(`{"path":%q}`, path), w.code(path, size(300, 4200)))
	case "search":
		e = w.toolUse(i, k, "search", fmt.Sprintf(`{"pattern":"%s.*%s"}`, w.verb(), w.noun()), w.matches(size(30, 1400)))
	case "list":
		e = w.toolUse(i, k, "list_dir", fmt.Sprintf(`{"path":%q,"depth":2}`, w.noun()), w.listing(size(80, 900)))
	case "fetch":
		e = w.toolUse(i, k, "fetch", fmt.Sprintf(`{"url":"https://api.example.com/v1/%s"}`, w.noun()), w.rows(size(150, 2500)))
	case "edit":
		e = w.toolUse(i, k, "edit_file", fmt.Sprintf(`{"path":%q,"old":%q,"new":%q}`, path, w.code(path, w.between(20, 160)), w.code(path, w.between(20, 200))), "Edited "+path+": one place.\n")
	case "test":
		e = w.toolUse(i, k, "run_tests", fmt.Sprintf(`{"package":"./%s/...","race":true}`, w.noun()), w.log(size(120, 3600)))
	default:
		e = w.toolUse(i, k, "shell", fmt.Sprintf(`{"command":"git log --oneline -%d"}`, 1+w.rng.IntN(40)), w.listing(size(20, 700)))
	}
	if w.rng.IntN(12) == 0 || p.name == "failing tools" && w.rng.IntN(3) == 0 {
		e.Result, e.IsError = w.failure(), true
	}
	return e
}
