package setup

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/config"
)

// newConfig is the beginning of a configuration that init or add makes.
func newConfig(by string) string {
	return `# The MCP servers behind ctxgate. Written by ` + "`" + by + "`" + `; edit it as you like.
#
#   ctxgate check --servers   starts every server and says what it offers
#   ctxgate add, remove       add and remove servers here
#   ctxgate init --undo       puts the files of your clients back as they were
#
# A running gateway reads this file again when it changes. A server gets a few variables
# of the gateway's environment (PATH, HOME and the like) and those of its own "env".
# Credentials are references: "env:NAME" is a variable, "file:PATH" a file.

profile = "agents"   # tool names, limits and markers that suit today's agents
`
}

// editConfig adds the new servers to the configuration.
func (p *Plan) editConfig() (Edit, error) {
	before, err := ReadExisting(p.Config)
	if err != nil {
		return Edit{}, err
	}
	var blocks []string
	for _, s := range p.Servers {
		blocks = append(blocks, s.block(p.vault))
	}
	text := before
	if before == nil {
		text = []byte(newConfig("ctxgate init"))
	}
	edit := Edit{Path: p.Config, Before: before, After: appendBlocks(text, blocks), Mode: 0o600}
	if _, problems := config.LoadBytes(p.Config, edit.After, p.Env); len(problems) > 0 {
		return Edit{}, fmt.Errorf("the new configuration would not be valid:\n%w", problems)
	}
	return edit, nil
}

// block is a server with the comment above it.
func (s *NewServer) block(v *vault) string {
	var b strings.Builder
	b.WriteString("# From " + joinNames(s.From) + ".\n")
	for line := range strings.Lines(s.Comment) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString("# " + hideWords(v.hide(line)) + "\n")
		}
	}
	b.WriteString(s.toml())
	return b.String()
}

// hideWords hides what looks like a credential in a comment.
func hideWords(line string) string {
	words := strings.Fields(line)
	for i, w := range words {
		if looksSecret(strings.Trim(w, `"',;()`)) {
			words[i] = "***"
		}
	}
	return strings.Join(words, " ")
}

// appendBlocks adds blocks to the end of a TOML file, each after a blank line, with the file's line ends.
func appendBlocks(text []byte, blocks []string) []byte {
	lineEnd := "\n"
	if bytes.Contains(text, []byte("\r\n")) {
		lineEnd = "\r\n"
	}
	out := slices.Clone(text)
	if len(out) > 0 && !bytes.HasSuffix(out, []byte("\n")) {
		out = append(out, lineEnd...)
	}
	for _, b := range blocks {
		if len(out) > 0 {
			out = append(out, lineEnd...)
		}
		out = append(out, strings.ReplaceAll(b, "\n", lineEnd)...)
	}
	return out
}
