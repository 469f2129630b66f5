package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/jsonscan"
)

const (
	paramKey       = "x-mcp-header"
	maxSchemaDepth = 64
	maxSafeInteger = 1<<53 - 1 // what every peer's numbers can tell apart
)

// HeaderParam is a parameter of a tool that is mirrored into a header.
type HeaderParam struct {
	// Header is the header's name, its prefix included.
	Header string
	// Path leads to the value in a call's arguments: a chain of keys.
	Path []string
}

// HeaderParams reads the x-mcp-header annotations of a tool's inputSchema. The error says which
// rule of 2026-07-28 (Streamable HTTP, Schema Extension) is broken; a client then drops the tool.
// A schema without annotations is not looked at any closer.
func HeaderParams(inputSchema []byte) ([]HeaderParam, error) {
	// A key may also be written with escapes.
	if !bytes.Contains(inputSchema, []byte(paramKey)) && !bytes.Contains(inputSchema, []byte(`\u`)) {
		return nil, nil
	}
	s := jsonscan.New(inputSchema, maxSchemaDepth)
	_, err := s.SkipStrict()
	if err == nil {
		err = s.End()
	}
	r := paramReader{data: inputSchema, names: map[string]bool{}}
	if err == nil {
		err = r.schema(false)
	}
	if err != nil {
		return nil, fmt.Errorf("inputSchema: %w", err)
	}
	return r.found, nil
}

// paramReader walks a schema that has passed a strict parse, once.
type paramReader struct {
	data  []byte
	pos   int
	path  []string // the chain of properties to pos
	found []HeaderParam
	names map[string]bool // the annotations' names, in lower case
}

// schema reads the schema at pos, or a list of them. It is astray when anything but properties
// led here: then it must have no annotation.
func (r *paramReader) schema(astray bool) error {
	switch r.next() {
	case '[':
		return r.array(func() error { return r.schema(true) })
	case '{':
	default:
		r.skip()
		return nil
	}
	var name, kind []byte
	err := r.object(func(key string) (err error) {
		start := r.pos
		switch key {
		case paramKey:
			name = r.skip()
		case "properties":
			err = r.named(astray)
		case "patternProperties", "$defs", "definitions", "dependentSchemas", "dependentRequired", "dependencies":
			err = r.named(true)
		case "const", "default", "enum", "examples":
			r.skip() // arguments, not schemas: a key there is only a key
		default:
			err = r.schema(true) // a word not known here might hold a schema too
		}
		if key == "type" {
			kind = r.data[start:r.pos]
		}
		return err
	})
	if err != nil || name == nil {
		return err
	}
	if astray || len(r.path) == 0 {
		return errAstray
	}
	return r.annotation(name, kind)
}

// named reads schemas that have names, which may be any.
func (r *paramReader) named(astray bool) error {
	if r.next() != '{' {
		return r.schema(true)
	}
	return r.object(func(key string) error {
		r.path = append(r.path, key)
		err := r.schema(astray)
		r.path = r.path[:len(r.path)-1]
		return err
	})
}

var errAstray = errors.New(paramKey + " stands where no property is, or where properties alone do not lead")

// annotation notes the annotation of the property at path.
func (r *paramReader) annotation(raw, kind []byte) error {
	name := jsonscan.TextOf(raw)
	lower := strings.ToLower(name)
	switch {
	case !isToken(name):
		return r.broken(fmt.Sprintf("%.100s is no header name", raw))
	case r.names[lower]:
		return r.broken(fmt.Sprintf("%.100s is there twice", raw))
	case !isMirrored(kind):
		return r.broken("the type is not string, integer or boolean")
	}
	r.names[lower] = true
	r.found = append(r.found, HeaderParam{HeaderParamPrefix + name, slices.Clone(r.path)})
	return nil
}

func (r *paramReader) broken(rule string) error {
	return fmt.Errorf("property %q: %s: %s", strings.Join(r.path, "."), paramKey, rule)
}

// isToken is RFC 9110's token, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		digit := c >= '0' && c <= '9'
		if !letter && !digit && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// isMirrored says whether a schema's type is one whose values a header can mirror. A parameter
// that may also be null is one of them: the rules say what becomes of a null.
func isMirrored(kind []byte) bool {
	if len(kind) == 0 || kind[0] != '[' {
		return isPrimitive(jsonscan.TextOf(kind))
	}
	some, others := false, false
	_ = jsonscan.Elements(kind, jsonscan.Span{End: len(kind)}, func(e jsonscan.Span) error {
		name := jsonscan.TextOf(e.Of(kind))
		some = some || isPrimitive(name)
		others = others || !isPrimitive(name) && name != "null"
		return nil
	})
	return some && !others
}

// isPrimitive leaves number out, as the rules do: no two peers write a fraction the same.
func isPrimitive(name string) bool {
	return name == "string" || name == "integer" || name == "boolean"
}

// object calls each with the keys of the object at pos, and pos at their values.
func (r *paramReader) object(each func(key string) error) error {
	r.pos++
	for r.next() != '}' {
		key := jsonscan.TextOf(r.skip())
		r.next()
		r.pos++ // the colon
		r.next()
		if err := each(key); err != nil {
			return err
		}
		if r.next() == ',' {
			r.pos++
		}
	}
	r.pos++
	return nil
}

// array calls each with pos at every element of the array at pos.
func (r *paramReader) array(each func() error) error {
	r.pos++
	for r.next() != ']' {
		if err := each(); err != nil {
			return err
		}
		if r.next() == ',' {
			r.pos++
		}
	}
	r.pos++
	return nil
}

// next moves to the next byte that is no white space, and is that byte.
func (r *paramReader) next() byte {
	s := jsonscan.New(r.data[r.pos:], 0)
	c := s.Kind()
	r.pos += s.Pos()
	return c
}

// skip passes the value at pos, and is its bytes.
func (r *paramReader) skip() []byte {
	rest := r.data[r.pos:]
	span, _ := jsonscan.New(rest, 0).Skip() // it has passed once before
	r.pos += span.End
	return span.Of(rest)
}

// Value is the text to mirror from a call's arguments, before EncodeHeader. It is not there when
// the arguments have no value at the path, or null. The value's own type counts, not the
// schema's: whether they agree is for the server to say. A value that no header can mirror is an
// error: an object, an array, a number that is no integer or beyond ±(2⁵³−1).
func (p HeaderParam) Value(arguments []byte) (text string, ok bool, err error) {
	raw, err := p.lookup(arguments)
	if err != nil {
		return "", false, fmt.Errorf("arguments: %w", err)
	}
	if raw == nil || raw[0] == 'n' {
		return "", false, nil
	}
	if text, ok = mirror(raw); !ok {
		return "", false, fmt.Errorf("argument %q is nothing that %s can carry", strings.Join(p.Path, "."), p.Header)
	}
	return text, true, nil
}

// Matches says whether a header that came with a call mirrors its arguments. One that has
// nothing to mirror does not. Integers are compared as numbers.
func (p HeaderParam) Matches(header string, arguments []byte) bool {
	got, err := DecodeHeader(header)
	if err != nil {
		return false
	}
	raw, err := p.lookup(arguments)
	if err != nil || raw == nil || raw[0] == 'n' {
		return false
	}
	want, ok := mirror(raw)
	if ok && isNumber(raw) {
		got, ok = integer([]byte(got))
	}
	return ok && got == want
}

// mirror is the text of a string, an integer or a boolean.
func mirror(raw []byte) (string, bool) {
	switch raw[0] {
	case '"':
		return jsonscan.TextOf(raw), true
	case 't', 'f':
		return string(raw), true
	case '{', '[':
		return "", false
	}
	return integer(raw)
}

// lookup is the raw value at the path, nil when there is none.
func (p HeaderParam) lookup(arguments []byte) (value []byte, err error) {
	for i, name := range p.Path {
		if i == 0 {
			value = arguments
		}
		if value, err = member(value, name); value == nil || err != nil {
			return nil, err
		}
	}
	return value, nil
}

// member is one value of an object; what is no object has none.
func member(raw []byte, name string) (value []byte, err error) {
	s := jsonscan.New(raw, 0)
	if s.Kind() != '{' {
		return nil, nil
	}
	err = s.Object(nil, func(key []byte) error {
		if string(key) != name {
			return nil
		}
		span, err := s.Skip()
		value = span.Of(raw)
		return err
	})
	return value, err
}

// isNumber says whether raw is a JSON number, and nothing around it.
func isNumber(raw []byte) bool {
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return false
	}
	span, err := jsonscan.New(raw, 0).Skip()
	return err == nil && span.End == len(raw)
}

// integer is the value of a JSON number in plain digits, when it is an integer in the safe
// range. It is found in the digits: a float would round a fraction away.
func integer(raw []byte) (string, bool) {
	if !isNumber(raw) {
		return "", false
	}
	digits, negative := strings.CutPrefix(string(raw), "-")
	power := 0
	var err error
	if i := strings.IndexAny(digits, "eE"); i >= 0 {
		power, err = strconv.Atoi(digits[i+1:])
		digits = digits[:i]
	}
	if whole, fraction, ok := strings.Cut(digits, "."); ok {
		digits = whole + fraction
		power -= len(fraction)
	}
	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		return "0", true
	}
	tail := len(digits) - len(strings.TrimRight(digits, "0"))
	digits, power = digits[:len(digits)-tail], power+tail
	if err != nil || power < 0 || power > 15 {
		return "", false
	}
	n, err := strconv.ParseInt(digits+strings.Repeat("0", power), 10, 64)
	if err != nil || n > maxSafeInteger {
		return "", false
	}
	if negative {
		n = -n
	}
	return strconv.FormatInt(n, 10), true
}
