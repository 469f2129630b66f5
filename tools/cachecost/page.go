package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The tables are between these marks.
const (
	tablesBegin = "<!-- what make cachecost prints -->\n"
	tablesEnd   = "<!-- end -->\n"
)

// splitPage splits the page into the text before the tables, the tables, and the text after.
func splitPage(path string) (before, tables, after []byte, err error) {
	page, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, nil, err
	}
	before, rest, ok := bytes.Cut(page, []byte(tablesBegin))
	tables, after, closed := bytes.Cut(rest, []byte(tablesEnd))
	if !ok || !closed {
		return nil, nil, nil, fmt.Errorf("%s: the marks around the tables are missing", path)
	}
	return before, tables, after, nil
}

// plotPath is the path of a page's plot.
func plotPath(page string) string { return strings.TrimSuffix(page, filepath.Ext(page)) + ".svg" }

// writePage writes the tables into the page and the plot beside it.
func writePage(page, tables string, plot []byte) error {
	before, _, after, err := splitPage(page)
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, "%s%s\n%s\n%s%s", before, tablesBegin, tables, tablesEnd, after)
	return errors.Join(os.WriteFile(page, text, 0o644), os.WriteFile(plotPath(page), plot, 0o644))
}

// checkPage checks that the page contains every line of the tables and the plot is current.
func checkPage(page, tables string, plot []byte) error {
	_, shown, _, err := splitPage(page)
	if err != nil {
		return err
	}
	drawing, err := os.ReadFile(plotPath(page))
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
		problems = append(problems, fmt.Errorf("%s is out of date", plotPath(page)))
	}
	if problems != nil {
		problems = append(problems, errors.New("run `go run ./tools/cachecost -write` and commit the result"))
	}
	return errors.Join(problems...)
}
