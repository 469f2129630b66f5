package jsonscan

import "slices"

// Field is one member of an object, and the spans of the member and of its value.
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

// MaxFields is the most members that ReadFields reads: each costs many times its bytes.
const MaxFields = 100_000

// ReadFields reads the object at span of data, one level deep. The document has been scanned before; a
// value that is not an object has no fields.
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
			return s.errorAt(s.pos, TooMany)
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

// memberStart finds the quote before the key of the value at pos. It searches forward from the end of
// the member before: backward, the bytes of the key could be mistaken for it.
func memberStart(data []byte, pos, last int) int {
	for i := last; i < pos; i++ {
		if data[i] == '"' {
			return i
		}
	}
	return pos
}

// Get returns the raw value of a key.
func (f Fields) Get(key string) ([]byte, bool) {
	if field, ok := f.Field(key); ok {
		return field.Value.Of(f.data), true
	}
	return nil, false
}

// Field returns the member with a key.
func (f Fields) Field(key string) (Field, bool) {
	for _, field := range f.list {
		if field.Key == key {
			return field, true
		}
	}
	return Field{}, false
}

// Text returns the decoded value of a key, "" when it is not a string.
func (f Fields) Text(key string) string {
	raw, _ := f.Get(key)
	return DecodeString(raw)
}

// DecodeString returns the text of a raw JSON string, "" for any other value.
func DecodeString(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return string(AppendDecoded(nil, raw[1:len(raw)-1]))
}

// All are the members in order.
func (f Fields) All() []Field { return f.list }

// Change is a new value for a key; nil removes the member.
type Change struct {
	Key   string
	Value []byte
}

// Edits returns the edits for changes: a value is replaced in place, a new member is added at the end,
// and a removed member takes its comma with it. Everything else keeps its bytes.
func (f Fields) Edits(changes ...Change) []Edit {
	var out []Edit
	var added []byte
	removed := make([]bool, len(f.list))
	kept := len(f.list)
	for _, c := range changes {
		at := f.index(c.Key)
		switch {
		case at >= 0 && c.Value == nil:
			removed[at] = true
			kept--
		case at >= 0:
			out = append(out, Edit{f.list[at].Value, c.Value})
		case c.Value != nil:
			added = append(append(AppendQuoted(append(added, ','), c.Key), ':'), c.Value...)
		}
	}
	if kept == 0 && len(added) > 0 {
		added = added[1:]
	}
	return sortEdits(f.appendRemovals(out, removed, added))
}

// appendRemovals appends one edit for each run of removed members, and one that adds members at the
// end.
func (f Fields) appendRemovals(out []Edit, removed []bool, added []byte) []Edit {
	end := f.span.End - 1 // the closing brace
	if n := len(f.list); n > 0 {
		end = f.list[n-1].Member.End
	}
	for i := 0; i < len(removed); i++ {
		if !removed[i] {
			continue
		}
		j := i
		for j+1 < len(removed) && removed[j+1] {
			j++
		}
		switch {
		case j+1 < len(removed):
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

// With returns the object alone with the changes made.
func (f Fields) With(changes ...Change) []byte {
	edits := f.Edits(changes...)
	for i := range edits {
		edits[i].Start -= f.span.Start
		edits[i].End -= f.span.Start
	}
	return AppendSpliced(nil, f.span.Of(f.data), edits)
}

// MergeEdits joins edits of one document in the order that Splice needs.
func MergeEdits(edits ...[]Edit) []Edit {
	var all []Edit
	for _, e := range edits {
		all = append(all, e...)
	}
	return sortEdits(all)
}

func sortEdits(edits []Edit) []Edit {
	slices.SortStableFunc(edits, func(a, b Edit) int { return a.Start - b.Start })
	return edits
}

// EachElement calls each with every element of the array at span.
func EachElement(data []byte, span Span, each func(Span) error) error {
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
