package main

import (
	"context"
	"testing"
)

// The line after a run says what was cut and saved during it, also when the gateway was replaced meanwhile.
func TestRunTotals(t *testing.T) {
	t.Parallel()
	read := func(text string) runTotals {
		return (&runGateway{get: func(context.Context, string) string { return text }}).readTotals(t.Context())
	}
	before := read("ctxgate_originals_kept_total{server=\"a\"} 2\nctxgate_chars_cut_total{server=\"a\"} 100\nctxgate_llm_requests_total{provider=\"x\",result=\"ok\"} 3\n")
	after := read(`ctxgate_originals_kept_total{server="a"} 3
ctxgate_originals_kept_total{server="b"} 1
ctxgate_chars_cut_total{server="a"} 1.2345e+06
ctxgate_llm_requests_total{provider="x",result="ok"} 4
ctxgate_llm_input_cost_tokens_total{kind="unmasked",provider="x"} 5000
ctxgate_llm_input_cost_tokens_total{kind="billed",provider="x"} 3500
ctxgate_llm_input_cost_tokens_total{kind="recovery",provider="x"} 100
`)
	idle, lost := before, before
	idle.requests, idle.notMasking = 9, "6 tool turns so far, and the results of the last 8 stay whole"
	lost.requests, lost.billed = 4, 1234
	masked := before
	masked.requests, masked.masked, masked.unmasked, masked.billed = 65, 44, 600_000, 440_000
	evening := before
	evening.masked = 100
	for _, tt := range []struct {
		now, before runTotals
		want        string
	}{
		{after, before, "2 tool results cut by 1,234,400 characters ('ctxgate recover --list' shows them); 1 model request; about 1,500 input tokens saved, 30 % of the input's cost"},
		{masked, before, "62 model requests, 44 of them without old tool results; about 160,000 input tokens saved, 27 % of the input's cost"},
		{before, after, "2 tool results cut by 100 characters ('ctxgate recover --list' shows them); 3 model requests"},
		{masked, evening, "62 model requests, 44 of them without old tool results; about 160,000 input tokens saved, 27 % of the input's cost"},
		{idle, before, "no tool result was cut; 6 model requests; not masking yet: 6 tool turns so far, and the results of the last 8 stay whole"},
		{lost, before, "no tool result was cut; 1 model request; about 1,234 input tokens more than without ctxgate"},
		{before, before, "no tool result was cut"},
		{runTotals{}, before, "the gateway has ended; 'ctxgate recover --list' shows what was cut"},
	} {
		if got := tt.now.since(tt.before); got != tt.want {
			t.Errorf("got %q\nwant %q", got, tt.want)
		}
	}
}

// A server that is down is named after the run: nobody has seen the log.
func TestRunNamesServersThatAreDown(t *testing.T) {
	t.Parallel()
	g := &runGateway{get: func(context.Context, string) string {
		return `{"servers":[{"id":"a","state":"up"},{"id":"b","state":"down","last_error":"exit status 1","last_stderr":"Cannot find module"}]}`
	}}
	if got := g.downServers(t.Context()); len(got) != 1 || got[0] != `server "b" is down: Cannot find module` {
		t.Errorf("got %q", got)
	}
}
