package secret

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
)

// URL is a URL whose path and query may hold a key. In a config file it may have references
// ("https://host/mcp?key=env:NAME", "https://host/${NAME}/mcp", "env:NAME" for all of it); resolved, it
// is a plain URL. It prints as its scheme and host.
type URL string

// Reveal returns the URL. Call it where the URL is used.
func (u URL) Reveal() string { return string(u) }

// Check says what is wrong with the references. The error does not quote the text.
func (u URL) Check() error {
	_, err := u.parts()
	return err
}

// Sample is the URL with x in the place of each reference, to check its form before it is resolved;
// "" when it begins with a reference, since then the form is not known yet.
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

// Resolve reads the variables and files that the references name. A value in the path or query is
// escaped; one at the start or in the host is not.
func (u URL) Resolve(env func(string) (string, bool)) (URL, error) {
	parts, err := u.parts()
	if err != nil {
		return u, err
	}
	var b strings.Builder
	for _, p := range parts {
		v, err := p.lookUp(env)
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
			Register(v)
			b.WriteString(url.QueryEscape(v))
		case absolute && strings.Contains(after, "/"):
			Register(v)
			b.WriteString(strings.ReplaceAll(url.QueryEscape(v), "%2F", "/"))
		case absolute: // the host, which is printed
			b.WriteString(v)
		default:
			Register(v)
			b.WriteString(v)
		}
	}
	if parsed, err := url.Parse(b.String()); err == nil { // literal values of the query may be keys too
		for _, values := range parsed.Query() {
			Register(values...)
		}
	}
	return URL(b.String()), nil
}

// Source lists the references, safe to print.
func (u URL) Source() string { return sources(u.references()) }

// Variables are the environment variables that the references name.
func (u URL) Variables() []string { return variables(u.references()) }

// Files are the files that the references name.
func (u URL) Files() []string { return files(u.references()) }

func (u URL) references() []part {
	parts, _ := u.parts()
	return parts
}

// parts parses env:NAME where a part of a URL begins, file:PATH as a value of the query, up to & or the
// end, and references in braces.
func (u URL) parts() ([]part, error) {
	s := string(u)
	if path, ok := strings.CutPrefix(s, "file:"); ok {
		if path == "" {
			return nil, errFile
		}
		return []part{{kind: file, text: path, written: s}}, nil
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

// MoveFiles returns the URL with other paths in its references to files.
func (u URL) MoveFiles(move func(path string) string) URL {
	return URL(moveFiles(string(u), u.references(), move))
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

// WithoutURL removes path and query of the URL from an error of net/http or net/url, which quote them.
func WithoutURL(err error) error {
	urlErr, ok := err.(*url.Error) //nolint:errorlint // both return it unwrapped
	if !ok {
		return err
	}
	return fmt.Errorf("%s %s: %w", strings.ToLower(urlErr.Op), URL(urlErr.URL), urlErr.Err)
}
