package prune

import "bytes"

// goesOn says whether a line is a frame of a stack trace or goes on with a diagnostic. Frames live
// and die with what stands above them.
func goesOn(line []byte, indented bool) bool {
	switch c := line[0]; c {
	case 'a': // Java, JavaScript, C#
		return indented && starts(line, "at ")
	case 'f': // Python
		if indented && starts(line, "file \"") {
			return true
		}
	case 'g': // Go
		if starts(line, "goroutine ") {
			return true
		}
	case 'c':
		if starts(line, "caused by") || starts(line, "created by ") {
			return true
		}
	case '.': // Java: "... 12 more"
		return starts(line, "... ") && bytes.HasSuffix(line, []byte("more"))
	case '#': // PHP, gdb: "#0 /x.php(12)"
		return len(line) > 1 && logByte[line[1]] == isNumber
	case '|', '>':
		return len(line) > 1
	case '+', '-', '@': // a hunk
		return len(line) > 1 && (c != '-' || line[1] != '-')
	}
	return isShown(line) || bytes.Contains(line, []byte(":in `")) || indented && hasPlace(line)
}

// isShown says whether a line shows source under a diagnostic: "70 |     let x".
func isShown(line []byte) bool {
	i := 0
	for i < len(line) && logByte[line[i]] == isNumber {
		i++
	}
	return i > 0 && i+1 < len(line) && line[i] == ' ' && line[i+1] == '|'
}

// hasPlace says whether a line names a place in a source: x.go:12, x.py(12), line 12.
func hasPlace(line []byte) bool {
	if numbered(line, ':') || numbered(line, '(') {
		return true
	}
	_, after, found := bytes.Cut(line, []byte(" line "))
	return found && len(after) > 0 && logByte[after[0]] == isNumber
}

// numbered says whether a number follows a file name and sep.
func numbered(line []byte, sep byte) bool {
	for at := 0; ; at++ {
		i := bytes.IndexByte(line[at:], sep)
		if i < 0 {
			return false
		}
		at += i
		if at+1 < len(line) && logByte[line[at+1]] == isNumber && endsLikeFile(line[:at]) {
			return true
		}
	}
}

// endsLikeFile says whether a text ends with a dot and up to six letters.
func endsLikeFile(text []byte) bool {
	for i := len(text) - 1; i > 0 && i >= len(text)-7; i-- {
		switch {
		case text[i] == '.':
			return i < len(text)-1 && logByte[text[i-1]] != isOther
		case logByte[text[i]] != isAlpha:
			return false
		}
	}
	return false
}
