package mcp

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// HeaderParamPrefix is the prefix of headers that mirror a tool parameter.
const HeaderParamPrefix = "Mcp-Param-"

// The delimiters of an encoded header value (2026-07-28, Streamable HTTP, Value Encoding).
const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

var errHeaderByte = errors.New("a byte that a header value cannot hold")

// EncodeHeader encodes a value for an Mcp-Name or Mcp-Param header: unchanged if a header can hold it,
// else in Base64. An empty value is encoded too, because some peers and proxies drop empty headers.
func EncodeHeader(value string) string {
	plain := value != "" && isHeaderText(value) && strings.Trim(value, " \t") == value
	looksEncoded := strings.HasPrefix(value, encodedPrefix) && strings.HasSuffix(value, encodedSuffix)
	if plain && !looksEncoded {
		return value
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(value)) + encodedSuffix
}

// DecodeHeader decodes a header value. It rejects what two readers could decode differently: bytes that
// are not allowed in a header, Base64 that no encoder writes, and text that is not UTF-8.
func DecodeHeader(s string) (string, error) {
	s = strings.Trim(s, " \t") // not part of the value (RFC 9110, section 5.5)
	if !isHeaderText(s) {
		return "", errHeaderByte
	}
	text, prefixed := strings.CutPrefix(s, encodedPrefix)
	text, encoded := strings.CutSuffix(text, encodedSuffix)
	if !prefixed || !encoded {
		return s, nil
	}
	value, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return "", fmt.Errorf("header value: %w", err)
	}
	if !utf8.Valid(value) {
		return "", errors.New("header value: not UTF-8")
	}
	return string(value), nil
}

// isHeaderText reports whether s contains only visible ASCII, space and tab.
func isHeaderText(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}

const (
	paramKey       = "x-mcp-header"
	maxSchemaDepth = 64
	maxSafeInteger = 1<<53 - 1 // exact in every peer's number type
)

// HeaderParam is a tool parameter that is mirrored into a header.
type HeaderParam struct {
	// Header is the header's name, prefix included.
	Header string
	// Path is the chain of keys to the value in a call's arguments.
	Path []string
}

// HeaderParams reads the x-mcp-header annotations of a tool's inputSchema. The error says which rule
// of 2026-07-28 (Streamable HTTP, Schema Extension) is broken; a client then drops the tool. A schema
// without annotations is not validated.
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
		err = r.readSchema(false)
	}
	if err != nil {
		return nil, fmt.Errorf("inputSchema: %w", err)
	}
	return r.found, nil
}

// paramReader walks a schema that has passed a strict parse.
type paramReader struct {
	data  []byte
	pos   int
	path  []string // the properties that lead to pos
	found []HeaderParam
	names map[string]bool // the annotations' names, in lower case
}

// readSchema reads the schema at pos, or a list of them. An unreachable schema, to which anything but
// properties leads, must have no annotation.
func (r *paramReader) readSchema(unreachable bool) error {
	switch r.skipSpace() {
	case '[':
		return r.eachElement(func() error { return r.readSchema(true) })
	case '{':
	default:
		r.skipValue()
		return nil
	}
	var name, kind []byte
	err := r.eachMember(func(key string) (err error) {
		start := r.pos
		switch key {
		case paramKey:
			name = r.skipValue()
		case "properties":
			err = r.readNamedSchemas(unreachable)
		case "patternProperties", "$defs", "definitions", "dependentSchemas", "dependentRequired", "dependencies":
			err = r.readNamedSchemas(true)
		case "const", "default", "enum", "examples":
			r.skipValue() // values, not schemas: x-mcp-header is an ordinary key there
		default:
			err = r.readSchema(true) // an unknown keyword might hold a schema too
		}
		if key == "type" {
			kind = r.data[start:r.pos]
		}
		return err
	})
	if err != nil || name == nil {
		return err
	}
	if unreachable || len(r.path) == 0 {
		return errUnreachable
	}
	return r.addAnnotation(name, kind)
}

// readNamedSchemas reads an object whose values are schemas and whose keys are free.
func (r *paramReader) readNamedSchemas(unreachable bool) error {
	if r.skipSpace() != '{' {
		return r.readSchema(true)
	}
	return r.eachMember(func(key string) error {
		r.path = append(r.path, key)
		err := r.readSchema(unreachable)
		r.path = r.path[:len(r.path)-1]
		return err
	})
}

var errUnreachable = errors.New(paramKey + " is not on a property, or on one that is not reached through properties alone")

// addAnnotation checks and records the annotation of the property at path.
func (r *paramReader) addAnnotation(raw, kind []byte) error {
	name := jsonscan.DecodeString(raw)
	lower := strings.ToLower(name)
	switch {
	case !isToken(name):
		return r.ruleError(fmt.Sprintf("%.100s is not a header name", raw))
	case r.names[lower]:
		return r.ruleError(fmt.Sprintf("%.100s is used twice", raw))
	case !isMirrored(kind):
		return r.ruleError("the type is not string, integer or boolean")
	}
	r.names[lower] = true
	r.found = append(r.found, HeaderParam{HeaderParamPrefix + name, slices.Clone(r.path)})
	return nil
}

func (r *paramReader) ruleError(rule string) error {
	return fmt.Errorf("property %q: %s: %s", strings.Join(r.path, "."), paramKey, rule)
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
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

// isMirrored reports whether a header can mirror values of a schema's type. The type may include null:
// the rules say how a null is mirrored.
func isMirrored(kind []byte) bool {
	if len(kind) == 0 || kind[0] != '[' {
		return isPrimitive(jsonscan.DecodeString(kind))
	}
	some, others := false, false
	_ = jsonscan.EachElement(kind, jsonscan.Span{End: len(kind)}, func(e jsonscan.Span) error {
		name := jsonscan.DecodeString(e.Of(kind))
		some = some || isPrimitive(name)
		others = others || !isPrimitive(name) && name != "null"
		return nil
	})
	return some && !others
}

// isPrimitive excludes number, as the rules do: peers write fractions differently.
func isPrimitive(name string) bool {
	return name == "string" || name == "integer" || name == "boolean"
}

// eachMember calls each with the keys of the object at pos, while pos is at their values.
func (r *paramReader) eachMember(each func(key string) error) error {
	r.pos++
	for r.skipSpace() != '}' {
		key := jsonscan.DecodeString(r.skipValue())
		r.skipSpace()
		r.pos++ // the colon
		r.skipSpace()
		if err := each(key); err != nil {
			return err
		}
		if r.skipSpace() == ',' {
			r.pos++
		}
	}
	r.pos++
	return nil
}

// eachElement calls each for every element of the array at pos, while pos is at that element.
func (r *paramReader) eachElement(each func() error) error {
	r.pos++
	for r.skipSpace() != ']' {
		if err := each(); err != nil {
			return err
		}
		if r.skipSpace() == ',' {
			r.pos++
		}
	}
	r.pos++
	return nil
}

// skipSpace moves to the next byte that is not white space, and returns it.
func (r *paramReader) skipSpace() byte {
	s := jsonscan.New(r.data[r.pos:], 0)
	c := s.Kind()
	r.pos += s.Pos()
	return c
}

// skipValue moves past the value at pos, and returns its bytes.
func (r *paramReader) skipValue() []byte {
	rest := r.data[r.pos:]
	span, _ := jsonscan.New(rest, 0).Skip() // it was valid before
	r.pos += span.End
	return span.Of(rest)
}

// Value is the text to mirror from a call's arguments, before EncodeHeader. ok is false when the
// arguments have no value at the path, or null. The value's own type counts, not the schema's: whether
// they agree is for the server to check. A value that a header cannot mirror is an error: an object, an
// array, a number that is not an integer or is beyond ±(2⁵³−1).
func (p HeaderParam) Value(arguments []byte) (text string, ok bool, err error) {
	raw, err := p.rawValue(arguments)
	if err != nil {
		return "", false, fmt.Errorf("arguments: %w", err)
	}
	if raw == nil || raw[0] == 'n' {
		return "", false, nil
	}
	if text, ok = mirroredText(raw); !ok {
		return "", false, fmt.Errorf("argument %q has a value that the header %s cannot carry", strings.Join(p.Path, "."), p.Header)
	}
	return text, true, nil
}

// Matches reports whether a call's header mirrors its arguments. A header without a value to mirror does
// not. Integers are compared as numbers.
func (p HeaderParam) Matches(header string, arguments []byte) bool {
	got, err := DecodeHeader(header)
	if err != nil {
		return false
	}
	raw, err := p.rawValue(arguments)
	if err != nil || raw == nil || raw[0] == 'n' {
		return false
	}
	want, ok := mirroredText(raw)
	if ok && isNumber(raw) {
		got, ok = safeInteger([]byte(got))
	}
	return ok && got == want
}

// mirroredText is the text of a string, an integer or a boolean.
func mirroredText(raw []byte) (string, bool) {
	switch raw[0] {
	case '"':
		return jsonscan.DecodeString(raw), true
	case 't', 'f':
		return string(raw), true
	case '{', '[':
		return "", false
	}
	return safeInteger(raw)
}

// rawValue is the raw value at the path; nil when there is none.
func (p HeaderParam) rawValue(arguments []byte) (value []byte, err error) {
	for i, name := range p.Path {
		if i == 0 {
			value = arguments
		}
		if value, err = memberOf(value, name); value == nil || err != nil {
			return nil, err
		}
	}
	return value, nil
}

// memberOf is one value of an object; nil if raw is not an object or lacks it.
func memberOf(raw []byte, name string) (value []byte, err error) {
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

// isNumber reports whether raw is exactly one JSON number.
func isNumber(raw []byte) bool {
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return false
	}
	span, err := jsonscan.New(raw, 0).Skip()
	return err == nil && span.End == len(raw)
}

// safeInteger writes a JSON number in plain digits if it is an integer in the safe range. It works on the
// digits: a float would round a fraction away.
func safeInteger(raw []byte) (string, bool) {
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
