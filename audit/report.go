package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
)

const (
	maxProblems = 20 // that a report lists
	maxNotes    = 20
)

// Report is what Verify found.
type Report struct {
	Parts       []*PartReport
	Lines       int64  // that belong to the log
	First, Last uint64 // their numbers
	Dropped     int64  // decisions that were not written, as lines say

	Problems     []string // the first ones
	ProblemCount int
	Notes        []string // what the gateway itself found wrong: repairs, and decisions that were not written

	Complete  bool // begin and end were compared with the record
	NoRecord  bool // there is no record to compare with
	BadRecord bool // there is one that was not made with this secret
	Partial   int  // bytes of a line after the end that is not complete
}

// PartReport is what one file has.
type PartReport struct {
	Name        string
	Lines       int64
	First, Last uint64
}

// OK says that nothing was found wrong.
func (r *Report) OK() bool { return r.ProblemCount == 0 && !r.BadRecord && !r.NoRecord }

// addFinding adds a problem of a line of a file, or of the log as a whole where file is "".
func (r *Report) addFinding(file string, line int, text string) {
	r.ProblemCount++
	if len(r.Problems) >= maxProblems {
		return
	}
	if file != "" {
		text = fmt.Sprintf("%s:%d: %s", Printable(file), line, text)
	}
	r.Problems = append(r.Problems, text)
}

// count adds a line of the log.
func (r *Report) count(info *PartReport, line chainLine) {
	if r.Lines == 0 {
		r.First = line.seq
	}
	if info.Lines == 0 {
		info.First = line.seq
	}
	r.Lines++
	info.Lines++
	r.Last, info.Last = line.seq, line.seq
	if !bytes.Contains(line.signed, []byte(`"event":"`+KindDropped)) && !bytes.Contains(line.signed, []byte(`"event":"`+KindRepair)) {
		return
	}
	var note struct {
		Time, Event, Reason string
		Count               int64
	}
	if err := json.Unmarshal(append(bytes.Clone(line.signed), `"}`...), &note); err != nil {
		return // lines of the log are JSON
	}
	if note.Event == KindDropped {
		r.Dropped += note.Count
		note.Reason = strconv.FormatInt(note.Count, 10) + " decisions were not written: " + note.Reason
	}
	if len(r.Notes) < maxNotes {
		r.Notes = append(r.Notes, fmt.Sprintf("line %d, %s: %s", line.seq, Printable(note.Time), Printable(note.Reason)))
	}
}

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	for _, p := range r.Parts {
		if p.Lines == 0 {
			fmt.Fprintf(&b, "%s: no lines\n", Printable(p.Name))
		} else {
			fmt.Fprintf(&b, "%s: lines %d to %d\n", Printable(p.Name), p.First, p.Last)
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "problem: %s\n", p)
	}
	if more := r.ProblemCount - len(r.Problems); more > 0 {
		fmt.Fprintf(&b, "problem: and %d more\n", more)
	}
	switch {
	case r.BadRecord:
		b.WriteString("problem: the record of the log's end was changed, or was made with another secret\n")
	case r.NoRecord:
		b.WriteString("problem: there is no record of the log's end in the data directory\n")
	}
	if r.Partial > 0 {
		fmt.Fprintf(&b, "note: %d bytes of a line that is not complete follow: it is being written, or the gateway was killed\n", r.Partial)
	}
	switch {
	case !r.OK():
		fmt.Fprintf(&b, "FAILED: %d problems in %d lines\n", r.problemTotal(), r.Lines)
	case r.Complete:
		fmt.Fprintf(&b, "OK: lines %d to %d, none changed or missing, and the end is there\n", r.First, r.Last)
	default:
		fmt.Fprintf(&b, "OK: lines %d to %d, none changed or missing between them; whether more should follow was not checked\n", r.First, r.Last)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) problemTotal() int {
	n := r.ProblemCount
	if r.BadRecord || r.NoRecord {
		n++
	}
	return n
}

// Printable replaces what could control a terminal.
func Printable(s string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) || c == unicode.ReplacementChar {
			return '·'
		}
		return c
	}, s)
}
