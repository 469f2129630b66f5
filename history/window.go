package history

// Mask lists the results that the document's rolling window masks (H1–H9): those of turns older
// than the last WindowTurns, but for errors, orphans, what is no text, and the last of each tool.
// An id that two turns share belongs to the later of them, as in the document.
func Mask(d *Dialogue, p Policy) []int {
	if p.off() {
		return nil
	}
	kept := lastOfEach(d, p.KeepLastK)
	var out []int
	for i := range d.Results {
		if !d.inWindow(p, i) && !kept[d.Results[i].call] && d.isPlain(p, i) {
			out = append(out, i)
		}
	}
	return out
}

// inWindow says whether a result is of one of the last turns.
func (d *Dialogue) inWindow(p Policy, result int) bool {
	return d.Results[result].last >= max(0, len(d.Turns)-p.WindowTurns)
}

// isPlain says whether a result can be masked wherever it stands: it is text, somebody asked for it,
// and it is no error.
func (d *Dialogue) isPlain(p Policy, result int) bool {
	r := &d.Results[result]
	return r.last >= 0 && r.Maskable && (!p.KeepErrors || !d.looksFailed(p, result))
}

// lastOfEach are the numbers of the calls that gave the last k results of each tool (H9).
func lastOfEach(d *Dialogue, k int) map[int]bool {
	if k <= 0 {
		return nil
	}
	kept := map[int]bool{}
	seen := map[string]int{}
	for i := len(d.Results) - 1; i >= 0; i-- {
		if r := &d.Results[i]; r.last >= 0 && seen[r.label] < k {
			seen[r.label]++
			kept[r.call] = true
		}
	}
	return kept
}

// never is a turn that does not come.
const never = int(^uint(0) >> 1)

// releases says of each result at which turn, counted from one, it is no longer among the last k
// of its tool. This looks only back: what comes later cannot change it.
func releases(d *Dialogue, k int) []int {
	out := make([]int, len(d.Results))
	later := map[string][]int{} // of each tool, the turns from which on its results are there
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
