package upstream

import (
	"path"
	"slices"
	"strings"
)

// launcher is a program that fetches another one, if it is not there yet, and runs it.
type launcher struct {
	name string // as progress messages have it: "npx", "docker"
	key  string // of commands that fetch the same thing; two of them must not run at once
}

// fetchers are the launchers, and which of their subcommands fetch; nil for those without subcommands.
var fetchers = map[string][]string{
	"npx": nil, "bunx": nil, "pnpx": nil, "uvx": nil, "dnx": nil,
	"npm": {"exec", "x"}, "pnpm": {"dlx"}, "yarn": {"dlx"}, "bun": {"x"}, "deno": {"run"},
	"uv": {"run", "tool"}, "pipx": {"run"}, "go": {"run"}, "nix": {"run", "shell"},
	"docker": {"run"}, "podman": {"run"}, "nerdctl": {"run"},
}

// launcherOf finds the launcher of a command; nil when the command runs a program that must be there already. It
// sees through env NAME=VALUE, cmd /c and sh -c.
func launcherOf(command []string) *launcher {
	for range 4 {
		if len(command) == 0 {
			return nil
		}
		name, args := programName(command[0]), command[1:]
		switch name {
		case "env":
			isOption := func(a string) bool { return strings.HasPrefix(a, "-") || strings.Contains(a, "=") }
			command = dropWhile(args, isOption)
			continue
		case "cmd":
			command = dropWhile(args, func(a string) bool { return strings.HasPrefix(a, "/") })
			continue
		case "sh", "bash", "zsh", "dash":
			at := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") && strings.HasSuffix(a, "c") })
			if at < 0 || at+1 >= len(args) {
				return nil
			}
			command = strings.Fields(args[at+1])
			if len(command) > 0 && command[0] == "exec" {
				command = command[1:]
			}
			continue
		}
		subcommands, ok := fetchers[name]
		if !ok {
			return nil
		}
		if subcommands != nil {
			at := slices.IndexFunc(args, func(a string) bool { return slices.Contains(subcommands, a) })
			if at < 0 || !areOptions(args[:at]) {
				return nil
			}
			args = args[at+1:]
		}
		rest := dropWhile(args, isFlag)
		l := &launcher{name: name, key: name}
		if len(rest) > 0 {
			l.key += " " + rest[0]
		}
		return l
	}
	return nil
}

// programName is the name of a program without its folder and extension.
func programName(file string) string {
	name := strings.ToLower(path.Base(strings.ReplaceAll(file, `\`, "/")))
	for _, ext := range []string{".exe", ".cmd", ".bat", ".ps1"} {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// areOptions reports whether arguments are only flags, with or without a value: nothing before them is a subcommand.
func areOptions(args []string) bool {
	for i, a := range args {
		if !isFlag(a) && (i == 0 || !isFlag(args[i-1])) {
			return false
		}
	}
	return true
}

func isFlag(arg string) bool { return strings.HasPrefix(arg, "-") }

// dropWhile is the list from its first element for which drop is false.
func dropWhile(list []string, drop func(string) bool) []string {
	for len(list) > 0 && drop(list[0]) {
		list = list[1:]
	}
	return list
}
