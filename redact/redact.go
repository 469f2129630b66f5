// Package redact takes parts out of the arguments of a call and out of its results: the values at JSON pointers, and
// whatever matches a pattern. What is left keeps its bytes.
//
// Path through the files: redact.go compiles a [Config] into a [Set]; message.go applies it to arguments and messages;
// walk.go walks a document; text.go searches one text.
//
// Invariants: no text, key or number that is left matches a pattern, in JSON inside of texts too. Results often say
// the same twice, as structuredContent and as text: pointers hold for both. Work is linear in the document for each
// pattern, and memory is reserved before it is used. If a document cannot be read, or memory is short, the result is an
// error, never the document.
package redact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Replacement stands where something was taken out.
const Replacement = "[redacted]"

// Config is what is taken out.
type Config struct {
	// JSON pointers into the arguments of a call, such as "/password"; "*" stands for any key or index, as in
	// "/users/*/token". The values are replaced by "[redacted]" before the server sees them.
	Arguments []string `key:"arguments"`

	// JSON pointers into results, such as "/structuredContent/user/email". They also hold for texts that are
	// or contain JSON, such as the text copy of structuredContent; and what they take out of structuredContent
	// is also taken out of every other text of that result.
	Results []string `key:"results"`

	// Regular expressions (RE2, at most 512 bytes each). What matches is taken out of all texts, keys and
	// numbers of arguments and results, errors, progress, log messages and requests of the server included.
	// A binary value in base64 is taken out whole if its content matches.
	Patterns []string `key:"patterns"`
}

// IsEmpty says whether nothing is taken out.
func (c Config) IsEmpty() bool { return len(c.Arguments)+len(c.Results)+len(c.Patterns) == 0 }

const (
	maxEntries = 64  // pointers or patterns of a list
	maxLength  = 512 // bytes of each
)

// Set is a compiled Config. It is safe for concurrent use.
type Set struct {
	cfg       Config
	arguments []pointer
	results   []pointer
	inTexts   []pointer // results, as they apply to JSON in texts
	patterns  []*regexp.Regexp

	fingerprint string
}

// pointer is the rest of a JSON pointer; "*" stands for any key or index.
type pointer []string

// structured is the key of results that is often repeated as a text.
const structured = "structuredContent"

// Compile compiles a Config. It reports every problem, each with its key.
func Compile(cfg Config) (*Set, []error) {
	s := &Set{cfg: cfg}
	var problems []error
	for _, list := range []struct {
		key     string
		entries []string
		compile func(string) error
	}{
		{"arguments", cfg.Arguments, func(text string) (err error) { s.arguments, err = appendPointer(s.arguments, text); return err }},
		{"results", cfg.Results, func(text string) (err error) { s.results, err = appendPointer(s.results, text); return err }},
		{"patterns", cfg.Patterns, s.addPattern},
	} {
		if len(list.entries) > maxEntries {
			problems = append(problems, fmt.Errorf("%s: at most %d, found %d", list.key, maxEntries, len(list.entries)))
			continue
		}
		for i, entry := range list.entries {
			err := list.compile(entry)
			if len(entry) > maxLength {
				err = fmt.Errorf("at most %d bytes, found %d", maxLength, len(entry))
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("%s[%d]: %w", list.key, i, err))
			}
		}
	}
	for _, p := range s.results {
		s.inTexts = append(s.inTexts, p)
		if p[0] == structured {
			s.inTexts = append(s.inTexts, tails(p[1:])...)
		}
	}
	h := sha256.New()
	fmt.Fprintf(h, "redaction 1 %q %q %q", cfg.Arguments, cfg.Results, cfg.Patterns)
	s.fingerprint = hex.EncodeToString(h.Sum(nil)[:16])
	return s, problems
}

// Fingerprint identifies what is taken out, in every process: two Sets with the same take out the same.
func (s *Set) Fingerprint() string { return s.fingerprint }

// Describe lists what is taken out, for people; nothing for a nil Set.
func (s *Set) Describe() []string {
	if s == nil {
		return nil
	}
	var out []string
	for _, p := range s.cfg.Arguments {
		out = append(out, "arguments "+p)
	}
	for _, p := range s.cfg.Results {
		out = append(out, "results "+p)
	}
	for _, p := range s.cfg.Patterns {
		out = append(out, "pattern "+p)
	}
	return out
}

func appendPointer(list []pointer, text string) ([]pointer, error) {
	if !strings.HasPrefix(text, "/") {
		return list, errors.New(`a JSON pointer starts with "/"`)
	}
	tokens := strings.Split(text[1:], "/")
	for i, token := range tokens {
		rest := strings.NewReplacer("~0", "", "~1", "").Replace(token)
		if strings.Contains(rest, "~") {
			return list, errors.New(`in a JSON pointer, "~0" stands for "~" and "~1" for "/"`)
		}
		tokens[i] = strings.NewReplacer("~0", "~", "~1", "/").Replace(token)
	}
	return append(list, tokens), nil
}

// tails are the pointers that reach what p reaches in a copy of a part of the document: servers repeat structuredContent
// as one text, or the elements of a list in it as one text each.
func tails(p pointer) []pointer {
	var out []pointer
	for i := range p {
		if tail := p[i:]; i == 0 || slices.ContainsFunc(tail, func(token string) bool { return token != "*" }) {
			out = append(out, tail)
		}
	}
	return out
}

func (s *Set) addPattern(text string) error {
	re, err := regexp.Compile(text)
	if err != nil {
		return err
	}
	if re.MatchString("") || re.MatchString(replacedKey(3)) {
		return fmt.Errorf("matches the empty text, or %q, which stands where something was taken out", Replacement)
	}
	s.patterns = append(s.patterns, re)
	return nil
}
