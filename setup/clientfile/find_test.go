package clientfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// writeFiles makes files below a directory, and returns it.
func writeFiles(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// found lists what Find returns as "client scope path", relative to a directory.
func found(t *testing.T, dir string, env Env) []string {
	t.Helper()
	var out []string
	for _, f := range Find(env) {
		rel, err := filepath.Rel(dir, f.Path)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f.Client+" "+string(f.Scope)+" "+filepath.ToSlash(rel))
	}
	return out
}

func lookup(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func checkFound(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestFilesOnLinux(t *testing.T) {
	home := writeFiles(t, ".claude.json", ".config/Claude/claude_desktop_config.json", ".cursor/mcp.json",
		".config/Code/User/mcp.json", ".config/Code/User/profiles/1a2b/mcp.json", ".config/Code - Insiders/User/mcp.json",
		".vscode-server/data/User/mcp.json", ".cline/data/settings/cline_mcp_settings.json", ".continue/config.yaml",
		".continue/mcpServers/a.yaml", ".continue/mcpServers/b.json", ".codeium/windsurf/mcp_config.json", ".codeium/mcp_config.json",
		".config/devin/mcp_config.json", ".codex/config.toml", ".gemini/settings.json", ".config/opencode/opencode.jsonc",
		".qwen/settings.json", ".config/zed/settings.json", ".copilot/mcp-config.json", ".config/goose/config.yaml")
	checkFound(t, found(t, home, Env{GOOS: "linux", Home: home}),
		"claude-code user .claude.json",
		"claude-desktop user .config/Claude/claude_desktop_config.json",
		"cursor user .cursor/mcp.json",
		"vscode user .config/Code/User/mcp.json",
		"vscode user .config/Code/User/profiles/1a2b/mcp.json",
		"vscode user .config/Code - Insiders/User/mcp.json",
		"vscode user .vscode-server/data/User/mcp.json",
		"cline user .cline/data/settings/cline_mcp_settings.json",
		"continue user .continue/config.yaml",
		"continue user .continue/mcpServers/a.yaml",
		"continue user .continue/mcpServers/b.json",
		"windsurf user .codeium/windsurf/mcp_config.json",
		"windsurf user .codeium/mcp_config.json",
		"windsurf user .config/devin/mcp_config.json",
		"codex user .codex/config.toml",
		"gemini user .gemini/settings.json",
		"opencode user .config/opencode/opencode.jsonc",
		"qwen user .qwen/settings.json",
		"zed user .config/zed/settings.json",
		"copilot user .copilot/mcp-config.json",
		"goose user .config/goose/config.yaml",
	)
}

func TestFilesOnMacOS(t *testing.T) {
	support := "Library/Application Support/"
	home := writeFiles(t, support+"Claude/claude_desktop_config.json", support+"Code/User/mcp.json", ".config/zed/settings.json", ".config/goose/config.yaml", ".config/opencode/opencode.json")
	checkFound(t, found(t, home, Env{GOOS: "darwin", Home: home}),
		"claude-desktop user "+support+"Claude/claude_desktop_config.json",
		"vscode user "+support+"Code/User/mcp.json",
		"opencode user .config/opencode/opencode.json",
		"zed user .config/zed/settings.json",
		"goose user .config/goose/config.yaml",
	)
}

// Claude Desktop from the Microsoft Store reads a folder of its package.
func TestFilesOnWindows(t *testing.T) {
	store := "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude/claude_desktop_config.json"
	home := writeFiles(t, "AppData/Roaming/Claude/claude_desktop_config.json", store, "AppData/Roaming/Code/User/mcp.json",
		"AppData/Roaming/Zed/settings.json", "AppData/Roaming/Block/goose/config/config.yaml", "AppData/Roaming/devin/mcp_config.json", ".codex/config.toml")
	checkFound(t, found(t, home, Env{GOOS: "windows", Home: home}),
		"claude-desktop user AppData/Roaming/Claude/claude_desktop_config.json",
		"claude-desktop user "+store,
		"vscode user AppData/Roaming/Code/User/mcp.json",
		"windsurf user AppData/Roaming/devin/mcp_config.json",
		"codex user .codex/config.toml",
		"zed user AppData/Roaming/Zed/settings.json",
		"goose user AppData/Roaming/Block/goose/config/config.yaml",
	)
}

// Variables move the files, and what is at the usual place is not read.
func TestVariablesMoveTheFiles(t *testing.T) {
	dir := writeFiles(t, "c/.claude.json", "x/config.toml", "g/.gemini/settings.json", "q/settings.json", "p/mcp-config.json",
		"xdg/opencode/opencode.json", "xdg/zed/settings.json", "cl/data/settings/cline_mcp_settings.json", "gp/config/config.yaml", "ct/config.yaml",
		"oc/custom.json", "home/.claude.json", "home/.codex/config.toml", "home/.gemini/settings.json", "home/.cline/data/settings/cline_mcp_settings.json")
	vars := map[string]string{}
	for name, sub := range map[string]string{"CLAUDE_CONFIG_DIR": "c", "CODEX_HOME": "x", "GEMINI_CLI_HOME": "g", "QWEN_HOME": "q", "COPILOT_HOME": "p",
		"XDG_CONFIG_HOME": "xdg", "CLINE_DIR": "cl", "GOOSE_PATH_ROOT": "gp", "CONTINUE_GLOBAL_DIR": "ct", "OPENCODE_CONFIG": "oc/custom.json"} {
		vars[name] = filepath.Join(dir, sub)
	}
	checkFound(t, found(t, dir, Env{GOOS: "linux", Home: filepath.Join(dir, "home"), Lookup: lookup(vars)}),
		"claude-code user c/.claude.json",
		"cline user cl/data/settings/cline_mcp_settings.json",
		"continue user ct/config.yaml",
		"codex user x/config.toml",
		"gemini user g/.gemini/settings.json",
		"opencode user xdg/opencode/opencode.json",
		"opencode user oc/custom.json",
		"qwen user q/settings.json",
		"zed user xdg/zed/settings.json",
		"copilot user p/mcp-config.json",
		"goose user gp/config/config.yaml",
	)
	vars["CLINE_DATA_DIR"] = filepath.Join(dir, "home", ".cline", "data")
	vars["CLINE_MCP_SETTINGS_PATH"] = filepath.Join(dir, "oc", "custom.json")
	if f, _ := Default(Env{GOOS: "linux", Home: dir, Lookup: lookup(vars)}, "cline"); f.Path != vars["CLINE_MCP_SETTINGS_PATH"] {
		t.Errorf("cline's own path is %s", f.Path)
	}
}

// Cline imports its old files once: they count only before the shared file exists.
func TestOldFilesOfClineCountUntilTheyAreImported(t *testing.T) {
	old := ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
	home := writeFiles(t, old)
	checkFound(t, found(t, home, Env{GOOS: "linux", Home: home}), "cline user "+old)
	home = writeFiles(t, old, ".cline/data/settings/cline_mcp_settings.json")
	checkFound(t, found(t, home, Env{GOOS: "linux", Home: home}), "cline user .cline/data/settings/cline_mcp_settings.json")
}

// A project's files are those from the working directory up to the root of the repository, and no further.
func TestFilesOfAProject(t *testing.T) {
	home := writeFiles(t, ".mcp.json", "src/.mcp.json", "src/web/.git/HEAD", "src/web/.mcp.json", "src/web/.vscode/mcp.json", "src/web/app/.cursor/mcp.json",
		"src/web/.codex/config.toml", "src/web/.gemini/settings.json", "src/web/.qwen/settings.json", "src/web/.zed/settings.json",
		"src/web/.github/mcp.json", "src/web/opencode.json", "src/web/.opencode/opencode.jsonc", "src/web/.continue/mcpServers/db.yaml", "src/web/.devin/mcp_config.json")
	env := Env{GOOS: "linux", Home: home, Cwd: filepath.Join(home, "src", "web", "app")}
	checkFound(t, found(t, home, env),
		"cursor project src/web/app/.cursor/mcp.json",
		"claude-code project src/web/.mcp.json",
		"vscode project src/web/.vscode/mcp.json",
		"continue project src/web/.continue/mcpServers/db.yaml",
		"windsurf project src/web/.devin/mcp_config.json",
		"codex project src/web/.codex/config.toml",
		"gemini project src/web/.gemini/settings.json",
		"opencode project src/web/opencode.json",
		"opencode project src/web/.opencode/opencode.jsonc",
		"qwen project src/web/.qwen/settings.json",
		"zed project src/web/.zed/settings.json",
		"copilot project src/web/.github/mcp.json",
	)
	env.Cwd = filepath.Join(home, "src")
	checkFound(t, found(t, home, env), "claude-code project src/.mcp.json")
}

// In the home directory, a user's file is not a project's, too.
func TestAFileOfTheUserIsNotOneOfAProject(t *testing.T) {
	home := writeFiles(t, ".cursor/mcp.json", ".gemini/settings.json")
	checkFound(t, found(t, home, Env{GOOS: "linux", Home: home, Cwd: home}), "cursor user .cursor/mcp.json", "gemini user .gemini/settings.json")
}

// One .mcp.json serves several clients: whoever edits it is told.
func TestSharedFilesNameTheirOtherReaders(t *testing.T) {
	f := At(testEnv("/home/ann"), "claude-code", "/home/ann/web/.mcp.json", Project)
	if !slices.Equal(f.ReadBy, []string{"copilot", "vscode", "qwen"}) {
		t.Errorf("read by %v", f.ReadBy)
	}
	if f := At(testEnv("/home/ann"), "cursor", "/home/ann/.cursor/mcp.json", User); f.ReadBy != nil {
		t.Errorf("read by %v", f.ReadBy)
	}
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
