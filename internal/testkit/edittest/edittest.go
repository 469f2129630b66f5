// Package edittest has the laws of the editors of JSON, TOML and YAML, for documents that each package generates: an edit,
// read back by another parser, is the change and nothing else; no other byte is lost; what was deleted can be copied back.
package edittest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ctxgate/ctxgate/internal/textedit"
)

// Document is what every editor's document has.
type Document[D any] interface {
	Bytes() []byte
	Set(value any, path ...string) error
	Delete(path ...string) error
	Copy(from D, path ...string) error
}

// Editor is an editor to test.
type Editor[D Document[D]] struct {
	Generate func(t *rapid.T) []byte
	Parse    func(src []byte) (D, error)
	Read     func(t *rapid.T, src []byte) any // another parser

	MaySkip  bool                                  // the generator writes documents that no parser reads, now and then
	Model    func(d D) any                         // if set: what the editor reads, as Read would return it
	Normal   func(model any) any                   // if set: applied to a model that was edited, before it is compared with what Read returns
	SetPath  func(t *rapid.T, d D, i int) []string // where the i-th edit sets a new value; nil for a member of any object
	Rewrites func(parent, model any) bool          // if set: a first member of parent may change bytes, and so may deletions
}

// parse generates a document. What is not edited does not change.
func (e Editor[D]) parse(t *rapid.T) (D, []byte) {
	src := e.Generate(t)
	d, err := e.Parse(src)
	switch {
	case err != nil && e.MaySkip:
		t.Skip(err) // rapid fails if most are skipped
	case err != nil:
		t.Fatalf("%v in\n%s", err, src)
	case !bytes.Equal(d.Bytes(), src):
		t.Fatal("an unedited document changed")
	}
	return d, src
}

// CheckEdits checks that the edited document, read by another parser, is the old one with the change, and that the bytes
// of the shorter one are in the longer one, in order.
func (e Editor[D]) CheckEdits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, _ := e.parse(t)
		for i := range rapid.IntRange(1, 4).Draw(t, "edits") {
			before := d.Bytes()
			model := e.Read(t, before)
			if e.Model != nil {
				if own := e.Model(d); !reflect.DeepEqual(own, model) {
					t.Fatalf("read as %#v\nby another parser as %#v\n%s", own, model, before)
				}
			}
			var want any
			if all := paths(model, nil); len(all) > 0 && rapid.Bool().Draw(t, "delete") {
				p := rapid.SampledFrom(all).Draw(t, "path")
				if err := d.Delete(p...); err != nil {
					t.Fatalf("delete %q: %v in\n%s", p, err, before)
				}
				want, _ = textedit.DeleteIn(model, p)
				if e.Rewrites == nil {
					checkSubsequence(t, d.Bytes(), before)
				}
			} else {
				p := e.setPath(t, d, model, i)
				value := rapid.SampledFrom([]any{textedit.Object{{Key: "c", Value: "x"}, {Key: "a", Value: []string{"1", "- x"}}}, "v"}).Draw(t, "value")
				if err := d.Set(value, p...); err != nil {
					t.Fatalf("set %q: %v in\n%s", p, err, before)
				}
				if parent, _ := textedit.GetIn(model, p[:len(p)-1]); e.Rewrites == nil || !e.Rewrites(parent, model) {
					checkSubsequence(t, before, d.Bytes())
				}
				want, _ = textedit.SetIn(model, p, textedit.Plain(value))
			}
			if e.Normal != nil {
				want = e.Normal(want)
			}
			if got := e.Read(t, d.Bytes()); !reflect.DeepEqual(got, want) {
				t.Fatalf("before\n%s\nafter\n%s\nreads as %#v\nwant     %#v", before, d.Bytes(), got, want)
			}
		}
	})
}

// setPath returns a path that is not in the model: in one of its objects, or in a new one.
func (e Editor[D]) setPath(t *rapid.T, d D, model any, i int) []string {
	if e.SetPath != nil {
		return e.SetPath(t, d, i)
	}
	name := fmt.Sprint("new", i)
	all := paths(model, nil)
	if len(all) == 0 {
		return []string{name, "entry"}
	}
	parent := rapid.SampledFrom(all).Draw(t, "parent")
	if v, _ := textedit.GetIn(model, parent); v == nil || reflect.TypeOf(v).Kind() != reflect.Map {
		return []string{name}
	}
	return append(slices.Clone(parent), name)
}

// CheckDeleteThenCopy checks that what was deleted and is copied from the old document is there again.
func (e Editor[D]) CheckDeleteThenCopy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		old, src := e.parse(t)
		model := e.Read(t, src)
		all := slices.DeleteFunc(paths(model, nil), func(p []string) bool {
			return slices.ContainsFunc(p, func(key string) bool { return len(key) == 1 }) // in lists
		})
		if len(all) == 0 {
			return
		}
		p := rapid.SampledFrom(all).Draw(t, "path")
		d, _ := e.Parse(src)
		if err := d.Delete(p...); err != nil {
			t.Fatal(err)
		}
		if err := d.Copy(old, p...); err != nil {
			t.Fatalf("%q: %v in\n%s\nfrom\n%s", p, err, d.Bytes(), src)
		}
		if got := e.Read(t, d.Bytes()); !reflect.DeepEqual(got, model) {
			t.Fatalf("%q: before\n%s\nafter\n%s", p, src, d.Bytes())
		}
	})
}

// paths lists the paths of the members of a model's objects and arrays.
func paths(model any, at []string) [][]string {
	var out [][]string
	add := func(key string, v any) {
		p := append(slices.Clone(at), key)
		out = append(append(out, p), paths(v, p)...)
	}
	switch node := model.(type) {
	case map[string]any:
		for k, v := range node {
			add(k, v)
		}
	case []any:
		for i, v := range node {
			add(strconv.Itoa(i), v)
		}
	}
	slices.SortFunc(out, slices.Compare)
	return out
}

// checkSubsequence fails unless the bytes of short, without white space, occur in long in this order.
func checkSubsequence(t *rapid.T, short, long []byte) {
	i := 0
	for _, c := range long {
		for i < len(short) && strings.IndexByte(" \t\r\n", short[i]) >= 0 {
			i++
		}
		if i < len(short) && short[i] == c {
			i++
		}
	}
	if len(bytes.TrimSpace(short[min(i, len(short)):])) > 0 {
		t.Fatalf("bytes were lost or changed; only in the one:\n%s\nthe other:\n%s", short, long)
	}
}
