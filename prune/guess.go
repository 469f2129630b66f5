package prune

import "strings"

// guessBytes is how much of a text is looked at to tell what it is.
const guessBytes = 128 << 10

// Guess says what a text most likely is, from how it begins. What stands in fences says nothing.
func Guess(text string) Kind {
	l := split(text[:min(len(text), guessBytes)])
	d := dialectOf(l)
	var votes [len(kindNames)]int
	fenced := false
	for i := range l.count() {
		line := l.at(i)
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			votes[Docs]++
		}
		if k, ok := guessLine(line, d); ok && !fenced {
			votes[k]++
		}
	}
	best := Docs // what shows nothing is prose
	for _, k := range []Kind{Code, Logs} {
		if votes[k] > votes[best] {
			best = k
		}
	}
	return best
}

// guessLine says what a line would be a line of, if it shows it at all.
func guessLine(line string, d dialect) (Kind, bool) {
	t := strings.TrimSpace(line)
	switch {
	case t == "":
		return 0, false
	case likeLog(t):
		return Logs, true
	case likeMarkup(t):
		return Docs, true
	case likeProse(t):
		return Docs, true
	case likeCode(t, line, d):
		return Code, true
	}
	return 0, false
}

// likeLog: it begins with a time or a level, or is what test runners, package managers and shells
// of build servers write.
func likeLog(t string) bool {
	if strings.HasPrefix(t, `{"`) { // an entry of a structured log
		return strings.Contains(t, `"level"`) || strings.Contains(t, `"msg"`) || strings.Contains(t, `"time`)
	}
	t = strings.TrimLeft(t, "[(")
	if hasAnyPrefix(t, "INFO", "WARN", "ERROR", "DEBUG", "FATAL", "TRACE", "=== RUN", "--- PASS", "--- FAIL", "npm ", "$ ", "+ ", "travis_", "make[", "Worker information", "The command ", "\x1b[", "Downloading", "Installing", "Compiling ", "ok  ", "PASS", "FAIL", "##[", "E  ", "Get:", "Building", "remote:", "Fetching", "Setting up ", "Running ", "level=", "time=") {
		return true
	}
	return likeTime(t)
}

// likeTime: 2026-02-27T10:11:12, 10:11:12, Feb 27 10:11:12.
func likeTime(t string) bool {
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

// likeMarkup: headings, items, quotations, fences and directives.
func likeMarkup(t string) bool {
	return hasAnyPrefix(t, "# ", "## ", "### ", "#### ", "- ", "* ", "> ", "```", ".. ", "| ", "![", ":::") && !strings.HasSuffix(t, ";") && !strings.HasSuffix(t, "*/")
}

// likeProse: many words, and few of the signs that code is made of.
func likeProse(t string) bool {
	words, signs := 0, 0
	for i := 0; i < len(t); i++ {
		switch t[i] {
		case ' ':
			words++
		case '{', '}', ';', '=', '<', '>', '(', ')', '[', ']', '_', '/', '|', '$', '&':
			signs++
		}
	}
	c := t[0]
	starts := c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= 0x80 || c == '`'
	return starts && words >= 5 && signs*6 <= words || unparted(t)
}

// unparted: it begins in a script without spaces.
func unparted(t string) bool {
	for _, r := range t {
		return isUnparted(r)
	}
	return false
}

func likeCode(t, line string, d dialect) bool {
	if strings.IndexByte("{};),(:", t[len(t)-1]) >= 0 {
		return true
	}
	return traitsOf(line, d)&(isDef|isImport|isComment|isReturn|isAttr|isCall) != 0 || strings.Contains(t, " = ")
}
