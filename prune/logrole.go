package prune

import "bytes"

// logRole is what a line of a log is there for.
type logRole uint8

// The roles of lines.
const (
	rolePlain   logRole = iota
	roleBlank           // no words: empty, a rule, a bracket, a progress bar
	roleMore            // it goes on with what the lines before said: a frame, a caret, a hunk
	roleBegin           // a test begins
	rolePass            // a test or a step went well
	roleFail            // a test failed
	roleVerdict         // a command failed; why was said before
	roleFine            // a command went well
	roleCommand         // a command as it was given
	roleOpen            // what follows is folded away
	roleClose           // up to here
)

// role reads what the cleaned line is.
func (r *logReader) role() logRole {
	rest := bytes.TrimLeft(r.line, " \t")
	if r.over || !hasWords(rest) {
		if !r.over && bytes.ContainsAny(rest, "^~") { // it points at what the line above shows
			return roleMore
		}
		return roleBlank
	}
	if role := foldRole(rest); role != rolePlain {
		return role
	}
	if role := resultRole(rest); role != rolePlain {
		return role
	}
	if goesOn(rest, len(rest) < len(r.line)) {
		return roleMore
	}
	return rolePlain
}

// own is how bad the line is by itself.
func (r *logReader) own(role logRole) float32 {
	switch role {
	case roleBegin, rolePass, roleFine, roleCommand, roleOpen, roleClose:
		return 0
	case roleFail:
		return logFailed
	case roleVerdict:
		if exitRole(r.line) == roleVerdict {
			return logExit
		}
		return logVerdict
	}
	s := severity(r.line)
	if r.red {
		s += logRed
	}
	if hasPlace(r.line) {
		s += logPlace
	}
	return s
}

// hasWords says whether a line has two letters or digits.
func hasWords(line []byte) bool {
	n := 0
	for _, c := range line {
		if logByte[c] != isOther {
			if n++; n > 1 {
				return true
			}
		}
	}
	return false
}

func starts(line []byte, with string) bool {
	return len(line) >= len(with) && string(line[:len(with)]) == with
}

// foldRole reads the marks of Travis, GitHub and GitLab, and commands as a shell shows them.
func foldRole(line []byte) logRole {
	switch line[0] {
	case 't':
		if starts(line, "travis_") {
			return travisRole(line)
		}
	case '#':
		switch {
		case starts(line, "##[group]"):
			return roleOpen
		case starts(line, "##[endgroup]"):
			return roleClose
		}
	case ':':
		switch {
		case starts(line, "::group::"):
			return roleOpen
		case starts(line, "::endgroup::"):
			return roleClose
		}
	case 's':
		switch {
		case starts(line, "section_start:"):
			return roleOpen
		case starts(line, "section_end:"):
			return roleClose
		}
	case '$':
		if starts(line, "$ ") {
			return roleCommand
		}
	}
	return rolePlain
}

// travisRole reads a line of Travis: several marks may stand in one, the last says what follows.
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
	case starts(line[at:], "travis_fold:start"):
		return roleOpen
	}
	return roleClose
}

// resultRole reads the lines that say how a test or a command ended.
func resultRole(line []byte) logRole {
	switch line[0] {
	case '-':
		if role := goResult(line); role != rolePlain {
			return role
		}
	case '=':
		if isGoBegin(line) {
			return roleBegin
		}
	case 'o', 'p':
		if word := firstWord(line); word == "ok" || word == "pass" || word == "passed" {
			return rolePass
		}
	case markCheck:
		return rolePass
	case 'n':
		switch {
		case starts(line, "not ok "):
			return roleFail
		case starts(line, "npm err!"):
			return roleVerdict
		}
	case 'm':
		if starts(line, "make") && bytes.Contains(line[:min(len(line), 20)], []byte("***")) {
			return roleVerdict
		}
	case 'f':
		if starts(line, "fail") && (len(line) == 4 || line[4] == '\t') { // go test's last word
			return roleVerdict
		}
	}
	if wentWell(line) {
		return rolePass
	}
	return exitRole(line)
}

func goResult(line []byte) logRole {
	switch {
	case starts(line, "--- fail"):
		return roleFail
	case starts(line, "--- pass"), starts(line, "--- skip"):
		return rolePass
	}
	return rolePlain
}

func isGoBegin(line []byte) bool {
	return starts(line, "=== run ") || starts(line, "=== pause") || starts(line, "=== cont ") || starts(line, "=== name ")
}

func firstWord(line []byte) string {
	i := 0
	for i < len(line) && logByte[line[i]] != isOther {
		i++
	}
	if i > 6 || i < len(line) && line[i] != ' ' && line[i] != '\t' && line[i] != ':' {
		return ""
	}
	return string(line[:i])
}

// wentWell says whether a line ends with "ok", "passed" or the like.
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

// exitRole reads the code that a command ended with.
func exitRole(line []byte) logRole {
	for at := 0; ; {
		i := bytes.Index(line[at:], []byte("exit"))
		if i < 0 {
			return rolePlain
		}
		at += i + len("exit")
		switch code, ok := codeAfter(line[at:]); {
		case !ok:
		case code == '0':
			return roleFine
		default:
			return roleVerdict
		}
	}
}

// codeAfter is the first digit of the number that follows, over words such as "ed with code".
func codeAfter(line []byte) (byte, bool) {
	for i, c := range line[:min(len(line), 24)] {
		if logByte[c] == isNumber {
			return c, i > 0
		}
		if logByte[c] != isAlpha && c != ' ' && c != ':' && c != '=' {
			return 0, false
		}
	}
	return 0, false
}
