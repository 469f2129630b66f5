package jsonedit

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// marshal encodes without escaping <, > and &, as the clients' own writers do. Objects keep their order.
func marshal(value any) ([]byte, error) {
	var parts [][]byte
	switch v := value.(type) {
	case textedit.Object:
		for _, m := range v {
			name, err := encodeString(m.Key)
			if err != nil {
				return nil, err
			}
			text, err := marshal(m.Value)
			if err != nil {
				return nil, err
			}
			parts = append(parts, slices.Concat(name, []byte(":"), text))
		}
		return slices.Concat([]byte("{"), bytes.Join(parts, []byte(",")), []byte("}")), nil
	case []any:
		for _, elem := range v {
			text, err := marshal(elem)
			if err != nil {
				return nil, err
			}
			parts = append(parts, text)
		}
		return slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]")), nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func encodeString(s string) ([]byte, error) { return marshal(s) }

// style is how a list's text is laid out.
type style struct {
	eol, indent, childIndent, unit string
	colon, space                   string
	multiline                      bool // items stand on lines of their own
	inlineArrays                   bool // arrays of plain values stand on one line
}

// styleOf reads the layout off the list and the document around it.
func (d *Doc) styleOf(l list) style {
	s := style{eol: textedit.EOL(d.src), colon: ": ", space: " "}
	s.indent = d.indentAt(l.open)
	s.unit = d.indentUnit()
	root, _ := listOf(&d.root)
	isMinified := len(root.items) > 0 && !bytes.ContainsRune(d.src[root.open:root.close], '\n')
	if isMinified {
		first := d.src[root.items[0].start:root.close]
		if at := bytes.Index(first, []byte(`":`)); at >= 0 && at+2 < len(first) && first[at+2] != ' ' {
			s.colon, s.space = ":", ""
		}
		s.unit = ""
	}
	s.childIndent = s.indent + s.unit
	s.multiline = !isMinified
	if n := len(l.items); n > 0 {
		first := l.items[0].start
		s.multiline = bytes.ContainsRune(d.src[l.open:first], '\n')
		if s.multiline {
			s.childIndent = d.indentAt(l.items[n-1].start)
			if unit, ok := strings.CutPrefix(s.childIndent, s.indent); ok && unit != "" {
				s.unit = unit
			}
		}
	}
	inline, onLines := 0, 0
	for v := range d.root.All() {
		a, ok := v.Value.(*hujson.Array)
		if !ok || len(a.Elements) == 0 || slices.ContainsFunc(a.Elements, isNested) {
			continue
		}
		if bytes.ContainsRune(d.src[v.StartOffset:a.Elements[0].StartOffset], '\n') {
			onLines++
		} else {
			inline++
		}
	}
	s.inlineArrays = inline >= onLines
	return s
}

func isNested(v hujson.Value) bool {
	_, ok := listOf(&v)
	return ok
}

// indentAt returns the white space that starts the line of an offset.
func (d *Doc) indentAt(at int) string {
	line := d.src[bytes.LastIndexByte(d.src[:at], '\n')+1:]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

// indentUnit returns the indentation of the root's members, or two spaces.
func (d *Doc) indentUnit() string {
	root, _ := listOf(&d.root)
	for _, it := range root.items {
		if unit := strings.TrimPrefix(d.indentAt(it.start), d.indentAt(root.open)); unit != "" {
			return unit
		}
	}
	return "  "
}

// encode writes a value whose first line is already indented.
func (s style) encode(value any, indent string) ([]byte, error) {
	if raw, ok := value.(json.RawMessage); ok {
		return raw, nil
	}
	text, err := marshal(value)
	if err != nil {
		return nil, err
	}
	root, err := hujson.Parse(text)
	if err != nil {
		return nil, err
	}
	return s.layOut(nil, &root, indent), nil
}

func (s style) layOut(out []byte, v *hujson.Value, indent string) []byte {
	l, ok := listOf(v)
	if !ok {
		return append(out, v.Value.(hujson.Literal)...)
	}
	brackets, isInline := "[]", s.inlineArrays && !slices.ContainsFunc(l.items, func(it item) bool { return isNested(*it.value) })
	if l.isObject {
		brackets, isInline = "{}", false
	}
	isInline = isInline || !s.multiline || len(l.items) == 0
	out = append(out, brackets[0])
	for i, it := range l.items {
		if i > 0 {
			out = append(out, ',')
		}
		switch {
		case !isInline:
			out = append(out, s.eol+indent+s.unit...)
		case i > 0:
			out = append(out, s.space...)
		}
		if l.isObject {
			name, _ := encodeString(it.key)
			out = append(append(out, name...), s.colon...)
		}
		out = s.layOut(out, it.value, indent+s.unit)
	}
	if !isInline {
		out = append(out, s.eol+indent...)
	}
	return append(out, brackets[1])
}
