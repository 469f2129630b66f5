package history

import (
	"slices"
)

// uses are the identifiers that were said in the conversation, and in which messages.
type uses map[string][]int

// introduction stands before the identifiers that a placeholder lists.
const introduction = ` [repères: `

// maxHandle is the longest identifier worth a place.
const maxHandle = 200

// appendHandles lists identifiers of a masked result that the model or the user went on to use,
// up to the request at which it was masked: what came later must not change what is there. They
// take at most room bytes.
func (p *Plan) appendHandles(dst []byte, m Cut, room int) []byte {
	if p.policy.KeepHandles <= 0 {
		return dst
	}
	if p.used == nil {
		p.used = p.d.uses()
	}
	if len(p.used) == 0 {
		return dst
	}
	r := &p.d.Results[m.Result]
	end := p.d.Turns[m.At-1].End
	var found []string
	for _, span := range r.Texts {
		handles(span.Of(p.d.body), func(token []byte) bool {
			if said, ok := p.used[string(token)]; ok && between(said, r.Message, end) && !slices.Contains(found, string(token)) {
				found = append(found, string(token))
			}
			return len(found) < p.policy.KeepHandles
		})
	}
	return appendList(dst, found, room)
}

// appendList appends as many tokens as there is room for.
func appendList(dst []byte, found []string, room int) []byte {
	start := len(dst)
	for _, token := range found {
		lead := ", "
		if len(dst) == start {
			lead = introduction
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

func between(list []int, after, end int) bool {
	i, _ := slices.BinarySearch(list, after+1)
	return i < len(list) && list[i] < end
}

// heard are the uses in the first messages of a conversation.
type heard struct {
	uses uses
	upto int
}

// uses reads what the model and the user said, as far as that was not read before.
func (d *Dialogue) uses() uses {
	h := &d.heard
	if h.uses == nil {
		h.uses = uses{}
	}
	for ; h.upto < len(d.Messages); h.upto++ {
		m := d.Messages[h.upto]
		if !m.spoken {
			continue
		}
		handles(m.Of(d.body), func(token []byte) bool {
			if list := h.uses[string(token)]; len(list) == 0 || list[len(list)-1] != h.upto {
				h.uses[string(token)] = append(list, h.upto)
			}
			return true
		})
	}
	return h.uses
}

// forget forgets what was heard in the messages from some on.
func (h *heard) forget(messages int) {
	if h.upto <= messages {
		return
	}
	h.upto = messages
	for token, list := range h.uses {
		n, _ := slices.BinarySearch(list, messages)
		if n == 0 {
			delete(h.uses, token)
		} else {
			h.uses[token] = list[:n]
		}
	}
}

// What a byte can be in an identifier.
const (
	letter = 1 << iota
	digit
	slash
	joint // _ - .
	other // parts of URLs and paths
	query // parts of URLs only
	word  = letter | digit | slash | joint | other
)

var classes = func() (t [256]uint8) {
	for c := range 26 {
		t['a'+c], t['A'+c] = letter, letter
	}
	for c := range 10 {
		t['0'+c] = digit
	}
	t['/'] = slash
	t['_'], t['-'], t['.'] = joint, joint, joint
	for _, c := range "~@%+" {
		t[c] = other
	}
	for _, c := range "?=&#:" {
		t[c] = query
	}
	return t
}()

// handles finds identifiers in the raw bytes of JSON: URLs, paths, and words that no language
// has, such as ids, hashes and handles. All have a digit or a slash, and that is what is looked
// for. A backslash and the letter it escapes stand between words, however often the text was
// escaped. It goes on while each says so.
func handles(raw []byte, each func(token []byte) bool) {
	for low := 0; ; {
		i := low
		for i < len(raw) && classes[raw[i]]&(digit|slash) == 0 {
			i++
		}
		if i == len(raw) {
			return
		}
		start, end, url := around(raw, low, i)
		if start < end {
			if token := trim(raw[start:end]); len(token) <= maxHandle && (url || names(token)) && !each(token) {
				return
			}
		}
		low = max(start, end)
	}
}

// around is the word that has a digit or a slash at i, and begins at low or behind it. The end is
// before the start when the digit is part of an escape.
func around(raw []byte, low, i int) (start, end int, url bool) {
	in, from := uint8(word), i
	if raw[i] == '/' && i-2 >= low && raw[i-1] == ':' && classes[raw[i-2]] == letter && i+1 < len(raw) && raw[i+1] == '/' {
		in, from, url = word|query, i-1, true
	}
	for start = from; start > low && classes[raw[start-1]]&word != 0; {
		start--
	}
	if start > low && raw[start-1] == '\\' {
		start += 1
		if raw[start-1] == 'u' {
			start = min(start+4, len(raw))
		}
	}
	for end = i; end < len(raw) && classes[raw[end]]&in != 0; {
		end++
	}
	if start > i {
		end = start
	}
	return start, end, url
}

// trim takes away what ends a sentence, not a name.
func trim(token []byte) []byte {
	for len(token) > 0 && classes[token[len(token)-1]]&(joint|query) != 0 {
		token = token[:len(token)-1]
	}
	for len(token) > 0 && (token[0] == '-' || token[0] == '+' || token[0] == '@') {
		token = token[1:]
	}
	return token
}

// names says whether a token is a path or an id: seven characters or more, letters and digits in
// it, or slashes between names.
func names(token []byte) bool {
	if len(token) < 7 {
		return false
	}
	var n [2]int // digits, letters
	slashes, hex, joints := 0, true, 0
	for _, c := range token {
		switch classes[c] {
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
