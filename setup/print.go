package setup

import (
	"bytes"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// printer writes to a person, who may see colours.
type printer struct {
	bytes.Buffer
	isColoured bool
}

func (w *printer) bold(s string) string {
	if w.isColoured {
		return "\x1b[1m" + s + "\x1b[0m"
	}
	return s
}

func (w *printer) dim(s string) string {
	if w.isColoured {
		return "\x1b[2m" + s + "\x1b[0m"
	}
	return s
}

func (w *printer) printf(format string, args ...any) { fmt.Fprintf(&w.Buffer, format, args...) }

// Print shows the plan. No credential is part of it.
func (p *Plan) Print(out io.Writer, isColoured bool) error {
	w := &printer{isColoured: isColoured}
	p.printFound(w)
	p.printChanges(w)
	if len(p.Notes) > 0 {
		w.printf("\n%s\n", w.bold("Good to know"))
		for _, note := range p.Notes {
			w.printf("%s", wrap("  - ", note))
		}
	}
	p.printIgnored(w)
	_, err := io.WriteString(out, p.vault.hide(w.String()))
	return err
}

func (p *Plan) printFound(w *printer) {
	count := 0
	for _, f := range p.Files {
		for _, s := range f.Servers {
			if !s.Gateway {
				count++
			}
		}
	}
	where := "your agents"
	if p.Project {
		where = "this project"
	}
	if count == 0 {
		w.printf("No MCP servers found in the files of %s.\n", where)
	} else {
		w.printf("%s\n", w.bold(plural(count, "MCP server")+" of "+where))
	}
	for _, f := range p.Files {
		if f.Err == nil && len(f.Servers) == 0 && !f.Changes {
			continue
		}
		w.printf("\n  %s  %s\n", w.bold(titleOf(f.Client)), w.dim(p.Tilde(f.Path)))
		if f.Err != nil {
			w.printf("%s", wrap("    ", "left alone: "+strings.TrimPrefix(f.Err.Error(), f.Path+": ")))
			continue
		}
		width := 0
		for _, s := range f.Servers {
			width = max(width, min(len([]rune(s.Name)), 24))
		}
		var keeps []string // entries for single directories are only counted
		for _, s := range f.Servers {
			if s.Project != "" && s.Stays != "" {
				keeps = append(keeps, s.Name)
				continue
			}
			w.printf("%s", wrap(fmt.Sprintf("    %-*s  ", width, s.Name), p.describe(s)))
		}
		if len(keeps) > 0 {
			w.printf("%s", wrap("    ", plural(len(keeps), "server")+" for single directories ("+strings.Join(keeps, ", ")+"): left alone"))
		}
	}
}

// describe says in one line what happens to a server.
func (p *Plan) describe(s FoundServer) string {
	switch {
	case s.Gateway:
		return "ctxgate, already connected"
	case s.Stays != "":
		return "left alone: " + s.Stays
	case s.SameAs != "" && p.newServer(s.SameAs) == nil:
		return "already in ctxgate as " + s.SameAs
	case s.SameAs != "":
		return "the same server as " + s.SameAs + " above"
	}
	what := s.URL.String()
	if u, _, ok := strings.Cut(what, "?"); ok {
		what = u + "?…"
	}
	if u, err := url.Parse(what); err == nil && u.User != nil {
		u.User = nil
		what = u.String()
	}
	if s.Transport == clientfile.Stdio {
		words := []string{filepath.Base(s.Command.String())}
		for _, a := range s.Args {
			words = append(words, a.String())
		}
		what = strings.Join(words, " ")
	}
	line := clip(p.vault.hide(what), 60)
	if s.ID != s.Name {
		line += "  → " + s.ID
	}
	if s.Disabled {
		line += "  (disabled)"
	}
	if len(s.Hidden) > 0 {
		names := slices.Compact(slices.Sorted(slices.Values(s.Hidden)))
		line += "  [" + strings.Join(names, ", ") + " → file]"
	}
	return line
}

func (p *Plan) printChanges(w *printer) {
	if len(p.Edits) == 0 {
		return
	}
	w.printf("\n%s\n", w.bold("What will be written"))
	type row struct{ path, what string }
	var rows []row
	secrets := 0
	for _, e := range p.Edits {
		switch {
		case e.Path == p.Config && p.configIsNew && len(p.Servers) == 0:
			rows = append(rows, row{p.Tilde(e.Path), "new, without servers yet"})
		case e.Path == p.Config && p.configIsNew:
			rows = append(rows, row{p.Tilde(e.Path), "new: " + plural(len(p.Servers), "server")})
		case e.Path == p.Config:
			rows = append(rows, row{p.Tilde(e.Path), plural(len(p.Servers), "server") + " added"})
		case e.Client == "":
			secrets++
		default:
			rows = append(rows, row{p.Tilde(e.Path), p.describeEdit(e)})
		}
	}
	if secrets > 0 {
		rows = slices.Insert(rows, 1, row{p.Tilde(p.Secrets) + string(filepath.Separator), plural(secrets, "credential") + ", one per file, readable only by you"})
	}
	width := 0
	for _, r := range rows {
		width = max(width, len([]rune(r.path)))
	}
	for _, r := range rows {
		w.printf("  %-*s  %s\n", min(width, 56), r.path, r.what)
	}
}

func (p *Plan) describeEdit(e Edit) string {
	if slices.Contains(p.rules, e.Path) {
		return "rules for tools, under their new names"
	}
	moved := 0
	for _, f := range p.Files {
		if f.Path == e.Path {
			for _, s := range f.Servers {
				if s.ID != "" {
					moved++
				}
			}
		}
	}
	if moved == 0 && slices.ContainsFunc(p.Files, func(f FoundFile) bool { return f.Path == e.Path && f.hasGateway() }) {
		return "variables for ctxgate"
	}
	if moved == 0 {
		return "ctxgate added"
	}
	return plural(moved, "server") + " replaced by ctxgate"
}

func (p *Plan) printIgnored(w *printer) {
	if len(p.Ignored) == 0 {
		return
	}
	w.printf("\n%s\n", w.bold("Also seen in this project, and left alone"))
	for _, f := range p.Ignored {
		names := []string{}
		for _, s := range f.Servers {
			names = append(names, s.Name)
		}
		w.printf("%s", wrap("  ", fmt.Sprintf("%s (%s): %s", p.relative(f.Path), joinNames(titlesOf(append([]string{f.Client}, f.ReadBy...))), strings.Join(names, ", "))))
	}
	w.printf("  'ctxgate init --project' moves them into ./ctxgate.toml\n")
}

// relative writes a path below the current directory from there.
func (p *Plan) relative(path string) string {
	if rest, err := filepath.Rel(p.Cwd, path); err == nil && filepath.IsLocal(rest) {
		return "." + string(filepath.Separator) + rest
	}
	return p.Tilde(path)
}

// PrintDiff shows the change of every file, without credentials.
func (p *Plan) PrintDiff(out io.Writer) error {
	var b strings.Builder
	for _, e := range p.Edits {
		if e.Path != p.Config && e.Client == "" {
			fmt.Fprintf(&b, "\nnew file %s (mode 0600): a credential\n", e.Path)
			continue
		}
		name := e.Path
		if e.isNew() {
			name = "/dev/null"
		}
		b.WriteString("\n" + hideInDiff(string(diff.Diff(name, e.Before, e.Path, e.After))))
	}
	_, err := io.WriteString(out, p.vault.hide(b.String()))
	return err
}

var keyedText = regexp.MustCompile(`("?)([A-Za-z_][\w.-]*)("?\s*[:=]\s*)("(?:[^"\\]|\\.)*")`)

// hideInDiff hides the values of credentials in the lines around a change: a client's file may hold its own.
func hideInDiff(text string) string {
	return keyedText.ReplaceAllStringFunc(text, func(s string) string {
		m := keyedText.FindStringSubmatch(s)
		value := strings.Trim(m[4], `"`)
		isReference := strings.Contains(value, "${") || strings.HasPrefix(value, "$") || strings.Contains(value, "env:") || strings.Contains(value, "file:")
		if isReference || !isCredential(m[2], value) {
			return s
		}
		return m[1] + m[2] + m[3] + `"***"`
	})
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func clip(s string, limit int) string {
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}

// wrap breaks a text into lines of 88 characters; those after the first are indented as far as the prefix.
func wrap(prefix, text string) string {
	var b strings.Builder
	line := prefix
	indent := strings.Repeat(" ", len([]rune(prefix)))
	isEmpty := true
	for _, word := range strings.Fields(text) {
		if !isEmpty && len([]rune(line))+1+len([]rune(word)) > 88 {
			b.WriteString(line + "\n")
			line, isEmpty = indent, true
		}
		if !isEmpty {
			line += " "
		}
		line, isEmpty = line+word, false
	}
	b.WriteString(line + "\n")
	return b.String()
}

// PrintDone says what to do after the plan was applied.
func (p *Plan) PrintDone(out io.Writer) {
	w := &printer{}
	w.printf("\nDone.")
	seen := map[string]bool{}
	var steps []string
	for _, f := range p.Files {
		if step := f.Reload(); f.Changes && step != "" && !seen[f.Client] {
			seen[f.Client] = true
			steps = append(steps, titleOf(f.Client)+": "+step)
		}
	}
	if len(steps) > 0 {
		w.printf(" For your agents to see it:\n")
		for _, s := range steps {
			w.printf("  - %s\n", s)
		}
	} else {
		w.printf("\n")
	}
	check := "ctxgate check --servers"
	if p.Project {
		check += " --config ctxgate.toml"
	}
	w.printf("\n  %-32s start every server once and see what it offers\n", check)
	w.printf("  %-32s put everything back\n", "ctxgate init --undo")
	_, _ = out.Write(w.Bytes())
}

// Advice says what a user can do when there is nothing to change.
func (p *Plan) Advice() string {
	for _, f := range p.Files {
		if slices.ContainsFunc(f.Servers, func(s FoundServer) bool { return s.Gateway }) {
			return " Your agents are connected; 'ctxgate add NAME -- command…' adds a server."
		}
	}
	return "\n\n  ctxgate add NAME -- command…     add a server\n  ctxgate init --client codex      connect an agent that has no servers yet\n  ctxgate run claude               try ctxgate for one session, without changing any file"
}
