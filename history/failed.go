package history

import (
	"bytes"
	"slices"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// verdict says whether a result looks like an error.
type verdict uint8

const (
	unjudged verdict = iota
	isFine
	isError
)

// verdictPair holds the verdicts by the document's rules and by the narrower rules of profile = "agents".
type verdictPair struct{ document, agents verdict }

// looksFailed says whether a result looks like an error (H8). The verdict is cached.
func (d *Dialogue) looksFailed(p Policy, result int) bool {
	r := &d.Results[result]
	cached, isFailed := &r.failed.document, isFailedByDocument
	if p.Agents {
		cached, isFailed = &r.failed.agents, isFailedText
	}
	if *cached == unjudged {
		*cached = isFine
		for _, span := range r.Texts {
			if raw := span.Of(d.body); hasHint(raw) && isFailed(jsonscan.AppendDecoded(nil, raw)) {
				*cached = isError
				break
			}
		}
	}
	return *cached == isError
}

// IsMarkedError says whether the client marks a result as an error.
func (r *Result) IsMarkedError() bool { return r.marked }

// LooksLikeError says whether the raw text of a new result looks like an error. It uses the narrower rules of
// H8, because the document has no rule about shortening new results.
func LooksLikeError(raw []byte) bool {
	return hasHint(raw) && isFailedText(jsonscan.AppendDecoded(nil, raw))
}

// documentWords mark an error by the document's rules, anywhere in the text (001 §6).
var documentWords = []string{"Traceback", "Exception", "timeout", "connect_error", "connection refused", "\nError", `"error"`}

// isFailedByDocument is H8 in profile = "document": the document's word list, then the narrower rules.
func isFailedByDocument(text []byte) bool {
	for _, word := range documentWords {
		if bytes.Contains(text, []byte(word)) {
			return true
		}
	}
	return isFailedText(text)
}

// hint is part of a word that the rules look for. Most results have no hint and need not be decoded. A \u00
// escape may encode any letter, so it is a hint too.
type hint struct {
	text  string
	pairs [2]int // offsets of two byte pairs in text, one even, one odd
}

var hints = []hint{
	{}, // 0 in hintAt: no hint
	{"rror", [2]int{0, 1}}, {"RROR", [2]int{0, 1}}, {"raceback", [2]int{6, 3}}, {"xception", [2]int{0, 3}},
	{"imeout", [2]int{2, 3}}, {"IMEOUT", [2]int{2, 3}}, {"onnection refused", [2]int{12, 11}}, {`\u00`, [2]int{0, 1}},
}

// hintAt maps a byte pair to the hint that it may be part of, and to which of the hint's pairs it is.
var hintAt = func() (t [1 << 16]uint8) {
	for i, h := range hints[1:] {
		for which, at := range h.pairs {
			t[pair(h.text[at:])] = uint8((i+1)<<1 | which)
		}
	}
	return t
}()

func pair[T string | []byte](s T) uint16 { return uint16(s[0])<<8 | uint16(s[1]) }

// hasHint looks at every second offset only: one of a hint's two pairs is at an even offset.
func hasHint(raw []byte) bool {
	for i := 0; i+1 < len(raw); i += 2 {
		found := hintAt[uint16(raw[i])<<8|uint16(raw[i+1])]
		if found == 0 {
			continue
		}
		h := &hints[found>>1]
		if start := i - h.pairs[found&1]; start >= 0 && bytes.HasPrefix(raw[start:], []byte(h.text)) {
			return true
		}
	}
	return false
}

// isFailedText is H8 in profile = "agents". A valid JSON text is judged by its members alone.
func isFailedText(text []byte) bool {
	head := bytes.TrimLeft(text, " \t\r\n")
	if len(head) > 0 && (head[0] == '{' || head[0] == '[') {
		if failed, ok := readJSONError(head); ok {
			return failed
		}
	}
	for line := range bytes.Lines(text) {
		if isFailedLine(bytes.TrimRight(line, "\r\n")) {
			return true
		}
	}
	return false
}

// readJSONError looks for a top-level error that is not null, false or empty, and for the status "error".
// ok says that the text is valid JSON.
func readJSONError(text []byte) (failed, ok bool) {
	s := jsonscan.New(text, 0)
	if s.Kind() != '{' {
		_, err := s.Skip()
		return false, err == nil && s.End() == nil
	}
	err := s.Members(func(key []byte) error {
		value, err := s.Skip()
		if err != nil {
			return err
		}
		raw := value.Of(text)
		switch string(key) {
		case "error":
			failed = failed || !isEmptyValue(raw)
		case "status":
			failed = failed || jsonscan.DecodeString(raw) == "error"
		}
		return nil
	})
	return failed, err == nil && s.End() == nil
}

// isEmptyValue says whether a JSON value is null, false or empty.
func isEmptyValue(raw []byte) bool {
	if len(raw) > 1 && (raw[0] == '{' || raw[0] == '[') {
		return len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0
	}
	return slices.Contains([]string{"null", "false", `""`}, string(raw))
}

// isFailedLine applies the rules for text. A line of code that raises, catches or sets a timeout is no error; a
// traceback always is.
func isFailedLine(line []byte) bool {
	if startsError(line) || bytes.Contains(line, []byte("Traceback")) {
		return true
	}
	return mentionsError(line) && !looksLikeCode(line)
}

// startsError says whether a line starts with the word Error, or with error: as compilers write it.
func startsError(line []byte) bool {
	for _, word := range []string{"Error", "ERROR"} {
		if rest, ok := bytes.CutPrefix(line, []byte(word)); ok {
			rest = bytes.TrimPrefix(rest, []byte(".")) // Error.tsx is a file
			return len(rest) == 0 || !inName(rest[0])
		}
	}
	return bytes.HasPrefix(line, []byte("error:")) || bytes.HasPrefix(line, []byte("error["))
}

func inName(c byte) bool {
	return c == '_' || c == '-' || c == '/' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func mentionsError(line []byte) bool {
	for _, word := range []string{"connect_error", "connection refused", "Connection refused"} {
		if bytes.Contains(line, []byte(word)) {
			return true
		}
	}
	return bytes.Contains(line, []byte("Exception")) || hasJSONError(line) || mentionsTimeout(line)
}

// hasJSONError finds the JSON key "error" with a value that is not empty.
func hasJSONError(line []byte) bool {
	for rest := line; ; {
		_, after, found := bytes.Cut(rest, []byte(`"error"`))
		if !found {
			return false
		}
		rest = after
		value, ok := bytes.CutPrefix(bytes.TrimLeft(after, " \t"), []byte(":"))
		value = bytes.TrimLeft(value, " \t")
		if ok && !slices.ContainsFunc([]string{"null", "false", `""`, "{}", "[]"}, func(none string) bool {
			return bytes.HasPrefix(value, []byte(none))
		}) {
			return true
		}
	}
}

// mentionsTimeout finds the word timeout, except as the name of a setting.
func mentionsTimeout(line []byte) bool {
	for _, word := range []string{"timeout", "Timeout", "TIMEOUT"} {
		for at := 0; ; {
			i := bytes.Index(line[at:], []byte(word))
			if i < 0 {
				break
			}
			start, end := at+i, at+i+len(word)
			after := line[end:]
			for _, kind := range []string{"Error", "Exception"} {
				after = bytes.TrimPrefix(after, []byte(kind))
			}
			// ReadTimeout: is the name of an error, readTimeout of a setting.
			alone := start == 0 || !inName(line[start-1]) || word == "Timeout" && bytes.HasPrefix(after, []byte(":"))
			if alone && !isSetting(after) {
				return true
			}
			at = end
		}
	}
	return false
}

// isSetting says whether the text after a word makes it the name of a setting: more of the name, a call, or a
// value.
func isSetting(after []byte) bool {
	if len(after) > 0 && (inName(after[0]) || bytes.IndexByte([]byte(`"'(`), after[0]) >= 0) {
		return true
	}
	after = bytes.TrimLeft(after, " \t")
	if len(after) == 0 {
		return false
	}
	if after[0] == ':' {
		after = bytes.TrimLeft(after[1:], " \t")
		return len(after) > 0 && after[0] >= '0' && after[0] <= '9'
	}
	return after[0] == '='
}

// codeWords start a line of code, and hardly ever a message.
var codeWords = wordSet("raise", "except", "throw", "throws", "catch", "import", "class", "def", "func", "fn", "var", "let", "const",
	"public", "private", "protected", "static", "async", "await", "return", "assert", "elif", "export", "package", "super")

// ambiguousWords start both; the end of the line decides.
var ambiguousWords = wordSet("if", "for", "while", "with", "from", "use", "case", "switch", "else", "try", "type", "new", "finally")

func wordSet(list ...string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, w := range list {
		set[w] = true
	}
	return set
}

// looksLikeCode says whether a line is code: a statement, an assignment, a comment. Line numbers and diff marks
// before it are ignored.
func looksLikeCode(line []byte) bool {
	code := bytes.TrimLeft(line, " \t0123456789│|:+->}")
	code = bytes.TrimRight(code, " \t")
	if len(code) == 0 {
		return false
	}
	last := code[len(code)-1]
	closes := bytes.IndexByte([]byte(":;{}(),["), last) >= 0
	word := code
	if i := slices.IndexFunc(code, func(c byte) bool { return !inName(c) }); i >= 0 {
		word = code[:i]
	}
	switch {
	case codeWords[string(word)] || ambiguousWords[string(word)] && closes:
		return true
	case last == ';' || last == '{' || last == '(':
		return true
	case bytes.HasPrefix(code, []byte("//")) || bytes.HasPrefix(code, []byte("#")) || bytes.HasPrefix(code, []byte("* ")) || code[0] == '@':
		return true
	}
	return slices.ContainsFunc([]string{" = ", " := ", "==", "!=", " => ", "&&", "||"}, func(op string) bool {
		return bytes.Contains(code, []byte(op))
	})
}
