package history

import (
	"slices"
)

// identifierUses are the identifiers that the model and the user named, with the messages that name them.
type identifierUses map[string][]int

// identifierIntro precedes the identifiers that a placeholder lists.
const identifierIntro = ` [repères: `

// maxIdentifier is the length of the longest identifier that is listed.
const maxIdentifier = 200

// appendIdentifiers lists the identifiers of a masked result that the model or the user used afterwards, in
// at most room bytes. Only messages before the request that masked it count: later ones must not change the
// placeholder.
func (p *Plan) appendIdentifiers(dst []byte, m Cut, room int) []byte {
	if p.policy.KeepHandles <= 0 {
		return dst
	}
	used := p.d.identifierUses()
	if len(used) == 0 {
		return dst
	}
	r := &p.d.Results[m.Result]
	end := p.d.Turns[m.AtTurn-1].End
	var found []string
	for _, span := range r.Texts {
		findIdentifiers(span.Of(p.d.body), func(token []byte) bool {
			if said, ok := used[string(token)]; ok && anyBetween(said, r.Message, end) && !slices.Contains(found, string(token)) {
				found = append(found, string(token))
			}
			return len(found) < p.policy.KeepHandles
		})
	}
	return appendIdentifierList(dst, found, room)
}

// appendIdentifierList appends as many identifiers as fit into room bytes.
func appendIdentifierList(dst []byte, found []string, room int) []byte {
	start := len(dst)
	for _, token := range found {
		lead := ", "
		if len(dst) == start {
			lead = identifierIntro
		}
		if len(dst)-start+len(lead)+len(token)+1 > room {
			break
		}
		dst = append(append(dst, lead...), token...)
	}
	if len(dst) > start {
		dst = append(dst, ']')
	}
	return dst
}

func anyBetween(list []int, after, end int) bool {
	i, _ := slices.BinarySearch(list, after+1)
	return i < len(list) && list[i] < end
}

// identifierUses reads the messages of the model and the user at the first call.
func (d *Dialogue) identifierUses() identifierUses {
	if d.identifiers != nil {
		return d.identifiers
	}
	d.identifiers = identifierUses{}
	for i, m := range d.Messages {
		if !m.spoken {
			continue
		}
		findIdentifiers(m.Of(d.body), func(token []byte) bool {
			if list := d.identifiers[string(token)]; len(list) == 0 || list[len(list)-1] != i {
				d.identifiers[string(token)] = append(list, i)
			}
			return true
		})
	}
	return d.identifiers
}

// Classes of bytes in identifiers.
const (
	letter = 1 << iota
	digit
	slash
	joiner   // _ - .
	pathChar // parts of URLs and paths
	urlChar  // parts of URLs only
	word     = letter | digit | slash | joiner | pathChar
)

var byteClasses = func() (t [256]uint8) {
	for c := range 26 {
		t['a'+c], t['A'+c] = letter, letter
	}
	for c := range 10 {
		t['0'+c] = digit
	}
	t['/'] = slash
	t['_'], t['-'], t['.'] = joiner, joiner, joiner
	for _, c := range "~@%+" {
		t[c] = pathChar
	}
	for _, c := range "?=&#:" {
		t[c] = urlChar
	}
	return t
}()

// findIdentifiers finds identifiers in the raw bytes of JSON: URLs, paths, and words that are in no
// language, such as ids and hashes. All have a digit or a slash, which is what it searches for. A backslash
// and the letter after it separate words, however often the text was escaped. It stops when each returns
// false.
func findIdentifiers(raw []byte, each func(token []byte) bool) {
	for low := 0; ; {
		i := low
		for i < len(raw) && byteClasses[raw[i]]&(digit|slash) == 0 {
			i++
		}
		if i == len(raw) {
			return
		}
		start, end, url := wordAround(raw, low, i)
		if start < end {
			if token := trimIdentifier(raw[start:end]); len(token) <= maxIdentifier && (url || isIdentifier(token)) && !each(token) {
				return
			}
		}
		low = max(start, end)
	}
}

// wordAround is the word around the digit or slash at i, not before low. Its end is not after its start if
// the digit is part of an escape.
func wordAround(raw []byte, low, i int) (start, end int, url bool) {
	in, from := uint8(word), i
	if raw[i] == '/' && i-2 >= low && raw[i-1] == ':' && byteClasses[raw[i-2]] == letter && i+1 < len(raw) && raw[i+1] == '/' {
		in, from, url = word|urlChar, i-1, true
	}
	for start = from; start > low && byteClasses[raw[start-1]]&word != 0; {
		start--
	}
	if start > low && raw[start-1] == '\\' {
		start += 1
		if raw[start-1] == 'u' {
			start = min(start+4, len(raw))
		}
	}
	for end = i; end < len(raw) && byteClasses[raw[end]]&in != 0; {
		end++
	}
	if start > i {
		end = start
	}
	return start, end, url
}

// trimIdentifier removes punctuation at the ends.
func trimIdentifier(token []byte) []byte {
	for len(token) > 0 && byteClasses[token[len(token)-1]]&(joiner|urlChar) != 0 {
		token = token[:len(token)-1]
	}
	for len(token) > 0 && (token[0] == '-' || token[0] == '+' || token[0] == '@') {
		token = token[1:]
	}
	return token
}

// isIdentifier says whether a token is a path or an id: at least seven characters, with letters and digits,
// or with slashes between names.
func isIdentifier(token []byte) bool {
	if len(token) < 7 {
		return false
	}
	var n [2]int // digits, letters
	slashes, hex, joints := 0, true, 0
	for _, c := range token {
		switch byteClasses[c] {
		case digit:
			n[0]++
		case letter:
			n[1]++
			hex = hex && (c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F')
		case slash:
			slashes++
			hex = false
		default:
			joints++
			hex = hex && c == '-'
		}
	}
	switch {
	case slashes > 0:
		return n[1] > 0 && (slashes > 1 || joints > 0)
	case n[0] == 0 || n[1] == 0:
		return false
	}
	return hex || joints > 0 || n[0] >= 2
}
