package secret

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// URL is a URL whose path and query may hold a key. It is written with references in it
// ("https://host/mcp?key=env:NAME", "https://host/${NAME}/mcp", "env:NAME" for all of it), and is a
// plain URL once resolved. Whatever prints it prints its scheme and host only.
type URL string

// Reveal is the URL. Call it where it is used.
func (u URL) Reveal() string { return string(u) }

// Check says what is wrong with the references. The error never repeats the text.
func (u URL) Check() error {
	_, err := u.parts()
	return err
}

// Sample is the URL with x in the place of each reference, to check its form by before it is
// resolved; "" when all of it is a reference, of which nothing can be said yet.
func (u URL) Sample() string {
	parts, err := u.parts()
	if err != nil || len(parts) > 0 && parts[0].kind != literal {
		return ""
	}
	var b strings.Builder
	for _, p := range parts {
		if p.kind == literal {
			b.WriteString(p.text)
		} else {
			b.WriteByte('x')
		}
	}
	return b.String()
}

// Resolve reads what the references name. What stands in a path or a query is escaped for it; a
// reference at the start, and one in the host, is taken as it is.
func (u URL) Resolve(env func(string) (string, bool)) (URL, error) {
	parts, err := u.parts()
	if err != nil {
		return u, err
	}
	var b strings.Builder
	for _, p := range parts {
		v, err := p.resolve(env)
		if err != nil {
			return u, err
		}
		if p.kind == literal {
			b.WriteString(p.text)
			continue
		}
		_, after, absolute := strings.Cut(b.String(), "://")
		switch {
		case strings.Contains(b.String(), "?"):
			Remember(v)
			b.WriteString(url.QueryEscape(v))
		case absolute && strings.Contains(after, "/"):
			Remember(v)
			b.WriteString(strings.ReplaceAll(url.QueryEscape(v), "%2F", "/"))
		case absolute: // the host, which is printed
			b.WriteString(v)
		default:
			Remember(v)
			b.WriteString(v)
		}
	}
	whole := URL(b.String())
	whole.rememberQuery()
	return whole, nil
}

// rememberQuery makes [Redact] look for the values of the query, which may be keys however they were
// written.
func (u URL) rememberQuery() {
	at, err := url.Parse(string(u))
	if err != nil {
		return
	}
	for _, values := range at.Query() {
		Remember(values...)
	}
}

// Source names the references, safe to print.
func (u URL) Source() string { return sources(u.references()) }

// Variables are the environment variables that the URL is made of.
func (u URL) Variables() []string { return variables(u.references()) }

// Files are the files that it is made of.
func (u URL) Files() []string { return files(u.references()) }

func (u URL) references() []part {
	parts, _ := u.parts()
	return parts
}

// parts reads env:NAME where a part of a URL begins, file:PATH as a value of the query, up to & or the
// end, and what stands in braces.
func (u URL) parts() ([]part, error) {
	s := string(u)
	if path, ok := strings.CutPrefix(s, "file:"); ok {
		if path == "" {
			return nil, errFile
		}
		return []part{{kind: file, text: path}}, nil
	}
	return scanParts(s, func(s string, i int) (part, int, error) {
		if rest, ok := strings.CutPrefix(s[i:], "env:"); ok && (i == 0 || strings.IndexByte("/?&=:@,;", s[i-1]) >= 0) {
			name := nameRun.FindString(rest)
			if name == "" {
				return part{}, 0, errVariable
			}
			return part{kind: variable, text: name}, len("env:") + len(name), nil
		}
		if rest, ok := strings.CutPrefix(s[i:], "file:"); ok && i > 0 && s[i-1] == '=' {
			path, _, _ := strings.Cut(rest, "&")
			if path == "" {
				return part{}, 0, errFile
			}
			return part{kind: file, text: path}, len("file:") + len(path), nil
		}
		return part{}, 0, nil
	})
}

// String is the scheme and the host.
func (u URL) String() string {
	if u == "" {
		return ""
	}
	at, err := url.Parse(string(u))
	if err != nil || at.Host == "" {
		return hidden
	}
	shown := at.Scheme + "://" + at.Host
	if at.Path != "" && at.Path != "/" || at.RawQuery != "" {
		shown += "/" + hidden
	}
	return shown
}

// Format hides path and query from every verb.
func (u URL) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(u.String())) }

// LogValue hides path and query from slog.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText hides path and query from encoders.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Bare takes the URL out of an error of net/http or net/url, which repeat it with its query.
func Bare(err error) error {
	told, ok := err.(*url.Error) //nolint:errorlint // both return it bare
	if !ok {
		return err
	}
	return fmt.Errorf("%s %s: %w", strings.ToLower(told.Op), URL(told.URL), told.Err)
}
