package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// runFilter runs `ctxgate` in dir with a text on stdin.
func runFilter(t *testing.T, dir, text string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	var out, log bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, []string{"HOME=" + dir}, strings.NewReader(text), &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("ctxgate %s: %v: %s", strings.Join(args, " "), err, log.String())
	}
	return out.String(), log.String()
}

// P2: --json prints the result of prune_text with the same id; only elapsed_ms differs.
func TestP2PruneJSONEqualsPruneText(t *testing.T) {
	dir := t.TempDir()
	g, _ := startPruner(t, dir)
	source, err := os.ReadFile("gateway_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		kind, text, goal, ratio string
		keep                    int
		number, markers         bool
	}{
		{"docs", haystackText(500), "needle", "0.8", 1, false, true},
		{"code", string(source), "where are the addresses read", "0.7", 20, true, true},
		{"logs", haystackText(77), "", "0.95", 3, true, false},
		{"docs", "one\ntwo <&>\u2028", "two", "0.5", 0, false, true},
		{"docs", "too short", "x", "0.7", 20, true, true},
		{"docs", "", "", "1", 0, false, true},
	} {
		ratio, _ := strconv.ParseFloat(tt.ratio, 64)
		want := g.callTool(t, "prune_text", map[string]any{"text": tt.text, "goal_hint": tt.goal, "source_type": tt.kind, "options": map[string]any{
			"max_prune_ratio": ratio, "min_keep_lines": tt.keep, "timeout_ms": 10_000, "annotate_lines": tt.number, "include_markers": tt.markers,
		}})
		args := []string{"prune", "--json", "--type", tt.kind, "--goal", tt.goal, "--ratio", tt.ratio, "--min-keep", strconv.Itoa(tt.keep)}
		if tt.number {
			args = append(args, "--number")
		}
		if !tt.markers {
			args = append(args, "--no-markers")
		}
		out, stderr := runFilter(t, dir, tt.text, args...)
		got := decodeJSON[pruneResult](t, json.RawMessage(out))
		for _, d := range []*pruneResult{&want, &got} {
			if _, ok := d.Stats["elapsed_ms"].(float64); !ok {
				t.Errorf("%v", d.Stats)
			}
			delete(d.Stats, "elapsed_ms")
		}
		if diff := cmp.Diff(want, got); diff != "" || stderr != "" {
			t.Errorf("%s, %d bytes: %s%s", tt.kind, len(tt.text), stderr, diff)
		}
	}
}

var cutMarkerPattern = regexp.MustCompile(`^⟦PRUNÉ: prune_id=(prn_[0-9a-z]{26}) lignes (\d+)-(\d+) \((\d+)\) raison=hors focus⟧$`)

// P3, P4, P5: kept lines and markers tile the text within the budget, and `ctxgate recover` prints what a
// marker stands for.
func TestP5KeptLinesAndMarkersTile(t *testing.T) {
	dir := t.TempDir()
	text := haystackText(400)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	out, _ := runFilter(t, dir, text, "prune", "--number", "--goal", "needle", "--ratio", "0.6")
	at, left := 1, 0
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		m := cutMarkerPattern.FindStringSubmatch(line)
		if m == nil {
			if want := strconv.Itoa(at) + "│ " + lines[at-1]; line != want {
				t.Fatalf("got %q, want %q", line, want)
			}
			at++
			continue
		}
		if m[2] != strconv.Itoa(at) {
			t.Fatalf("at line %d: %s", at, line)
		}
		last, _ := strconv.Atoi(m[3])
		if back, _ := runFilter(t, dir, "", "recover", m[1], "--lines", m[2]+"-"+m[3]); back != strings.Join(lines[at-1:last], "\n")+"\n" {
			t.Errorf("%s recovers %q", line, back)
		}
		left += last - at + 1
		at = last + 1
	}
	if at != len(lines)+1 || left == 0 || float64(left) > .6*float64(len(lines)+1) {
		t.Errorf("ends at line %d of %d, %d left out", at, len(lines), left)
	}
}

// I3: binary input is printed unchanged; text in another encoding is pruned and recovered byte for byte.
func TestPruneBinaryAndLatin1(t *testing.T) {
	dir := t.TempDir()
	r := rand.NewChaCha8([32]byte{7})
	noise := make([]byte, 100_000)
	_, _ = r.Read(noise)
	for name, text := range map[string]string{"noise": string(noise), "a NUL": haystackText(200) + "\x00", "UTF-16": strings.ReplaceAll(haystackText(100), "", "\x00")} {
		out, stderr := runFilter(t, dir, text, "prune", "--goal", "needle")
		if out != text || stderr != "warning: the input is binary, so it is printed whole\n" {
			t.Errorf("%s: %d of %d bytes, stderr %q", name, len(out), len(text), stderr)
		}
	}
	latin1 := strings.ReplaceAll(haystackText(200), "dry", "s\xe8che")
	out, stderr := runFilter(t, dir, latin1, "prune", "--goal", "needle")
	id := pruneIDPattern.FindStringSubmatch(out)
	if id == nil || !strings.Contains(out, "the needle") || !strings.Contains(out, "s\xe8che") || stderr != "" {
		t.Fatalf("Latin-1: %q %s", out, stderr)
	}
	if back, _ := runFilter(t, dir, "", "recover", id[1]); back != latin1 {
		t.Errorf("Latin-1 is recovered as %d of %d bytes", len(back), len(latin1))
	}
	windows := strings.ReplaceAll(haystackText(30), "\n", "\r\n")
	if out, _ := runFilter(t, dir, windows, "prune", "--ratio", "0"); out != windows {
		t.Error("line ends were changed")
	}
}

// The engine counts in 31 bits; longer input is rejected before it is read.
func TestPruneRejectsTooLargeInput(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "large.log")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 1<<31-1); err != nil { // a sparse file
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "prune", "--no-store", file)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.HasPrefix(string(out), "ctxgate: the input is larger than 2 GiB; split it first") {
		t.Errorf("%v: %.200s", err, out)
	}
}

// A closed output pipe is no error.
func TestPruneBrokenPipe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("pipes behave differently on Windows")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, "prune", "--no-store", "--stats", "--ratio", "0.1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(haystackText(20_000)), w, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Error(err)
	}
	r.Close()
	_ = cmd.Wait() // by SIGPIPE, like any filter
	if stderr.Len() > 0 {
		t.Errorf("%s: %s", cmd.ProcessState, stderr.String())
	}
}

// Ctrl-C interrupts it while it waits for input. Before that it writes nothing to a stderr that is no terminal.
func TestPruneInterrupted(t *testing.T) {
	for _, args := range [][]string{{"prune", "--no-store"}, {"prune", "--bench"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Stdin, cmd.Stderr = r, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString("{"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond) // longer than the second after which a terminal gets a hint
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_ = cmd.Wait()
		if took := time.Since(began); took > 5*time.Second || cmd.ProcessState.ExitCode() != 1 || stderr.String() != "ctxgate: interrupted\n" {
			t.Errorf("%v: %s after %s: %s", args, cmd.ProcessState, took, stderr.String())
		}
		w.Close()
		r.Close()
	}
}
