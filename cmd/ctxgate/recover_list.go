package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/internal/linesearch"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/recall"
)

const (
	maxListLimit   = 100_000
	maxSearchBytes = 1 << 30 // of originals that one --grep reads
	terminalWidth  = 80      // of a list for people
)

func (f recoverFlags) listRequest(now time.Time) (req recall.ListRequest, err error) {
	req = recall.ListRequest{Limit: f.limit, CallID: f.call, MaxBytes: maxSearchBytes}
	if f.limit < 1 || f.limit > maxListLimit {
		return req, fmt.Errorf("--limit: from 1 to %d", maxListLimit)
	}
	if f.since != "" {
		if req.Since, err = parseSince(f.since, now); err != nil {
			return req, err
		}
	}
	if f.list && f.grep != "" {
		if req.Pattern, err = linesearch.Compile(f.grep); err != nil {
			return req, fmt.Errorf("--grep: %w", err)
		}
	}
	return req, nil
}

// parseSince reads how long ago something was, or a local date and time.
func parseSince(text string, now time.Time) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05", time.DateTime} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return t, nil
		}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	ago, err := unit.ParseDuration(text)
	if err != nil || ago <= 0 {
		return time.Time{}, fmt.Errorf("--since: %q is not a duration such as 30m, 2h or 7d, nor a date such as 2026-11-16 or 2026-11-16T14:00", text)
	}
	return now.Add(-ago.D()), nil
}

// findCall returns the id of the one original of a call. If there are several, it lists them on stderr.
func (f recoverFlags) findCall(cmd *cobra.Command, r *recall.Recall, req recall.ListRequest) (string, error) {
	list, err := r.List(cmd.Context(), f.tenant, req)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, e := range list.Originals {
		if !slices.Contains(ids, e.ID) {
			ids = append(ids, e.ID)
		}
	}
	switch len(ids) {
	case 1:
		return ids[0], nil
	case 0:
		return "", &exitError{exitUnknown, fmt.Errorf("nothing is stored for the call %q: it was never cut, it has expired, or an earlier version stored it; 'ctxgate recover --list' lists what there is", f.call)}
	}
	writeList(cmd.ErrOrStderr(), list, time.Now())
	return "", fmt.Errorf("the call %q has %d originals: print one with 'ctxgate recover ID'", f.call, len(ids))
}

func (f recoverFlags) printList(cmd *cobra.Command, r *recall.Recall, req recall.ListRequest) error {
	list, err := r.List(cmd.Context(), f.tenant, req)
	if err != nil {
		return err
	}
	if f.json {
		out := json.NewEncoder(cmd.OutOrStdout())
		out.SetEscapeHTML(false)
		for _, e := range list.Originals {
			if err := out.Encode(newListedJSON(e)); err != nil {
				return err
			}
		}
	} else {
		writeList(cmd.OutOrStdout(), list, time.Now())
	}
	switch note := cmd.ErrOrStderr(); {
	case list.Stopped:
		fmt.Fprintf(note, "The search stopped after %s of text; what is older was not searched. Narrow it with --since or --call.\n", unit.Bytes(list.Searched))
	case list.More:
		fmt.Fprintf(note, "There is more: --limit %d shows more of it, --since, --call and --grep narrow the list.\n", min(10*f.limit, maxListLimit))
	case len(list.Originals) == 0 && f.call == "" && f.grep == "" && f.since == "":
		fmt.Fprintln(note, "Nothing is stored: no text was cut yet, or all of it has expired.")
	case len(list.Originals) == 0:
		fmt.Fprintln(note, "Nothing that is stored matches.")
	}
	return nil
}

// listedJSON is an original in the list of --json.
type listedJSON struct {
	ID       string    `json:"id"`
	CutAt    time.Time `json:"cut_at,omitzero"` // unknown for what an earlier version stored
	LastUsed time.Time `json:"last_used,omitzero"`
	Chars    int64     `json:"chars"`
	Bytes    int64     `json:"bytes"`
	Server   string    `json:"server"`
	Tool     string    `json:"tool,omitempty"`
	CallID   string    `json:"tool_call_id,omitempty"`
	Line     int       `json:"line"`
	Text     string    `json:"text"`
}

func newListedJSON(e recall.Listed) listedJSON {
	return listedJSON{e.ID, e.Call.At.UTC(), e.LastUsed.UTC(), e.Chars, e.Bytes, e.Call.Server, e.Call.Tool, e.Call.ID, e.Line, e.Text}
}

// writeList writes two lines for each original, within the width of a terminal.
func writeList(w io.Writer, list recall.List, now time.Time) {
	for _, e := range list.Originals {
		when := shortTime(e.Call.At, now)
		if e.Call.At.IsZero() {
			when = "≤ " + shortTime(e.LastUsed, now) // when it was cut is not known, only when it was used
		}
		origin := e.Call.Server
		if e.Call.Tool != "" {
			origin += "/" + e.Call.Tool
		}
		fmt.Fprintln(w, fitColumns(fmt.Sprintf("%s  %-12s %11s  %s", e.ID, when, groupDigits(e.Chars), printable(origin)), terminalWidth))
		detail := printable(e.Text)
		if e.Line > 1 {
			detail = fmt.Sprintf("%d: %s", e.Line, detail)
		}
		if e.Call.ID != "" {
			detail = printable(e.Call.ID) + "  " + detail
		}
		if detail != "" {
			fmt.Fprintln(w, fitColumns("  "+detail, terminalWidth))
		}
	}
}

// shortTime is the time of day, with its date if that is not today.
func shortTime(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	switch {
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format("15:04:05")
	case t.Year() == now.Year():
		return t.Format("Jan 2 15:04")
	}
	return t.Format(time.DateOnly)
}

// groupDigits is a number with a comma before every three digits.
func groupDigits(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// printable replaces what could control a terminal: names and texts come from servers and models.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r == utf8.RuneError, !unicode.IsPrint(r):
			return '·'
		}
		return r
	}, s)
}

// fitColumns cuts a line at a number of characters.
func fitColumns(line string, columns int) string {
	if utf8.RuneCountInString(line) <= columns {
		return line
	}
	return string([]rune(line)[:columns-1]) + "…"
}
