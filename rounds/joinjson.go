package rounds

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

var byteOrderMark = []byte("\ufeff")

// event is one event of a stream: its bytes to the end of the empty line, and the data in it.
type event struct {
	raw  []byte
	data []byte // nil: it has none
	from int    // where the data stands in raw, -1 where it is spread over several lines
}

// parseEvent finds the data of an event. Only the first of a stream may begin with a byte order mark.
func parseEvent(raw []byte, first bool) event {
	e := event{raw: raw}
	at := 0
	if first && bytes.HasPrefix(raw, byteOrderMark) {
		at = len(byteOrderMark)
	}
	for at < len(raw) {
		line := raw[at:lineEnd(raw, at)]
		if value, ok := dataOf(line); ok {
			e.add(value, at+len(line)-len(value))
		}
		at += len(line) + 1
	}
	return e
}

func (e *event) add(value []byte, at int) {
	if e.data == nil {
		e.data, e.from = value[:len(value):len(value)], at
		return
	}
	e.data = append(append(e.data, '\n'), value...)
	e.from = -1
}

func lineEnd(raw []byte, at int) int {
	for at < len(raw) && raw[at] != '\n' && raw[at] != '\r' {
		at++
	}
	return at
}

var dataField = []byte("data")

// dataOf is what a line gives to the event's data.
func dataOf(line []byte) ([]byte, bool) {
	if !bytes.HasPrefix(line, dataField) {
		return nil, false
	}
	rest := line[len(dataField):]
	switch {
	case len(rest) == 0:
		return rest, true
	case rest[0] != ':':
		return nil, false
	case len(rest) > 1 && rest[1] == ' ':
		return rest[2:], true
	}
	return rest[1:], true
}

// appendWith appends the event with other data, which has no line ends but white space.
func (e *event) appendWith(out, data []byte) []byte {
	if e.from >= 0 {
		out = append(out, e.raw[:e.from]...)
		out = append(out, data...)
		return append(out, e.raw[e.from+len(e.data):]...)
	}
	for at := 0; at < len(e.raw); {
		end := lineEnd(e.raw, at)
		if _, is := dataOf(e.raw[at:end]); !is && end > at {
			out = append(append(out, e.raw[at:end]...), '\n')
		}
		at = end + 1
	}
	for line := range bytes.SplitSeq(data, []byte{'\n'}) {
		out = append(append(append(out, "data: "...), line...), '\n')
	}
	return append(out, '\n')
}

// isObject says whether data is one JSON object, in which no key comes twice: there nobody could
// say which of the two is meant.
func isObject(data []byte) bool {
	s := jsonscan.New(data, 0)
	if s.Kind() != '{' {
		return false
	}
	if _, err := s.SkipStrict(); err != nil {
		return false
	}
	return s.End() == nil
}

// each calls member with the members of an object that was checked before.
func each(data []byte, at jsonscan.Span, member func(key []byte, value jsonscan.Span)) {
	s := jsonscan.New(at.Of(data), 0)
	if s.Kind() != '{' {
		return
	}
	_ = s.Members(func(key []byte) error {
		value, err := s.Skip()
		member(key, jsonscan.Span{Start: value.Start + at.Start, End: value.End + at.Start})
		return err
	})
}

// pick finds some members of an object that was checked before; a span without length is none.
func pick(data []byte, at jsonscan.Span, keys []string, into []jsonscan.Span) {
	clear(into)
	each(data, at, func(key []byte, value jsonscan.Span) {
		for i, want := range keys {
			if string(key) == want {
				into[i] = value
				return
			}
		}
	})
}

func all(data []byte) jsonscan.Span { return jsonscan.Span{End: len(data)} }

// oneOf is the raw value of a member of an object, nil when it is not there.
func oneOf(object []byte, key string) []byte {
	var at [1]jsonscan.Span
	pick(object, all(object), []string{key}, at[:])
	if at[0].Len() == 0 {
		return nil
	}
	return at[0].Of(object)
}

// elements are the raw elements of an array.
func elements(array []byte) [][]byte {
	var out [][]byte
	_ = jsonscan.Elements(array, all(array), func(at jsonscan.Span) error {
		out = append(out, at.Of(array))
		return nil
	})
	return out
}

// given says that a raw value is there and not null.
func given(raw []byte) bool { return len(raw) > 0 && string(raw) != "null" }

// says says that a raw value is more than nothing.
func says(raw []byte) bool {
	switch string(raw) {
	case "", "null", `""`, "[]", "{}":
		return false
	}
	return true
}

// is compares a raw string with a plain word. Names of tools and types hold nothing that must be
// escaped, but who writes them may escape it.
func is(raw []byte, word string) bool {
	if len(raw) == len(word)+2 {
		return raw[0] == '"' && string(raw[1:len(raw)-1]) == word
	}
	return len(raw) > len(word)+2 && bytes.IndexByte(raw, '\\') >= 0 && jsonscan.TextOf(raw) == word
}

func number(raw []byte) (int, bool) {
	n, err := strconv.Atoi(string(raw))
	return n, err == nil
}

func digits(n int) []byte { return strconv.AppendInt(nil, int64(n), 10) }

// list is the raw array of some raw values.
func list(values ...[]byte) []byte {
	out := append([]byte{'['}, bytes.Join(values, []byte{','})...)
	return append(out, ']')
}

// within is what stands between the quotes or the brackets of a raw value.
func within(raw []byte) []byte { return raw[1 : len(raw)-1] }

// with is an object that was checked before, with some members changed. What is none stays as it is.
func with(object []byte, changes ...jsonscan.Change) []byte {
	f, err := jsonscan.FieldsOf(object)
	if err != nil || jsonscan.New(object, 0).Kind() != '{' {
		return object
	}
	return f.With(changes...)
}

// strand is a member of what the model says, which grows with the deltas of a stream.
type strand struct {
	key   string
	kind  byte // how its raw value begins
	value []byte
}

// gather adds a delta to the member it belongs to: texts and lists grow, anything else is replaced.
func (t *tape) gather(to []strand, key, delta []byte) []strand {
	if !given(delta) {
		return to
	}
	at := 0
	for at < len(to) && to[at].key != string(key) {
		at++
	}
	if at == len(to) {
		to = append(to, strand{key: string(key), kind: delta[0]})
	}
	to[at].grow(t, delta)
	return to
}

func (s *strand) grow(t *tape, delta []byte) {
	grows := delta[0] == s.kind && (s.kind == '"' || s.kind == '[')
	if !grows {
		s.kind, s.value = delta[0], s.value[:0]
	}
	switch s.kind {
	case '"':
		s.value = t.keep(s.value, within(delta))
	case '[':
		more := bytes.TrimSpace(within(delta))
		if len(more) > 0 && len(s.value) > 0 {
			s.value = append(s.value, ',')
		}
		s.value = t.keep(s.value, more)
	default:
		s.value = t.keep(s.value, delta)
	}
}

// raw is the member's value.
func (s *strand) raw() []byte {
	switch s.kind {
	case '"':
		return append(append([]byte{'"'}, s.value...), '"')
	case '[':
		return list(s.value)
	}
	return s.value
}

// argsOf are the arguments that a model wrote as a text.
func argsOf(text string) []byte {
	if strings.TrimSpace(text) == "" {
		return []byte("{}")
	}
	return []byte(text)
}

// spanOf is where the value of a member of a document stands.
func spanOf(data []byte, key string) jsonscan.Span {
	var at [1]jsonscan.Span
	pick(data, all(data), []string{key}, at[:])
	return at[0]
}

// listOrNil is the raw array of some raw values, nil when there are none.
func listOrNil(values [][]byte) []byte {
	if len(values) == 0 {
		return nil
	}
	return list(values...)
}
