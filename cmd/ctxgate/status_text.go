package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ctxgate/ctxgate/admin"
)

// style colours text on a terminal.
type style struct {
	terminal *os.File // nil where the output is none
	colours  bool
}

func newStyle(out io.Writer) style {
	t := terminalOf(out)
	return style{terminal: t, colours: t != nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (s style) paint(colour, text string) string {
	if !s.colours || colour == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// lineBuffer is text that is shown on a screen.
type lineBuffer struct{ bytes.Buffer }

// asScreen replaces what is on the screen, from its first line on. What does not fit is left out.
func (b *lineBuffer) asScreen(height int) string {
	lines := strings.SplitAfter(strings.TrimSuffix(b.String(), "\n"), "\n")
	if height > 1 && len(lines) >= height {
		left := len(lines) - height + 2
		lines = append(lines[:height-2], fmt.Sprintf("… %d more lines", left))
	}
	return "\x1b[H" + strings.ReplaceAll(strings.Join(lines, ""), "\n", "\x1b[K\r\n") + "\x1b[K\x1b[J"
}

// maxBudgets is how many budgets are shown, the most used first.
const maxBudgets = 20

// statusText is a status for people, within the width of a terminal.
func statusText(s admin.Status, now time.Time, st style) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		fmt.Fprintln(&b, fitColumns(printable(fmt.Sprintf(format, args...)), terminalWidth))
	}
	head := func(name, rest string) {
		fmt.Fprintf(&b, "\n%s %s\n", st.paint(bold, fmt.Sprintf("%-8s", name)), fitColumns(rest, terminalWidth-9))
	}
	kind := ""
	switch {
	case s.Draining:
		kind = ", stopping"
	case s.Background:
		kind = ", in the background"
	}
	line("ctxgate %s, up %s%s, pid %d", s.Version, longSpan(now.Sub(s.Started)), kind, s.PID)
	line("config   %s (profile %s)", fitStart(cmp.Or(s.Config, "none"), terminalWidth-20-len(s.Profile)), s.Profile)
	if s.Log != "" {
		line("log      %s", fitStart(s.Log, terminalWidth-9))
	}
	for _, l := range s.Listeners {
		what := map[string]string{"main": "MCP at /mcp, models at /v1", "admin": "metrics, status", "pruner": "the pruner"}[l.Name]
		line("%-8s http://%s  %s", l.Name, l.Address, what)
	}

	head("servers", countStates(s.Servers))
	width := 4
	for _, srv := range s.Servers {
		width = min(max(width, utf8.RuneCountInString(srv.ID)), 20)
	}
	for _, srv := range s.Servers {
		writeServer(&b, srv, width, now, st)
	}

	head("clients", strconv.Itoa(len(s.Clients)))
	for _, c := range s.Clients {
		name := strings.TrimSpace(c.Name + " " + c.Version)
		if c.ID != "" && c.ID != c.Name {
			name = strings.TrimSpace(c.ID + "  " + name)
		}
		line("  %-34s %-5s  %s, last %s ago", fitColumns(name, 34), c.Transport, countOf(c.Requests, "request"), shortSpan(now.Sub(c.LastRequest)))
	}

	if len(s.Budgets) > 0 {
		head("budgets", strconv.Itoa(len(s.Budgets)))
		for _, budget := range s.Budgets[:min(len(s.Budgets), maxBudgets)] {
			used := fmt.Sprintf("%3d%%", int(budget.Share*100))
			if budget.Share >= 1 {
				used = st.paint(red, used)
			}
			fmt.Fprintf(&b, "  %s  %s\n", used, fitColumns(printable(fmt.Sprintf("%-20s %s per %s, renews in %s", fitColumns(budget.Tenant, 20), budget.Text, budget.Per, shortSpan(budget.Renews.Sub(now)))), terminalWidth-8))
		}
	}

	t := s.Today
	head("today", "since "+t.Since.Local().Format("15:04"))
	if t.TextsCut == 0 && len(s.Servers) > 0 {
		line("  cut        %14s  no tool result was over max_chars", "0 texts")
	} else {
		line("  cut        %14s  %12s characters  ~%s tokens", countOf(t.TextsCut, "text"), groupDigits(t.CharsCut), groupDigits(t.TokensCut))
	}
	line("  masked     %14s  of %s to models, ~%s tokens not sent", countOf(t.MaskedRequests, "request"), groupDigits(t.ModelRequests), groupDigits(t.MaskedTokens))
	line("  read back  %14s  %12s characters  ~%s tokens", countOf(t.ReadBacks, "time"), groupDigits(t.CharsReadBack), groupDigits(t.TokensReadBack))
	writeSavings(&b, t)
	if t.SentWhole > 0 {
		line("  not cut    %14s  the store did not take the original: see the log", countOf(t.SentWhole, "text"))
	}
	if t.Unrecoverable > 0 {
		line("  lost       %14s  cut for good: recall is off, or a hard limit is set", countOf(t.Unrecoverable, "text"))
	}

	store := fmt.Sprintf("%s, %s of %s, %s", s.Store.Driver, sizeText(s.Store.Bytes), sizeText(s.Store.MaxBytes), countOf(s.Store.Items, "item"))
	if s.Store.Error != "" {
		store = st.paint(red, s.Store.Driver+" does not answer: "+printable(s.Store.Error))
	}
	head("store", store)
	if s.Store.Path != "" {
		line("  %s", fitStart(s.Store.Path, terminalWidth-2))
	}
	return b.String()
}

// writeSavings writes what was saved today in one line, how it adds up in another, and why nothing is masked yet.
// Without requests to models it is an estimate.
func writeSavings(b *strings.Builder, t admin.Today) {
	switch {
	case t.Replies > 0:
		text := fmt.Sprintf("%s of %s tokens (%s)", groupDigits(t.Saved), groupDigits(t.Unmasked), percent(t.Saved, t.Unmasked))
		if m := t.Money; m.Unmasked != "" && m.Unmasked != "0.000000" {
			text += fmt.Sprintf(", %s of %s in money", shortMoney(m.Saved), shortMoney(m.Unmasked))
		}
		fmt.Fprintln(b, fitColumns("  saved      "+text, terminalWidth))
		var sum strings.Builder
		for _, part := range []struct {
			name   string
			amount int64
		}{{"cut at the hub", t.Parts.Hub}, {"shortened", t.Parts.Shortened}, {"masked", t.Parts.Masked}, {"price steps", t.Parts.Steps}, {"cache", t.Parts.Cache}, {"read back", -t.Recovery}} {
			sign := "+ "
			if part.amount < 0 {
				sign, part.amount = "- ", -part.amount
			}
			if part.amount != 0 {
				fmt.Fprintf(&sum, " %s%s %s", sign, groupDigits(part.amount), part.name)
			}
		}
		for i, text := range wrapWords(strings.TrimPrefix(sum.String(), " + "), terminalWidth-15, 3) {
			fmt.Fprintf(b, "  %-10s %s %s\n", "", map[bool]string{true: "=", false: " "}[i == 0], text)
		}
	case t.TextsCut > 0:
		fmt.Fprintf(b, "  estimate   tools only; ~%s tokens not sent into the context,\n             each paid for on every later turn\n", groupDigits(t.TokensCut))
	}
	if t.NotMasking != "" {
		for i, text := range wrapWords("not masking yet: "+printable(t.NotMasking), terminalWidth-13, 3) {
			fmt.Fprintf(b, "  %-10s %s\n", map[bool]string{true: "why"}[i == 0], text)
		}
	}
}

// percent is a share for people.
func percent(part, whole int64) string {
	if whole == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

// shortMoney is an amount with two decimals, or as many as a small one needs.
func shortMoney(n json.Number) string {
	amount, err := n.Float64()
	switch {
	case err != nil:
		return string(n)
	case amount != 0 && amount > -.1 && amount < .1:
		return strconv.FormatFloat(amount, 'f', 4, 64)
	}
	return strconv.FormatFloat(amount, 'f', 2, 64)
}

// writeServer writes one line about a server, and one about its error if it is not up.
func writeServer(b *strings.Builder, srv admin.Server, width int, now time.Time, st style) {
	mark, colour, state := "●", green, srv.State
	switch srv.State {
	case "up":
		if srv.Transport == "builtin" {
			state = "built in"
		}
	case "starting":
		mark, colour = "◌", yellow
	default:
		mark, colour = "✗", red
	}
	if !srv.Since.IsZero() && srv.Transport != "builtin" && len(state) < 9 {
		state += " " + shortSpan(now.Sub(srv.Since))
	}
	rest := fmt.Sprintf("%-*s  %-15s", width, fitColumns(printable(srv.ID), width), state)
	if srv.State == "up" || srv.Tools > 0 {
		rest += fmt.Sprintf("  %9s", countOf(int64(srv.Tools), "tool"))
	} else {
		rest += strings.Repeat(" ", 11)
	}
	rest += fmt.Sprintf("  %-10s", srv.Revision)
	switch srv.Restarts {
	case 0:
	case 1:
		rest += "  1 restart"
	default:
		rest += fmt.Sprintf("  %d restarts", srv.Restarts)
	}
	fmt.Fprintf(b, "  %s %s\n", st.paint(colour, mark), strings.TrimRight(fitColumns(rest, terminalWidth-4), " "))
	if srv.Held > 0 {
		fmt.Fprintln(b, "    "+st.paint(red, countOf(int64(srv.Held), "tool")+" held back: see 'ctxgate pin'"))
	}
	if srv.State == "up" {
		return
	}
	reason := printable(cmp.Or(srv.LastStderr, srv.LastError))
	if next := srv.NextAttempt.Sub(now); srv.State == "down" && next > time.Second {
		reason += "; next attempt in " + shortSpan(next)
	}
	for _, text := range wrapWords(reason, terminalWidth-4, 3) {
		fmt.Fprintln(b, "    "+st.paint(faint, text))
	}
}

// wrapWords breaks a text into at most maxLines lines of a width; what is longer ends with an ellipsis.
func wrapWords(text string, columns, maxLines int) []string {
	var lines []string
	for rest := []rune(text); len(rest) > 0; {
		if len(rest) <= columns || len(lines) == maxLines-1 {
			return append(lines, fitColumns(string(rest), columns))
		}
		end := columns
		if space := strings.LastIndexByte(string(rest[:columns+1]), ' '); space > 0 {
			end = utf8.RuneCountInString(string(rest[:columns+1])[:space])
		}
		lines = append(lines, string(rest[:end]))
		rest = []rune(strings.TrimLeft(string(rest[end:]), " "))
	}
	return lines
}

// countStates is "4: 2 up, 1 starting, 1 down".
func countStates(servers []admin.Server) string {
	counts := map[string]int{}
	for _, s := range servers {
		counts[s.State]++
	}
	var parts []string
	for _, state := range []string{"up", "starting", "down", "unauthorized", "stopped"} {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d: %s", len(servers), strings.Join(parts, ", "))
}

// countOf is a number and what it counts, in the singular or plural.
func countOf(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return groupDigits(n) + " " + what
}

// shortSpan is a time span in its largest unit.
func shortSpan(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}

// longSpan is a time span in its two largest units.
func longSpan(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Hour:
		return shortSpan(d)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours()/24), int(d.Hours())%24)
}

// sizeText is a size in the units of the config file, rounded.
func sizeText(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/(1<<10), "KiB"
	for _, larger := range []string{"MiB", "GiB", "TiB"} {
		if value < 1023.95 {
			break
		}
		value, unit = value/(1<<10), larger
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + " " + unit
}

// fitStart cuts the start of a path, whose end says more.
func fitStart(path string, columns int) string {
	runes := []rune(path)
	if len(runes) <= columns || columns < 2 {
		return path
	}
	return "…" + string(runes[len(runes)-columns+1:])
}
