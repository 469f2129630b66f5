package clientfile

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ctxgate/ctxgate/internal/jsonedit"
	"github.com/ctxgate/ctxgate/internal/tomledit"
	"github.com/ctxgate/ctxgate/internal/yamledit"
)

// Revert takes an edit back in a file that was written since: what the edit changed from before to after is changed
// back in now, and everything else stays. left names what was changed since at the same place, and therefore stays.
func (f File) Revert(before, after, now []byte) (data []byte, left []string, err error) {
	r := reversal{File: f}
	for _, d := range []struct {
		to   *document
		text []byte
	}{{&r.before, before}, {&r.after, after}, {&r.now, now}} {
		if *d.to, err = f.document(d.text); err != nil {
			return nil, nil, err
		}
	}
	if form := f.form(); form.isList {
		err = r.revertList(form.path)
	} else {
		err = r.revertAt(nil)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return r.now.Bytes(), r.left, nil
}

// reversal is one run of Revert.
type reversal struct {
	File
	before, after, now document
	left               []string
}

// revertAt takes back what changed in the object at a path: first what was removed or replaced, then what was added.
func (r *reversal) revertAt(path []string) error {
	old, err := r.before.Keys(path...)
	if err != nil {
		return err
	}
	added, err := r.after.Keys(path...)
	if err != nil {
		return err
	}
	added = slices.DeleteFunc(added, func(key string) bool { return slices.Contains(old, key) })
	for _, key := range slices.Concat(old, added) {
		if err := r.revertMember(append(slices.Clone(path), key)); err != nil {
			return err
		}
	}
	return nil
}

func (r *reversal) revertMember(path []string) error {
	before, wasThere, err := r.before.Value(path...)
	if err != nil {
		return err
	}
	after, isWritten, err := r.after.Value(path...)
	if err != nil {
		return err
	}
	if wasThere == isWritten && reflect.DeepEqual(before, after) {
		return nil
	}
	now, isThere, err := r.now.Value(path...)
	if err != nil {
		return err
	}
	if isThere == wasThere && reflect.DeepEqual(now, before) {
		return nil
	}
	maps := 0
	for _, v := range []any{before, after, now} {
		if _, ok := v.(map[string]any); ok {
			maps++
		}
	}
	switch {
	case wasThere && isWritten && maps == 3:
		return r.revertAt(path)
	case !wasThere && (reflect.DeepEqual(now, after) || r.isOurs(now)):
		return r.now.Delete(path...)
	case wasThere && isThere == isWritten && (!isThere || reflect.DeepEqual(now, after)):
		return r.putBack(path, isThere)
	}
	r.left = append(r.left, strings.Join(path, "."))
	return nil
}

// putBack writes what was at a path, as it was written.
func (r *reversal) putBack(path []string, isThere bool) error {
	switch old := r.before.(type) {
	case *jsonedit.Doc:
		return r.now.(*jsonedit.Doc).Copy(old, path...)
	case *tomledit.Doc:
		if isThere {
			if err := r.now.Delete(path...); err != nil {
				return err
			}
		}
		return r.now.(*tomledit.Doc).Copy(old, path...)
	case *yamledit.Doc:
		if !isThere {
			return r.now.(*yamledit.Doc).Copy(old, path...)
		}
	}
	value, _, err := r.before.Value(path...)
	if err != nil {
		return err
	}
	return r.now.Set(value, path...)
}

// revertList takes back what changed in a list of servers, which are known by their names.
func (r *reversal) revertList(path []string) error {
	was, written, is := r.namesIn(r.before, path), r.namesIn(r.after, path), r.namesIn(r.now, path)
	for i, name := range was {
		switch {
		case slices.Contains(written, name):
		case slices.Contains(is, name):
			r.left = append(r.left, name)
		default:
			if err := r.now.(*yamledit.Doc).Copy(r.before.(*yamledit.Doc), append(slices.Clone(path), strconv.Itoa(i))...); err != nil {
				return err
			}
		}
	}
	for i, name := range slices.Backward(r.namesIn(r.now, path)) {
		if slices.Contains(written, name) && !slices.Contains(was, name) {
			if err := r.now.Delete(append(slices.Clone(path), strconv.Itoa(i))...); err != nil {
				return err
			}
		}
	}
	return nil
}

// namesIn returns the names of the entries of a list.
func (r *reversal) namesIn(doc document, path []string) []string {
	value, _, _ := doc.Value(path...)
	var names []string
	for _, e := range list(value) {
		fields, _ := e.(map[string]any)
		names = append(names, text(fields["name"]))
	}
	return names
}

// isOurs reports whether a value is an entry that starts ctxgate, whatever the client has added to it.
func (r *reversal) isOurs(value any) bool {
	fields, ok := value.(map[string]any)
	return ok && r.server("", fields).Gateway
}
