package clientfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// Clients are the ids of the clients whose files are known, in the order of Find.
var Clients = []string{
	"claude-code", "claude-desktop", "cursor", "vscode", "cline", "continue", "windsurf", "codex", "gemini",
	"opencode", "qwen", "zed", "copilot", "goose",
}

// Find lists the files of all clients that exist: those of the user first, then those of the project of env.Cwd.
func Find(env Env) []File {
	l := locator{env: env}
	for _, client := range Clients {
		l.addUser(client)
	}
	for _, dir := range projectDirs(env) {
		for _, client := range Clients {
			l.addProject(client, dir)
		}
	}
	return l.existing()
}

// existing returns the files that exist, each once.
func (l *locator) existing() []File {
	var found []File
	seen := map[string]bool{}
	for _, f := range l.files {
		if f.Exists && !seen[f.Path] {
			seen[f.Path] = true
			found = append(found, f)
		}
	}
	return found
}

// readFile reads a file of a size that an editor accepts.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > textedit.MaxBytes {
		return nil, fmt.Errorf("%s has %d bytes; more than %d are not read", path, info.Size(), textedit.MaxBytes)
	}
	return os.ReadFile(path)
}

// Default returns the user's file of a client: the first that exists, or the one that the client would make.
func Default(env Env, client string) (File, bool) {
	l := locator{env: env}
	l.addUser(client)
	for _, f := range l.files {
		if f.Exists {
			return f, true
		}
	}
	if len(l.files) == 0 {
		return File{}, false
	}
	return l.files[0], true
}

// At returns a client's file at a known path, such as one that was found earlier.
func At(env Env, client, path string, scope Scope) File {
	f := File{Client: client, Path: path, Scope: scope, env: env}
	if scope == Project {
		f.root = rootOf(path)
	}
	info, err := os.Stat(path)
	f.Exists = err == nil && info.Mode().IsRegular()
	f.ReadBy = readBy(f)
	return f
}

// rootOf returns the directory that a project's file is for: where it is, or above the client's own folder.
func rootOf(path string) string {
	dir := filepath.Dir(path)
	if filepath.Base(dir) == "mcpServers" {
		dir = filepath.Dir(dir)
	}
	switch filepath.Base(dir) {
	case ".claude", ".cursor", ".vscode", ".continue", ".devin", ".codex", ".gemini", ".qwen", ".opencode", ".zed", ".github":
		dir = filepath.Dir(dir)
	}
	return dir
}

// readBy returns the other clients that read a file.
func readBy(f File) []string {
	switch {
	case filepath.Base(f.Path) == ".mcp.json":
		return without([]string{"claude-code", "copilot", "vscode", "qwen"}, f.Client)
	case f.Client == "copilot" && f.Scope == User:
		return []string{"vscode"} // its agent host
	}
	return nil
}

func without(list []string, one string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == one })
}

// projectDirs returns the directories from env.Cwd up to the root of its repository; only env.Cwd without one.
func projectDirs(env Env) []string {
	if env.Cwd == "" {
		return nil
	}
	dirs := []string{env.Cwd}
	for dir := env.Cwd; len(dirs) < 64; dir = filepath.Dir(dir) {
		if dir != env.Cwd {
			dirs = append(dirs, dir)
		}
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dirs
		}
		if dir == filepath.Dir(dir) || dir == env.Home {
			break
		}
	}
	return dirs[:1]
}

// locator collects the places of files.
type locator struct {
	env   Env
	files []File
}

func (l *locator) add(client string, scope Scope, paths ...string) {
	for _, p := range paths {
		if filepath.IsAbs(p) {
			l.files = append(l.files, At(l.env, client, filepath.Clean(p), scope))
		}
	}
}

// addMatches adds the files that match a pattern.
func (l *locator) addMatches(client string, scope Scope, patterns ...string) {
	for _, p := range patterns {
		if matches, err := filepath.Glob(p); err == nil {
			l.add(client, scope, matches...)
		}
	}
}

func (l *locator) variable(name string) string {
	if l.env.Lookup == nil {
		return ""
	}
	v, _ := l.env.Lookup(name)
	return v
}

// override returns the variable's value, or the default.
func (l *locator) override(name, otherwise string) string {
	if v := l.variable(name); v != "" {
		return v
	}
	return otherwise
}

func (l *locator) home(names ...string) string {
	return filepath.Join(append([]string{l.env.Home}, names...)...)
}

func (l *locator) appData() string { return l.override("APPDATA", l.home("AppData", "Roaming")) }

// xdg returns a directory below $XDG_CONFIG_HOME or ~/.config. macOS tools that follow XDG do the same.
func (l *locator) xdg(names ...string) string {
	return filepath.Join(append([]string{l.override("XDG_CONFIG_HOME", l.home(".config"))}, names...)...)
}

// appConfig returns the directory of a desktop application.
func (l *locator) appConfig(name string) string {
	switch l.env.GOOS {
	case "windows":
		return filepath.Join(l.appData(), name)
	case "darwin":
		return l.home("Library", "Application Support", name)
	}
	return l.xdg(name)
}

// codeDirs are the user directories of VS Code and its Insiders build.
func (l *locator) codeDirs() []string {
	return []string{filepath.Join(l.appConfig("Code"), "User"), filepath.Join(l.appConfig("Code - Insiders"), "User")}
}

// managedServers returns the file of an administrator that takes the place of all other servers of Claude Code; empty
// without one.
func (e Env) managedServers() string {
	path := "/etc/claude-code/managed-mcp.json"
	switch e.GOOS {
	case "darwin":
		path = "/Library/Application Support/ClaudeCode/managed-mcp.json"
	case "windows":
		path = `C:\Program Files\ClaudeCode\managed-mcp.json`
	}
	if e.System != "" {
		path = filepath.Join(e.System, path)
	}
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// addUser adds the user's files of a client, the one that it would make first.
func (l *locator) addUser(client string) {
	isWindows := l.env.GOOS == "windows"
	switch client {
	case "claude-code":
		l.add(client, User, filepath.Join(l.override("CLAUDE_CONFIG_DIR", l.env.Home), ".claude.json"))
	case "claude-desktop":
		l.add(client, User, filepath.Join(l.appConfig("Claude"), "claude_desktop_config.json"))
		if isWindows { // installed from the store, it reads another folder
			local := l.override("LOCALAPPDATA", l.home("AppData", "Local"))
			l.addMatches(client, User, filepath.Join(local, "Packages", "Claude_*", "LocalCache", "Roaming", "Claude", "claude_desktop_config.json"))
		}
	case "cursor":
		l.add(client, User, l.home(".cursor", "mcp.json"))
	case "vscode":
		for _, dir := range append(l.codeDirs(), l.home(".vscode-server", "data", "User"), l.home(".vscode-server-insiders", "data", "User")) {
			l.add(client, User, filepath.Join(dir, "mcp.json"))
			l.addMatches(client, User, filepath.Join(dir, "profiles", "*", "mcp.json"))
		}
		for _, dir := range l.codeDirs() {
			l.add(client, User, filepath.Join(dir, "settings.json")) // servers of versions before 1.102
		}
	case "cline":
		l.addCline()
	case "continue":
		dir := l.override("CONTINUE_GLOBAL_DIR", l.home(".continue"))
		l.add(client, User, filepath.Join(dir, "config.yaml"))
		l.addBlocks(User, dir)
	case "windsurf":
		l.addWindsurf()
	case "codex":
		l.add(client, User, filepath.Join(l.override("CODEX_HOME", l.home(".codex")), "config.toml"))
	case "gemini":
		l.add(client, User, filepath.Join(l.override("GEMINI_CLI_HOME", l.env.Home), ".gemini", "settings.json"))
	case "qwen":
		l.add(client, User, filepath.Join(l.override("QWEN_HOME", l.home(".qwen")), "settings.json"))
	case "opencode":
		l.add(client, User, opencodeFiles(l.xdg("opencode"))...)
		if dir := l.variable("OPENCODE_CONFIG_DIR"); dir != "" {
			l.add(client, User, opencodeFiles(dir)...)
		}
		l.add(client, User, l.variable("OPENCODE_CONFIG"))
	case "zed":
		dir := l.xdg("zed")
		if isWindows {
			dir = filepath.Join(l.appData(), "Zed")
		} else if l.env.GOOS == "darwin" {
			dir = l.home(".config", "zed")
		}
		l.add(client, User, filepath.Join(dir, "settings.json"))
	case "copilot":
		l.add(client, User, filepath.Join(l.override("COPILOT_HOME", l.home(".copilot")), "mcp-config.json"))
	case "goose":
		dir := l.xdg("goose")
		if isWindows {
			dir = filepath.Join(l.appData(), "Block", "goose", "config")
		}
		if root := l.variable("GOOSE_PATH_ROOT"); root != "" {
			dir = filepath.Join(root, "config")
		}
		l.add(client, User, filepath.Join(dir, "config.yaml"))
	}
}

// addCline adds the file that all of Cline's programs share or, before that exists, those that they import it from.
func (l *locator) addCline() {
	data := l.override("CLINE_DATA_DIR", filepath.Join(l.override("CLINE_DIR", l.home(".cline")), "data"))
	shared := l.override("CLINE_MCP_SETTINGS_PATH", filepath.Join(data, "settings", "cline_mcp_settings.json"))
	l.add("cline", User, shared)
	if n := len(l.files); n > 0 && l.files[n-1].Exists {
		return // the old places are no longer read
	}
	for _, dir := range l.codeDirs() {
		l.add("cline", User, filepath.Join(dir, "globalStorage", "saoudrizwan.claude-dev", "settings", "cline_mcp_settings.json"))
	}
	l.add("cline", User, l.home("Documents", "Cline", "MCP", "cline_mcp_settings.json"))
}

// addWindsurf adds the files of Windsurf, of its plugin for other editors, and of Devin Desktop, which replaced it and
// whose tabs read either file.
func (l *locator) addWindsurf() {
	l.add("windsurf", User, l.home(".codeium", "windsurf", "mcp_config.json"), l.home(".codeium", "mcp_config.json"))
	dir := l.xdg("devin")
	if l.env.GOOS == "windows" {
		dir = filepath.Join(l.appData(), "devin")
	}
	l.add("windsurf", User, filepath.Join(dir, "mcp_config.json"))
}

func (l *locator) addBlocks(scope Scope, dir string) {
	for _, ext := range []string{"*.yaml", "*.yml", "*.json"} {
		l.addMatches("continue", scope, filepath.Join(dir, "mcpServers", ext))
	}
}

// opencodeFiles are merged by opencode; the first is the one that it makes.
func opencodeFiles(dir string) []string {
	return []string{filepath.Join(dir, "opencode.json"), filepath.Join(dir, "opencode.jsonc"), filepath.Join(dir, "config.json")}
}

// addProject adds the files of a project directory.
func (l *locator) addProject(client, dir string) {
	in := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	switch client {
	case "claude-code":
		l.add(client, Project, in(".mcp.json"))
	case "cursor":
		l.add(client, Project, in(".cursor", "mcp.json"))
	case "vscode":
		l.add(client, Project, in(".vscode", "mcp.json"))
	case "continue":
		l.addBlocks(Project, in(".continue"))
	case "windsurf":
		l.add(client, Project, in(".devin", "mcp_config.json"))
	case "codex":
		l.add(client, Project, in(".codex", "config.toml"))
	case "gemini", "qwen", "zed":
		l.add(client, Project, in("."+client, "settings.json"))
	case "opencode":
		l.add(client, Project, in("opencode.json"), in("opencode.jsonc"), in(".opencode", "opencode.json"), in(".opencode", "opencode.jsonc"))
	case "copilot":
		l.add(client, Project, in(".github", "mcp.json"))
	}
}

// Reload says what the user does so that a client reads its file again.
func (f File) Reload() string {
	if f.Scope == Project {
		switch f.Client {
		case "claude-code":
			return "start Claude Code in the project, and approve ctxgate, for which it asks once"
		case "codex", "gemini", "copilot":
			return "start a new session in the project; its folder must be trusted"
		}
	}
	switch f.Client {
	case "claude-code":
		return "start a new Claude Code session"
	case "claude-desktop":
		return "quit Claude Desktop from the tray or menu bar, and start it again"
	case "cursor":
		return "turn ctxgate on in Cursor's settings under MCP, or restart Cursor"
	case "vscode":
		return "run \"MCP: List Servers\" in VS Code and start ctxgate; VS Code asks whether you trust it"
	case "cline", "zed":
		return "" // they watch the file
	case "windsurf":
		return "press Refresh in the MCP panel"
	case "gemini", "copilot":
		return "run /mcp reload, or start a new session"
	}
	return "start a new session"
}

// SecretsFile is the file in which a client looks up its secret references, or empty.
func (f File) SecretsFile() string {
	if f.Client != "continue" {
		return ""
	}
	if f.Scope == Project {
		return filepath.Join(f.root, ".env")
	}
	dir := filepath.Dir(f.Path)
	return filepath.Join(strings.TrimSuffix(dir, string(filepath.Separator)+"mcpServers"), ".env")
}
