package prune

import "bytes"

// maxFailed is how many failing tests are told apart; of more, all are taken to have failed.
const maxFailed = 1 << 12

// testOf is a hash of the test that a line of go test is about; 0 for none.
func testOf(line []byte, r logRole) uint32 {
	if r != roleBegin && r != rolePass && r != roleFail {
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

// markTests finds what failing tests wrote, and what others did. In go test -v a test's lines follow
// its name, and whether it failed is said later, for a subtest after all of its siblings.
func markTests(ls []logLine) {
	failed := map[uint32]bool{}
	for i := range ls {
		if p := &ls[i]; p.test != 0 && p.role == roleFail && len(failed) < maxFailed {
			failed[p.test] = true
		}
	}
	if len(failed) == 0 {
		return
	}
	in := logPart(0)
	for i := range ls {
		p := &ls[i]
		if p.test != 0 {
			in = partOf(p, failed[p.test] || len(failed) == maxFailed)
			if p.role != roleFail {
				continue
			}
		}
		p.in |= in
	}
}

// partOf is what follows a line that names a test.
func partOf(p *logLine, failed bool) logPart {
	switch {
	case p.role == rolePass:
		return 0
	case failed:
		return inFail
	}
	return inPass
}

// markFolds finds what a CI folds away. A fold in which a command failed is none.
func markFolds(ls []logLine) {
	first := -1
	for i := range ls {
		switch ls[i].role {
		case roleOpen:
			first = i
		case roleClose:
			first = -1
		case roleVerdict:
			for j := first; j >= 0 && j < i; j++ {
				ls[j].in &^= inFold
			}
			first = -1
		}
		if first >= 0 {
			ls[i].in |= inFold
		}
	}
}
