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

// filter runs `ctxgate` in a folder of its own, with a text on stdin.
func filter(t *testing.T, dir, text string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	var out, said bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, []string{"HOME=" + dir}, strings.NewReader(text), &out, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("ctxgate %s: %v: %s", strings.Join(args, " "), err, said.String())
	}
	return out.String(), said.String()
}

// P2: --json is the document of prune_text, under the same id; only the time it took is its own.
func TestP2PruneJSONIsWhatPruneTextAnswers(t *testing.T) {
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
		{"docs", haystack(500), "needle", "0.8", 1, false, true},
		{"code", string(source), "where are the addresses read", "0.7", 20, true, true},
		{"logs", haystack(77), "", "0.95", 3, true, false},
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
		out, said := filter(t, dir, tt.text, args...)
		got := read[pruned](t, json.RawMessage(out))
		for _, d := range []*pruned{&want, &got} {
			if _, ok := d.Stats["elapsed_ms"].(float64); !ok {
				t.Errorf("%v", d.Stats)
			}
			delete(d.Stats, "elapsed_ms")
		}
		if diff := cmp.Diff(want, got); diff != "" || said != "" {
			t.Errorf("%s, %d bytes: %s%s", tt.kind, len(tt.text), said, diff)
		}
	}
}

var cutMarker = regexp.MustCompile(`^⟦PRUNÉ: prune_id=(prn_[0-9a-z]{26}) lignes (\d+)-(\d+) \((\d+)\) raison=hors focus⟧$`)

// P3, P4, P5: kept lines and markers tile the text, within the bounds, and what a marker stands for
// is what `ctxgate recover` gives for its lines.
func TestP5PruneTiles(t *testing.T) {
	dir := t.TempDir()
	text := haystack(400)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	out, _ := filter(t, dir, text, "prune", "--number", "--goal", "needle", "--ratio", "0.6")
	at, left := 1, 0
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		m := cutMarker.FindStringSubmatch(line)
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
		if back, _ := filter(t, dir, "", "recover", m[1], "--lines", m[2]+"-"+m[3]); back != strings.Join(lines[at-1:last], "\n")+"\n" {
			t.Errorf("%s gives back %q", line, back)
		}
		left += last - at + 1
		at = last + 1
	}
	if at != len(lines)+1 || left == 0 || float64(left) > .6*float64(len(lines)+1) {
		t.Errorf("ends at line %d of %d, %d left out", at, len(lines), left)
	}
}

// I3: what is no text comes out as it came; what is text in another encoding is cut by its bytes,
// and comes back by its bytes.
func TestPruneBytes(t *testing.T) {
	dir := t.TempDir()
	r := rand.NewChaCha8([32]byte{7})
	noise := make([]byte, 100_000)
	_, _ = r.Read(noise)
	for name, text := range map[string]string{"noise": string(noise), "a NUL": haystack(200) + "\x00", "UTF-16": strings.ReplaceAll(haystack(100), "", "\x00")} {
		out, said := filter(t, dir, text, "prune", "--goal", "needle")
		if out != text || said != "warning: the input is binary, so nothing is left out of it\n" {
			t.Errorf("%s: %d of %d bytes, stderr %q", name, len(out), len(text), said)
		}
	}
	latin1 := strings.ReplaceAll(haystack(200), "dry", "s\xe8che")
	out, said := filter(t, dir, latin1, "prune", "--goal", "needle")
	id := pruneID.FindStringSubmatch(out)
	if id == nil || !strings.Contains(out, "the needle") || !strings.Contains(out, "s\xe8che") || said != "" {
		t.Fatalf("Latin-1: %q %s", out, said)
	}
	if back, _ := filter(t, dir, "", "recover", id[1]); back != latin1 {
		t.Errorf("Latin-1 comes back as %d of %d bytes", len(back), len(latin1))
	}
	windows := strings.ReplaceAll(haystack(30), "\n", "\r\n")
	if out, _ := filter(t, dir, windows, "prune", "--ratio", "0"); out != windows {
		t.Error("line ends were changed")
	}
}

// The engine counts in 31 bits; what is longer is refused before it is read.
func TestPruneRefusesWhatIsTooLarge(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "large.log")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 1<<31-1); err != nil { // a hole, which takes no room
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, "prune", "--no-store", file)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.HasPrefix(string(out), "ctxgate: the input is larger than 2 GiB; cut it up first") {
		t.Errorf("%v: %.200s", err, out)
	}
}

// Who reads the output may have enough of it: no word, no trace.
func TestPruneBrokenPipe(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("pipes break otherwise there")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, "prune", "--no-store", "--stats", "--ratio", "0.1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(haystack(20_000)), w, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
		t.Error(err)
	}
	r.Close()
	_ = cmd.Wait() // by SIGPIPE, as any filter
	if said.Len() > 0 {
		t.Errorf("%s: %s", cmd.ProcessState, said.String())
	}
}

// Ctrl-C ends it while it waits for its input, which nothing else can end. Nothing is written to a
// stderr that is no terminal before that.
func TestPruneInterrupted(t *testing.T) {
	for _, args := range [][]string{{"prune", "--no-store"}, {"prune", "--bench"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Stdin, cmd.Stderr = r, &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString("{"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond) // past the second after which a terminal would be told
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_ = cmd.Wait()
		if took := time.Since(began); took > 5*time.Second || cmd.ProcessState.ExitCode() != 1 || said.String() != "ctxgate: interrupted\n" {
			t.Errorf("%v: %s after %s: %s", args, cmd.ProcessState, took, said.String())
		}
		w.Close()
		r.Close()
	}
}
