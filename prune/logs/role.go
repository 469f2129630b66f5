package logs

import (
	"bytes"
	"strings"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// logRole is the purpose of a line.
type logRole uint8

// The roles of lines.
const (
	rolePlain        logRole = iota
	roleBlank                // no words: empty, a rule, a bracket, a progress bar
	roleContinuation         // continues the lines before: a stack frame, a caret, a hunk
	roleTestStart            // a test begins
	rolePass                 // a test or a step passed
	roleTestFail             // a test failed
	roleCommandFail          // a command failed; the reason was printed before
	roleCommandOK            // a command succeeded
	roleCommand              // the command itself
	roleFoldStart            // a CI's folded section begins
	roleFoldEnd              // a folded section ends
)

// classifyRole returns the role of the cleaned line.
func (r *lineReader) classifyRole() logRole {
	rest := bytes.TrimLeft(r.line, " \t")
	if r.over || !hasWords(rest) {
		if !r.over && bytes.ContainsAny(rest, "^~") { // it points at a part of the line above
			return roleContinuation
		}
		return roleBlank
	}
	if role := foldRole(rest); role != rolePlain {
		return role
	}
	if role := resultRole(rest); role != rolePlain {
		return role
	}
	if isContinuation(rest, len(rest) < len(r.line)) {
		return roleContinuation
	}
	return rolePlain
}

// ownSeverity is how bad the line is, without regard to the lines around it.
func (r *lineReader) ownSeverity(role logRole) float32 {
	switch role {
	case roleTestStart, rolePass, roleCommandOK, roleCommand, roleFoldStart, roleFoldEnd:
		return 0
	case roleTestFail:
		return weightTestFail
	case roleCommandFail:
		if exitRole(r.line) == roleCommandFail {
			return weightExitCode
		}
		return weightCommandFail
	}
	s := severity(r.line)
	if r.red {
		s += weightRed
	}
	if hasSourceLocation(r.line) {
		s += weightLocation
	}
	return s
}

// hasWords reports whether a line has at least two letters or digits.
func hasWords(line []byte) bool {
	n := 0
	for _, c := range line {
		if byteKind[c] != byteOther {
			if n++; n > 1 {
				return true
			}
		}
	}
	return false
}

func hasPrefix(line []byte, with string) bool {
	return len(line) >= len(with) && string(line[:len(with)]) == with
}

// foldRole recognizes the fold marks of Travis, GitHub and GitLab, and commands that a shell echoes.
func foldRole(line []byte) logRole {
	switch line[0] {
	case 't':
		if hasPrefix(line, "travis_") {
			return travisRole(line)
		}
	case '#':
		switch {
		case hasPrefix(line, "##[group]"):
			return roleFoldStart
		case hasPrefix(line, "##[endgroup]"):
			return roleFoldEnd
		}
	case ':':
		switch {
		case hasPrefix(line, "::group::"):
			return roleFoldStart
		case hasPrefix(line, "::endgroup::"):
			return roleFoldEnd
		}
	case 's':
		switch {
		case hasPrefix(line, "section_start:"):
			return roleFoldStart
		case hasPrefix(line, "section_end:"):
			return roleFoldEnd
		}
	case '$':
		if hasPrefix(line, "$ ") {
			return roleCommand
		}
	}
	return rolePlain
}

// travisRole reads a line of Travis. It may have several marks; the last one says what follows.
func travisRole(line []byte) logRole {
	if bytes.Contains(line, []byte("the command \"")) {
		if role := exitRole(line); role != rolePlain {
			return role
		}
	}
	at := bytes.LastIndex(line, []byte("travis_fold:"))
	switch {
	case at < 0:
		return roleCommand
	case hasPrefix(line[at:], "travis_fold:start"):
		return roleFoldStart
	}
	return roleFoldEnd
}

// resultRole recognizes lines that report how a test or a command ended.
func resultRole(line []byte) logRole {
	switch line[0] {
	case '-':
		if role := goTestResult(line); role != rolePlain {
			return role
		}
	case '=':
		if isGoTestStart(line) {
			return roleTestStart
		}
	case 'o', 'p':
		if word := firstWord(line); word == "ok" || word == "pass" || word == "passed" {
			return rolePass
		}
	case markCheck:
		return rolePass
	case 'n':
		switch {
		case hasPrefix(line, "not ok "):
			return roleTestFail
		case hasPrefix(line, "npm err!"):
			return roleCommandFail
		}
	case 'm':
		if hasPrefix(line, "make") && bytes.Contains(line[:min(len(line), 20)], []byte("***")) {
			return roleCommandFail
		}
	case 'f':
		if hasPrefix(line, "fail") && (len(line) == 4 || line[4] == '\t') { // go test's last word
			return roleCommandFail
		}
	}
	if wentWell(line) {
		return rolePass
	}
	return exitRole(line)
}

func goTestResult(line []byte) logRole {
	switch {
	case hasPrefix(line, "--- fail"):
		return roleTestFail
	case hasPrefix(line, "--- pass"), hasPrefix(line, "--- skip"):
		return rolePass
	}
	return rolePlain
}

func isGoTestStart(line []byte) bool {
	return hasPrefix(line, "=== run ") || hasPrefix(line, "=== pause") || hasPrefix(line, "=== cont ") || hasPrefix(line, "=== name ")
}

func firstWord(line []byte) string {
	i := 0
	for i < len(line) && byteKind[line[i]] != byteOther {
		i++
	}
	if i > 6 || i < len(line) && line[i] != ' ' && line[i] != '\t' && line[i] != ':' {
		return ""
	}
	return string(line[:i])
}

// wentWell reports whether a line ends with "ok", "passed" or the like.
func wentWell(line []byte) bool {
	at := bytes.LastIndexByte(line, ' ')
	if at <= 0 || len(line)-at > 12 {
		return false
	}
	switch string(line[at+1:]) {
	case "ok", "[ok]", "passed", "pass", "skipped", "\x02", "succeeded", "up-to-date":
		return !bytes.HasSuffix(line[:at], []byte("not"))
	}
	return false
}

// exitRole recognizes the exit code of a command.
func exitRole(line []byte) logRole {
	for at := 0; ; {
		i := bytes.Index(line[at:], []byte("exit"))
		if i < 0 {
			return rolePlain
		}
		at += i + len("exit")
		switch code, ok := exitCodeDigit(line[at:]); {
		case !ok:
		case code == '0':
			return roleCommandOK
		default:
			return roleCommandFail
		}
	}
}

// exitCodeDigit returns the first digit of the number that follows, past words such as "ed with code".
func exitCodeDigit(line []byte) (byte, bool) {
	for i, c := range line[:min(len(line), 24)] {
		if byteKind[c] == byteDigit {
			return c, i > 0
		}
		if byteKind[c] != byteLetter && c != ' ' && c != ':' && c != '=' {
			return 0, false
		}
	}
	return 0, false
}

// isContinuation reports whether a line is a stack frame or continues a diagnostic. Such lines matter as
// much as the line above them.
func isContinuation(line []byte, indented bool) bool {
	switch c := line[0]; c {
	case 'a': // Java, JavaScript, C#
		return indented && hasPrefix(line, "at ")
	case 'f': // Python
		if indented && hasPrefix(line, "file \"") {
			return true
		}
	case 'g': // Go
		if hasPrefix(line, "goroutine ") {
			return true
		}
	case 'c':
		if hasPrefix(line, "caused by") || hasPrefix(line, "created by ") {
			return true
		}
	case '.': // Java: "... 12 more"
		return hasPrefix(line, "... ") && bytes.HasSuffix(line, []byte("more"))
	case '#': // PHP, gdb: "#0 /x.php(12)"
		return len(line) > 1 && byteKind[line[1]] == byteDigit
	case '|', '>':
		return len(line) > 1
	case '+', '-', '@': // a hunk
		return len(line) > 1 && (c != '-' || line[1] != '-')
	}
	return isSourceExcerpt(line) || bytes.Contains(line, []byte(":in `")) || indented && hasSourceLocation(line)
}

// isSourceExcerpt reports whether a line shows source under a diagnostic: "70 |     let x".
func isSourceExcerpt(line []byte) bool {
	i := 0
	for i < len(line) && byteKind[line[i]] == byteDigit {
		i++
	}
	return i > 0 && i+1 < len(line) && line[i] == ' ' && line[i+1] == '|'
}

// hasSourceLocation reports whether a line names a place in a source file: x.go:12, x.py(12), line 12.
func hasSourceLocation(line []byte) bool {
	if hasNumberAfterFile(line, ':') || hasNumberAfterFile(line, '(') {
		return true
	}
	_, after, found := bytes.Cut(line, []byte(" line "))
	return found && len(after) > 0 && byteKind[after[0]] == byteDigit
}

// hasNumberAfterFile reports whether a file name, sep and a number follow each other.
func hasNumberAfterFile(line []byte, sep byte) bool {
	for at := 0; ; at++ {
		i := bytes.IndexByte(line[at:], sep)
		if i < 0 {
			return false
		}
		at += i
		if at+1 < len(line) && byteKind[line[at+1]] == byteDigit && endsLikeFile(line[:at]) {
			return true
		}
	}
}

// endsLikeFile reports whether a text ends with a dot and up to six letters.
func endsLikeFile(text []byte) bool {
	for i := len(text) - 1; i > 0 && i >= len(text)-7; i-- {
		switch {
		case text[i] == '.':
			return i < len(text)-1 && byteKind[text[i-1]] != byteOther
		case byteKind[text[i]] != byteLetter:
			return false
		}
	}
	return false
}

// LooksLikeLine reports whether a line, without the spaces around it, looks like a line of a log: it
// begins with a time or a level, or as test runners, package managers and build servers write.
func LooksLikeLine(t string) bool {
	if strings.HasPrefix(t, `{"`) { // an entry of a structured log
		return strings.Contains(t, `"level"`) || strings.Contains(t, `"msg"`) || strings.Contains(t, `"time`)
	}
	t = strings.TrimLeft(t, "[(")
	if relevance.HasAnyPrefix(t, "INFO", "WARN", "ERROR", "DEBUG", "FATAL", "TRACE", "=== RUN", "--- PASS", "--- FAIL", "npm ", "$ ", "+ ", "travis_", "make[", "Worker information", "The command ", "\x1b[", "Downloading", "Installing", "Compiling ", "ok  ", "PASS", "FAIL", "##[", "E  ", "Get:", "Building", "remote:", "Fetching", "Setting up ", "Running ", "level=", "time=") {
		return true
	}
	return startsWithTime(t)
}

// startsWithTime reports whether a text begins like 2026-02-27T10:11:12, 10:11:12, Feb 27 10:11:12.
func startsWithTime(t string) bool {
	if len(t) < 8 {
		return false
	}
	if strings.Contains(months, t[:3]) && t[3] == ' ' {
		t = strings.TrimLeft(t[4:], " 0123456789")
		return strings.HasPrefix(t, ":")
	}
	signs := 0
	for i := 0; i < min(len(t), 19); i++ {
		switch c := t[i]; {
		case c == '-' || c == ':' || c == '/' || c == '.':
			signs++
		case c >= '0' && c <= '9':
		case i > 7 && (c == 'T' || c == ' '):
			return signs >= 2
		default:
			return signs >= 3
		}
	}
	return signs >= 2
}

const months = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
