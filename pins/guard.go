package pins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/ctxgate/ctxgate/fault"
)

// Reason is why something is held back.
type Reason string

// The reasons.
const (
	Changed    Reason = "changed"      // it is not as it was approved
	Unapproved Reason = "not approved" // nobody approved it
	Hidden     Reason = "hidden"       // it has hidden characters
	LooksAlike Reason = "looks alike"  // its name looks like another one's
	Unchecked  Reason = "not checked"  // what was approved cannot be read, or there is no room for more
)

// ErrHeld is the cause of every refusal of what is held back.
var ErrHeld = errors.New("held back")

// Hold is a tool, or the instructions of a server, that is not served.
type Hold struct {
	Server string
	Tool   string // "" for the instructions
	Reason Reason
	Text   string      // what happened and what to do, for people and agents
	Old    *Definition // what was approved; nil for nothing
	New    Definition  // what the server has now
}

// Err is the error for whoever calls the tool.
func (h *Hold) Err() error { return fault.Wrap(fault.Unavailable, h.Text, ErrHeld) }

// Event is something that happened to a definition, for the audit log.
type Event struct {
	Action string // pin (seen first), approve, hold or release
	Server string
	Tool   string // "" for the instructions
	Hash   string // of the definition that it happened to
	Reason Reason // of a hold
}

// The actions of events.
const (
	ActionPin     = "pin"
	ActionApprove = "approve"
	ActionHold    = "hold"
	ActionRelease = "release"
)

// Deps is what a Guard needs.
type Deps struct {
	// Load and Save keep what was seen first of a server, for mode "first-use". Load returns nil where nothing is kept.
	// Where they are nil, it is kept in memory.
	Load func(ctx context.Context, server string) ([]byte, error)
	Save func(ctx context.Context, server string, record []byte) error

	// OnPin gets every event. Nil: nobody does.
	OnPin func(Event)

	// ReadOnly: what is seen first is served, but not kept.
	ReadOnly bool
}

// Guard compares what servers list with what was approved.
type Guard struct {
	deps Deps

	settings atomic.Pointer[settings]

	mu      sync.Mutex
	servers map[string]*serverState
}

// settings is what is in force.
type settings struct {
	Config
	lock Lock
}

// serverState is what the guard knows of one server.
type serverState struct {
	mu      sync.Mutex
	loaded  bool
	unsaved bool // the last save failed
	fresh   bool // it was loaded since the check began
	record  Record
	held    map[string]string // the tools that were reported as held, and the hash that each had
	warned  map[string]bool   // tools with hidden characters that were reported
}

// NewGuard returns a guard for a valid configuration. The lock is what mode "lock" serves; it may be nil.
func NewGuard(c Config, lock Lock, d Deps) *Guard {
	g := &Guard{deps: d, servers: map[string]*serverState{}}
	g.settings.Store(&settings{c, lock})
	return g
}

// Apply puts another configuration and lock into force, and reports whether they differ from those before: then what
// servers list has to be checked again.
func (g *Guard) Apply(c Config, lock Lock) (changed bool) {
	old := g.settings.Swap(&settings{c, lock})
	return old.Config != c || !reflect.DeepEqual(old.lock, lock)
}

// Config returns the configuration in force.
func (g *Guard) Config() Config { return g.settings.Load().Config }

// Compares reports whether definitions are compared with approved ones: then a tool is served only after its server listed
// it.
func (g *Guard) Compares() bool { return g.settings.Load().Mode != ModeOff }

func (g *Guard) stateOf(server string) (*settings, *serverState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := g.servers[server]
	if st == nil {
		st = &serverState{held: map[string]string{}, warned: map[string]bool{}}
		g.servers[server] = st
	}
	return g.settings.Load(), st
}

// Tool is a tool as its server listed it.
type Tool struct {
	Name string
	Raw  []byte
}

// Checked is what became of a tool.
type Checked struct {
	Raw  []byte // as it may be served
	Hold *Hold  // nil: it may be served
}

// Check compares the tools of a server with what was approved. In mode "first-use" it approves what it sees for the first
// time. The results are in the order of the tools.
func (g *Guard) Check(ctx context.Context, server string, tools []Tool) []Checked {
	cfg, st := g.stateOf(server)
	out := make([]Checked, len(tools))
	defs := make([]Definition, len(tools))
	for i, t := range tools {
		var err error
		if defs[i], err = ToolDefinition(t.Raw); err != nil { // it was parsed before, so this is a tool that is no object
			out[i].Hold = newHold(server, t.Name, Unchecked, nil, Definition{})
			continue
		}
		out[i] = g.screen(cfg, st, server, t, defs[i])
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	compare := st.approvedBy(ctx, g, cfg, server)
	for i, t := range tools {
		if out[i].Hold == nil {
			out[i].Hold = compare(t.Name, defs[i])
		}
		g.report(st, server, t.Name, out[i].Hold, defs[i])
	}
	st.save(ctx, g, server)
	return out
}

// CheckInstructions returns the instructions of a server as they may be sent: "" when they are held back, and then why.
func (g *Guard) CheckInstructions(ctx context.Context, server, text string) (string, *Hold) {
	cfg, st := g.stateOf(server)
	def := TextDefinition(text)
	var hold *Hold
	marked, count := MarkHidden(text)
	st.mu.Lock()
	defer st.mu.Unlock()
	if count > 0 {
		st.warnHidden(server, "", def, cfg.HiddenCharacters)
		if cfg.HiddenCharacters == HiddenRefuse {
			hold = newHold(server, "", Hidden, nil, def)
		}
	}
	if hold == nil {
		hold = st.approvedBy(ctx, g, cfg, server)("", def)
	}
	st.save(ctx, g, server)
	g.report(st, server, "", hold, def)
	switch {
	case hold != nil:
		return "", hold
	case cfg.HiddenCharacters == HiddenMark:
		return marked, nil
	}
	return text, nil
}

// screen looks for hidden characters in a tool.
func (g *Guard) screen(cfg *settings, st *serverState, server string, t Tool, def Definition) Checked {
	if HasHidden(t.Name) {
		return Checked{Hold: NewHidden(server, "tool", t.Name)}
	}
	marked, count := markTool(t.Raw)
	if count == 0 {
		return Checked{Raw: t.Raw}
	}
	st.mu.Lock()
	st.warnHidden(server, t.Name, def, cfg.HiddenCharacters)
	st.mu.Unlock()
	switch cfg.HiddenCharacters {
	case HiddenRefuse:
		return Checked{Hold: newHold(server, t.Name, Hidden, nil, def)}
	case HiddenMark:
		return Checked{Raw: marked}
	}
	return Checked{Raw: t.Raw}
}

// maxWarned bounds how many definitions with hidden characters are remembered as reported.
const maxWarned = 1000

// warnHidden warns once of a definition with hidden characters; the lock of the server is held.
func (st *serverState) warnHidden(server, tool string, def Definition, policy string) {
	key := def.Hash
	if st.warned[key] || len(st.warned) >= maxWarned {
		return
	}
	st.warned[key] = true
	slog.Warn("a definition has characters that people do not see: see pins.hidden_characters",
		"server", server, "tool", fault.Clip(tool), "hidden_characters", policy)
}

// approvedBy returns what compares a definition with the approved one, and approves it in mode "first-use" if there is
// none; the lock of the server is held.
func (st *serverState) approvedBy(ctx context.Context, g *Guard, cfg *settings, server string) func(tool string, def Definition) *Hold {
	switch cfg.Mode {
	case ModeLock:
		return func(tool string, def Definition) *Hold { return compareLocked(cfg.lock[server], server, tool, def) }
	case ModeFirstUse:
		st.fresh = false
		if err := st.load(ctx, g, server); err != nil {
			slog.WarnContext(ctx, "tools are held back: what was approved of the server cannot be read", "server", server, "error", err)
			return func(tool string, def Definition) *Hold { return newHold(server, tool, Unchecked, nil, def) }
		}
		return func(tool string, def Definition) *Hold { return st.compareFirst(ctx, g, server, tool, def) }
	}
	return func(string, Definition) *Hold { return nil }
}

// compareLocked compares a definition with the lock.
func compareLocked(record Record, server, tool string, def Definition) *Hold {
	old, ok := record.Tools[tool]
	if tool == "" {
		if old, ok = TextDefinition(""), true; record.Instructions != nil {
			old = *record.Instructions
		}
	}
	switch {
	case !ok:
		return newHold(server, tool, Unapproved, nil, def)
	case old.Hash != def.Hash:
		return newHold(server, tool, Changed, &old, def)
	}
	return nil
}

// compareFirst compares a definition with the one that was seen first. Another process may have approved it meanwhile.
func (st *serverState) compareFirst(ctx context.Context, g *Guard, server, tool string, def Definition) *Hold {
	old, ok := st.record.findTool(tool)
	if ok && old.Hash == def.Hash {
		return nil
	}
	if st.reload(ctx, g, server) {
		if old, ok = st.record.findTool(tool); ok && old.Hash == def.Hash {
			return nil
		}
	}
	switch {
	case ok:
		return newHold(server, tool, Changed, &old, def)
	case g.deps.ReadOnly:
		return nil
	}
	if !st.record.addTool(tool, def) {
		return newHold(server, tool, Unchecked, nil, def)
	}
	st.unsaved = true
	g.emit(Event{Action: ActionPin, Server: server, Tool: tool, Hash: def.Hash})
	return nil
}

func (r Record) findTool(tool string) (Definition, bool) {
	if tool == "" {
		if r.Instructions == nil {
			return Definition{}, false
		}
		return *r.Instructions, true
	}
	d, ok := r.Tools[tool]
	return d, ok
}

// addTool adds a definition, or replaces it. It reports false when there is no room for it.
func (r *Record) addTool(tool string, def Definition) bool {
	switch _, there := r.Tools[tool]; {
	case tool == "":
		r.Instructions = &def
		return true
	case len(tool) > maxKeptName || len(r.Tools) >= maxPinned && !there:
		return false
	}
	if len(def.Text) > maxKeptText {
		def.Text = nil
	}
	r.Tools[tool] = def
	return true
}

// load reads what was approved of a server, once; the lock of the server is held.
func (st *serverState) load(ctx context.Context, g *Guard, server string) error {
	if st.loaded {
		return nil
	}
	record := Record{Tools: map[string]Definition{}}
	if g.deps.Load != nil {
		data, err := g.deps.Load(ctx, server)
		if err == nil && data != nil {
			record, err = decodeKept(data)
		}
		if err != nil {
			return err
		}
	}
	st.record, st.loaded, st.fresh = record, true, true
	return nil
}

// reload reads what other processes may have approved since, unless this one has something that is not kept yet. It
// reports whether it did; the lock of the server is held.
func (st *serverState) reload(ctx context.Context, g *Guard, server string) bool {
	if g.deps.Load == nil || st.unsaved || st.fresh {
		return false
	}
	st.fresh = true
	data, err := g.deps.Load(ctx, server)
	if err != nil || data == nil {
		return false
	}
	record, err := decodeKept(data)
	if err == nil {
		st.record = record
	}
	return err == nil
}

// save keeps what was approved; the lock of the server is held. What cannot be kept is tried again at the next check.
func (st *serverState) save(ctx context.Context, g *Guard, server string) {
	if !st.unsaved || g.deps.Save == nil {
		st.unsaved = false
		return
	}
	if err := g.deps.Save(ctx, server, st.record.encodeKept()); err != nil {
		slog.WarnContext(ctx, "what was approved of a server's tools is not kept for the next start", "server", server, "error", err)
		return
	}
	st.unsaved = false
}

// Approval is a definition that somebody approves.
type Approval struct {
	Server string
	Tool   string // "" for the instructions
	Definition
}

// Approve approves definitions in mode "first-use". What the lock has is approved by changing that file.
func (g *Guard) Approve(ctx context.Context, approvals []Approval) error {
	for _, a := range approvals {
		if err := g.approve(ctx, a); err != nil {
			return fmt.Errorf("%s: %w", describe(a.Server, a.Tool), err)
		}
	}
	return nil
}

func (g *Guard) approve(ctx context.Context, a Approval) error {
	cfg, st := g.stateOf(a.Server)
	st.mu.Lock()
	defer st.mu.Unlock()
	if cfg.Mode != ModeFirstUse {
		return errors.New("there is nothing to approve in this mode")
	}
	if err := st.load(ctx, g, a.Server); err != nil {
		return err
	}
	st.fresh = false
	st.reload(ctx, g, a.Server)
	next := st.record.clone()
	if !next.addTool(a.Tool, a.Definition) {
		return errors.New("there is no room for another tool of this server")
	}
	if g.deps.Save != nil {
		if err := g.deps.Save(ctx, a.Server, next.encodeKept()); err != nil {
			return err
		}
	}
	st.record = next
	g.emit(Event{Action: ActionApprove, Server: a.Server, Tool: a.Tool, Hash: a.Hash})
	return nil
}

// Refuses returns why a tool that a server did not list is not called: in mode "lock" only what the file has is. Nil
// where it may be.
func (g *Guard) Refuses(server, tool string) *Hold {
	cfg := g.settings.Load()
	if cfg.Mode != ModeLock {
		return nil
	}
	if _, ok := cfg.lock[server].Tools[tool]; ok {
		return nil
	}
	return newHold(server, tool, Unapproved, nil, Definition{})
}

// report tells the log and the audit log when something is held back, and when it is served again; the lock of the server
// is held.
func (g *Guard) report(st *serverState, server, tool string, hold *Hold, def Definition) {
	before, wasHeld := st.held[tool]
	switch {
	case hold == nil && wasHeld:
		delete(st.held, tool)
		slog.Info("served again", "what", describe(server, tool))
		g.emit(Event{Action: ActionRelease, Server: server, Tool: tool, Hash: def.Hash})
	case hold != nil && before != def.Hash && (wasHeld || len(st.held) < maxPinned):
		st.held[tool] = def.Hash
		slog.Warn(hold.Text)
		g.emit(Event{Action: ActionHold, Server: server, Tool: tool, Hash: def.Hash, Reason: hold.Reason})
	}
}

func (g *Guard) emit(e Event) {
	if g.deps.OnPin != nil {
		g.deps.OnPin(e)
	}
}

// describe names a tool, or the instructions of a server.
func describe(server, tool string) string {
	of := " of server " + strconv.Quote(server)
	if tool == "" {
		return "the instructions" + of
	}
	return "tool " + strconv.Quote(fault.Clip(tool)) + of
}

// newHold returns what is held back, with the text for its reason.
func newHold(server, tool string, reason Reason, old *Definition, def Definition) *Hold {
	what := describe(server, tool)
	approve := "; an operator sees the difference, and can approve it, with 'ctxgate pin'"
	var text string
	switch {
	case reason == Changed && tool == "":
		text = what + " changed since they were approved, and are not sent" + approve
	case reason == Changed:
		text = "the definition of " + what + " changed since it was approved, so it is not available" + approve
	case reason == Unapproved:
		text = what + " is not approved, so it is not available" + approve
	case reason == Hidden:
		text = what + " is not available: it has hidden characters, which pins.hidden_characters refuses"
	default:
		text = what + " is not available: it cannot be compared with what was approved; the log of the gateway says why"
	}
	return &Hold{Server: server, Tool: tool, Reason: reason, Text: text, Old: old, New: def}
}

// NewUnlisted returns the hold of a tool whose server has not listed its tools yet, so that they cannot be compared.
func NewUnlisted(server, tool string) *Hold {
	return newHold(server, tool, Unchecked, nil, Definition{})
}

// NewHidden returns the hold of a prompt, or another thing, whose name has hidden characters.
func NewHidden(server, noun, name string) *Hold {
	return newNamed(server, noun, name, Hidden, "it has hidden characters, and its server must rename it")
}

// NewLookAlike returns the hold of a tool, or another thing, whose name looks like that of another.
func NewLookAlike(server, noun, name string) *Hold {
	return newNamed(server, noun, name, LooksAlike, "it looks like another name; rename one of them, or see naming.prefix")
}

func newNamed(server, noun, name string, reason Reason, why string) *Hold {
	shown, _ := MarkHidden(fault.Clip(name))
	text := noun + " " + strconv.Quote(shown) + " of server " + strconv.Quote(server) + " is not available because of its name: " + why
	return &Hold{Server: server, Tool: name, Reason: reason, Text: text}
}
