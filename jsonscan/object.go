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
	if s.Kind() != '{' {
		return s.unexpected(s.pos)
	}
	if s.depth >= s.limit {
		return s.fail(s.pos, TooDeep)
	}
	s.depth++
	s.pos++
	if s.Kind() == '}' {
		s.pos++
		s.depth--
		return nil
	}
	for {
		if err := s.member(seen, protocol, member); err != nil {
			return err
		}
		switch s.Kind() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			s.depth--
			return nil
		default:
			return s.unexpected(s.pos)
		}
	}
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
	if seen != nil && !seen.add(key) {
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
		err = s.arrayStrict()
	default:
		_, err = s.Skip()
	}
	return Span{start, s.pos}, err
}

func (s *Scanner) arrayStrict() error {
	if s.depth >= s.limit {
		return s.fail(s.pos, TooDeep)
	}
	s.depth++
	s.pos++
	if s.Kind() == ']' {
		s.pos++
		s.depth--
		return nil
	}
	for {
		if _, err := s.SkipStrict(); err != nil {
			return err
		}
		switch s.Kind() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			s.depth--
			return nil
		default:
			return s.unexpected(s.pos)
		}
	}
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

// keySet holds the keys of one object: a few in place, many in a map.
type keySet struct {
	n    int
	few  [12][]byte
	many map[string]struct{}
}

func (k *keySet) add(key []byte) bool {
	if k.many != nil {
		if _, dup := k.many[string(key)]; dup {
			return false
		}
		k.many[string(key)] = struct{}{}
		return true
	}
	for _, old := range k.few[:k.n] {
		if bytes.Equal(old, key) {
			return false
		}
	}
	if k.n < len(k.few) {
		k.few[k.n] = key
		k.n++
		return true
	}
	k.many = make(map[string]struct{}, 4*len(k.few))
	for _, old := range k.few {
		k.many[string(old)] = struct{}{}
	}
	k.many[string(key)] = struct{}{}
	return true
}
