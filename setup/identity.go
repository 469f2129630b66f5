package setup

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/setup/clientfile"
	"github.com/ctxgate/ctxgate/upstream"
)

// identity is what makes two entries the same server: what is started with which variables, or which address is called
// with which headers. Variables are compared by their values, so that a reference equals the text it stands for.
func identity(s clientfile.Server, home string, lookup func(string) (string, bool)) string {
	resolve := func(v clientfile.Value) string {
		var b strings.Builder
		for _, p := range v.Parts {
			value, isSet := "", false
			if p.Kind == clientfile.EnvRef {
				if value, isSet = lookup(p.Name); !isSet && p.Default != "" {
					value, isSet = p.Default, true
				}
			}
			switch {
			case isSet:
				b.WriteString(value)
			case p.Kind == clientfile.EnvRef || p.Kind == clientfile.SecretRef:
				b.WriteString("\x01" + p.Name + "\x02")
			default:
				b.WriteString(p.Text)
			}
		}
		return expandHome(b.String(), home) // as the configuration does
	}
	var words []string
	if s.Transport == clientfile.Stdio {
		for _, v := range append([]clientfile.Value{s.Command}, s.Args...) {
			words = append(words, resolve(v))
		}
		words = append([]string{"command"}, normalCommand(words)...)
		words = append(words, "\x00cwd", resolve(s.Cwd), "\x00env")
		vars := map[string]string{}
		for _, v := range s.Env {
			vars[v.Name] = resolve(v.Value)
		}
		for _, name := range s.PassEnv {
			if value, isSet := lookup(name); isSet {
				vars[name] = value
			} else {
				vars[name] = "\x01" + name + "\x02"
			}
		}
		return identityText(words, vars)
	}
	headers := map[string]string{}
	for _, h := range s.Headers {
		headers[strings.ToLower(h.Name)] = resolve(h.Value)
	}
	return identityText([]string{"url", normalURL(resolve(s.URL)), "\x00headers"}, headers)
}

// configIdentity is identity for an entry of the configuration. Its references are resolved where that is possible.
func configIdentity(s upstream.ServerConfig, lookup func(string) (string, bool)) string {
	resolved := map[string]string{}
	if len(s.Command) > 0 {
		for name, t := range s.Env {
			if v, err := t.Resolve(lookup); err == nil {
				resolved[name] = v.Reveal()
			} else if vars := t.Variables(); len(vars) == 1 {
				resolved[name] = "\x01" + vars[0] + "\x02"
			}
		}
		words := append([]string{"command"}, normalCommand(s.Command)...)
		return identityText(append(words, "\x00cwd", s.Cwd, "\x00env"), resolved)
	}
	for name, t := range s.Headers {
		if v, err := t.Resolve(lookup); err == nil {
			resolved[strings.ToLower(name)] = v.Reveal()
		} else if vars := t.Variables(); len(vars) == 1 {
			scheme, _, _ := strings.Cut(t.Source(), "env:")
			resolved[strings.ToLower(name)] = scheme + "\x01" + vars[0] + "\x02"
		}
	}
	address := s.URL.Reveal()
	if u, err := s.URL.Resolve(lookup); err == nil {
		address = u.Reveal()
	}
	return identityText([]string{"url", normalURL(address), "\x00headers"}, resolved)
}

func identityText(words []string, vars map[string]string) string {
	names := make([]string, 0, len(vars))
	for name := range vars {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		words = append(words, name, vars[name])
	}
	return strings.Join(words, "\x00")
}

// normalCommand writes commands that do the same in one way: npx with or without -y, npx.cmd, cmd /c npx.
func normalCommand(words []string) []string {
	words = slices.Clone(words)
	if len(words) > 2 && programName(words[0]) == "cmd" && strings.EqualFold(words[1], "/c") {
		words = words[2:]
	}
	if len(words) == 0 {
		return words
	}
	if name := programName(words[0]); name == "npx" || name == "uvx" || name == "bunx" {
		words[0] = name
		for len(words) > 1 && (words[1] == "-y" || words[1] == "--yes") {
			words = slices.Delete(words, 1, 2)
		}
	}
	return words
}

func programName(file string) string {
	name := strings.ToLower(path.Base(strings.ReplaceAll(file, `\`, "/")))
	for _, ext := range []string{".exe", ".cmd", ".bat"} {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

func normalURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	u.Host = strings.TrimSuffix(u.Host, map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
	u.Path, u.Fragment = strings.TrimRight(u.Path, "/"), ""
	return u.String()
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// reservedIDs are the servers that are part of the gateway.
var reservedIDs = []string{"pruner", "ctxgate"}

// idSet gives servers ids that are valid and not taken.
type idSet map[string]bool

// choose returns an id for a server of a client: its name, else with the client's id, else with a number.
func (taken idSet) choose(name, client string) string {
	id := strings.Trim(notInID.ReplaceAllString(name, "-"), "-._")
	if id == "" {
		id = "server"
	}
	if limit := 48 - len(client); len(id) > limit {
		id = strings.TrimRight(id[:limit], "-._")
	}
	candidate := id
	for i := 1; taken[strings.ToLower(candidate)] || slices.Contains(reservedIDs, strings.ToLower(candidate)); i++ {
		if candidate = id + "-" + client; i > 1 {
			candidate += "-" + strconv.Itoa(i)
		}
	}
	taken[strings.ToLower(candidate)] = true
	return candidate
}
