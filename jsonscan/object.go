package jsonscan

import (
	"bytes"
	"strings"
)

// Object reads the object at the cursor. It calls member with each key, decoded, and the cursor
// before that key's value; member may pass the value with any method, or leave it, and then it
// is skipped. A key that comes twice is refused, and so is one that differs from a name in
// protocol only by case folding ("Method", "paramſ"): another parser would read it as that name.
func (s *Scanner) Object(protocol []string, member func(key []byte) error) error {
	var seen keySet
	return s.object(&seen, protocol, member)
}

// Members is Object without the rules on keys, for a second look at a document that was refused.
func (s *Scanner) Members(member func(key []byte) error) error {
	return s.object(nil, nil, member)
}

func (s *Scanner) object(seen *keySet, protocol []string, member func(key []byte) error) error {
	if empty, err := s.enter('{'); empty || err != nil {
		return err
	}
	return s.members(seen, protocol, member)
}

// MoreMembers is Object from behind one of its members on, given the keys up to there.
func (s *Scanner) MoreMembers(keys, protocol []string, member func(key []byte) error) error {
	seen := keySet{before: make(map[string]struct{}, len(keys))}
	for _, key := range keys {
		seen.before[key] = struct{}{}
	}
	if more, err := s.leave('}'); !more || err != nil {
		return err
	}
	return s.members(&seen, protocol, member)
}

func (s *Scanner) members(seen *keySet, protocol []string, member func(key []byte) error) error {
	for {
		if err := s.member(seen, protocol, member); err != nil {
			return err
		}
		if more, err := s.leave('}'); !more || err != nil {
			return err
		}
	}
}

// Array reads the array at the cursor. It calls each with the cursor before every element; each may
// pass the element with any method, or leave it, and then it is skipped.
func (s *Scanner) Array(each func() error) error {
	if empty, err := s.enter('['); empty || err != nil {
		return err
	}
	return s.elements(each)
}

// MoreElements is Array from behind one of its elements on.
func (s *Scanner) MoreElements(each func() error) error {
	if more, err := s.leave(']'); !more || err != nil {
		return err
	}
	return s.elements(each)
}

func (s *Scanner) elements(each func() error) error {
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
		if more, err := s.leave(']'); !more || err != nil {
			return err
		}
	}
}

// enter opens the container at the cursor, and closes it when there is nothing in it.
func (s *Scanner) enter(bracket byte) (empty bool, err error) {
	if s.Kind() != bracket {
		return false, s.unexpected(s.pos)
	}
	if s.depth >= s.limit {
		return false, s.fail(s.pos, TooDeep)
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

// leave passes what follows a member or an element: a comma, or the end of the container.
func (s *Scanner) leave(bracket byte) (more bool, err error) {
	switch s.Kind() {
	case ',':
		s.pos++
		s.Kind() // an element that is left must not look passed for the space before it
		return true, nil
	case bracket:
		s.pos++
		s.depth--
		return false, nil
	}
	return false, s.unexpected(s.pos)
}

func (s *Scanner) member(seen *keySet, protocol []string, member func(key []byte) error) error {
	raw, err := s.Str()
	if err != nil {
		return err
	}
	key := raw.Of(s.data)
	if bytes.IndexByte(key, '\\') >= 0 {
		key = AppendText(nil, key)
	}
	if seen != nil && !seen.add(s.data, raw.Span, key) {
		return s.fail(raw.Start, DuplicateKey)
	}
	if folds(key, protocol) {
		return s.fail(raw.Start, FoldedKey)
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

// SkipStrict is Skip, and refuses a key that comes twice in one object at any depth.
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

// folds says whether key is one of names in other letters. EqualFold knows the letters beyond
// ASCII that fold onto it, the long s and the Kelvin sign.
func folds(key []byte, names []string) bool {
	for _, name := range names {
		if string(key) != name && strings.EqualFold(string(key), name) {
			return true
		}
	}
	return false
}
