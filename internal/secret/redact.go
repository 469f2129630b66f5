package secret

import (
	"cmp"
	"maps"
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
	replacer atomic.Pointer[replacer] // nil after values has changed
}

// replacer is made of all values at once, when the first text is looked at after a change: a
// configuration resolves its secrets one by one.
type replacer struct {
	*strings.Replacer
	values []string // the longest first
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
	if len(known.values) > before {
		known.replacer.Store(nil)
	}
}

// currentReplacer is the replacer of all that is known.
func currentReplacer() *replacer {
	if r := known.replacer.Load(); r != nil {
		return r
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if r := known.replacer.Load(); r != nil {
		return r
	}
	list := slices.Collect(maps.Keys(known.values))
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(list))
	for _, v := range list {
		pairs = append(pairs, v, hidden)
	}
	r := &replacer{strings.NewReplacer(pairs...), list}
	known.replacer.Store(r)
	return r
}

// Redact is a text with *** in the place of every secret of at least eight bytes that this process
// has resolved.
func Redact(s string) string { return currentReplacer().Replace(s) }

// RedactHead is Redact for the first part of a text: what the part ends with may be the beginning of a
// secret, and is left out.
func RedactHead(s string) string {
	r := currentReplacer()
	s = r.Replace(s)
	cut := 0
	for _, v := range r.values {
		for n := min(len(v)-1, len(s)); n > cut; n-- {
			if strings.HasSuffix(s, v[:n]) {
				cut = n
			}
		}
	}
	return s[:len(s)-cut]
}
