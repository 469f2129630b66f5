package clients

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The ids are part of the command line and of the entries that ctxgate init writes.
func TestIDsOfTheTable(t *testing.T) {
	want := []string{
		"claude-code", "claude-desktop", "cursor", "vscode", "cline", "continue", "windsurf", "codex", "gemini", "opencode", "qwen", "zed",
		"copilot", "goose", "inspector",
	}
	if got := IDs(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// A client is found by what it calls itself, and no two share a name.
func TestClientsAreFoundByTheirInfoNames(t *testing.T) {
	for name, want := range map[string]string{
		"claude-code": "claude-code", "claude-ai": "claude-desktop", "cursor-vscode": "cursor", "Visual Studio Code": "vscode",
		"Visual Studio Code - Insiders": "vscode", "@cline/core": "cline", "continue-cli-client": "continue", "codex-mcp-client": "codex",
		"gemini-cli-mcp-client": "gemini", "qwen-cli-mcp-client-ctxgate": "qwen", "opencode": "opencode", "Zed": "zed", "copilot-cli": "copilot",
		"goose-desktop": "goose", "goose": "goose", "mcp-test-client": "", "": "", "zed": "", "codex": "",
	} {
		if c, ok := ByInfoName(name); c.ID != want || ok != (want != "") {
			t.Errorf("%q is %q", name, c.ID)
		}
	}
	for _, c := range table {
		for _, name := range c.InfoNames {
			if found, _ := ByInfoName(name); found.ID != c.ID {
				t.Errorf("%q of %s is found as %s", name, c.ID, found.ID)
			}
		}
	}
}

// Every figure of the table leaves room for markers and names.
func TestLimitsOfTheTableAreUsable(t *testing.T) {
	for _, c := range table {
		o := Override{
			MaxResultChars: &c.Result.Chars, MaxResultBytes: &c.Result.Bytes, MaxResultLines: &c.Result.Lines, MaxToolName: &c.ToolName,
			MaxDescriptionChars: &c.Description, MaxInstructionsChars: &c.Instructions,
		}
		if problems := o.Validate(); len(problems) > 0 {
			t.Errorf("%s: %v", c.ID, problems)
		}
		if c.Name == "" || len(c.InfoNames) == 0 || c.ToolName > 128 {
			t.Errorf("%s: %+v", c.ID, c)
		}
	}
	limits := ToolNameLimits()
	if !slices.IsSortedFunc(limits, func(a, b int) int { return b - a }) || !slices.Contains(limits, Unknown().ToolName) {
		t.Errorf("limits %v", limits)
	}
}

// A configuration replaces single figures, and 0 removes a limit.
func TestOverridesReplaceFigures(t *testing.T) {
	codex, _ := ByID("codex")
	big, none, small := 40_000, 0, 10
	got := Override{MaxResultBytes: &big, MaxToolName: &none}.Over(codex.Limits)
	if got.Result.Bytes != big || got.ToolName != 0 || !got.Result.AsJSON || got.Result.IsZero() {
		t.Errorf("got %+v", got)
	}
	problems := Override{MaxResultChars: &small, MaxToolName: &small}.Validate()
	if len(problems) != 2 || problems[0].Error() != "max_result_chars: must be 0 (no limit) or at least 1000" {
		t.Errorf("got %v", problems)
	}
}

// The page of the limits shows what the table has.
func TestThePageShowsTheTable(t *testing.T) {
	page, err := os.ReadFile("../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range table {
		name := "–"
		if c.ToolName > 0 {
			name = fmt.Sprint(c.ToolName)
		}
		row := fmt.Sprintf("| `%s` | %s | %s |", c.ID, c.Name, name)
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/clients.md has no row %s", row)
		}
		for _, n := range []int{c.Result.Chars, c.Result.Lines, c.Description, c.Instructions} {
			text := fmt.Sprint(n)
			if n >= 1000 {
				text = fmt.Sprintf("%d,%03d", n/1000, n%1000)
			}
			line := string(page[strings.Index(string(page), row):])
			if line, _, _ = strings.Cut(line, "\n"); n > 0 && !strings.Contains(line, text) {
				t.Errorf("%s: %s is missing in %s", c.ID, text, line)
			}
		}
	}
}
