package jsonscan

import "slices"

// Field is one member of an object: where it stands, key and value, and where its value stands.
type Field struct {
	Key    string
	Member Span
	Value  Span
}

// Fields are the members of one object of a larger document, in order. Spans are offsets into
// that document, so that edits made from them can be spliced into it with others.
type Fields struct {
	data []byte
	span Span
	list []Field
}

// MaxFields is the most members of an object that is laid open: each costs many times its bytes.
const MaxFields = 100_000

// ReadFields reads the object at span of data, one level deep. The document has passed a strict
// parse before; what is no object has no fields.
func ReadFields(data []byte, span Span) (Fields, error) {
	f := Fields{data: data, span: span}
	s := New(data[:span.End], 0)
	s.pos = span.Start
	if s.Kind() != '{' {
		return f, nil
	}
	f.span.Start = s.pos
	last := s.pos
	err := s.Object(nil, func(key []byte) error {
		if len(f.list) == MaxFields {
			return s.fail(s.pos, TooMany)
		}
		name := string(key)
		value, err := s.Skip()
		start := memberStart(data, value.Start, last)
		f.list = append(f.list, Field{name, Span{start, value.End}, value})
		last = value.End
		return err
	})
	f.span.End = s.pos
	return f, err
}

// FieldsOf is ReadFields of a whole document.
func FieldsOf(data []byte) (Fields, error) { return ReadFields(data, Span{0, len(data)}) }

// memberStart finds the quote before the key of the value at pos: going back over the colon and
// the key's own bytes is not possible, for a key may hold anything, so it goes forward from the
// end of the member before.
func memberStart(data []byte, pos, last int) int {
	for i := last; i < pos; i++ {
		if data[i] == '"' {
			return i
		}
	}
	return pos
}

// Get is the raw value of a key.
func (f Fields) Get(key string) ([]byte, bool) {
	if field, ok := f.Field(key); ok {
		return field.Value.Of(f.data), true
	}
	return nil, false
}

// Field is the member of a key.
func (f Fields) Field(key string) (Field, bool) {
	for _, field := range f.list {
		if field.Key == key {
			return field, true
		}
	}
	return Field{}, false
}

// Text is the decoded value of a key that holds a string, and "" of any other.
func (f Fields) Text(key string) string {
	raw, _ := f.Get(key)
	return TextOf(raw)
}

// TextOf is the text of a raw JSON string, and "" of any other value.
func TextOf(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return string(AppendText(nil, raw[1:len(raw)-1]))
}

// All are the members in order.
func (f Fields) All() []Field { return f.list }

// Change is a new value for a key; a nil value takes the member away.
type Change struct {
	Key   string
	Value []byte
}

// Edits makes the changes: a value is replaced where it stands, a new member goes to the end, a
// member that goes takes its comma with it. Everything else keeps its bytes.
func (f Fields) Edits(changes ...Change) []Edit {
	var out []Edit
	var added []byte
	gone := make([]bool, len(f.list))
	kept := len(f.list)
	for _, c := range changes {
		at := f.index(c.Key)
		switch {
		case at >= 0 && c.Value == nil:
			gone[at] = true
			kept--
		case at >= 0:
			out = append(out, Edit{f.list[at].Value, c.Value})
		case c.Value != nil:
			added = append(append(AppendString(append(added, ','), c.Key), ':'), c.Value...)
		}
	}
	if kept == 0 && len(added) > 0 {
		added = added[1:]
	}
	return sorted(f.removals(out, gone, added))
}

// removals takes the members away that are gone, run by run, and puts what is added at the end.
func (f Fields) removals(out []Edit, gone []bool, added []byte) []Edit {
	end := f.span.End - 1 // the closing brace
	if n := len(f.list); n > 0 {
		end = f.list[n-1].Member.End
	}
	for i := 0; i < len(gone); i++ {
		if !gone[i] {
			continue
		}
		j := i
		for j+1 < len(gone) && gone[j+1] {
			j++
		}
		switch {
		case j+1 < len(gone):
			out = append(out, Edit{Span{f.list[i].Member.Start, f.list[j+1].Member.Start}, nil})
		case i > 0:
			return append(out, Edit{Span{f.list[i-1].Member.End, end}, added})
		default:
			return append(out, Edit{Span{f.list[0].Member.Start, end}, added})
		}
		i = j
	}
	if len(added) > 0 {
		out = append(out, Edit{Span{end, end}, added})
	}
	return out
}

func (f Fields) index(key string) int {
	for i, field := range f.list {
		if field.Key == key {
			return i
		}
	}
	return -1
}

// With is the object alone with the changes made.
func (f Fields) With(changes ...Change) []byte {
	edits := f.Edits(changes...)
	for i := range edits {
		edits[i].Start -= f.span.Start
		edits[i].End -= f.span.Start
	}
	return AppendSpliced(nil, f.span.Of(f.data), edits)
}

// Merge puts edits of one document into the order that Splice wants.
func Merge(edits ...[]Edit) []Edit {
	var all []Edit
	for _, e := range edits {
		all = append(all, e...)
	}
	return sorted(all)
}

func sorted(edits []Edit) []Edit {
	slices.SortStableFunc(edits, func(a, b Edit) int { return a.Start - b.Start })
	return edits
}

// Elements calls each with every element of the array at span.
func Elements(data []byte, span Span, each func(Span) error) error {
	s := New(data[:span.End], 0)
	s.pos = span.Start
	if s.Kind() != '[' {
		return nil
	}
	s.pos++
	if s.Kind() == ']' {
		return nil
	}
	for {
		element, err := s.Skip()
		if err != nil {
			return err
		}
		if err := each(element); err != nil {
			return err
		}
		if s.Kind() != ',' {
			return nil
		}
		s.pos++
	}
}
