//go:build unix

package agents_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ctxgate/ctxgate/internal/recovertool"
	"github.com/ctxgate/ctxgate/internal/testkit/agents"
	"github.com/ctxgate/ctxgate/internal/testkit/fakeprovider"
)

// claudeModels are models of Claude Code with today's prices relative to fresh input, and what 60 reads may cost, of the
// bill without ctxgate. Where reading from the cache costs a twentieth of fresh input, writing the new results is half of
// the bill, and masking lowers only the other half.
var claudeModels = []struct {
	name   string
	prices fakeprovider.Prices
	most60 float64
}{
	{"claude-sonnet-4-5", fakeprovider.Prices{Write: 1.25, Write1h: 2, Read: 0.1, Output: 5}, 0.80},
	{"claude-sonnet-5-5", fakeprovider.Prices{Write: 1.25, Write1h: 2, Read: 0.05, Output: 5}, 0.90},
}

// Claude Code reads files, one a turn, through `ctxgate run claude` with nothing configured. The provider's own count of
// tokens at its prices is compared with the same conversation without ctxgate.
func TestClaudeCodeBill(t *testing.T) {
	a := requireAgent(t, "claude-code")
	for _, m := range claudeModels {
		for _, c := range []struct {
			reads    int
			most     float64 // of the bill without ctxgate
			readBack bool    // the model reads a masked result back
		}{{60, m.most60, true}, {30, 1.02, false}} {
			t.Run(fmt.Sprintf("%s/%d-reads", m.name, c.reads), func(t *testing.T) {
				t.Parallel()
				without := runReads(t, a, m.name, c.reads, false, false)
				with := runReads(t, a, m.name, c.reads, true, c.readBack)
				if t.Failed() {
					return
				}
				ratio := with.bill.Cost(m.prices) / without.bill.Cost(m.prices)
				t.Logf("%d reads: the bill is %.3f of that without ctxgate\nwithout: %+v\nwith:    %+v\n%s", c.reads, ratio, without.bill.Total(), with.bill.Total(), with.summary)
				if ratio > c.most {
					t.Errorf("the bill is %.3f of that without ctxgate; at most %.2f is expected", ratio, c.most)
				}
				if c.reads == 30 && ratio > 1 && !strings.Contains(with.summary, "not masking yet: ") {
					t.Errorf("the summary does not say why nothing is saved:\n%s", with.summary)
				}
				if c.readBack && !strings.Contains(with.recovered, "package ") {
					t.Errorf("the model did not read a masked result back: %.300q", with.recovered)
				}
			})
		}
	}
}

// readsRun is a conversation of reads.
type readsRun struct {
	bill      fakeprovider.Bill
	recovered string // what the model read back
	summary   string // of `ctxgate run`
}

// runReads lets Claude Code read files, with ctxgate or without.
func runReads(t *testing.T, a agents.Agent, model string, reads int, gateway, readBack bool) readsRun {
	t.Helper()
	r := runnables["claude-code"]
	s := newHome(t, a, r)
	script := &readingModel{paths: copySources(t, s.sandbox.Work, reads), readBack: readBack}
	s.provider.ScriptFunc(script.reply)
	args := []string{"--model", model, "--output-format", "stream-json", "--verbose", "-p", "Read every file of this project, one after the other."}
	var tr agents.Transcript
	if gateway {
		tr = s.sandbox.Run(append([]string{binary, "run", "--log", filepath.Join(t.ArtifactDir(), "gateway.log"), "claude", "--"}, args...)...)
	} else {
		tr = a.Run(s.sandbox, args...)
	}
	if tr.ExitCode != 0 || !strings.Contains(tr.Stdout, agents.Answer) {
		t.Errorf("exit code %d after %s", tr.ExitCode, tr.Took)
		s.logTranscript(tr)
	}
	return readsRun{s.provider.Bill(), script.recovered, tr.Stderr}
}

// copySources copies source files of Go's standard library, of 2 to 12 KB, and returns their paths. They do not change with
// the project: how far a conversation is when the window moves depends on their sizes.
func copySources(t *testing.T, dir string, n int) []string {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src", "net"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || len(paths) == n || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || len(text) < 2<<10 || len(text) > 12<<10 {
			return err
		}
		to := filepath.Join(dir, fmt.Sprintf("%02d_%s", len(paths), filepath.Base(path)))
		paths = append(paths, to)
		return os.WriteFile(to, text, 0o600)
	})
	if err != nil || len(paths) < n {
		t.Fatalf("%d source files: %v", len(paths), err)
	}
	return paths
}

// readingModel reads one file per turn, and at the end reads a masked result back if it is to.
type readingModel struct {
	mu        sync.Mutex
	paths     []string
	readBack  bool
	recovered string
}

func (m *readingModel) reply(r fakeprovider.Request) fakeprovider.Step {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(r.Tools) == 0 {
		return fakeprovider.ReplyText("A title")
	}
	done, isReadBack := map[string]bool{}, false
	for _, one := range r.Results {
		done[one.ID] = true
		if one.ID == "call_readback" {
			isReadBack, m.recovered = true, one.Text
		}
	}
	for i, path := range m.paths {
		if id := fmt.Sprintf("call_%03d", i); !done[id] {
			step := fakeprovider.CallTools(fakeprovider.Call{ID: id, Name: "Read", Args: fmt.Sprintf(`{"file_path":%q}`, path)})
			step.Thinking = "The next file."
			return step
		}
	}
	offered := slices.IndexFunc(r.Tools, recovertool.IsName)
	if m.readBack && !isReadBack && offered >= 0 {
		for _, one := range r.Results {
			if id := agents.PruneID(one.Text); id != "" {
				step := fakeprovider.CallTools(fakeprovider.Call{ID: "call_readback", Name: r.Tools[offered], Args: fmt.Sprintf(`{"prune_id":%q}`, id)})
				step.Thinking = "What was in it?"
				return step
			}
		}
	}
	return fakeprovider.Step{Text: agents.Answer, ChunkSize: len(agents.Answer)}
}
