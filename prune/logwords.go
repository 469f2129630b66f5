package prune

import (
	"bytes"
	"strings"
)

// How much a word of a log says.
const (
	wordDire = 4.  // the program itself gave up
	wordBad  = 3.  // something went wrong
	wordOff  = 2.  // something is not as it should be
	wordHint = 1.2 // what failures are told with

	wordPart = .25 // of a word that is a part of a name: error-chain, lib/errors/x.js
	wordMore = .5  // for words of two such kinds in one line
	wordLow  = .5  // of the words of a line that calls itself a debug line
)

// badWords are the words that failures are told with, in the languages that programs speak.
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

// badStart has the first two bytes of those words: most words of a log begin otherwise.
var badStart = func() (is [1 << 16 / 64]uint64) {
	for word := range badWords {
		is[startOf(word)/64] |= 1 << (startOf(word) % 64)
	}
	return is
}()

// counted are the words that a number may go with: "0 errors", "failures: 2".
var counted = set(`error errors err failed failing failure failures fail fails warning warnings offense offenses
violation violations problem problems issue issues conflicts missing broken unexpected timeout killed dropped
retries unreachable crashed aborted exception`)

// denying are the words that take back the word after them.
var denying = set(`no without zero any if pas aucune sans`)

// logWords reads the words of a line.
type logWords struct {
	line  []byte
	worst float32
	kinds uint8 // which weights there were
	low   bool  // the line says that it is for debugging only
}

// severity is how bad the words of a cleaned line are.
func severity(line []byte) float32 {
	w := logWords{line: line}
	var last []byte
	for i := 0; i < len(line); {
		if logByte[line[i]] != isAlpha {
			if line[i] == markCross {
				w.take(wordBad)
			}
			i++
			continue
		}
		end := w.end(i)
		w.word(i, end, last)
		last = line[i:end]
		i = end
	}
	if w.kinds&(w.kinds-1) != 0 {
		w.worst += wordMore
	}
	if w.low {
		w.worst *= wordLow
	}
	return w.worst
}

// end is where the word that begins at i ends; an apostrophe inside is a part of it.
func (w *logWords) end(i int) int {
	for ; i < len(w.line); i++ {
		if logByte[w.line[i]] == isAlpha {
			continue
		}
		if w.line[i] != '\'' || i+1 == len(w.line) || logByte[w.line[i+1]] != isAlpha {
			return i
		}
	}
	return i
}

func (w *logWords) take(weight float32) {
	w.worst = max(w.worst, weight)
	switch {
	case weight >= wordBad:
		w.kinds |= 1
	case weight >= wordOff:
		w.kinds |= 2
	case weight >= wordHint:
		w.kinds |= 4
	}
}

func (w *logWords) word(start, end int, last []byte) {
	word := w.line[start:end]
	if word[0] >= 0x80 {
		w.unparted(word)
	}
	weight := weightOf(word)
	if weight == 0 {
		w.low = w.low || start < levelWithin && isLow(word)
		return
	}
	if weight >= wordOff && (denying[string(last)] || counted[string(word)] && w.none(start, end)) {
		return
	}
	if w.within(start, end) {
		weight *= wordPart
	}
	w.take(weight)
}

func weightOf(word []byte) float32 {
	if len(word) < 2 {
		return 0
	}
	first := uint(word[0]) | uint(word[1])<<8
	if badStart[first/64]&(1<<(first%64)) != 0 {
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

// levelWithin is how far into a line its level may stand, after a time and a name.
const levelWithin = 48

func isLow(word []byte) bool {
	return len(word) == 5 && (string(word) == "debug" || string(word) == "trace")
}

// within says whether a word is a part of a name or a path.
func (w *logWords) within(start, end int) bool {
	return start > 0 && w.joinedBefore(start, end) || end < len(w.line) && w.joinedAfter(end)
}

func (w *logWords) joinedBefore(start, end int) bool {
	switch c := w.line[start-1]; c {
	case '/', '_', '\\', '$', '@':
		return true
	case '-', '.': // java.lang.NullPointerException is no mere part
		return start > 1 && logByte[w.line[start-2]] != isOther && end-start < 8
	default:
		return logByte[c] == isNumber
	}
}

func (w *logWords) joinedAfter(end int) bool {
	switch c := w.line[end]; c {
	case '/', '_', '(', '\\', '$':
		return true
	case '-', '.', '=':
		return end+1 < len(w.line) && logByte[w.line[end+1]] == isAlpha
	default:
		return logByte[c] == isNumber
	}
}

// none says whether what goes with a word is nought: "0 errors", "errors: 0", "err=nil".
func (w *logWords) none(start, end int) bool {
	if start > 1 && w.line[start-1] == ' ' && w.line[start-2] == '0' {
		return start == 2 || logByte[w.line[start-3]] != isNumber && w.line[start-3] != '.'
	}
	i, said := end, false
	for i < len(w.line) && (w.line[i] == ':' || w.line[i] == '=' || w.line[i] == ' ' || w.line[i] == '"') {
		said = said || w.line[i] == ':' || w.line[i] == '='
		i++
	}
	return said && isNought(w.line[i:])
}

func isNought(value []byte) bool {
	for _, nought := range []string{"0", "null", "nil", "none", "false"} {
		if starts(value, nought) {
			rest := value[len(nought):]
			return len(rest) == 0 || logByte[rest[0]] == isOther && rest[0] != '.'
		}
	}
	return len(value) > 0 && (value[0] == ',' || value[0] == '}') // "error":""
}

// unparted reads words of a script that is written without spaces.
func (w *logWords) unparted(word []byte) {
	for i := 0; i+6 <= len(word); i += 3 {
		switch string(word[i : i+6]) {
		case "失败", "失敗", "错误", "錯誤", "异常", "異常", "超时", "拒绝", "エラ":
			w.take(wordBad)
		}
	}
}
