package history

// RollingWindow returns the results that the document's rolling window masks (H1–H9): those of turns before
// the last WindowTurns, except errors, results without a call, results that are not text, and the last of
// each tool. An id that two turns share belongs to the later of them, as in the document.
func RollingWindow(d *Dialogue, p Policy) []int {
	if p.isOff() {
		return nil
	}
	recent := lastCallsOfEachTool(d, p.KeepLastK)
	var out []int
	for i := range d.Results {
		if !d.inWindow(p, i) && !recent[d.Results[i].call] && d.isMaskable(p, i) {
			out = append(out, i)
		}
	}
	return out
}

// inWindow says whether a result belongs to one of the last turns.
func (d *Dialogue) inWindow(p Policy, result int) bool {
	return d.Results[result].last >= max(0, len(d.Turns)-p.WindowTurns)
}

// isMaskable says whether a result may be masked once it is old: it is text, a call asked for it, and it is
// not an error.
func (d *Dialogue) isMaskable(p Policy, result int) bool {
	r := &d.Results[result]
	return r.last >= 0 && p.readsAsText(r) && (!p.KeepErrors || !d.looksFailed(p, result))
}

// lastCallsOfEachTool are the numbers of the calls of the last k results of each tool (H9).
func lastCallsOfEachTool(d *Dialogue, k int) map[int]bool {
	if k <= 0 {
		return nil
	}
	recent := map[int]bool{}
	seen := map[string]int{}
	for i := len(d.Results) - 1; i >= 0; i-- {
		if r := &d.Results[i]; r.last >= 0 && seen[r.label] < k {
			seen[r.label]++
			recent[r.call] = true
		}
	}
	return recent
}

// never is after every turn.
const never = int(^uint(0) >> 1)

// releaseTurns returns for each result the turn, counted from one, from which on it is no longer among the
// last k of its tool. Later turns cannot change it.
func releaseTurns(d *Dialogue, k int) []int {
	out := make([]int, len(d.Results))
	later := map[string][]int{} // by tool: the turns at which its later results came
	for i := len(d.Results) - 1; i >= 0; i-- {
		r := &d.Results[i]
		if r.Turn < 0 {
			continue
		}
		list := later[r.Name]
		out[i] = never
		if len(list) >= k {
			out[i] = list[len(list)-k]
		}
		later[r.Name] = append(list, r.since+1)
	}
	return out
}
