package setup

import (
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var (
	// Names of variables, headers, parameters and options whose values are credentials.
	credentialName = regexp.MustCompile(`(?i)(token|secret|passw|passphrase|passwd|pwd$|api[-_]?key|apikey|access[-_]?key|private[-_]?key|license[-_]?key|credential|authori[sz]ation|^auth$|[-_]auth$|^auth[-_]|bearer|cookie|signature|^sig$|^key$|[-_]key$|[-_]pat$|^pat$|webhook[-_]?url|connection[-_]?string|^dsn$|[-_]dsn$)`)

	// Names that look like those above, but name a place or a limit.
	plainName = regexp.MustCompile(`(?i)([-_]|^)(path|file|dir|name|id|url|uri|host|type|header|env|var|limit|count|max|ttl|expiry|timeout)s?$|max[-_]?tokens|tokens$`)

	// Values that are credentials wherever they stand, by the prefix that their issuers give them.
	credentialShape = regexp.MustCompile(`^(gh[pousr]_|github_pat_|glpat-|sk-|sk_|rk_|pk_live|xox[abprs]-|xapp-|AKIA|ASIA|AIza|ya29\.|hf_|npm_|dop_v1_|lin_api_|ntn_|secret_|figd_|pat[A-Za-z0-9]{14}\.|SG\.|key-[0-9a-f]{32}|eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.|tvly-|ctx7sk|fc-[0-9a-f]{20}|BSA[A-Za-z0-9_-]{20}|-----BEGIN )`)

	uuidShape = regexp.MustCompile(`(?i)^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	wordShape = regexp.MustCompile(`^[A-Za-z0-9+/_=.~-]+$`)
)

// isCredential reports whether a value under a name looks like one that must not stand in a config file that people show
// around. In doubt it does: the value then stands in a file of its own, and nothing else changes.
func isCredential(name, value string) bool {
	value = strings.TrimSpace(value)
	switch {
	case value == "" || isPlainValue(value):
		return false
	case credentialName.MatchString(name) && !plainName.MatchString(name):
		return true
	}
	return looksSecret(value)
}

// looksSecret reports whether a value is a credential by its form alone.
func looksSecret(value string) bool {
	for _, scheme := range []string{"Bearer ", "Basic ", "Token "} {
		if len(value) > len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
			return true
		}
	}
	if credentialShape.MatchString(value) {
		return true
	}
	if u, err := url.Parse(value); err == nil && u.User != nil {
		_, hasPassword := u.User.Password()
		return hasPassword
	}
	return isRandom(value)
}

// isPlainValue is for values that are too ordinary to hide, whatever their name.
func isPlainValue(value string) bool {
	switch strings.ToLower(value) {
	case "true", "false", "yes", "no", "on", "off", "none", "null", "auto", "default", "0", "1":
		return true
	}
	return false
}

// isRandom reports whether a text has a part that looks as if a machine had drawn it: long, of letters and digits, not
// made of words.
func isRandom(text string) bool {
	if !wordShape.MatchString(text) || uuidShape.MatchString(text) || strings.Count(text, "/") > 1 || strings.HasPrefix(text, "/") {
		return false
	}
	parts := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune("-_./~", r) })
	return slices.ContainsFunc(parts, isRandomWord)
}

func isRandomWord(word string) bool {
	if len(word) < 16 {
		return false
	}
	var digits, letters, changes int
	counts := map[rune]int{}
	last := rune(0)
	for _, r := range word {
		counts[r]++
		switch {
		case r >= '0' && r <= '9':
			digits++
		case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z':
			letters++
		}
		if isDigit(r) != isDigit(last) {
			changes++
		}
		last = r
	}
	if digits < 2 || letters < 4 || changes < 4 {
		return false
	}
	entropy := 0.0
	for _, n := range counts {
		p := float64(n) / float64(len(word))
		entropy -= p * math.Log2(p)
	}
	return entropy >= 3.3
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }
