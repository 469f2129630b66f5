package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Problem is one mistake in a configuration.
type Problem struct {
	// File is the file's path, or the name of an environment variable.
	File string
	// Line is 0 if it is not known.
	Line int
	// Key is the full path of the key, such as "servers[1].command".
	Key string
	// Text says what is wrong. It never repeats a secret.
	Text string
}

// String prints "file:line: key: text", without unknown parts.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			b.WriteByte(':')
			b.WriteString(strconv.Itoa(p.Line))
		}
		b.WriteString(": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key)
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Problems are all mistakes in a configuration.
type Problems []Problem

// Error prints one problem per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err returns ps as an error; nil when it is empty.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// explains reports whether p only follows from the problems ps: one with the same key, or a misspelled key
// in the same list entry, which then seems to lack a key.
func (ps Problems) explains(p Problem) bool {
	return slices.ContainsFunc(ps, func(known Problem) bool {
		entry := known.listEntry()
		return known.Key == p.Key || entry != "" && entry == p.listEntry()
	})
}

// listEntry is the list entry of the problem's key: "servers[1]" of "servers[1].rpc".
func (p Problem) listEntry() string { return p.Key[:strings.LastIndexByte(p.Key, ']')+1] }

// Sort orders by file and line, and is stable within a line.
func (ps Problems) Sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
}
