package pins

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

func TestMarkHidden(t *testing.T) {
	for text, want := range map[string]string{
		"plain\n\ttext é 日本":                          "plain\n\ttext é 日本",
		"a\u200bb":                                    "a<U+200B>b",
		"\u202eevil\u202c":                            "<U+202E>evil<U+202C>",
		"\x1b[31mred":                                 "<U+001B>[31mred",
		"a\u0085b\u007f":                              "a<U+0085>b<U+007F>",
		"tag \U000e0041\U000e0042":                    "tag <U+E0041><U+E0042>",
		"vs \U000e0100":                               "vs <U+E0100>",
		"\ufeffbom\u00ad\u2066x":                      "<U+FEFF>bom<U+00AD><U+2066>x",
		"dos\r\nline\rend\r":                          "dos\r\nline<U+000D>end<U+000D>",
		"⚠\ufe0f 👨\u200d👩\u200d👧 family":              "⚠\ufe0f 👨\u200d👩\u200d👧 family",
		"می\u200cخواهم क्\u200dष":                     "می\u200cخواهم क्\u200dष",
		"lat\u200cin \u200d👨":                         "lat<U+200C>in <U+200D>👨",
		"👨\u200dx क\u200cx x\u200cक":                  "👨<U+200D>x क<U+200C>x x<U+200C>क",
		"👨\u200d":                                     "👨<U+200D>",
		"\u200d👨":                                     "<U+200D>👨",
		strings.Repeat("\u200b", 8):                   strings.Repeat("<U+200B>", 8),
		"x" + strings.Repeat("\U000e0061", 500) + "y": "x<U+E0061 and 499 more hidden characters>y",
	} {
		got, n := MarkHidden(text)
		if got != want || (n > 0) != (text != want) {
			t.Errorf("%q: got %q, %d", text, got, n)
		}
	}
	if _, n := MarkHidden("a\u200b\u200bb\u200c"); n != 3 {
		t.Errorf("counted %d", n)
	}
	for name, hidden := range map[string]bool{"read_file": false, "日本語": false, "a b": false, "a\nb": true, "a\tb": true, "a\u200d": true, "👨‍👩": true} {
		if HasHidden(name) != hidden {
			t.Errorf("%q: %v", name, !hidden)
		}
	}
}

// Hidden characters in everything a model reads of a tool are allowed, marked or refused; every other byte stays. Names
// with one are always refused.
func TestHiddenPolicies(t *testing.T) {
	raw := `{"name":"a", "description":"x\u200by","title":"t` + "\u202e" + `","inputSchema":{"properties":{"k\u200b":{"description":"\u001b[1m \" ` + "\U000e0041" + `"}}},"_meta":{"x":"\u200b"} }`
	marked := `{"name":"a", "description":"x<U+200B>y","title":"t<U+202E>","inputSchema":{"properties":{"k<U+200B>":{"description":"<U+001B>[1m \" <U+E0041>"}}},"_meta":{"x":"\u200b"} }`
	clean := `{"name":"b","description":"caf\u00e9 \r\n⚠️","_meta":{"x":"\u200b"}}`
	for policy, want := range map[string]string{HiddenAllow: raw, HiddenMark: marked, HiddenRefuse: ""} {
		c := Default()
		c.HiddenCharacters = policy
		g := NewGuard(c, nil, Deps{})
		got := g.Check(context.Background(), "s", []Tool{{"a", []byte(raw)}, {"b", []byte(clean)}, {"n\u200b", []byte(`{"name":"n\u200b"}`)}})
		if string(got[0].Raw) != want || (got[0].Hold != nil) != (policy == HiddenRefuse) {
			t.Errorf("%s: %s, %v", policy, got[0].Raw, got[0].Hold)
		}
		if string(got[1].Raw) != clean || got[1].Hold != nil {
			t.Errorf("%s: a clean tool: %s, %v", policy, got[1].Raw, got[1].Hold)
		}
		if got[2].Hold == nil || got[2].Hold.Reason != Hidden {
			t.Errorf("%s: a hidden character in a name: %v", policy, got[2].Hold)
		}
		text, hold := g.CheckInstructions(context.Background(), "s", "in\u200bs")
		if want := map[string]string{HiddenAllow: "in\u200bs", HiddenMark: "in<U+200B>s"}[policy]; text != want || (hold != nil) != (policy == HiddenRefuse) {
			t.Errorf("%s: instructions: %q, %v", policy, text, hold)
		}
		if text, hold := g.CheckInstructions(context.Background(), "s", "plain"); text != "plain" || hold != nil {
			t.Errorf("%s: plain instructions: %q, %v", policy, text, hold)
		}
		if n := len(g.servers["s"].warned); n != 2 {
			t.Errorf("%s: %d warnings", policy, n)
		}
	}
	g := NewGuard(Default(), nil, Deps{})
	if got := g.Check(context.Background(), "s", []Tool{{"a", []byte(`"no object"`)}}); got[0].Hold == nil || got[0].Hold.Reason != Unchecked {
		t.Errorf("what is no tool: %v", got[0].Hold)
	}
	for i := range maxWarned + 10 {
		g.CheckInstructions(context.Background(), "s", fmt.Sprintf("\u200b%d", i))
	}
	if n := len(g.servers["s"].warned); n != maxWarned {
		t.Errorf("%d warnings are remembered", n)
	}
}

func TestSkeleton(t *testing.T) {
	for _, same := range [][]string{
		{"read_file", "READ_File", "reаd_file", "rеad_file", "ｒｅａｄ_ｆｉｌｅ", "read\u200b_file", "𝐫𝐞𝐚𝐝_file", "readˍfile"},
		{"paypal", "раураl", "ΡΑΥΡΑL", "PАYPAL"},
		{"scope", "ѕсоре", "ſcope", "ＳＣＯＰＥ"},
		{"kelvin", "\u212aelvin"},
		{"get-x", "get‐x", "get−x", "GET–X"},
		{"straße", "STRAßE"},
	} {
		want := Skeleton(same[0])
		for _, name := range same[1:] {
			if got := Skeleton(name); got != want {
				t.Errorf("%s: %q, and %s: %q", same[0], want, name, got)
			}
		}
	}
	seen := map[string]string{}
	for _, name := range []string{"read_file", "read-file", "readfile", "read_files", "réad_file", "step1", "stepl", "stepi", "o", "0", "rn", "m", "писать", "файл", "日本", "日木"} {
		if other, ok := seen[Skeleton(name)]; ok {
			t.Errorf("%s looks like %s", name, other)
		}
		seen[Skeleton(name)] = name
	}
}

func sampleLock(t *testing.T) Lock {
	t.Helper()
	lock := Lock{}
	for _, name := range []string{"b", "a"} {
		d, err := ToolDefinition([]byte(`{"name":"` + name + `","description":"line\none \u200b \ud83d\ude00 \udb40\udc41","inputSchema":{"type":"object","properties":{},"maximum":1.50}}`))
		if err != nil {
			t.Fatal(err)
		}
		lock.Approve(Approval{"s", name, d})
	}
	lock.Approve(Approval{"s", "", TextDefinition("be \u202enice")}, Approval{"empty", "", TextDefinition("")})
	return lock
}

const sampleFile = `{
  "comment": "The definitions of tools that ctxgate serves. 'ctxgate pin' writes this file: review its changes, and commit it.",
  "version": 1,
  "servers": {
    "empty": {
      "instructions": "",
      "instructions_sha256": "12ae32cb1ec02d01eda3581b127c1fee3b0dc53572ed6baf239721a03d82e126",
      "tools": {
      }
    },
    "s": {
      "instructions": "be \u202enice",
      "instructions_sha256": "%s",
      "tools": {
        "a": {
          "sha256": "%s",
          "definition": {
            "description": "line\none \u200b 😀 \udb40\udc41",
            "inputSchema": {
              "maximum": 1.50,
              "properties": {},
              "type": "object"
            },
            "name": "a"
          }
        },
        "b": {
          "sha256": "%s",
          "definition": {
            "description": "line\none \u200b 😀 \udb40\udc41",
            "inputSchema": {
              "maximum": 1.50,
              "properties": {},
              "type": "object"
            },
            "name": "b"
          }
        }
      }
    }
  }
}
`

// The file is readable, shows hidden characters, and gives back what was written.
func TestLockFile(t *testing.T) {
	lock := sampleLock(t)
	want := fmt.Sprintf(sampleFile, lock["s"].Instructions.Hash, lock["s"].Tools["a"].Hash, lock["s"].Tools["b"].Hash)
	file := string(lock.Encode())
	if file != want {
		t.Fatalf("got\n%s\nwant\n%s", file, want)
	}
	back, err := ParseLock([]byte(file))
	if err != nil || string(back.Encode()) != file {
		t.Errorf("%v\n%s", err, back.Encode())
	}
	if NewGuard(Default(), lock, Deps{}).Apply(Default(), back) {
		t.Error("what was read differs from what was written")
	}
	if empty, err := ParseLock(Lock{}.Encode()); err != nil || len(empty) != 0 {
		t.Errorf("an empty lock: %v, %v", empty, err)
	}
	for name, bad := range map[string]string{
		"no JSON":              `x`,
		"more after it":        file + "x",
		"no object":            `[]`,
		"no servers":           `{"version":1}`,
		"another version":      strings.Replace(file, `"version": 1`, `"version": 2`, 1),
		"a key twice":          strings.Replace(file, `"version": 1`, `"version": 1, "version": 1`, 1),
		"an edited text":       strings.Replace(file, `line\none`, `line\ntwo`, 1),
		"an edited hash":       strings.Replace(file, lock["s"].Tools["a"].Hash, lock["s"].Tools["b"].Hash, 1),
		"another name":         strings.Replace(file, `"a": {`, `"c": {`, 1),
		"edited instructions":  strings.Replace(file, `nice`, `evil`, 1),
		"no definition":        `{"version":1,"servers":{"s":{"tools":{"a":{"sha256":"x"}}}}}`,
		"a broken definition":  `{"version":1,"servers":{"s":{"tools":{"a":{"sha256":"x","definition":[]}}}}}`,
		"a merge conflict":     strings.Replace(file, `  "servers"`, "<<<<<<< HEAD\n  \"servers\"", 1),
		"instructions, edited": strings.Replace(file, lock["s"].Instructions.Hash, "", 1),
	} {
		if got, err := ParseLock([]byte(bad)); err == nil {
			t.Errorf("%s: read as %v", name, got)
		}
	}
}

func TestDiff(t *testing.T) {
	words := func(n int) string { return strings.TrimSuffix(strings.Repeat("word ", n), " ") }
	for _, tt := range []struct{ name, old, now, want string }{
		{"one word", `{"description":"reads a file","name":"a"}`, `{"description":"deletes a file","name":"a"}`, "description: [-reads-]{+deletes+} a file\n"},
		{"hidden", `{"description":"reads"}`, `{"description":"reads\u200b"}`, "description: [-reads-]{+reads<U+200B>+}\n"},
		{"added", `{"name":"a"}`, `{"name":"a","title":"A"}`, "title: {+A+}\n"},
		{"removed", `{"name":"a","title":"A"}`, `{"name":"a"}`, "title: [-A-]\n"},
		{"schema", `{"inputSchema":{"a":1,"b":2}}`, `{"inputSchema":{"a":1,"b":3}}`, "inputSchema:\n  {\n    \"a\": 1,\n    \"b\": [-2-]{+3+}\n  }\n"},
		{"instructions", `"be nice"`, `"be evil"`, "be [-nice-]{+evil+}\n"},
		{"nothing kept", ``, `{"title":"A"}`, "title: {+A+}\n"},
		{"end", `"a b"`, `"a b c d"`, "a b{+ c d+}\n"},
		{"phrase", `"do echo, edition 0"`, `"do echo, and first read"`, "do echo, [-edition 0-]{+and first read+}\n"},
		{"two places", `"a b c d e"`, `"a x c y e"`, "a [-b-]{+x+} c [-d-]{+y+} e\n"},
		{"far apart", `"a ` + words(100) + ` z"`, `"b ` + words(100) + ` y"`, "[-a-]{+b+} " + words(6)[:29] + " …  " + words(5) + " word [-z-]{+y+}\n"},
		{"long start", `"` + words(100) + ` z"`, `"` + words(100) + ` y"`, " …  " + words(5) + " word [-z-]{+y+}\n"},
	} {
		got := Diff([]byte(tt.old), []byte(tt.now))
		if tt.name == "far apart" || tt.name == "long start" {
			if !strings.Contains(got, " … ") || !strings.Contains(got, "[-z-]{+y+}") || len(got) > 200 {
				t.Errorf("%s: got %q", tt.name, got)
			}
			continue
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	// A text of a megabyte costs little and shows its ends.
	huge := Diff([]byte(`"`+strings.Repeat("é a ", 1<<16)+`"`), []byte(`"`+strings.Repeat("b é ", 1<<16)+`"`))
	if len(huge) > 5000 || !strings.Contains(huge, "more bytes") {
		t.Errorf("%d bytes", len(huge))
	}
}

func TestReport(t *testing.T) {
	def, _ := ToolDefinition(tool("a", "x\u200by").Raw)
	old, _ := ToolDefinition(tool("a", "x").Raw)
	item := NewItem("a", def, newHold("s", "a", Changed, &old, def))
	if item.Held != Changed || item.OldSHA256 != old.Hash || item.HiddenText != 1 || !item.Approvable() {
		t.Errorf("got %+v", item)
	}
	if a, err := item.Approval("s"); err != nil || a.Hash != def.Hash || a.Tool != "a" {
		t.Errorf("got %+v, %v", a, err)
	}
	item.SHA256 = old.Hash
	if _, err := item.Approval("s"); err == nil {
		t.Error("a definition without its hash is approved")
	}
	item.Definition = []byte(`[`)
	if _, err := item.Approval("s"); err == nil {
		t.Error("a broken definition is approved")
	}
	text := NewItem("", TextDefinition("hi"), nil)
	if a, err := text.Approval("s"); err != nil || a.Tool != "" || a.Hash != TextDefinition("hi").Hash || text.Approvable() {
		t.Errorf("got %+v, %v", a, err)
	}
	for reason, want := range map[Reason]bool{Changed: true, Unapproved: true, Hidden: false, LooksAlike: false, Unchecked: false, "": false} {
		if got := (ItemReport{Held: reason}).Approvable(); got != want {
			t.Errorf("%s: %v", reason, got)
		}
	}
	if NewItem("a", def, newHold("s", "a", Unapproved, nil, def)).OldSHA256 != "" {
		t.Error("an old definition that there is not")
	}
}
