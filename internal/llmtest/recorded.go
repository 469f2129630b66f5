package llmtest

import "fmt"

// plan is what a recorded-looking trajectory is grown from.
type plan struct {
	name  string
	turns int
	// scale stretches the sizes of results.
	scale float64
	// wide is the most calls in a turn.
	wide int
	// thinks says that the model thinks before each turn.
	thinks bool
	// talks is after how many turns the user says something; never when 0.
	talks int
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

// Recorded are trajectories that look like recorded ones: an agent looks around, reads, edits, runs
// tests, fails at times, asks for several things at once; results from thirty tokens to some
// thousands. They are the same in every run.
func Recorded() []Trajectory {
	var out []Trajectory
	for _, p := range plans() {
		out = append(out, p.grow())
	}
	return out
}

func (p plan) grow() Trajectory {
	w := newWriter(p.name)
	t := w.begin(p.name)
	for i := range p.turns {
		turn := Turn{Uses: p.uses(w, i)}
		if p.thinks {
			turn.Think = w.prose(w.between(40, 400))
		}
		if w.rng.IntN(3) > 0 {
			turn.Say = w.prose(w.between(10, 120))
		}
		if p.talks > 0 && i%p.talks == p.talks-1 {
			turn.User = "Good. Now " + w.prose(w.between(10, 80))
		}
		t.Turns = append(t.Turns, turn)
	}
	return t
}

// uses are the calls of turn i. Only looking is done in parallel.
func (p plan) uses(w *writer, i int) []Exchange {
	phase := 3 * i / p.turns // looking around, working, checking
	n := 1
	if p.wide > 1 && w.rng.IntN(3) == 0 {
		n = 2 + w.rng.IntN(p.wide-1)
	}
	var out []Exchange
	for k := range n {
		out = append(out, p.exchange(w, i, k, phase, n > 1))
	}
	return out
}

// activities are what an agent does in each phase; what stands there more often happens more often.
var activities = [3][]string{
	words("read read search search list fetch read"),
	words("read edit edit read search test edit shell"),
	words("test test edit read shell test"),
}

func (p plan) exchange(w *writer, i, k, phase int, parallel bool) Exchange {
	acts := activities[phase]
	act := acts[w.rng.IntN(len(acts))]
	if parallel && act != "search" {
		act = "read"
	}
	size := func(lo, hi int) int { return max(int(p.scale*float64(w.between(lo, hi))), 8) }
	path := w.path()
	var e Exchange
	switch act {
	case "read":
		e = w.use(i, k, "read_file", fmt.Sprintf(`{"path":%q}`, path), w.code(path, size(300, 4200)))
	case "search":
		e = w.use(i, k, "search", fmt.Sprintf(`{"pattern":"%s.*%s"}`, w.verb(), w.noun()), w.matches(size(30, 1400)))
	case "list":
		e = w.use(i, k, "list_dir", fmt.Sprintf(`{"path":%q,"depth":2}`, w.noun()), w.listing(size(80, 900)))
	case "fetch":
		e = w.use(i, k, "fetch", fmt.Sprintf(`{"url":"https://api.example.com/v1/%s"}`, w.noun()), w.rows(size(150, 2500)))
	case "edit":
		e = w.use(i, k, "edit_file", fmt.Sprintf(`{"path":%q,"old":%q,"new":%q}`, path, w.code(path, w.between(20, 160)), w.code(path, w.between(20, 200))), "Edited "+path+": one place.\n")
	case "test":
		e = w.use(i, k, "run_tests", fmt.Sprintf(`{"package":"./%s/...","race":true}`, w.noun()), w.log(size(120, 3600)))
	default:
		e = w.use(i, k, "shell", fmt.Sprintf(`{"command":"git log --oneline -%d"}`, 1+w.rng.IntN(40)), w.listing(size(20, 700)))
	}
	if w.rng.IntN(12) == 0 || p.name == "failing tools" && w.rng.IntN(3) == 0 {
		e.Result, e.Failed = w.failure(), true
	}
	return e
}
