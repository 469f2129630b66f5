package audit

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/internal/secret"
)

const (
	maxText = 256 // bytes of a string in a line, escapes included
	maxURI  = 512 // bytes of a resource
	maxIDs  = 16  // ids in a line
)

// appendEvent appends the members of a line that its event decides, without braces: "time":…,"event":… It has no
// line break.
func appendEvent(dst []byte, e *Event) []byte {
	at := e.Time
	if at.IsZero() {
		at = time.Now()
	}
	dst = append(dst, `"time":"`...)
	dst = at.UTC().AppendFormat(dst, "2006-01-02T15:04:05.000000Z")
	dst = append(dst, '"')
	for _, m := range [...]struct{ key, value string }{
		{"event", e.Kind}, {"stage", e.Stage},
		{"tenant", e.Tenant}, {"subject", e.Subject}, {"issuer", e.Issuer}, {"credential", e.Credential}, {"remote", e.Remote},
		{"method", e.Method}, {"server", e.Server}, {"tool", e.Tool}, {"prompt", e.Prompt}, {"model", e.Model},
		{"decision", e.Decision}, {"rule", e.Rule}, {"reason", e.Reason}, {"outcome", e.Outcome}, {"request", e.Request},
	} {
		if m.value != "" {
			dst = appendText(appendKey(dst, m.key), m.value, maxText)
		}
	}
	if e.Resource != "" {
		dst = appendText(appendKey(dst, "resource"), bareURI(e.Resource), maxURI)
	}
	for _, m := range [...]struct {
		key   string
		value int64
	}{
		{"bytes_in", e.BytesIn}, {"bytes_out", e.BytesOut}, {"chars_cut", e.CharsCut}, {"chars_out", e.CharsOut}, {"count", e.Count}, {"microseconds", e.Duration.Microseconds()},
	} {
		if m.value != 0 {
			dst = strconv.AppendInt(appendKey(dst, m.key), m.value, 10)
		}
	}
	return appendIDs(dst, e.IDs)
}

func appendIDs(dst []byte, ids []string) []byte {
	if len(ids) == 0 {
		return dst
	}
	dst = append(appendKey(dst, "ids"), '[')
	for i, id := range ids[:min(maxIDs, len(ids))] {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendText(dst, id, maxText/4)
	}
	dst = append(dst, ']')
	if more := len(ids) - maxIDs; more > 0 {
		dst = strconv.AppendInt(appendKey(dst, "ids_more"), int64(more), 10)
	}
	return dst
}

func appendKey(dst []byte, key string) []byte {
	dst = append(dst, `,"`...)
	dst = append(dst, key...)
	return append(dst, `":`...)
}

// bareURI is a URI without what may be a secret: user, query and fragment.
func bareURI(uri string) string {
	if i := strings.IndexAny(uri, "?#"); i >= 0 {
		uri = uri[:i]
	}
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return uri
	}
	host, path, hasPath := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		host = host[at+1:]
	}
	if hasPath {
		path = "/" + path
	}
	return scheme + "://" + host + path
}

// appendText appends a JSON string of at most about most bytes. Secrets of the configuration are replaced. Whatever a
// terminal or a reader could take for something else is escaped: control, bidirectional, zero-width and tag characters.
func appendText(dst []byte, s string, most int) []byte {
	dst = append(dst, '"')
	if clean := s[:min(len(s), most)]; isPlain(clean) && len(s) <= most {
		if len(s) >= 8 {
			s = secret.Redact(s)
		}
		if isPlain(s) {
			return append(append(dst, s...), '"')
		}
	}
	if len(s) > 2*most {
		s = secret.RedactPrefix(s[:2*most])
	} else {
		s = secret.Redact(s)
	}
	start := len(dst)
	for i, r := range s {
		if len(dst)-start > most-12 && len(s)-i > utf8.UTFMax { // room for one more escaped character
			dst = append(dst, "…"...)
			break
		}
		dst = appendRune(dst, r)
	}
	return append(dst, '"')
}

// isPlain says that every byte is printable ASCII that JSON does not escape.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func appendRune(dst []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	unit := func(u rune) {
		dst = append(dst, '\\', 'u', hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15])
	}
	switch {
	case r == '"' || r == '\\':
		dst = append(dst, '\\', byte(r))
	case unicode.IsPrint(r) && r != utf8.RuneError:
		dst = utf8.AppendRune(dst, r)
	case r > 0xffff:
		r -= 0x10000
		unit(0xd800 + r>>10)
		unit(0xdc00 + r&0x3ff)
	default:
		unit(r)
	}
	return dst
}
