package pins

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// Record is what was approved of one server.
type Record struct {
	Instructions *Definition // nil before they were seen
	Tools        map[string]Definition
}

func (r Record) clone() Record {
	return Record{Instructions: r.Instructions, Tools: maps.Clone(r.Tools)}
}

// lockVersion is the version of the format.
const lockVersion = 1

const lockComment = "The definitions of tools that ctxgate serves. 'ctxgate pin' writes this file: review its changes, and commit it."

// Lock is the approved definitions of all servers, by their ids.
type Lock map[string]Record

// Encode returns the lock as a file: JSON with sorted keys, a line for each member, hidden characters as escapes. The same
// definitions always give the same bytes.
func (l Lock) Encode() []byte {
	b := append([]byte("{\n  \"comment\": "), jsonscan.AppendQuoted(nil, lockComment)...)
	b = append(b, ",\n  \"version\": "+strconv.Itoa(lockVersion)+",\n  \"servers\": {"...)
	for i, id := range slices.Sorted(maps.Keys(l)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonscan.AppendQuoted(append(b, "\n    "...), id), ": {"...)
		b = l[id].appendMembers(b)
		b = append(b, "\n    }"...)
	}
	return append(escapeHidden(b), "\n  }\n}\n"...)
}

func (r Record) appendMembers(b []byte) []byte {
	if r.Instructions != nil {
		b = append(append(b, "\n      \"instructions\": "...), r.Instructions.Text...)
		b = append(b, ",\n      \"instructions_sha256\": \""+r.Instructions.Hash+"\","...)
	}
	b = append(b, "\n      \"tools\": {"...)
	for i, name := range slices.Sorted(maps.Keys(r.Tools)) {
		if i > 0 {
			b = append(b, ',')
		}
		d := r.Tools[name]
		b = append(jsonscan.AppendQuoted(append(b, "\n        "...), name), ": {\n          \"sha256\": \""+d.Hash+"\",\n          \"definition\": "...)
		var indented bytes.Buffer
		_ = json.Indent(&indented, d.Text, "          ", "  ") // it is valid JSON
		b = append(append(b, indented.Bytes()...), "\n        }"...)
	}
	return append(b, "\n      }"...)
}

// escapeHidden writes hidden characters of JSON as escapes, so that a reviewer sees them. They can only be in strings.
func escapeHidden(text []byte) []byte {
	if bytes.IndexFunc(text, IsHidden) < 0 {
		return text
	}
	var out []byte
	for _, r := range string(text) {
		switch {
		case !IsHidden(r):
			out = append(out, string(r)...)
		case r > 0xFFFF:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// ParseLock reads what Encode wrote. A definition that does not have its hash, or that is under another name, is an error:
// somebody edited it by hand, or a merge went wrong.
func ParseLock(data []byte) (Lock, error) {
	s := jsonscan.New(data, 0)
	if _, err := s.SkipStrict(); err != nil {
		return nil, err
	}
	if err := s.End(); err != nil {
		return nil, err
	}
	top, err := jsonscan.FieldsOf(data)
	if err != nil {
		return nil, err
	}
	if v, _ := top.Get("version"); string(v) != strconv.Itoa(lockVersion) {
		return nil, fmt.Errorf("version %s is not known to this version of ctxgate, which knows %d", v, lockVersion)
	}
	servers, ok := top.Get("servers")
	if !ok {
		return nil, fmt.Errorf("there is no member \"servers\"")
	}
	lock := Lock{}
	return lock, eachMember(servers, func(id string, raw []byte) error {
		record, err := parseRecord(raw)
		if err != nil {
			return fmt.Errorf("server %s: %w", strconv.Quote(id), err)
		}
		lock[id] = record
		return nil
	})
}

func parseRecord(raw []byte) (Record, error) {
	record := Record{Tools: map[string]Definition{}}
	fields, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return record, err
	}
	if text, ok := fields.Get("instructions"); ok {
		d := TextDefinition(jsonscan.DecodeString(text))
		if d.Hash != fields.Text("instructions_sha256") {
			return record, errEdited("instructions")
		}
		record.Instructions = &d
	}
	tools, _ := fields.Get("tools")
	return record, eachMember(tools, func(name string, raw []byte) error {
		tool, err := jsonscan.FieldsOf(raw)
		if err != nil {
			return err
		}
		text, ok := tool.Get("definition")
		if !ok {
			return fmt.Errorf("tool %s has no definition", strconv.Quote(name))
		}
		d, err := ToolDefinition(text)
		if err != nil {
			return err
		}
		definition, _ := jsonscan.FieldsOf(text) // it was read above
		if d.Hash != tool.Text("sha256") || definition.Text("name") != name {
			return errEdited("tool " + strconv.Quote(name))
		}
		record.Tools[name] = d
		return nil
	})
}

func errEdited(what string) error {
	return fmt.Errorf("%s: the definition does not have the hash or the name that the file says; undo the edit, or write the file again with 'ctxgate pin --init'", what)
}

// eachMember calls f for the members of a raw object; what is no object has none.
func eachMember(raw []byte, f func(key string, value []byte) error) error {
	fields, err := jsonscan.FieldsOf(raw)
	if err != nil {
		return err
	}
	for _, m := range fields.All() {
		if err := f(m.Key, m.Value.Of(raw)); err != nil {
			return err
		}
	}
	return nil
}

// What the store keeps of a server is bounded, at less than 1 MiB: the texts of definitions only to show later what
// changed.
const (
	maxPinned    = 2000      // tools
	maxKeptName  = 128       // bytes of a name; the protocol's own limit
	maxKeptText  = 16 << 10  // of one definition; of a longer one only the hash is kept
	maxKeptTexts = 128 << 10 // of all definitions
)

// encodeKept returns a record for the store: a line for each definition, its hash, its name and its text.
func (r Record) encodeKept() []byte {
	var b []byte
	texts := 0
	add := func(name string, d Definition) {
		b = append(jsonscan.AppendQuoted(append(append(b, d.Hash...), ' '), name), ' ')
		if texts+len(d.Text) <= maxKeptTexts && len(d.Text) <= maxKeptText {
			b = append(b, d.Text...)
			texts += len(d.Text)
		}
		b = append(b, '\n')
	}
	if r.Instructions != nil {
		add("", *r.Instructions)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Tools)) {
		add(name, r.Tools[name])
	}
	return b
}

// decodeKept reads what encodeKept wrote.
func decodeKept(data []byte) (Record, error) {
	r := Record{Tools: map[string]Definition{}}
	for line := range strings.Lines(string(data)) {
		hash, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		s := jsonscan.New([]byte(rest), 0)
		name, err := s.Str()
		if !ok || err != nil {
			return Record{}, fmt.Errorf("the record of approved definitions is damaged")
		}
		d := Definition{Hash: hash}
		if text := strings.TrimSpace(rest[name.End+1:]); text != "" {
			d.Text = []byte(text)
		}
		if name.Len() == 0 {
			r.Instructions = &d
		} else {
			r.Tools[jsonscan.DecodeString([]byte(rest[name.Start-1:name.End+1]))] = d
		}
	}
	return r, nil
}
