package recordings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
)

// Redactor replaces what differs between two recordings of an agent. It numbers ids in the order in which it meets
// them.
type Redactor struct {
	// Texts are replaced in this order: paths, the date of the recording.
	Texts [][2]string
	ids   map[string]string
}

var (
	uuid      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	longHex   = regexp.MustCompile(`\b[0-9a-f]{24,}\b`)
	epoch     = regexp.MustCompile(`\b1[6-9][0-9]{8}(?:[0-9]{3})?(?:\.[0-9]+)?\b`)
	loopback  = regexp.MustCompile(`(127\.0\.0\.1|localhost):[0-9]+`)
	clock     = regexp.MustCompile(`(` + Date + `)T[0-9:.]+Z?`)
	wallTime  = regexp.MustCompile(`Wall time: [0-9.]+`)
	tokens    = regexp.MustCompile(`<total_tokens>[0-9]+`)
	kernel    = regexp.MustCompile(`Linux [0-9]+\.[0-9][^ \n"\\]*`)
	sessionID = regexp.MustCompile(`\b(ses|msg|prt|run|conv|task|session)_[0-9A-Za-z]{10,}`)
	pruneID   = regexp.MustCompile(`prn_[0-9a-z]{26}`)
)

// Date is the date of every recording.
const Date = "2026-01-02"

// keptText is in texts of our own, which stay readable.
const keptText = "a line of the log"

// maxPlain is the longest text whose letters stay.
const maxPlain = 160

// Request redacts a request. Headers that say nothing about the agent go.
func (r *Redactor) Request(in Request) Request {
	out := Request{Method: in.Method, Path: r.text(in.Path), Header: http.Header{}}
	for name, values := range in.Header {
		switch name {
		case "Host", "Content-Length", "Connection", "Accept-Encoding", "X-Forwarded-For":
			continue
		case "Authorization":
			out.Header.Set(name, "Bearer KEY")
			continue
		case "X-Api-Key", "X-Goog-Api-Key":
			out.Header.Set(name, "KEY")
			continue
		case "Mcp-Session-Id":
			out.Header.Set(name, SessionID)
			continue
		}
		for _, value := range values {
			out.Header.Add(name, r.text(value))
		}
	}
	out.Body = string(r.JSON([]byte(in.Body)))
	return out
}

// JSON redacts the strings and numbers of a JSON text and changes nothing else. What is not JSON is redacted as text.
func (r *Redactor) JSON(body []byte) []byte {
	d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true))
	var out []byte
	copied := 0
	for {
		isName := false
		if kind, n := d.StackIndex(d.StackDepth()); kind == '{' && n%2 == 0 {
			isName = true
		}
		tok, err := d.ReadToken()
		if err != nil {
			break
		}
		end := int(d.InputOffset())
		var value []byte
		switch kind := tok.Kind(); {
		case kind == '"' && !isName:
			value = r.jsonString(tok.String())
		case kind == '0':
			raw := tok.String()
			if clean := epoch.ReplaceAllStringFunc(raw, zeroTime); clean != raw {
				value = []byte(clean)
			}
		}
		if value == nil {
			continue
		}
		start := valueStart(body, copied, end, tok.Kind())
		out = append(append(out, body[copied:start]...), value...)
		copied = end
	}
	if copied == 0 && !json.Valid(body) {
		return []byte(r.text(string(body)))
	}
	return append(out, body[copied:]...)
}

// valueStart finds where the token that ends at end begins.
func valueStart(body []byte, from, end int, kind jsontext.Kind) int {
	i := end - 1
	if kind == '"' {
		for i--; i >= from; i-- {
			if body[i] != '"' {
				continue
			}
			slashes := 0
			for j := i - 1; j >= from && body[j] == '\\'; j-- {
				slashes++
			}
			if slashes%2 == 0 {
				return i
			}
		}
		return i
	}
	for i > from && strings.IndexByte("0123456789+-.eE", body[i-1]) >= 0 {
		i--
	}
	return i
}

// jsonString is a redacted string in JSON; nil if nothing changes.
func (r *Redactor) jsonString(text string) []byte {
	var clean string
	switch trimmed := strings.TrimSpace(text); {
	case (strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[")) && json.Valid([]byte(text)):
		clean = string(r.JSON([]byte(text)))
	default:
		clean = r.text(text)
		if len(clean) > maxPlain && !strings.Contains(clean, keptText) {
			clean = maskLetters(clean)
		}
	}
	if clean == text {
		return nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(clean) // a string always encodes
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// text redacts ids, times and paths.
func (r *Redactor) text(text string) string {
	for _, p := range r.Texts {
		text = strings.ReplaceAll(text, p[0], p[1])
	}
	number := func(format string) func(string) string {
		return func(id string) string { return r.number(id, format) }
	}
	text = uuid.ReplaceAllStringFunc(text, number("00000000-0000-4000-8000-%012d"))
	text = longHex.ReplaceAllStringFunc(text, number("%032d"))
	text = pruneID.ReplaceAllStringFunc(text, number("prn_%026d"))
	text = sessionID.ReplaceAllStringFunc(text, func(id string) string {
		kind, _, _ := strings.Cut(id, "_")
		return r.number(id, kind+"_%016d")
	})
	text = epoch.ReplaceAllStringFunc(text, zeroTime)
	text = loopback.ReplaceAllString(text, "$1:1")
	text = clock.ReplaceAllString(text, "${1}T00:00:00Z")
	text = wallTime.ReplaceAllString(text, "Wall time: 0.0000")
	text = tokens.ReplaceAllString(text, "<total_tokens>10000000")
	return kernel.ReplaceAllString(text, "Linux 0.0.0")
}

// number replaces an id by its number.
func (r *Redactor) number(id, format string) string {
	if r.ids == nil {
		r.ids = map[string]string{}
	}
	if r.ids[id] == "" {
		r.ids[id] = fmt.Sprintf(format, len(r.ids)+1)
	}
	return r.ids[id]
}

// zeroTime keeps the length of the whole seconds or milliseconds.
func zeroTime(at string) string {
	whole, _, _ := strings.Cut(at, ".")
	return "16" + strings.Repeat("0", len(whole)-2)
}

// maskLetters replaces letters and digits, so that a text keeps its shape and says nothing.
func maskLetters(text string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z':
			return 'x'
		case c >= 'A' && c <= 'Z':
			return 'X'
		case c >= '0' && c <= '9':
			return '0'
		case c > unicode.MaxASCII && unicode.IsLetter(c):
			return 'é'
		}
		return c
	}, text)
}
