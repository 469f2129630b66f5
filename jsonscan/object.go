package jsonscan

import (
	"bytes"
	"strings"
)

// Object reads the object at the cursor. It calls member with each decoded key and the cursor before
// that key's value; member may read the value with any method, or leave it to be skipped. A duplicate
// key is refused, and so is one that differs from a name in protocol only by case folding ("Method",
// "paramſ"): another parser would read it as that name.
func (s *Scanner) Object(protocol []string, member func(key []byte) error) error {
	var seen keySet
	return s.readObject(&seen, protocol, member)
}

// Members is Object without the rules on keys, for a document that was refused or checked before.
func (s *Scanner) Members(member func(key []byte) error) error {
	return s.readObject(nil, nil, member)
}

func (s *Scanner) readObject(seen *keySet, protocol []string, member func(key []byte) error) error {
	if empty, err := s.enterContainer('{'); empty || err != nil {
		return err
	}
	return s.readMembers(seen, protocol, member)
}

// MoreMembers is Object with the cursor after one of its members, given the keys up to there.
func (s *Scanner) MoreMembers(keys, protocol []string, member func(key []byte) error) error {
	seen := keySet{before: make(map[string]struct{}, len(keys))}
	for _, key := range keys {
		seen.before[key] = struct{}{}
	}
	if more, err := s.afterElement('}'); !more || err != nil {
		return err
	}
	return s.readMembers(&seen, protocol, member)
}

func (s *Scanner) readMembers(seen *keySet, protocol []string, member func(key []byte) error) error {
	for {
		if err := s.readMember(seen, protocol, member); err != nil {
			return err
		}
		if more, err := s.afterElement('}'); !more || err != nil {
			return err
		}
	}
}

// Array reads the array at the cursor. It calls each with the cursor before every element; each may
// read the element with any method, or leave it to be skipped.
func (s *Scanner) Array(each func() error) error {
	if empty, err := s.enterContainer('['); empty || err != nil {
		return err
	}
	return s.readElements(each)
}

// MoreElements is Array with the cursor after one of its elements.
func (s *Scanner) MoreElements(each func() error) error {
	if more, err := s.afterElement(']'); !more || err != nil {
		return err
	}
	return s.readElements(each)
}

func (s *Scanner) readElements(each func() error) error {
	for {
		before := s.pos
		if err := each(); err != nil {
			return err
		}
		if s.pos == before {
			if _, err := s.Skip(); err != nil {
				return err
			}
		}
		if more, err := s.afterElement(']'); !more || err != nil {
			return err
		}
	}
}

// enterContainer moves into the container at the cursor, and past it when it is empty.
func (s *Scanner) enterContainer(bracket byte) (empty bool, err error) {
	if s.Kind() != bracket {
		return false, s.unexpected(s.pos)
	}
	if s.depth >= s.limit {
		return false, s.errorAt(s.pos, TooDeep)
	}
	s.depth++
	s.pos++
	if s.Kind() != bracket+2 { // ']' is '['+2 and '}' is '{'+2
		return false, nil
	}
	s.pos++
	s.depth--
	return true, nil
}

// afterElement moves past what follows a member or an element: a comma, or the end of the container.
func (s *Scanner) afterElement(bracket byte) (more bool, err error) {
	switch s.Kind() {
	case ',':
		s.pos++
		s.Kind() // skip white space: a caller sees by the position whether the element was read
		return true, nil
	case bracket:
		s.pos++
		s.depth--
		return false, nil
	}
	return false, s.unexpected(s.pos)
}

func (s *Scanner) readMember(seen *keySet, protocol []string, member func(key []byte) error) error {
	raw, err := s.Str()
	if err != nil {
		return err
	}
	key := raw.Of(s.data)
	if bytes.IndexByte(key, '\\') >= 0 {
		key = AppendDecoded(nil, key)
	}
	if seen != nil && !seen.insert(s.data, raw.Span, key) {
		return s.errorAt(raw.Start, DuplicateKey)
	}
	if isCaseFolded(key, protocol) {
		return s.errorAt(raw.Start, FoldedKey)
	}
	if s.Kind() != ':' {
		return s.unexpected(s.pos)
	}
	s.pos++
	before := s.pos
	if member != nil {
		if err := member(key); err != nil {
			return err
		}
	}
	if s.pos == before {
		_, err = s.Skip()
	}
	return err
}

// SkipStrict is Skip, and refuses a duplicate key in an object at any depth.
func (s *Scanner) SkipStrict() (Span, error) {
	kind := s.Kind()
	start := s.pos
	var err error
	switch kind {
	case '{':
		err = s.Object(nil, func([]byte) error {
			_, err := s.SkipStrict()
			return err
		})
	case '[':
		err = s.Array(func() error {
			_, err := s.SkipStrict()
			return err
		})
	default:
		_, err = s.Skip()
	}
	return Span{start, s.pos}, err
}

// isCaseFolded says whether key differs from one of names by case only. EqualFold knows the letters
// beyond ASCII that fold onto it, the long s and the Kelvin sign.
func isCaseFolded(key []byte, names []string) bool {
	for _, name := range names {
		if string(key) != name && strings.EqualFold(string(key), name) {
			return true
		}
	}
	return false
}
