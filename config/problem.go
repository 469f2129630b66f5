package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing wrong with a configuration.
type Problem struct {
	// File is the file's path, or the name of an environment variable.
	File string
	// Line is 0 where there is none to name.
	Line int
	// Key is the full path of the key, such as "servers[1].command".
	Key string
	// Text says what is wrong, and never repeats a secret.
	Text string
}

// String prints "file:line: key: text" without the parts that are not known.
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

// Problems is everything wrong with a configuration.
type Problems []Problem

// Error prints one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Err is nil when there is no problem; an empty Problems in an error is not.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// explain says whether p only follows from problems that are known already: with a key that could
// not be read, or with a misspelled one in the same entry of a list, where something then seems
// to be missing.
func (ps Problems) explain(p Problem) bool {
	return slices.ContainsFunc(ps, func(known Problem) bool {
		entry := known.entry()
		return known.Key == p.Key || entry != "" && entry == p.entry()
	})
}

// entry is the list entry that the problem's key is in, "servers[1]" of "servers[1].rpc".
func (p Problem) entry() string { return p.Key[:strings.LastIndexByte(p.Key, ']')+1] }

// Sort orders by file and line, and keeps the order found within a line.
func (ps Problems) Sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
}
