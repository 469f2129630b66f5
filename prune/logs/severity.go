package logs

import (
	"bytes"
	"strings"

	"github.com/ctxgate/ctxgate/prune/relevance"
)

// The severity of words.
const (
	wordDire = 4.  // the program gave up
	wordBad  = 3.  // something went wrong
	wordOff  = 2.  // something is not as it should be
	wordHint = 1.2 // often near failures

	wordPart = .25 // factor for a part of a name: error-chain, lib/errors/x.js
	wordMore = .5  // added for words of two severities in one line
	wordLow  = .5  // factor for a debug line
)

// badWords are words of failures and their severity, in several languages.
var badWords = func() map[string]float32 {
	out := map[string]float32{}
	for words, weight := range map[string]float32{
		`panic panicked fatal traceback segfault sigsegv sigabrt exception uncaught unhandled oomkilled`: wordDire,

		`error errors err errored fail fails failed failing failure failures fault crash crashed abort aborted
		aborting killed denied refused rejected unable cannot can't couldn't timeout unexpected undefined
		unresolved illegal invalid mismatch conflict conflicts broken assertion offense offenses offence offences
		violation violations dubious unreachable severe critical crit emerg alert
		erreur erreurs échec échecs échoué échoue fehler fehlgeschlagen fallo falló errore erro ошибка`: wordBad,

		`expected assert missing unavailable unknown unsatisfied incompatible unsupported forbidden
		unauthorized disconnected lost dropped exceeded exhausted corrupt corrupted stuck stalled dead deadlock
		overflow leak stopped terminated problem problems issue issues wrong bug not`: wordOff,

		`warning warnings warn warnung avertissement actual got want wanted isn't doesn't didn't wasn't won't
		no without caused reason unused deprecated outdated retry retrying retries throw throws thrown throwing
		please timed signal differ differs changed found below reset closed`: wordHint,
	} {
		for _, word := range strings.Fields(words) {
			out[word] = weight
		}
	}
	return out
}()

// badWordStarts has the first two bytes of those words; it rules most words out without a lookup.
var badWordStarts = func() (is [1 << 16 / 64]uint64) {
	for word := range badWords {
		first := uint(word[0]) | uint(word[1])<<8
		is[first/64] |= 1 << (first % 64)
	}
	return is
}()

// countedWords may be counted: "0 errors", "failures: 2".
var countedWords = relevance.WordSet(`error errors err failed failing failure failures fail fails warning warnings offense offenses
violation violations problem problems issue issues conflicts missing broken unexpected timeout killed dropped
retries unreachable crashed aborted exception`)

// negations cancel the word after them.
var negations = relevance.WordSet(`no without zero any if pas aucune sans`)

// wordScanner computes the severity of a line, word by word.
type wordScanner struct {
	line          []byte
	severity      float32
	weightClasses uint8 // bit set of the severities that occurred
	isDebug       bool  // it is a debug line
}

// severity returns how bad the words of a cleaned line are.
func severity(line []byte) float32 {
	w := wordScanner{line: line}
	var last []byte
	for i := 0; i < len(line); {
		if byteKind[line[i]] != byteLetter {
			if line[i] == markCross {
				w.raiseSeverity(wordBad)
			}
			i++
			continue
		}
		end := w.endOfWord(i)
		w.scoreWord(i, end, last)
		last = line[i:end]
		i = end
	}
	if w.weightClasses&(w.weightClasses-1) != 0 {
		w.severity += wordMore
	}
	if w.isDebug {
		w.severity *= wordLow
	}
	return w.severity
}

// endOfWord returns where the word that begins at i ends; an apostrophe inside belongs to it.
func (w *wordScanner) endOfWord(i int) int {
	for ; i < len(w.line); i++ {
		if byteKind[w.line[i]] == byteLetter {
			continue
		}
		if w.line[i] != '\'' || i+1 == len(w.line) || byteKind[w.line[i+1]] != byteLetter {
			return i
		}
	}
	return i
}

func (w *wordScanner) raiseSeverity(weight float32) {
	w.severity = max(w.severity, weight)
	switch {
	case weight >= wordBad:
		w.weightClasses |= 1
	case weight >= wordOff:
		w.weightClasses |= 2
	case weight >= wordHint:
		w.weightClasses |= 4
	}
}

func (w *wordScanner) scoreWord(start, end int, last []byte) {
	word := w.line[start:end]
	if word[0] >= 0x80 {
		w.scoreUnspaced(word)
	}
	weight := wordWeight(word)
	if weight == 0 {
		w.isDebug = w.isDebug || start < levelWithin && isDebugLevel(word)
		return
	}
	if weight >= wordOff && (negations[string(last)] || countedWords[string(word)] && w.isZeroCount(start, end)) {
		return
	}
	if w.isPartOfName(start, end) {
		weight *= wordPart
	}
	w.raiseSeverity(weight)
}

func wordWeight(word []byte) float32 {
	if len(word) < 2 {
		return 0
	}
	first := uint(word[0]) | uint(word[1])<<8
	if badWordStarts[first/64]&(1<<(first%64)) != 0 {
		if weight := badWords[string(word)]; weight > 0 {
			return weight
		}
	}
	// TypeError, NullPointerException
	if len(word) > 7 && (bytes.HasSuffix(word, []byte("error")) || bytes.HasSuffix(word, []byte("exception"))) {
		return wordDire
	}
	return 0
}

// levelWithin is how far from the start of a line its level may be.
const levelWithin = 48

func isDebugLevel(word []byte) bool {
	return len(word) == 5 && (string(word) == "debug" || string(word) == "trace")
}

// isPartOfName reports whether a word is a part of a name or a path.
func (w *wordScanner) isPartOfName(start, end int) bool {
	return start > 0 && w.joinedBefore(start, end) || end < len(w.line) && w.joinedAfter(end)
}

func (w *wordScanner) joinedBefore(start, end int) bool {
	switch c := w.line[start-1]; c {
	case '/', '_', '\\', '$', '@':
		return true
	case '-', '.': // but java.lang.NullPointerException is not
		return start > 1 && byteKind[w.line[start-2]] != byteOther && end-start < 8
	default:
		return byteKind[c] == byteDigit
	}
}

func (w *wordScanner) joinedAfter(end int) bool {
	switch c := w.line[end]; c {
	case '/', '_', '(', '\\', '$':
		return true
	case '-', '.', '=':
		return end+1 < len(w.line) && byteKind[w.line[end+1]] == byteLetter
	default:
		return byteKind[c] == byteDigit
	}
}

// isZeroCount reports whether a word is counted as none: "0 errors", "errors: 0", "err=nil".
func (w *wordScanner) isZeroCount(start, end int) bool {
	if start > 1 && w.line[start-1] == ' ' && w.line[start-2] == '0' {
		return start == 2 || byteKind[w.line[start-3]] != byteDigit && w.line[start-3] != '.'
	}
	i, hasSeparator := end, false
	for i < len(w.line) && (w.line[i] == ':' || w.line[i] == '=' || w.line[i] == ' ' || w.line[i] == '"') {
		hasSeparator = hasSeparator || w.line[i] == ':' || w.line[i] == '='
		i++
	}
	return hasSeparator && isZeroValue(w.line[i:])
}

func isZeroValue(value []byte) bool {
	for _, nought := range []string{"0", "null", "nil", "none", "false"} {
		if hasPrefix(value, nought) {
			rest := value[len(nought):]
			return len(rest) == 0 || byteKind[rest[0]] == byteOther && rest[0] != '.'
		}
	}
	return len(value) > 0 && (value[0] == ',' || value[0] == '}') // "error":""
}

// scoreUnspaced finds bad words in a script without spaces.
func (w *wordScanner) scoreUnspaced(word []byte) {
	for i := 0; i+6 <= len(word); i += 3 {
		switch string(word[i : i+6]) {
		case "失败", "失敗", "错误", "錯誤", "异常", "異常", "超时", "拒绝", "エラ":
			w.raiseSeverity(wordBad)
		}
	}
}
