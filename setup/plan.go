package setup

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// Plan is what init found and what it would do.
type Plan struct {
	Options
	Files   []FoundFile  // the clients' files that the plan is about
	Ignored []FoundFile  // files of the project that were seen, but are not part of the plan
	Servers []*NewServer // what is added to the configuration, in order
	Edits   []Edit       // every file that is written, in order
	Notes   []string     // what the user should know

	vault       *vault
	configIsNew bool
	rules       []string // the files in which only rules for tools change
	vars        []string // the variables that ctxgate needs
}

// FoundFile is a file of a client.
type FoundFile struct {
	clientfile.File
	Servers []FoundServer
	Err     error // why the file could not be used
	Changes bool  // the plan changes it

	data     []byte
	isForced bool // the user named the client: it is connected even without servers
}

func (f *FoundFile) hasGateway() bool {
	return slices.ContainsFunc(f.Servers, func(s FoundServer) bool { return s.Gateway })
}

// lacksVariable reports whether the file's client would start ctxgate without a variable that a server needs: one that
// has moved since the client was connected.
func (f *FoundFile) lacksVariable(vars []string) bool {
	if !slices.Contains([]string{"codex", "gemini", "cursor", "vscode", "windsurf"}, f.Client) {
		return false // it passes its whole environment on, or nothing can be done about it
	}
	for _, s := range f.Servers {
		if s.Gateway && s.Name == gatewayName {
			return slices.ContainsFunc(vars, func(name string) bool {
				isSet := slices.ContainsFunc(s.Env, func(v clientfile.Var) bool { return v.Name == name })
				return !isSet && !slices.Contains(s.PassEnv, name)
			})
		}
	}
	return false
}

// otherConfig is an error if the file starts ctxgate with another configuration: its servers belong there.
func (f *FoundFile) otherConfig(own string) error {
	for _, s := range f.Servers {
		for i, a := range s.Args {
			path, isFlag := strings.CutPrefix(a.String(), "--config=")
			if (a.String() == "--config" || a.String() == "-c") && i+1 < len(s.Args) {
				path, isFlag = s.Args[i+1].String(), true
			}
			if s.Gateway && isFlag && filepath.IsAbs(path) && filepath.Clean(path) != own {
				return fmt.Errorf("it starts ctxgate with %s; 'ctxgate init --config %s' moves its servers there", path, path)
			}
		}
	}
	return nil
}

// FoundServer is a server in a client's file.
type FoundServer struct {
	clientfile.Server
	ID     string // in ctxgate; "" if it stays
	Stays  string // why it stays
	SameAs string // the id of a server that was there before: in another file, or in the configuration
	Hidden []string
}

// NewServer is an entry to add to the configuration.
type NewServer struct {
	Entry
	From    []string // where it came from
	Comment string   // what its author wrote about it
}

// NewPlan finds the servers of all clients and works out what to change. It changes nothing.
func NewPlan(opts Options) (*Plan, error) {
	failed := map[string]error{} // files that turned out to be unusable
	for {
		p := &Plan{Options: opts, vault: newVault(opts.Config, opts.Secrets, opts.Home, opts.Env)}
		if err := p.find(failed); err != nil {
			return nil, err
		}
		if err := p.moveServers(); err != nil {
			return nil, err
		}
		before := len(failed)
		if err := p.editFiles(failed); err != nil {
			return nil, err
		}
		if len(failed) == before {
			return p, nil
		}
	}
}

// CheckClients reports a client that is not known.
func (o Options) CheckClients() error {
	for _, c := range o.Clients {
		if !slices.Contains(clientfile.Clients, c) {
			return fmt.Errorf("unknown client %q; the clients are %s", c, strings.Join(clientfile.Clients, ", "))
		}
	}
	return nil
}

// find reads the clients' files.
func (p *Plan) find(failed map[string]error) error {
	env := p.clientEnv()
	if err := p.CheckClients(); err != nil {
		return err
	}
	all := clientfile.Find(env)
	if !p.Project {
		for _, c := range p.Clients { // a client that the user names is connected even if it has no file yet
			isFound := slices.ContainsFunc(all, func(f clientfile.File) bool { return f.Client == c && f.Scope == clientfile.User })
			if f, ok := clientfile.Default(env, c); ok && !isFound {
				all = append(all, f)
			}
		}
	}
	for _, f := range all {
		if len(p.Clients) > 0 && !slices.Contains(p.Clients, f.Client) {
			continue
		}
		found := FoundFile{File: f}
		if found.data, found.Err = ReadExisting(f.Path); found.Err == nil {
			var content clientfile.Content
			content, found.Err = f.Read(found.data)
			for _, s := range content.Servers {
				found.Servers = append(found.Servers, FoundServer{Server: s})
			}
			if found.Err == nil {
				found.Err = cmp.Or(failed[f.Path], found.otherConfig(p.Config))
			}
		}
		isWanted := p.Project == (f.Scope == clientfile.Project)
		found.isForced = isWanted && len(p.Clients) > 0 && found.Err == nil && f.Scope == clientfile.User
		switch {
		case isWanted && (len(found.Servers) > 0 || found.Err != nil || found.isForced):
			p.Files = append(p.Files, found)
		case !isWanted && f.Scope == clientfile.Project && slices.ContainsFunc(found.Servers, func(s FoundServer) bool { return !s.Gateway }):
			p.Ignored = append(p.Ignored, found)
		}
	}
	p.connectFirstFileOnly()
	return nil
}

// connectFirstFileOnly lets a client that has several files, and that the user named, be connected in the first only.
func (p *Plan) connectFirstFileOnly() {
	seen := map[string]bool{}
	for i := range p.Files {
		f := &p.Files[i]
		if f.Err == nil && seen[f.Client] {
			f.isForced = false
		}
		seen[f.Client] = seen[f.Client] || f.Err == nil
	}
}

// moveServers decides which servers move, and converts those that are new.
func (p *Plan) moveServers() error {
	known, taken, err := p.knownServers()
	if err != nil {
		return err
	}
	for i := range p.Files {
		for j := range p.Files[i].Servers {
			if p.Files[i].Err != nil {
				break
			}
			p.moveServer(&p.Files[i], &p.Files[i].Servers[j], known, taken)
		}
	}
	return nil
}

var commandVariable = regexp.MustCompile(`\$\{env:([A-Za-z_][A-Za-z0-9_]*)`)

// knownServers are the servers of a configuration that exists, by identity.
func (p *Plan) knownServers() (known map[string]string, taken idSet, err error) {
	known, taken = map[string]string{}, idSet{}
	data, err := ReadExisting(p.Config)
	if err != nil {
		return nil, nil, err
	}
	if p.configIsNew = data == nil; p.configIsNew {
		return known, taken, nil
	}
	loaded, problems := config.LoadBytes(p.Config, data, p.Env)
	if len(problems) > 0 {
		return nil, nil, fmt.Errorf("correct the configuration first ('ctxgate check --config %s'):\n%w", p.Config, problems)
	}
	for _, s := range loaded.Upstream.Servers {
		taken[strings.ToLower(s.ID)] = true
		if s.Disabled {
			continue
		}
		for _, t := range s.Env {
			p.vars = append(p.vars, t.Variables()...)
		}
		for _, t := range s.Headers {
			p.vars = append(p.vars, t.Variables()...)
		}
		p.vars = append(p.vars, s.URL.Variables()...)
		for _, m := range commandVariable.FindAllStringSubmatch(strings.Join(s.Command, "\n"), -1) {
			p.vars = append(p.vars, m[1])
		}
	}
	_ = loaded.ResolveSecrets(p.Env) // what cannot be resolved is compared as it is written
	for _, s := range loaded.Upstream.Servers {
		known[configIdentity(s, p.Env.Lookup)] = s.ID
	}
	if loaded.Profile != "agents" {
		p.Notes = append(p.Notes, fmt.Sprintf("%s has profile = %q; most agents work better with profile = \"agents\".", p.Tilde(p.Config), loaded.Profile))
	}
	return known, taken, nil
}

// moveServer decides about one server.
func (p *Plan) moveServer(f *FoundFile, s *FoundServer, known map[string]string, taken idSet) {
	switch {
	case s.Keep != "":
		s.Stays = s.Keep
		return
	case s.Project != "":
		s.Stays = "it is for the directory " + p.Tilde(s.Project) + " only"
		return
	}
	from := titleOf(f.Client) + " (" + p.Tilde(f.Path) + ")"
	key := identity(s.Server, p.Home, p.Env.Lookup)
	if id, ok := known[key]; ok {
		s.ID, s.SameAs = id, id
		if n := p.newServer(id); n != nil {
			n.From = append(n.From, from)
			p.mergeSettings(n, s.Server)
		}
		// Its credentials must not be printed either.
		c := converter{vault: newVault(p.Config, p.Secrets, p.Home, p.Env), id: id, file: f.File, home: p.Home}
		_, _ = c.newEntry(s.Server)
		p.vault.values, p.vault.names = append(p.vault.values, c.vault.values...), append(p.vault.names, c.vault.names...)
		return
	}
	candidate := idSet{}
	for id := range taken {
		candidate[id] = true
	}
	id := candidate.choose(s.Name, f.Client)
	before := len(p.vault.names)
	c := converter{vault: p.vault.copy(), id: id, file: f.File, home: p.Home}
	entry, err := c.newEntry(s.Server)
	if err == nil { // what ctxgate would refuse stays as well
		if _, problems := config.LoadBytes("server.toml", []byte(entry.toml()), nil); len(problems) > 0 {
			err = fmt.Errorf("ctxgate cannot use it: %s", problems[0].Text)
		}
	}
	if err != nil {
		s.Stays = err.Error()
		p.vault.values, p.vault.names = c.vault.values, c.vault.names
		return
	}
	p.vault = c.vault
	s.ID, known[key], taken[strings.ToLower(id)] = id, id, true
	s.Hidden = c.vault.names[before:]
	if !entry.Disabled {
		p.vars = append(p.vars, c.vars...)
	}
	p.Servers = append(p.Servers, &NewServer{Entry: entry, From: []string{from}, Comment: s.Comment})
	for _, note := range s.Notes {
		p.Notes = append(p.Notes, s.Name+": "+note+".")
	}
}

func (p *Plan) newServer(id string) *NewServer {
	for _, n := range p.Servers {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// mergeSettings merges what a second client says about the same server: it is enabled if one client enables it, and
// offers every tool that one of them offers. The longest time limits hold.
func (p *Plan) mergeSettings(n *NewServer, s clientfile.Server) {
	n.Disabled = n.Disabled && s.Disabled
	n.StartupTimeout, n.ResponseTimeout = max(n.StartupTimeout, s.StartupTimeout), max(n.ResponseTimeout, s.Timeout)
	if !slices.Equal(n.EnabledTools, s.EnabledTools) || !slices.Equal(n.DisabledTools, s.DisabledTools) {
		if len(n.EnabledTools) > 0 && len(s.EnabledTools) > 0 {
			n.EnabledTools = slices.Compact(slices.Sorted(slices.Values(slices.Concat(n.EnabledTools, s.EnabledTools))))
		} else {
			n.EnabledTools = nil
		}
		n.DisabledTools = slices.DeleteFunc(slices.Clone(n.DisabledTools), func(t string) bool { return !slices.Contains(s.DisabledTools, t) })
		p.Notes = append(p.Notes, n.ID+": your clients limit its tools differently; in ctxgate every tool is offered that one of them offered. See enabled_tools and disabled_tools.")
	}
}

// editFiles works out every file to write: the credentials, the configuration, the clients' files.
func (p *Plan) editFiles(failed map[string]error) error {
	slices.Sort(p.vars)
	p.vars = slices.Compact(p.vars)
	var clients []Edit
	// Continue makes one list of all its files: a second entry would start ctxgate twice.
	isConnected := slices.ContainsFunc(p.Files, func(f FoundFile) bool { return f.Client == "continue" && f.hasGateway() })
	for i := range p.Files {
		f := &p.Files[i]
		if f.Err != nil {
			continue
		}
		edit, ok, err := p.rewire(f, f.Client != "continue" || !isConnected)
		if err != nil {
			failed[f.Path] = err
			continue
		}
		if ok {
			clients = append(clients, edit)
		}
		isConnected = isConnected || ok && f.Client == "continue"
	}
	clients = append(clients, p.renameRules()...)
	// A client that starts ctxgate needs the file, even one without servers.
	needsConfig := len(clients) > 0 || slices.ContainsFunc(p.Files, func(f FoundFile) bool { return f.Err == nil && f.hasGateway() })
	if len(p.Servers) > 0 || needsConfig && p.configIsNew {
		edit, err := p.editConfig()
		if err != nil {
			return err
		}
		p.Edits = append(p.vault.edits(), edit)
	}
	p.Edits = append(p.Edits, clients...)
	p.addNotes()
	return nil
}

// gatewayName is the name of ctxgate's entry in the clients' files.
const gatewayName = "ctxgate"

// rewire works out a client's file. An error says why it has to be left alone.
func (p *Plan) rewire(f *FoundFile, needsEntry bool) (Edit, bool, error) {
	var moves []clientfile.Move
	for _, s := range f.Servers {
		if s.ID != "" {
			moves = append(moves, clientfile.Move{Server: s.Server, ID: s.ID})
		}
	}
	isConnected := f.hasGateway()
	if len(moves) == 0 && (isConnected && !f.lacksVariable(p.vars) || !isConnected && !f.isForced) {
		return Edit{}, false, nil
	}
	entry := clientfile.Entry{Name: gatewayName, Command: p.Program, Args: []string{"stdio", "--client", f.Client, "--config", p.Config}, PassEnv: p.vars}
	if f.Scope == clientfile.Project && len(f.ReadBy) > 0 {
		entry.Args = []string{"stdio", "--config", p.Config} // one file of several clients: each is known by its clientInfo
	}
	if !needsEntry {
		entry.Name = ""
	}
	rewired, err := f.Rewire(f.data, entry, moves)
	if err == nil && f.data != nil {
		_, _, err = writeTarget(f.Path)
	}
	if err != nil {
		return Edit{}, false, err
	}
	for _, note := range rewired.Notes {
		p.Notes = append(p.Notes, titleOf(f.Client)+": "+note)
	}
	if f.data != nil && bytes.Equal(f.data, rewired.Data) {
		return Edit{}, false, nil
	}
	f.Changes = true
	return Edit{Path: f.Path, Before: f.data, After: rewired.Data, Mode: 0o600, Client: f.Client, IsProject: f.Scope == clientfile.Project}, true, nil
}

// addNotes adds what follows from the plan as a whole.
func (p *Plan) addNotes() {
	var unset []string
	for _, name := range p.vars {
		if v, _ := p.Env.Lookup(name); v == "" {
			unset = append(unset, name)
		}
	}
	if len(unset) > 0 && len(p.Edits) > 0 {
		p.Notes = append(p.Notes, "Not set in this shell: "+strings.Join(unset, ", ")+". A server that needs it stays down, and says so, until ctxgate is started with it.")
	}
	changed := map[string]bool{}
	for _, f := range p.Files {
		if f.Changes {
			changed[f.Client] = true
			if len(f.ReadBy) > 0 {
				p.Notes = append(p.Notes, p.Tilde(f.Path)+" is read by "+joinNames(titlesOf(f.ReadBy))+", too: they see the change.")
			}
		}
	}
	if len(changed) > 1 {
		p.Notes = append(p.Notes, "Every one of these agents will see all the servers.")
	}
}

func titlesOf(clients []string) []string {
	out := make([]string, len(clients))
	for i, c := range clients {
		out[i] = titleOf(c)
	}
	return out
}
