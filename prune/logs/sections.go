package logs

import (
	"bytes"
)

// maxFailed bounds the failing tests that are tracked; beyond it all tests count as failed.
const maxFailed = 1 << 12

// testNameHash hashes the name of the test in a line of go test; 0 for none.
func testNameHash(line []byte, r logRole) uint32 {
	if r != roleTestStart && r != rolePass && r != roleTestFail {
		return 0
	}
	line = bytes.TrimLeft(line, " \t")
	after := ": " // "--- FAIL: TestX (0.00s)"
	switch {
	case bytes.HasPrefix(line, []byte("=== ")): // "=== RUN   TestX"
		line, after = line[4:], " "
	case !bytes.HasPrefix(line, []byte("--- ")):
		return 0
	}
	_, line, _ = bytes.Cut(line, []byte(after))
	name, _, _ := bytes.Cut(bytes.TrimLeft(line, " "), []byte(" "))
	h := uint32(2166136261)
	for _, c := range name {
		h = (h ^ uint32(c)) * 16777619
	}
	return max(h, 1)
}

// markTests marks the lines that failing tests wrote, and those of the others. In go test -v a test's
// lines follow its name; its result comes later, for a subtest after all of its siblings.
func markTests(ls []logLine) {
	failed := map[uint32]bool{}
	for i := range ls {
		if p := &ls[i]; p.testHash != 0 && p.role == roleTestFail && len(failed) < maxFailed {
			failed[p.testHash] = true
		}
	}
	if len(failed) == 0 {
		return
	}
	in := logSection(0)
	for i := range ls {
		p := &ls[i]
		if p.testHash != 0 {
			in = sectionAfter(p, failed[p.testHash] || len(failed) == maxFailed)
			if p.role != roleTestFail {
				continue
			}
		}
		p.section |= in
	}
}

// sectionAfter returns the section that begins after a line that names a test.
func sectionAfter(p *logLine, failed bool) logSection {
	switch {
	case p.role == rolePass:
		return 0
	case failed:
		return inFail
	}
	return inPass
}

// markFolds marks the lines that a CI folds away, unless a command in the fold failed.
func markFolds(ls []logLine) {
	first := -1
	for i := range ls {
		switch ls[i].role {
		case roleFoldStart:
			first = i
		case roleFoldEnd:
			first = -1
		case roleCommandFail:
			for j := first; j >= 0 && j < i; j++ {
				ls[j].section &^= inFold
			}
			first = -1
		}
		if first >= 0 {
			ls[i].section |= inFold
		}
	}
}
