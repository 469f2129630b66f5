package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/admin"
	"github.com/ctxgate/ctxgate/upstream"
)

// runTotals is what a gateway has done so far.
type runTotals struct {
	isKnown                bool
	texts, chars, requests float64
	billed, unmasked       float64 // what input cost, and would have cost without ctxgate, in tokens of fresh input
	masked                 float64 // requests to models without some old or long tool results
	notMasking             string  // why the last request to a model was not masked
}

// textReply keeps the body of a reply to this process.
type textReply struct {
	strings.Builder
	header http.Header
}

func (r *textReply) Header() http.Header { return r.header }
func (r *textReply) WriteHeader(int)     {}

// counterLine is a counter in the Prometheus text format.
var counterLine = regexp.MustCompile(`(?m)^(ctxgate_[a-z_]+_total)(\{[^}]*\})? ([0-9.e+]+)$`)

// readTotals reads the gateway's counters.
func (g *runGateway) readTotals(ctx context.Context) runTotals {
	text := g.get(ctx, "/metrics")
	t := runTotals{isKnown: text != ""}
	for _, m := range counterLine.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseFloat(m[3], 64)
		switch m[1] {
		case "ctxgate_originals_kept_total":
			t.texts += n
		case "ctxgate_chars_cut_total":
			t.chars += n
		case "ctxgate_llm_requests_total":
			t.requests += n
		case "ctxgate_llm_input_cost_tokens_total":
			if strings.Contains(m[2], `kind="unmasked"`) {
				t.unmasked += n
			} else if strings.Contains(m[2], `kind="billed"`) {
				t.billed += n
			}
		}
	}
	today := g.readStatus(ctx).Today
	t.masked, t.notMasking = float64(today.MaskedRequests), today.NotMasking
	return t
}

// readStatus is the gateway's status; empty if it does not answer.
func (g *runGateway) readStatus(ctx context.Context) (status admin.Status) {
	_ = json.Unmarshal([]byte(g.get(ctx, statusPath)), &status)
	return status
}

// downServers says which MCP servers are down, and why.
func (g *runGateway) downServers(ctx context.Context) []string {
	var lines []string
	for _, s := range g.readStatus(ctx).Servers {
		if s.State == string(upstream.StateDown) {
			lines = append(lines, fmt.Sprintf("server %q is down: %s", s.ID, cmp.Or(s.LastStderr, s.LastError)))
		}
	}
	return lines
}

// since says what was done after an earlier reading, in one line. A gateway that was replaced meanwhile counts from zero.
func (t runTotals) since(before runTotals) string {
	if !t.isKnown {
		return "the gateway has ended; 'ctxgate recover --list' shows what was cut"
	}
	if t.requests < before.requests || t.texts < before.texts {
		before = runTotals{}
	}
	if t.masked < before.masked { // it counts from midnight
		before.masked = 0
	}
	var parts []string
	if n := t.texts - before.texts; n > 0 {
		parts = append(parts, fmt.Sprintf("%s cut by %s characters ('ctxgate recover --list' shows them)", plural(n, "tool result"), thousands(t.chars-before.chars)))
	} else if t.masked <= before.masked {
		parts = append(parts, "no tool result was cut")
	}
	if n := t.requests - before.requests; n > 0 {
		parts = append(parts, t.requestsSince(before, n))
	}
	return strings.Join(parts, "; ")
}

// requestsSince says what the requests to models after an earlier reading cost.
func (t runTotals) requestsSince(before runTotals, n float64) string {
	text := plural(n, "model request")
	if masked := t.masked - before.masked; masked > 0 {
		text += ", " + thousands(masked) + " of them without old tool results"
	}
	unmasked := t.unmasked - before.unmasked
	switch saved := unmasked - (t.billed - before.billed); {
	case saved >= 1:
		text += fmt.Sprintf("; about %s input tokens saved, %.0f %% of the input's cost", thousands(saved), 100*saved/unmasked)
	case saved <= -1:
		text += "; about " + thousands(-saved) + " input tokens more than without ctxgate"
	}
	if t.notMasking != "" {
		text += "; not masking yet: " + printable(t.notMasking)
	}
	return text
}

func plural(n float64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}

// thousands writes a number with commas.
func thousands(n float64) string {
	digits := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
