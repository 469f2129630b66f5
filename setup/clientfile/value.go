package clientfile

import (
	"path/filepath"
	"regexp"
	"strings"
)

// Value is a text as a client's file has it, split at its references.
type Value struct {
	Text  string // as written
	Parts []Part
}

// Part is a piece of a value.
type Part struct {
	Kind    PartKind
	Text    string // as written; of a literal, its text
	Name    string // of a variable, input or secret; of a file, its path
	Default string // for a variable that is not set
}

// PartKind says what a part is.
type PartKind string

// The kinds of parts.
const (
	Literal     PartKind = "literal"
	EnvRef      PartKind = "env"    // a variable of the environment
	FileContent PartKind = "file"   // what a file contains
	SecretRef   PartKind = "secret" // a secret in the client's own .env file (Continue)
	ClientRef   PartKind = "client" // something that only the client knows: an input, the open folder
)

// IsLiteral says that a value has no references.
func (v Value) IsLiteral() bool {
	for _, p := range v.Parts {
		if p.Kind != Literal {
			return false
		}
	}
	return true
}

// String returns the text as written, with what is known of the user's and project's directories filled in.
func (v Value) String() string {
	var b strings.Builder
	for _, p := range v.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// EnvNames returns the variables that a value refers to.
func (v Value) EnvNames() []string {
	var names []string
	for _, p := range v.Parts {
		if p.Kind == EnvRef {
			names = append(names, p.Name)
		}
	}
	return names
}

// field is a part of an entry that may have references.
type field int

const (
	inCommand field = 1 << iota // command, args, cwd
	inEnv
	inURL
	inHeaders
	everywhere = inCommand | inEnv | inURL | inHeaders
)

// dialect is a client's syntax for references.
type dialect struct {
	in      field
	pattern *regexp.Regexp
	part    func(m []string) Part // of the pattern's groups; Kind "" = a literal after all
}

const envName = `[A-Za-z_][A-Za-z0-9_]*`

func envPart(m []string) Part {
	p := Part{Kind: EnvRef}
	for _, g := range m[1:] {
		if def, ok := strings.CutPrefix(g, ":-"); ok {
			p.Default = def
		} else if g != "" {
			p.Name = g
		}
	}
	return p
}

// editorPart reads ${kind:name} of VS Code and its relatives.
func editorPart(m []string) Part {
	kind, name, hasKind := strings.Cut(m[1], ":")
	switch {
	case hasKind && kind == "env":
		return Part{Kind: EnvRef, Name: name}
	case hasKind && kind == "file":
		return Part{Kind: FileContent, Name: name}
	}
	return Part{Kind: ClientRef, Name: m[1]}
}

var (
	noRefs = dialect{}

	// ${VAR} and ${VAR:-default}.
	claudeRefs = dialect{everywhere, regexp.MustCompile(`\$\{(` + envName + `)(:-[^}]*)?\}`), envPart}

	// ${env:VAR}, ${userHome}, ${workspaceFolder}, ${input:id} …
	editorRefs = dialect{everywhere, regexp.MustCompile(`\$\{([A-Za-z/][^{}]*)\}`), editorPart}

	// ${env:VAR} and ${file:/path} only: any other ${…} is text.
	windsurfRefs = dialect{everywhere, regexp.MustCompile(`\$\{((?:env|file):[^{}]+)\}`), editorPart}

	// ${env:VAR} only.
	clineRefs = dialect{everywhere, regexp.MustCompile(`\$\{(env:[^{}]+)\}`), editorPart}

	// $VAR, ${VAR} and ${VAR:-default}.
	shellRefs = dialect{everywhere, regexp.MustCompile(`\$(?:(` + envName + `)|\{(` + envName + `)(:-[^}]*)?\})`), envPart}

	// and %VAR%, on Windows.
	windowsShellRefs = dialect{everywhere, regexp.MustCompile(`\$(?:(` + envName + `)|\{(` + envName + `)(:-[^}]*)?\})|%(` + envName + `)%`), envPart}

	// {env:VAR} and {file:path}, without a dollar.
	opencodeRefs = dialect{everywhere, regexp.MustCompile(`\{((?:env|file):[^{}]+)\}`), editorPart}

	// ${{ secrets.NAME }}; inputs are those of a block, which only Continue knows.
	continueRefs = dialect{everywhere, regexp.MustCompile(`\$\{\{\s*([^{}]*?)\s*\}\}`), func(m []string) Part {
		if name, ok := strings.CutPrefix(m[1], "secrets."); ok {
			return Part{Kind: SecretRef, Name: name}
		}
		return Part{Kind: ClientRef, Name: m[1]}
	}}
)

// dialectOf returns a client's dialect.
func dialectOf(client, goos string) dialect {
	switch client {
	case "claude-code":
		return claudeRefs
	case "cursor", "vscode":
		return editorRefs
	case "cline":
		return clineRefs
	case "windsurf":
		return windsurfRefs
	case "continue":
		return continueRefs
	case "opencode":
		return opencodeRefs
	case "gemini", "qwen":
		if goos == "windows" {
			return windowsShellRefs
		}
		return shellRefs
	case "copilot":
		d := shellRefs
		d.in = inEnv | inHeaders
		return d
	case "goose":
		d := shellRefs
		d.in = inURL | inHeaders
		return d
	}
	return noRefs // claude-desktop, codex, zed: the text reaches the server as it is
}

// valueOf splits a text in the file's dialect. Directories that are known here become literals.
func (f File) valueOf(text string, in field) Value {
	v := Value{Text: text}
	if text == "" {
		return v
	}
	d := dialectOf(f.Client, f.env.GOOS)
	if d.in&in == 0 {
		v.Parts = []Part{{Kind: Literal, Text: text}}
		return v
	}
	at := 0
	literal := func(s string) {
		if n := len(v.Parts); n > 0 && v.Parts[n-1].Kind == Literal {
			v.Parts[n-1].Text += s
		} else if s != "" {
			v.Parts = append(v.Parts, Part{Kind: Literal, Text: s})
		}
	}
	for _, loc := range d.pattern.FindAllStringSubmatchIndex(text, -1) {
		groups := make([]string, 0, len(loc)/2)
		for i := 0; i < len(loc); i += 2 {
			if loc[i] < 0 {
				groups = append(groups, "")
			} else {
				groups = append(groups, text[loc[i]:loc[i+1]])
			}
		}
		literal(text[at:loc[0]])
		at = loc[1]
		p := d.part(groups)
		p.Text = groups[0]
		if known, ok := f.known(p); ok {
			literal(known)
		} else {
			v.Parts = append(v.Parts, p)
		}
	}
	literal(text[at:])
	return v
}

// known returns the directory that a client's variable stands for.
func (f File) known(p Part) (string, bool) {
	if p.Kind != ClientRef {
		return "", false
	}
	switch p.Name {
	case "userHome":
		return f.env.Home, f.env.Home != ""
	case "workspaceFolder", "workspaceRoot":
		return f.root, f.root != ""
	case "workspaceFolderBasename":
		return filepath.Base(f.root), f.root != ""
	case "pathSeparator", "/":
		if f.env.GOOS == "windows" {
			return `\`, true
		}
		return "/", true
	}
	return "", false
}
