package pins

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/fault"
)

const toolA = `{"name":"a","title":"A","description":"reads é","inputSchema":{"type":"object","properties":{"x":{"type":"number","maximum":1.0}},"required":["x"]},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"_meta":{"v":1}}`

func hashOf(t *testing.T, raw string) string {
	t.Helper()
	d, err := ToolDefinition([]byte(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return d.Hash
}

// Order of keys, white space, escapes and members that models do not read make no difference; everything else does.
func TestDefinition(t *testing.T) {
	want := hashOf(t, toolA)
	for name, same := range map[string]string{
		"order":       `{"annotations":{"readOnlyHint":true},"outputSchema":{"type":"object"},"inputSchema":{"required":["x"],"properties":{"x":{"maximum":1.0,"type":"number"}},"type":"object"},"description":"reads é","title":"A","name":"a"}`,
		"white space": strings.ReplaceAll(toolA, ":", " :\n\t"),
		"escapes":     strings.ReplaceAll(strings.ReplaceAll(toolA, "é", `\u00e9`), `"type"`, `"t\u0079pe"`),
		"_meta":       strings.ReplaceAll(toolA, `"v":1`, `"v":2`),
		"icons":       strings.ReplaceAll(toolA, `"_meta"`, `"icons":[],"_meta"`),
	} {
		if got := hashOf(t, same); got != want {
			t.Errorf("%s: another hash", name)
		}
	}
	for name, edit := range map[string][2]string{
		"name":                  {`"name":"a"`, `"name":"b"`},
		"title":                 {`"A"`, `"B"`},
		"no title":              {`"title":"A",`, ``},
		"description":           {"reads", "writes"},
		"white space in text":   {"reads é", "reads  é"},
		"another é":             {"é", "e\u0301"},
		"schema":                {`"number"`, `"string"`},
		"number":                {`1.0`, `1`},
		"large number":          {`1.0`, `9007199254740993`},
		"another large number":  {`1.0`, `9007199254740992`},
		"text for a number":     {`1.0`, `"1.0"`},
		"null for nothing":      {`"annotations":{"readOnlyHint":true}`, `"annotations":null`},
		"order of an array":     {`["x"]`, `["x","y"]`},
		"reverse order":         {`["x"]`, `["y","x"]`},
		"output schema":         {`"outputSchema":{"type":"object"}`, `"outputSchema":{}`},
		"annotations":           {`true`, `false`},
		"a key in other case":   {`"_meta"`, `"Description":"x","_meta"`},
		"a key with a long s":   {`"_meta"`, `"de` + "\u017f" + `cription":"x","_meta"`},
		"a nested key twice":    {`"type":"number"`, `"type":"number","type":"string"`},
		"twice the other way":   {`"type":"number"`, `"type":"string","type":"number"`},
		"an object in an array": {`["x"]`, `[{"x":[[],{}]}]`},
	} {
		if got := hashOf(t, strings.Replace(toolA, edit[0], edit[1], 1)); got == want {
			t.Errorf("%s: the same hash", name)
		}
	}
	for _, bad := range []string{``, `[]`, `"x"`, `{"name":}`, `{"name":"a"} x`, `{"name":[1,}`, `{"name":{"a":[1 2]}}`, `{"name":"\x"}`} {
		if d, err := ToolDefinition([]byte(bad)); err == nil {
			t.Errorf("%s: accepted as %s", bad, d.Text)
		}
	}
	if d, err := ToolDefinition([]byte(`{"title":"t","name":"\u0061\/"}`)); err != nil || string(d.Text) != `{"name":"a/","title":"t"}` {
		t.Errorf("got %s, %v", d.Text, err)
	}
}

func newTestGuard(mode string, lock Lock, d Deps) *Guard {
	c := Default()
	c.Mode = mode
	return NewGuard(c, lock, d)
}

func tool(name, description string) Tool {
	return Tool{name, fmt.Appendf(nil, `{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name, description)}
}

// checkHeld checks tools and returns the names of those that are held, with the reasons.
func checkHeld(g *Guard, tools ...Tool) string {
	var held []string
	for i, c := range g.Check(context.Background(), "s", tools) {
		if c.Hold != nil {
			held = append(held, tools[i].Name+" "+string(c.Hold.Reason))
		} else if string(c.Raw) != string(tools[i].Raw) {
			held = append(held, tools[i].Name+" differs")
		}
	}
	return strings.Join(held, ", ")
}

// store is what a guard keeps, in a test.
type store struct {
	data    map[string][]byte
	loadErr error
	saveErr error
	loads   int
}

func (s *store) deps() Deps {
	return Deps{
		Load: func(_ context.Context, server string) ([]byte, error) {
			s.loads++
			return s.data[server], s.loadErr
		},
		Save: func(_ context.Context, server string, record []byte) error {
			if s.saveErr == nil {
				s.data[server] = record
			}
			return s.saveErr
		},
	}
}

// What is seen first is served, in this process and in the next; what differs is held back, alone, until it is approved or
// changes back.
func TestFirstUse(t *testing.T) {
	s := &store{data: map[string][]byte{}}
	var events []string
	deps := s.deps()
	deps.OnPin = func(e Event) { events = append(events, e.Action+" "+e.Server+" "+e.Tool+" "+string(e.Reason)) }
	for range 2 { // the second guard is another process
		g := newTestGuard(ModeFirstUse, nil, deps)
		for _, step := range []struct {
			description, held string
		}{{"one", ""}, {"two", "a changed"}, {"two", "a changed"}, {"one", ""}, {"three", "a changed"}, {"one", ""}} {
			if got := checkHeld(g, tool("a", step.description), tool("b", "b")); got != step.held {
				t.Errorf("%s: held %q, want %q", step.description, got, step.held)
			}
		}
	}
	want := "pin s a ,pin s b ,hold s a changed,release s a ,hold s a changed,release s a ,hold s a changed,release s a ,hold s a changed,release s a "
	if got := strings.Join(events, ","); got != want {
		t.Errorf("events: %s", got)
	}

	// Approved by another process.
	g, other := newTestGuard(ModeFirstUse, nil, deps), newTestGuard(ModeFirstUse, nil, deps)
	if got := checkHeld(g, tool("a", "two")); got != "a changed" {
		t.Errorf("got %q", got)
	}
	def, _ := ToolDefinition(tool("a", "two").Raw)
	if err := other.Approve(context.Background(), []Approval{{"s", "a", def}}); err != nil {
		t.Fatal(err)
	}
	if got := checkHeld(g, tool("a", "two"), tool("b", "b")); got != "" {
		t.Errorf("approved, but held: %q", got)
	}
	if got := checkHeld(g, tool("a", "one"), tool("b", "b")); got != "a changed" {
		t.Errorf("the old definition is approved no more: %q", got)
	}
	if events[len(events)-3] != "approve s a " {
		t.Errorf("events: %q", events)
	}
}

// What was approved cannot be read or kept.
func TestFirstUseStoreFails(t *testing.T) {
	s := &store{data: map[string][]byte{}, loadErr: errors.New("down")}
	g := newTestGuard(ModeFirstUse, nil, s.deps())
	if got := checkHeld(g, tool("a", "one")); got != "a not checked" {
		t.Errorf("not read: held %q", got)
	}
	if err := g.Approve(context.Background(), []Approval{{Server: "s", Tool: "a"}}); err == nil {
		t.Error("approved without a store")
	}
	s.loadErr = nil
	s.saveErr = errors.New("full")
	if got := checkHeld(g, tool("a", "one")); got != "" {
		t.Errorf("not kept: held %q", got)
	}
	if got := checkHeld(g, tool("a", "two")); got != "a changed" { // it is known in memory
		t.Errorf("not kept, changed: held %q", got)
	}
	if err := g.Approve(context.Background(), []Approval{{Server: "s", Tool: "a"}}); err == nil {
		t.Error("approved, but not kept")
	}
	if got := checkHeld(g, tool("a", "two")); got != "a changed" {
		t.Errorf("an approval that failed: held %q", got)
	}
	s.saveErr = nil
	if checkHeld(g, tool("a", "one")); s.data["s"] == nil {
		t.Error("it was not tried again")
	}
	s.data["s"] = []byte("damaged")
	if got := checkHeld(newTestGuard(ModeFirstUse, nil, s.deps()), tool("a", "one")); got != "a not checked" {
		t.Errorf("damaged: held %q", got)
	}
	if got := checkHeld(g, tool("a", "two")); got != "a changed" { // what is known stays
		t.Errorf("damaged later: held %q", got)
	}
	// Without a store it is kept in memory.
	g = newTestGuard(ModeFirstUse, nil, Deps{})
	if got := checkHeld(g, tool("a", "one")) + checkHeld(g, tool("a", "two")); got != "a changed" {
		t.Errorf("in memory: held %q", got)
	}
	def, _ := ToolDefinition(tool("a", "two").Raw)
	if err := g.Approve(context.Background(), []Approval{{"s", "a", def}}); err != nil || checkHeld(g, tool("a", "two")) != "" {
		t.Errorf("in memory: %v", err)
	}
}

// A guard that only looks keeps nothing.
func TestReadOnly(t *testing.T) {
	s := &store{data: map[string][]byte{}}
	deps := s.deps()
	deps.ReadOnly = true
	g := newTestGuard(ModeFirstUse, nil, deps)
	if got := checkHeld(g, tool("a", "one")) + checkHeld(g, tool("a", "two")); got != "" || len(s.data) > 0 {
		t.Errorf("held %q, kept %q", got, s.data)
	}
}

// However many tools a server lists, and however long they are, what is kept of it has a bound; what is beyond is held back.
func TestFirstUseBounds(t *testing.T) {
	s := &store{data: map[string][]byte{}}
	g := newTestGuard(ModeFirstUse, nil, s.deps())
	long := strings.Repeat(`"`, maxKeptName-4)
	var tools []Tool
	for i := range maxPinned + 5 {
		tools = append(tools, tool(fmt.Sprintf("%04d%s", i, long), strings.Repeat("x", 1000)))
	}
	tools = append(tools, tool(strings.Repeat("n", maxKeptName+1), ""))
	g.CheckInstructions(context.Background(), "s", strings.Repeat("i", 1<<20))
	checked := g.Check(context.Background(), "s", tools)
	for i, c := range checked {
		if (c.Hold != nil) != (i >= maxPinned) {
			t.Fatalf("tool %d: %v", i, c.Hold)
		}
	}
	if n := len(s.data["s"]); n > 1<<20 || n < 1<<19 {
		t.Errorf("%d bytes are kept", n)
	}
	if s.loads != 2 { // one for each check
		t.Errorf("%d reads of the store", s.loads)
	}
	again := newTestGuard(ModeFirstUse, nil, s.deps())
	for i, c := range again.Check(context.Background(), "s", tools) {
		if (c.Hold != nil) != (i >= maxPinned) {
			t.Fatalf("after a restart, tool %d: %v", i, c.Hold)
		}
	}
	if _, hold := again.CheckInstructions(context.Background(), "s", "changed"); hold == nil {
		t.Error("changed instructions are sent")
	}
	if len(again.servers["s"].held) > maxPinned {
		t.Error("more holds are remembered than tools")
	}
	// A large definition is compared by its hash.
	huge := tool("huge", strings.Repeat("y", 1<<20))
	g = newTestGuard(ModeFirstUse, nil, s.deps())
	delete(s.data, "s")
	if got := checkHeld(g, huge) + checkHeld(g, tool("huge", strings.Repeat("y", 1<<20)+".")); got != "huge changed" || len(s.data["s"]) > 1000 {
		t.Errorf("held %q, kept %d bytes", got, len(s.data["s"]))
	}
}

// A record keeps its texts, its instructions and names with any characters.
func TestKeptRecord(t *testing.T) {
	r := Record{Tools: map[string]Definition{}}
	for _, name := range []string{"a", `q"uo te\`, "é \n", "z"} {
		d, _ := ToolDefinition(tool(name, "text "+name).Raw)
		r.Tools[name] = d
	}
	d := r.Tools["z"]
	d.Text = nil
	r.Tools["z"] = d
	for range 2 {
		got, err := decodeKept(r.encodeKept())
		if err != nil || fmt.Sprint(got.Tools) != fmt.Sprint(r.Tools) || (got.Instructions == nil) != (r.Instructions == nil) {
			t.Errorf("got %v, %v", got, err)
		}
		if got.Instructions != nil && string(got.Instructions.Text) != `"in\nstructions"` {
			t.Errorf("got %s", got.Instructions.Text)
		}
		text := TextDefinition("in\nstructions")
		r.Instructions = &text
	}
	for _, bad := range []string{"x", "x y", `x "y`} {
		if _, err := decodeKept([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// Only what the lock has is served.
func TestLockMode(t *testing.T) {
	lock := Lock{}
	def, _ := ToolDefinition(tool("a", "one").Raw)
	lock.Approve(Approval{"s", "a", def})
	g := newTestGuard(ModeLock, lock, Deps{})
	for _, step := range []struct {
		tools []Tool
		held  string
	}{
		{[]Tool{tool("a", "one")}, ""},
		{[]Tool{tool("a", "two"), tool("b", "b")}, "a changed, b not approved"},
		{[]Tool{tool("a", "one"), tool("a", "two")}, "a changed"}, // of two with the same name each is compared
	} {
		if got := checkHeld(g, step.tools...); got != step.held {
			t.Errorf("held %q, want %q", got, step.held)
		}
	}
	for tool, refused := range map[string]bool{"a": false, "hidden": true} {
		if got := g.Refuses("s", tool); (got != nil) != refused {
			t.Errorf("%s: %v", tool, got)
		}
	}
	if newTestGuard(ModeFirstUse, lock, Deps{}).Refuses("s", "hidden") != nil {
		t.Error("first-use refuses what was not listed")
	}
	if text, hold := g.CheckInstructions(context.Background(), "s", ""); text != "" || hold != nil {
		t.Errorf("no instructions: %q, %v", text, hold)
	}
	if text, hold := g.CheckInstructions(context.Background(), "s", "new"); text != "" || hold == nil || hold.Reason != Changed {
		t.Errorf("new instructions: %q, %v", text, hold)
	}
	next := Lock{"s": lock["s"]}
	next.Approve(Approval{"s", "", TextDefinition("new")})
	if g.Apply(g.Config(), lock) {
		t.Error("the same lock is reported as another")
	}
	if !g.Apply(g.Config(), next) {
		t.Error("another lock is reported as the same")
	}
	if text, hold := g.CheckInstructions(context.Background(), "s", "new"); text != "new" || hold != nil {
		t.Errorf("approved instructions: %q, %v", text, hold)
	}
	if _, hold := g.CheckInstructions(context.Background(), "s", ""); hold == nil {
		t.Error("instructions that are gone are no change")
	}
	if err := g.Approve(context.Background(), []Approval{{Server: "s", Tool: "a"}}); err == nil {
		t.Error("approved beside the lock")
	}
	off := g.Config()
	off.Mode = ModeOff
	if !g.Apply(off, next) {
		t.Error("another mode is reported as the same")
	}
	if got := checkHeld(g, tool("x", "x")); got != "" {
		t.Errorf("off, but held %q", got)
	}
}

// A refusal tells an agent what happened, and is not an internal error.
func TestHoldTexts(t *testing.T) {
	for _, tt := range []struct {
		tool   string
		reason Reason
		want   string
	}{
		{"a", Changed, `the definition of tool "a" of server "s" changed since it was approved, so it is not available; an operator sees the difference, and can approve it, with 'ctxgate pin'`},
		{"", Changed, `the instructions of server "s" changed since they were approved, and are not sent; an operator sees the difference, and can approve it, with 'ctxgate pin'`},
		{"a", Unapproved, `tool "a" of server "s" is not approved, so it is not available; an operator sees the difference, and can approve it, with 'ctxgate pin'`},
		{"a", Hidden, `tool "a" of server "s" is not available: it has hidden characters, which pins.hidden_characters refuses`},
		{"a", Unchecked, `tool "a" of server "s" is not available: it cannot be compared with what was approved; the log of the gateway says why`},
	} {
		h := newHold("s", tt.tool, tt.reason, nil, Definition{})
		if err := h.Err(); h.Text != tt.want || fault.PublicOf(err) != tt.want || fault.KindOf(err) != fault.Unavailable || !errors.Is(err, ErrHeld) {
			t.Errorf("%s: %v", tt.reason, err)
		}
	}
	for want, h := range map[string]*Hold{
		`prompt "a<U+200B>" of server "s" is not available because of its name: it has hidden characters, and its server must rename it`:    NewHidden("s", "prompt", "a\u200b"),
		`tool "a" of server "s" is not available because of its name: it looks like another name; rename one of them, or see naming.prefix`: NewLookAlike("s", "tool", "a"),
		`tool "a" of server "s" is not available: it cannot be compared with what was approved; the log of the gateway says why`:            NewUnlisted("s", "a"),
	} {
		if h.Text != want || h.Server != "s" || h.Tool == "" || h.Reason == "" {
			t.Errorf("got %+v", h)
		}
	}
}
