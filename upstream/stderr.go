package upstream

import (
	"log/slog"
	"regexp"
	"strings"
)

// levelWord finds the level that a program gives a line of its log, in the forms that are common:
// "ERROR something", "[warn] something", "2026-01-02 03:04:05,678 - name - WARNING - something",
// "level=error …", {"level":"error",…}. A word later in the line is only a word.
var levelWord = regexp.MustCompile(`^` +
	`(?:\S{0,64}\d\S{0,64}[ T]+){0,3}` + // dates and times
	`(?:[-|] +)?(?:[\w.]{1,64} +[-|] +|[\w.]{1,64}: +|\w{1,64}\.[\w.]{0,64} +)?` + // a logger's name
	`(?:[\[(<]?` + `(?i:(?:level|lvl|severity)=)?"?)` +
	`(TRACE|DEBUG|INFO|INFORMATION|NOTICE|WARN|WARNING|ERR|ERROR|CRIT|CRITICAL|FATAL|PANIC|ALERT|EMERG|EMERGENCY|` +
	`(?:[Tt]race|[Dd]ebug|[Ii]nfo|[Nn]otice|[Ww]arn(?:ing)?|[Ee]rr(?:or)?|[Cc]rit(?:ical)?|[Ff]atal|[Pp]anic))` +
	`(?:[\])>:|",]|\s+-|\s|$)`)

// levelMember is the level in a line that is a JSON object.
var levelMember = regexp.MustCompile(`^\{.{0,512}?"(?:level|lvl|severity|levelname)" *: *"?([A-Za-z0-9]+)`)

// stderrLevel is the level to log a line of a program's stderr at; INFO where it names none.
func stderrLevel(line string) slog.Level {
	line = strings.TrimSpace(line)
	found := levelMember.FindStringSubmatch(line)
	if found == nil && !strings.HasPrefix(line, "{") {
		found = levelWord.FindStringSubmatch(line)
	}
	if found == nil {
		return slog.LevelInfo
	}
	switch word := strings.ToUpper(found[1]); {
	case word == "TRACE", word == "DEBUG", word == "10", word == "20": // the numbers are pino's
		return slog.LevelDebug
	case strings.HasPrefix(word, "WARN"), word == "40":
		return slog.LevelWarn
	case strings.HasPrefix(word, "ERR"), strings.HasPrefix(word, "CRIT"), word == "FATAL", word == "PANIC", word == "ALERT", strings.HasPrefix(word, "EMERG"), word == "50", word == "60":
		return slog.LevelError
	}
	return slog.LevelInfo
}
