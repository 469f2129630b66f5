package tomledit

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// encodeKey writes a dotted key.
func encodeKey(parts ...string) []byte {
	var out []string
	for _, p := range parts {
		if !bareKey.MatchString(p) {
			p = quote(p)
		}
		out = append(out, p)
	}
	return []byte(strings.Join(out, "."))
}

// encodeBody writes the keys of a table, one a line.
func encodeBody(object textedit.Object, eol string) ([]byte, error) {
	var out []byte
	for _, m := range object {
		text, err := encodeInline(m.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Key, err)
		}
		out = slices.Concat(out, encodeKey(m.Key), []byte(" = "), text, []byte(eol))
	}
	return out, nil
}

// encodeInline writes a value on one line.
func encodeInline(value any) ([]byte, error) {
	switch v := value.(type) {
	case string:
		return []byte(quote(v)), nil
	case bool:
		return strconv.AppendBool(nil, v), nil
	case int:
		return strconv.AppendInt(nil, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(nil, v, 10), nil
	case float64:
		text := strconv.AppendFloat(nil, v, 'f', -1, 64)
		if !bytes.ContainsRune(text, '.') {
			text = append(text, ".0"...)
		}
		return text, nil
	case time.Duration:
		return []byte(quote(v.String())), nil
	case time.Time:
		return v.AppendFormat(nil, time.RFC3339Nano), nil
	case toml.LocalDate, toml.LocalTime, toml.LocalDateTime:
		return fmt.Append(nil, v), nil
	case []string:
		return encodeInline(textedit.Plain(v))
	case []any:
		var parts [][]byte
		for _, e := range v {
			text, err := encodeInline(e)
			if err != nil {
				return nil, err
			}
			parts = append(parts, text)
		}
		return slices.Concat([]byte("["), bytes.Join(parts, []byte(", ")), []byte("]")), nil
	case textedit.Object:
		if len(v) == 0 {
			return []byte("{}"), nil
		}
		var parts [][]byte
		for _, m := range v {
			text, err := encodeInline(m.Value)
			if err != nil {
				return nil, err
			}
			parts = append(parts, slices.Concat(encodeKey(m.Key), []byte(" = "), text))
		}
		return slices.Concat([]byte("{ "), bytes.Join(parts, []byte(", ")), []byte(" }")), nil
	}
	return nil, fmt.Errorf("a %T cannot be written as TOML", value)
}

// quote writes a string: as a literal if that saves escapes, such as those of Windows paths.
func quote(s string) string {
	if strings.ContainsAny(s, `\"`) && !strings.ContainsFunc(s, func(r rune) bool { return r == '\'' || r < ' ' || r == 0x7f }) && strings.ToValidUTF8(s, "") == s {
		return "'" + s + "'"
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// plainValue returns a value as go-toml decodes it, for comparison.
func plainValue(value any) (any, error) {
	text, err := encodeInline(value)
	if err != nil {
		return nil, err
	}
	model, err := decode(slices.Concat([]byte("v = "), text))
	return model["v"], err
}
