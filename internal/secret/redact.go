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

// minRedactedLen is the length of the minRedactedLen secret that is redacted: shorter ones may be ordinary
// words.
const minRedactedLen = 8

// maxRegistered bounds the registry in a process that reloads new secrets again and again.
const maxRegistered = 10_000

// registered is every secret that this process has resolved. There is one registry for the process: a
// text may hold a secret that another part of the program resolved.
var registered struct {
	mu       sync.Mutex
	values   map[string]bool
	replacer atomic.Pointer[replacer] // nil after values has changed
}

// replacer is built from all values when the first text is redacted after a change: a configuration
// resolves its secrets one by one.
type replacer struct {
	*strings.Replacer
	values []string // the longest first
}

// Register makes [Redact] replace these secrets. [Text.Resolve] and [URL.Resolve] register what they
// resolve.
func Register(values ...string) {
	registered.mu.Lock()
	defer registered.mu.Unlock()
	if registered.values == nil {
		registered.values = map[string]bool{}
	}
	before := len(registered.values)
	for _, v := range values {
		if v = strings.TrimSpace(v); len(v) < minRedactedLen || len(registered.values) >= maxRegistered {
			continue
		}
		registered.values[v] = true
		registered.values[url.QueryEscape(v)] = true
		registered.values[url.PathEscape(v)] = true
	}
	if len(registered.values) > before {
		registered.replacer.Store(nil)
	}
}

// currentReplacer is the replacer of all registered secrets.
func currentReplacer() *replacer {
	if r := registered.replacer.Load(); r != nil {
		return r
	}
	registered.mu.Lock()
	defer registered.mu.Unlock()
	if r := registered.replacer.Load(); r != nil {
		return r
	}
	list := slices.Collect(maps.Keys(registered.values))
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(list))
	for _, v := range list {
		pairs = append(pairs, v, hidden)
	}
	r := &replacer{strings.NewReplacer(pairs...), list}
	registered.replacer.Store(r)
	return r
}

// Redact replaces every registered secret of at least eight bytes in a text by ***.
func Redact(s string) string { return currentReplacer().Replace(s) }

// RedactPrefix is Redact for the beginning of a longer text: an end that may be the beginning of a
// secret is left out.
func RedactPrefix(s string) string {
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
