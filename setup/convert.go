package setup

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// converter writes the values of one server in ctxgate's syntax for references, and puts credentials into files.
type converter struct {
	vault *vault
	id    string // of the server, for the names of files
	file  clientfile.File
	home  string

	vars []string // the variables that ctxgate needs to start the server
}

// Pair is a variable or header of an entry.
type Pair struct{ Name, Value string }

// referenceForm is how a place of the config refers to variables and files.
type referenceForm int

const (
	textForm     referenceForm = iota // env and headers: ${NAME}
	argumentForm                      // command: ${env:NAME}
)

var authScheme = regexp.MustCompile(`^(?i:Bearer|Basic|Token) +$`)

// reference writes one part that is not a literal.
func (c *converter) reference(p clientfile.Part, key string, form referenceForm) (string, error) {
	switch p.Kind {
	case clientfile.EnvRef:
		if p.Default != "" && (isCredential(key, p.Default) || strings.Contains(p.Default, "}")) {
			if _, isSet := c.vault.lookup(p.Name); !isSet {
				return c.vault.store(c.id, key, p.Default)
			}
			p.Default = ""
		}
		c.vars = append(c.vars, p.Name)
		name := p.Name
		if form == argumentForm {
			name = "env:" + name
		}
		if p.Default != "" {
			name += ":-" + p.Default
		}
		return "${" + name + "}", nil
	case clientfile.FileContent:
		path := p.Name
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(c.home, rest)
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(c.file.Path), path)
		}
		return "${file:" + path + "}", nil
	case clientfile.SecretRef:
		if value, ok := readDotEnv(c.file.SecretsFile(), p.Name); ok {
			return c.vault.store(c.id, key, value)
		}
		c.vars = append(c.vars, p.Name)
		if form == argumentForm {
			return "${env:" + p.Name + "}", nil
		}
		return "${" + p.Name + "}", nil
	}
	return "", fmt.Errorf("it needs %s, which only the client knows", p.Text)
}

// text writes the value of a variable or header.
func (c *converter) text(key string, v clientfile.Value, isHeader bool) (string, error) {
	if v.IsLiteral() {
		return c.literalText(key, v.String(), isHeader)
	}
	var b strings.Builder
	for i, p := range v.Parts {
		if p.Kind == clientfile.Literal {
			// A scheme before a reference is not a credential; any other text may be part of one.
			if i == 0 && authScheme.MatchString(p.Text) || !looksSecret(p.Text) {
				b.WriteString(strings.ReplaceAll(p.Text, "${", "$${"))
				continue
			}
			ref, err := c.vault.store(c.id, key, p.Text)
			if err != nil {
				return "", err
			}
			b.WriteString(ref)
			continue
		}
		ref, err := c.reference(p, key, textForm)
		if err != nil {
			return "", err
		}
		b.WriteString(ref)
	}
	out := shortForm(b.String())
	if _, err := secret.ParseTemplate(out); err != nil {
		return "", errors.New("ctxgate's configuration cannot express its value of " + key)
	}
	return out, nil
}

var (
	wholeEnv   = regexp.MustCompile(`^((?i:Bearer|Basic|Token) +)?\$\{([A-Za-z_][A-Za-z0-9_]*)\}$`)
	wholeFile  = regexp.MustCompile(`^((?i:Bearer|Basic|Token) +)?\$\{(file:[^}]+)\}$`)
	literalEnv = regexp.MustCompile(`(^|[ \t])env:`)
)

// shortForm writes a text that is one reference, perhaps after a scheme, without braces.
func shortForm(s string) string {
	if m := wholeEnv.FindStringSubmatch(s); m != nil {
		return m[1] + "env:" + m[2]
	}
	if m := wholeFile.FindStringSubmatch(s); m != nil {
		return m[1] + m[2]
	}
	return s
}

// literalText writes a text without references. A credential goes into a file, and so does what would be read as a
// reference.
func (c *converter) literalText(key, s string, isHeader bool) (string, error) {
	mustHide := isCredential(key, s) || isHeader && isCredentialHeader(key)
	if !mustHide && !strings.HasPrefix(s, "file:") && !literalEnv.MatchString(s) {
		out := strings.ReplaceAll(s, "${", "$${")
		if t, err := secret.ParseTemplate(out); err == nil && t.Reveal() == s {
			return out, nil
		}
	}
	scheme, rest := "", s
	if before, after, ok := strings.Cut(s, " "); isHeader && ok && authScheme.MatchString(before+" ") {
		scheme, rest = before+" ", strings.TrimLeft(after, " ")
	}
	if strings.TrimSpace(rest) == "" {
		return "", nil
	}
	ref, err := c.vault.store(c.id, key, rest)
	return shortForm(scheme + ref), err
}

// isCredentialHeader reports whether config refuses a literal value of a header.
func isCredentialHeader(name string) bool {
	return slices.Contains([]string{"authorization", "proxy-authorization", "cookie", "x-api-key"}, strings.ToLower(name))
}

var (
	assignment = regexp.MustCompile(`^(--?[A-Za-z][\w-]*|[A-Za-z_][\w-]*)=`)
	headerLine = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*: *`)
	httpURL    = regexp.MustCompile(`^https?://`)
)

// argument writes a word of a command; before is the word before it, which may be the option that it belongs to.
func (c *converter) argument(before string, v clientfile.Value) (string, error) {
	if v.IsLiteral() {
		return c.literalArgument(before, v.String())
	}
	var b strings.Builder
	for _, p := range v.Parts {
		out := p.Text
		var err error
		if p.Kind != clientfile.Literal {
			out, err = c.reference(p, optionName(before, v.String()), argumentForm)
		} else if strings.Contains(p.Text, "${env:") || strings.Contains(p.Text, "${file:") {
			out, err = c.vault.store(c.id, "arg", p.Text)
		}
		if err != nil {
			return "", err
		}
		b.WriteString(out)
	}
	return b.String(), nil
}

func (c *converter) literalArgument(before, s string) (string, error) {
	prefix := ""
	if m := assignment.FindString(s); m != "" {
		prefix = m
	} else if m := headerLine.FindString(s); m != "" {
		prefix = m
	}
	name, value := optionName(before, s), s[len(prefix):]
	switch {
	case strings.Contains(s, "${env:") || strings.Contains(s, "${file:"): // would be read as references
		return c.vault.store(c.id, "arg", s)
	case prefix != "" && isCredential(name, value), prefix == "" && isOptionValue(before, s) && isCredential(name, s):
		ref, err := c.vault.store(c.id, name, value)
		return prefix + ref, err
	case httpURL.MatchString(s):
		out, err := c.hideInURL(s, false)
		return out, err
	case looksSecret(value):
		ref, err := c.vault.store(c.id, name, value)
		return prefix + ref, err
	}
	return s, nil
}

// optionName is the name of what an argument sets: of --api-key=x, "Authorization: x", NAME=x, or the option before it.
func optionName(before, s string) string {
	if m := assignment.FindString(s); m != "" {
		return strings.TrimLeft(strings.TrimSuffix(m, "="), "-")
	}
	if m := headerLine.FindString(s); m != "" {
		return strings.TrimRight(m, ": ")
	}
	if strings.HasPrefix(before, "-") {
		return strings.TrimLeft(before, "-")
	}
	return "arg"
}

func isOptionValue(before, s string) bool {
	return strings.HasPrefix(before, "--") && !strings.Contains(before, "=") && !strings.HasPrefix(s, "-")
}

// address writes a URL. Credentials before the host become a header, which is returned.
func (c *converter) address(v clientfile.Value) (text string, header *Pair, err error) {
	var b strings.Builder
	for _, p := range v.Parts {
		if p.Kind == clientfile.Literal {
			b.WriteString(p.Text)
			continue
		}
		ref, err := c.reference(p, "url", textForm)
		if err != nil {
			return "", nil, err
		}
		b.WriteString(ref)
	}
	text, _, _ = strings.Cut(b.String(), "#")
	if parsed, err := url.Parse(text); err == nil && v.IsLiteral() {
		if parsed.Scheme != "http" && parsed.Scheme != "https" {
			return "", nil, fmt.Errorf("its address is not one of http or https")
		}
		if user := parsed.User; user != nil {
			password, _ := user.Password()
			written, _, _ := strings.Cut(text, "@")
			c.vault.conceal(written[strings.Index(written, "://")+3:])
			c.vault.conceal(password)
			ref, err := c.vault.store(c.id, "Authorization", base64.StdEncoding.EncodeToString([]byte(user.Username()+":"+password)))
			if err != nil {
				return "", nil, err
			}
			header = &Pair{"Authorization", shortForm("Basic " + ref)}
			before, after, _ := strings.Cut(text, "@")
			text = before[:strings.Index(before, "://")+3] + after
		}
	}
	if text, err = c.hideInURL(shortForm(text), true); err != nil {
		return "", nil, err
	}
	if err := secret.URL(text).Check(); err != nil {
		return "", nil, errors.New("ctxgate's configuration cannot express its address")
	}
	return text, header, nil
}

// hideInURL puts credentials in the query and path of a URL into files. What is stored is decoded if the config encodes
// it again.
func (c *converter) hideInURL(text string, isDecoded bool) (string, error) {
	base, query, hasQuery := strings.Cut(text, "?")
	hide := func(key, value string) (string, error) {
		plain, err := url.QueryUnescape(value)
		if err != nil || !isDecoded {
			plain = value
		}
		return c.vault.store(c.id, key, plain)
	}
	segments := strings.Split(base, "/")
	for i := 3; i < len(segments); i++ {
		if s := segments[i]; !strings.Contains(s, "${") && looksSecret(s) {
			ref, err := hide("url", s)
			if err != nil {
				return "", err
			}
			segments[i] = ref
		}
	}
	text = strings.Join(segments, "/")
	if !hasQuery {
		return text, nil
	}
	params := strings.Split(query, "&")
	for i, p := range params {
		key, value, _ := strings.Cut(p, "=")
		plain, err := url.QueryUnescape(value)
		if err != nil || strings.Contains(value, "${") || strings.HasPrefix(value, "env:") || !isCredential(key, plain) {
			continue
		}
		ref, err := hide(key, value)
		if err != nil {
			return "", err
		}
		params[i] = key + "=" + ref
	}
	return text + "?" + strings.Join(params, "&"), nil
}

// readDotEnv reads one variable of a .env file.
func readDotEnv(path, name string) (string, bool) {
	if path == "" {
		return "", false
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(data)) {
		key, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if !ok || strings.TrimSpace(key) != name {
			continue
		}
		value = strings.TrimSpace(value)
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			value = value[1 : n-1]
		}
		return value, value != ""
	}
	return "", false
}

// vault is the directory of files that hold one credential each, readable by the user alone.
type vault struct {
	dir    string
	config string // the file that refers to them
	home   string
	lookup func(string) (string, bool)

	files  map[string]string // the content of new files, by path
	values []string          // every credential that was seen, to keep it out of what is printed
	names  []string          // what each of them is called
}

func newVault(configFile, dir, home string, env config.Env) *vault {
	return &vault{dir: dir, config: configFile, home: home, lookup: env.Lookup, files: map[string]string{}}
}

// reference is how the configuration names a file: from its own directory or from the user's home, so that both can move.
func (v *vault) reference(path string) string {
	if rest, err := filepath.Rel(filepath.Dir(v.config), path); err == nil && filepath.IsLocal(rest) {
		return "${file:" + filepath.ToSlash(rest) + "}"
	}
	if rest, err := filepath.Rel(v.home, path); err == nil && filepath.IsLocal(rest) {
		return "${file:~/" + filepath.ToSlash(rest) + "}"
	}
	return "${file:" + path + "}"
}

// copy returns a vault to try something with.
func (v *vault) copy() *vault {
	out := *v
	out.files, out.values, out.names = maps.Clone(v.files), slices.Clone(v.values), slices.Clone(v.names)
	return &out
}

var fileNamePart = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// store puts a value into a file and returns the reference to it. The same value of a server is stored once.
func (v *vault) store(id, key, value string) (string, error) {
	v.conceal(value)
	v.names = append(v.names, key)
	if v.dir == "" {
		return "", errors.New("there is no home directory for the file of a credential; write env:NAME instead")
	}
	name := id + "." + strings.Trim(fileNamePart.ReplaceAllString(key, "-"), "-.")
	for i := 1; i < 1000; i++ {
		path := filepath.Join(v.dir, name)
		if i > 1 {
			path += "-" + strconv.Itoa(i)
		}
		held, isNew := v.files[path]
		if !isNew {
			data, err := ReadExisting(path)
			if err != nil {
				return "", err
			}
			if data == nil {
				v.files[path] = value
				return v.reference(path), nil
			}
			held = strings.TrimSuffix(string(data), "\n")
		}
		if held == value {
			return v.reference(path), nil
		}
	}
	return "", fmt.Errorf("%s has too many files named %s", v.dir, name)
}

// conceal keeps a text out of what is printed.
func (v *vault) conceal(value string) { v.values = append(v.values, value) }

// edits are the files to write, in a fixed order.
func (v *vault) edits() []Edit {
	var out []Edit
	for path, value := range v.files {
		out = append(out, Edit{Path: path, After: []byte(value + "\n"), Mode: 0o600})
	}
	slices.SortFunc(out, func(a, b Edit) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// hide replaces every credential that was seen in a text by ***.
func (v *vault) hide(text string) string {
	values := slices.Clone(v.values)
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	for _, value := range values {
		if len(value) >= 4 {
			text = strings.ReplaceAll(text, value, "***")
		}
	}
	return text
}
