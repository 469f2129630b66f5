package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ctxgate/ctxgate/admin"
)

var update = flag.Bool("update", false, "write the golden files")

func TestStatusText(t *testing.T) {
	now := time.Date(2026, 11, 16, 14, 30, 0, 0, time.Local)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	s := admin.Status{
		Version: "v0.1.0", PID: 4711, Started: ago(135 * time.Minute), Config: "/home/me/a/very/long/path/to/some/project/of/mine/that/never/ends/ctxgate.toml", Profile: "agents", Background: true, Log: "/home/me/.local/share/ctxgate/logs/0123456789abcdef.log",
		Listeners: []admin.Listener{{Name: "main", Address: "127.0.0.1:8000"}, {Name: "admin", Address: "127.0.0.1:8090"}},
		Servers: []admin.Server{
			{ID: "files", Transport: "stdio", State: "up", Since: ago(135 * time.Minute), Tools: 14, Revision: "2025-11-25"},
			{ID: "memory", Transport: "stdio", State: "starting", Since: ago(14 * time.Second)},
			{ID: "postgres", Transport: "stdio", State: "down", Since: ago(3 * time.Minute), Tools: 4, Revision: "2025-06-18", Restarts: 1207, LastError: "exit 1", LastStderr: "\x1b[31mError\x1b[0m: connect ECONNREFUSED 127.0.0.1:5432, and a long explanation of what that means for the user, at length", NextAttempt: now.Add(21 * time.Second)},
			{ID: "a-server-with-a-very-long-name", Transport: "http", State: "unauthorized", Since: ago(50 * time.Hour), LastError: "it needs the authorization of a user"},
			{ID: "pruner", Transport: "builtin", State: "up", Tools: 3},
		},
		Clients: []admin.Client{
			{ID: "claude-code", Name: "claude-code", Version: "2.1.197", Transport: "stdio", LastRequest: ago(4 * time.Second), Requests: 1},
			{Name: "a client with a name that is far too long for a terminal", Version: "1", Transport: "http", LastRequest: ago(70 * time.Minute), Requests: 12345},
		},
		Budgets: []admin.Budget{
			{Tenant: "acme", Per: "day", Share: 1.02, Text: "20.40 of 20.00", Renews: now.Add(9 * time.Hour)},
			{Tenant: "a tenant with a very long name", Per: "month", Share: 0.5, Text: "500 of 1000 requests, 1000 of 2000000 tokens, 10.00 of 20.00", Renews: now.Add(200 * time.Hour)},
		},
		Today: admin.Today{Since: ago(14*time.Hour + 30*time.Minute), TextsCut: 38, CharsCut: 1_204_331, TokensCut: 354_215, ModelRequests: 90, MaskedRequests: 34, MaskedTokens: 210_000, ReadBacks: 1, CharsReadBack: 22_410, TokensReadBack: 6591, SentWhole: 2, Unrecoverable: 1,
			Replies: 90, Billed: 2_310_000, Unmasked: 3_456_789, Saved: 1_146_789, Recovery: 40_211, Parts: admin.SavedParts[int64]{Hub: 1_200_000, Shortened: 12_000, Masked: 80_000, Cache: -105_000},
			Money: admin.TodayMoney{Billed: "7.100000", Unmasked: "10.540367", Saved: "3.440367"}, NotMasking: "the provider's cache is warm: masking 4 old results now would cost about 41,000 tokens and save 3,000 a turn"},
		Store: admin.Store{Driver: "sqlite", Path: "/home/me/.local/share/ctxgate/ctxgate.db", Bytes: 50_593_792, MaxBytes: 1 << 30, Items: 1204},
	}
	got := statusText(s, now, style{})
	golden := filepath.Join("testdata", "status.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("got\n%s\nwant\n%s\n%v", got, want, err)
	}
	for line := range strings.Lines(got) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > terminalWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Error("text of a server controls the terminal")
	}
	if coloured := statusText(s, now, style{colours: true}); !strings.Contains(coloured, "\x1b[31m✗") || strings.Contains(coloured, "\x1b[31mError") {
		t.Errorf("got\n%q", coloured)
	}
	// Without requests to models there is only an estimate.
	toolsOnly := statusText(admin.Status{Version: "v1", Today: admin.Today{TextsCut: 1, TokensCut: 12_345}}, now, style{})
	if !strings.Contains(toolsOnly, "estimate   tools only; ~12,345 tokens not sent into the context,\n") {
		t.Errorf("got\n%s", toolsOnly)
	}
	idle := statusText(admin.Status{Version: "v1", Servers: s.Servers[:1]}, now, style{})
	if !strings.Contains(idle, "0 texts  no tool result was over max_chars\n") {
		t.Errorf("got\n%s", idle)
	}
	// An empty gateway, and one whose store is down.
	empty := statusText(admin.Status{Version: "v1", Store: admin.Store{Driver: "sqlite", Error: "the store cannot be used"}}, now, style{})
	if !strings.Contains(empty, "servers  0\n") || !strings.Contains(empty, "does not answer: the store cannot be used") {
		t.Errorf("got\n%s", empty)
	}
}

func TestScreenIsCutAtItsHeight(t *testing.T) {
	var b lineBuffer
	b.WriteString("1\n2\n3\n4\n5\n")
	if got := b.asScreen(24); got != "\x1b[H1\x1b[K\r\n2\x1b[K\r\n3\x1b[K\r\n4\x1b[K\r\n5\x1b[K\x1b[J" {
		t.Errorf("%q", got)
	}
	if got := b.asScreen(4); got != "\x1b[H1\x1b[K\r\n2\x1b[K\r\n… 3 more lines\x1b[K\x1b[J" {
		t.Errorf("%q", got)
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 11, 16, 14, 30, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"30m": now.Add(-30 * time.Minute), "7d": now.AddDate(0, 0, -7), "2026-11-01": time.Date(2026, 11, 1, 0, 0, 0, 0, time.Local),
		"2026-11-16T14:00": time.Date(2026, 11, 16, 14, 0, 0, 0, time.Local), "2026-11-16T13:00:00Z": time.Date(2026, 11, 16, 13, 0, 0, 0, time.UTC),
	} {
		if got, err := parseSince(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "yesterday", "-2h", "0"} {
		if got, err := parseSince(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		if got := groupDigits(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1 << 10: "1 KiB", 1<<20 - 1: "1 MiB", 50_593_792: "48.2 MiB", 1 << 30: "1 GiB", 5 << 40: "5 TiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
