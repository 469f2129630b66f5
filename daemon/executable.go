package daemon

import (
	"os"
	"strconv"
	"strings"
)

// Executable is the file that the process was started from.
type Executable struct {
	Path  string
	first os.FileInfo // as it was when the process started; nil if unknown
	last  os.FileInfo // as it was at the last check
}

// NewExecutable remembers how the executable looks now.
func NewExecutable(path string) *Executable {
	e := &Executable{Path: path}
	if info, err := os.Stat(path); err == nil {
		e.first, e.last = info, info
	}
	return e
}

// HasChanged reports whether the file is another one now and has not changed since the last check: an installer may still
// be writing it.
func (e *Executable) HasChanged() bool {
	now, err := os.Stat(e.Path)
	if err != nil || e.first == nil || now.Size() == 0 || now.Mode()&0o111 == 0 && !strings.HasSuffix(e.Path, ".exe") {
		return false
	}
	settled := isSameVersion(e.last, now)
	e.last = now
	return settled && !isSameVersion(e.first, now)
}

func isSameVersion(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// IsNewer reports whether version a is a newer release than b. A build that is not a release is never newer nor older, so
// that two programs never replace each other in turns.
func IsNewer(a, b string) bool {
	va, okA := parseRelease(a)
	vb, okB := parseRelease(b)
	if !okA || !okB {
		return false
	}
	for i := range va {
		if va[i] != vb[i] {
			return va[i] > vb[i]
		}
	}
	return false
}

// parseRelease reads v1.2.3. Pre-releases and pseudo-versions are no releases.
func parseRelease(text string) (v [3]int, ok bool) {
	parts := strings.Split(strings.TrimPrefix(text, "v"), ".")
	if len(parts) != len(v) {
		return v, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 31)
		if err != nil {
			return v, false
		}
		v[i] = int(n)
	}
	return v, true
}
