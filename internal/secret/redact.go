package secret

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// shortest is the shortest secret that is looked for in texts: shorter ones are words of their own.
const shortest = 8

// mostKnown is how many secrets are remembered; a process that resolves more is reloading for ever.
const mostKnown = 10_000

// known is every secret that this process has resolved. It is one for the process: what is printed may
// hold a secret that another part of the program resolved.
var known struct {
	mu       sync.Mutex
	values   map[string]bool
	replacer atomic.Pointer[strings.Replacer]
}

// Remember makes [Redact] look for a secret. Those that come through [Text.Resolve] and [URL.Resolve]
// are remembered already.
func Remember(values ...string) {
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.values == nil {
		known.values = map[string]bool{}
	}
	before := len(known.values)
	for _, v := range values {
		if v = strings.TrimSpace(v); len(v) < shortest || len(known.values) >= mostKnown {
			continue
		}
		known.values[v] = true
		known.values[url.QueryEscape(v)] = true
		known.values[url.PathEscape(v)] = true
	}
	if len(known.values) == before {
		return
	}
	list := make([]string, 0, len(known.values))
	for v := range known.values {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) }) // the longest first
	pairs := make([]string, 0, 2*len(list))
	for _, v := range list {
		pairs = append(pairs, v, hidden)
	}
	known.replacer.Store(strings.NewReplacer(pairs...))
}

// Redact is a text with *** in the place of every secret of at least eight bytes that this process
// has resolved.
func Redact(s string) string {
	if r := known.replacer.Load(); r != nil {
		return r.Replace(s)
	}
	return s
}
