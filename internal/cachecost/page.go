package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The tables stand between these in the page.
const (
	begin = "<!-- what make cachecost prints -->\n"
	end   = "<!-- end -->\n"
)

// split is the page before its tables, these, and what is behind.
func split(path string) (before, tables, after []byte, err error) {
	page, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, nil, err
	}
	before, rest, ok := bytes.Cut(page, []byte(begin))
	tables, after, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		return nil, nil, nil, fmt.Errorf("%s: the marks around the tables are not there", path)
	}
	return before, tables, after, nil
}

// plotOf is where the plot of a page is.
func plotOf(page string) string { return strings.TrimSuffix(page, filepath.Ext(page)) + ".svg" }

// write puts the tables into the page, and the plot beside it.
func write(page, tables string, plot []byte) error {
	before, _, after, err := split(page)
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "%s%s\n%s\n%s%s", before, begin, tables, end, after)
	return errors.Join(os.WriteFile(page, text, 0o644), os.WriteFile(plotOf(page), plot, 0o644))
}

// check says whether the page shows every line of these tables, and the plot is this one.
func check(page, tables string, plot []byte) error {
	_, shown, _, err := split(page)
	if err != nil {
		return err
	}
	drawing, err := os.ReadFile(plotOf(page))
	if err != nil {
		return err
	}
	var problems []error
	for line := range strings.Lines(tables) {
		if strings.HasPrefix(line, "|") && !bytes.Contains(shown, []byte(line)) {
			problems = append(problems, fmt.Errorf("%s does not show %s", page, strings.TrimSpace(line)))
		}
	}
	if !bytes.Equal(drawing, plot) {
		problems = append(problems, fmt.Errorf("%s is not what would be drawn now", plotOf(page)))
	}
	if problems != nil {
		problems = append(problems, errors.New("run it with -write, in full, and commit what it wrote"))
	}
	return errors.Join(problems...)
}
