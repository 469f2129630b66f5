package history

import (
	"bytes"
	"slices"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// verdict is what is known of a result being an error.
type verdict uint8

const (
	unjudged verdict = iota
	isFine
	isError
)

// verdicts are those of the document's reading and of the narrower one.
type verdicts struct{ document, agents verdict }

// looksFailed says whether a result looks like an error (H8), and remembers it.
func (d *Dialogue) looksFailed(p Policy, result int) bool {
	r := &d.Results[result]
	known, reading := &r.failed.document, failedByDocument
	if p.Agents {
		known, reading = &r.failed.agents, failedText
	}
	if *known == unjudged {
		*known = isFine
		for _, span := range r.Texts {
			if raw := span.Of(d.body); mayFail(raw) && reading(jsonscan.AppendText(nil, raw)) {
				*known = isError
				break
			}
		}
	}
	return *known == isError
}

// documentWords are what the document takes for a sign of an error wherever it stands (001 §6).
var documentWords = []string{"Traceback", "Exception", "timeout", "connect_error", "connection refused", "\nError", `"error"`}

// failedByDocument is H8 in profile = "document": the document's own list, as it stands, and whatever
// the narrower reading finds.
func failedByDocument(text []byte) bool {
	for _, word := range documentWords {
		if bytes.Contains(text, []byte(word)) {
			return true
		}
	}
	return failedText(text)
}

// trace is part of something that the rules below look for. Most results have none, and need not
// be decoded. Where a letter is escaped by its number, anything may be there.
type trace struct {
	text  string
	pairs [2]int // where in it two pairs of letters stand, one at an even place, one at an odd
}

var traces = []trace{
	{}, // none
	{"rror", [2]int{0, 1}}, {"RROR", [2]int{0, 1}}, {"raceback", [2]int{6, 3}}, {"xception", [2]int{0, 3}},
	{"imeout", [2]int{2, 3}}, {"IMEOUT", [2]int{2, 3}}, {"onnection refused", [2]int{12, 11}}, {`\u00`, [2]int{0, 1}},
}

// tracesAt finds, for a pair of bytes, the trace it may be part of, and how far in.
var tracesAt = func() (t [1 << 16]uint8) {
	for i, tr := range traces[1:] {
		for which, at := range tr.pairs {
			t[pair(tr.text[at:])] = uint8((i+1)<<1 | which)
		}
	}
	return t
}()

func pair[T string | []byte](s T) uint16 { return uint16(s[0])<<8 | uint16(s[1]) }

// mayFail looks at every second place only: wherever a trace stands, one of its pairs is there.
func mayFail(raw []byte) bool {
	for i := 0; i+1 < len(raw); i += 2 {
		found := tracesAt[uint16(raw[i])<<8|uint16(raw[i+1])]
		if found == 0 {
			continue
		}
		tr := &traces[found>>1]
		if start := i - tr.pairs[found&1]; start >= 0 && bytes.HasPrefix(raw[start:], []byte(tr.text)) {
			return true
		}
	}
	return false
}

// failedText is H8 in profile = "agents". JSON that can be read has the last word on itself.
func failedText(text []byte) bool {
	head := bytes.TrimLeft(text, " \t\r\n")
	if len(head) > 0 && (head[0] == '{' || head[0] == '[') {
		if failed, ok := failedJSON(head); ok {
			return failed
		}
	}
	for line := range bytes.Lines(text) {
		if failedLine(bytes.TrimRight(line, "\r\n")) {
			return true
		}
	}
	return false
}

// failedJSON looks for a top-level error that is not null, false or empty, and for the status
// "error".
func failedJSON(text []byte) (failed, ok bool) {
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
			failed = failed || !empty(raw)
		case "status":
			failed = failed || jsonscan.TextOf(raw) == "error"
		}
		return nil
	})
	return failed, err == nil && s.End() == nil
}

// empty says whether a JSON value is null, false, or holds nothing.
func empty(raw []byte) bool {
	if len(raw) > 1 && (raw[0] == '{' || raw[0] == '[') {
		return len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0
	}
	return slices.Contains([]string{"null", "false", `""`}, string(raw))
}

// failedLine are the rules for text. A line that reads like a program, one that raises or catches
// or sets a timeout, tells of no error; a traceback is one wherever it stands.
func failedLine(line []byte) bool {
	if startsError(line) || bytes.Contains(line, []byte("Traceback")) {
		return true
	}
	return mentionsError(line) && !reads(line)
}

// startsError says whether a line starts with the word Error, or with error: as compilers do.
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
	return bytes.Contains(line, []byte("Exception")) || jsonError(line) || timedOut(line)
}

// jsonError finds "error" as a key of JSON with a value that says something.
func jsonError(line []byte) bool {
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

// timedOut finds the word timeout where it is not the name of a setting.
func timedOut(line []byte) bool {
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
			if alone && !setting(after) {
				return true
			}
			at = end
		}
	}
	return false
}

// setting says whether what follows a word makes it a name: more of the name, a call, a value.
func setting(after []byte) bool {
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
