package setup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ctxgate/ctxgate/setup/clientfile"
)

// Outcome is what undo did with one file.
type Outcome struct {
	Path   string
	Result UndoResult
	Detail string // why, or what is left to do
}

// UndoResult is what undo did with a file.
type UndoResult string

// The results.
const (
	Restored  UndoResult = "restored"  // byte for byte
	Removed   UndoResult = "removed"   // it did not exist before
	Reverted  UndoResult = "reverted"  // it was changed since: only the edit was taken back
	Unchanged UndoResult = "unchanged" // it is as it was before already
	Kept      UndoResult = "kept"      // it was changed since, and stays
	Failed    UndoResult = "failed"
)

// Undo puts back every file of a run. It goes on after a file that cannot be put back; the run counts as undone if
// none failed.
func (m *Manifest) Undo(env clientfile.Env, now time.Time) []Outcome {
	var out []Outcome
	for _, f := range slices.Backward(m.Files) {
		o := m.undoFile(f, env, out)
		o.Path = f.Path
		out = append(out, o)
	}
	if !slices.ContainsFunc(out, func(o Outcome) bool { return o.Result == Failed }) {
		m.removeMadeDirs()
		if !slices.ContainsFunc(out, func(o Outcome) bool { return o.Result == Reverted || o.Result == Kept }) {
			// Nothing refers to the backup any more, and it may hold credentials.
			if err := os.RemoveAll(m.dir); err == nil {
				return out
			}
		}
		undone := now.UTC().Truncate(time.Second)
		m.Undone = &undone
		if err := m.save(); err != nil {
			out = append(out, Outcome{Path: filepath.Join(m.dir, manifestName), Result: Failed, Detail: err.Error()})
		}
	}
	return out
}

// undoFile puts one file back; done is what became of those that were written after it.
func (m *Manifest) undoFile(f BackupFile, env clientfile.Env, done []Outcome) Outcome {
	current, err := ReadExisting(f.Path)
	if err != nil {
		return Outcome{Result: Failed, Detail: err.Error()}
	}
	if f.Created {
		if f.Client != "" && current != nil && hashOf(current) != f.After { // the client has put more into it since
			return m.revertClient(f, env, nil, current)
		}
		return m.undoCreated(f, current, done)
	}
	before, err := os.ReadFile(filepath.Join(m.dir, f.Backup))
	switch {
	case err != nil:
		return Outcome{Result: Failed, Detail: "its backup cannot be read: " + err.Error()}
	case hashOf(before) != f.Before:
		return Outcome{Result: Failed, Detail: "its backup " + filepath.Join(m.dir, f.Backup) + " was changed"}
	case current != nil && bytes.Equal(current, before):
		return Outcome{Result: Unchanged}
	case current == nil || hashOf(current) == f.After:
		if current == nil { // the folder may be gone, too
			if _, err := makeDirs(filepath.Dir(f.Path)); err != nil {
				return Outcome{Result: Failed, Detail: err.Error()}
			}
		}
		if err := writeFile(f.Path, before, f.Mode); err != nil {
			return Outcome{Result: Failed, Detail: err.Error()}
		}
		return Outcome{Result: Restored}
	case f.Client == "":
		return Outcome{Result: Kept, Detail: "it was changed since; as it was: " + filepath.Join(m.dir, f.Backup)}
	}
	return m.revertClient(f, env, before, current)
}

// undoCreated removes a file that did not exist before, unless somebody has changed it, or a file that stays refers to it.
func (m *Manifest) undoCreated(f BackupFile, current []byte, done []Outcome) Outcome {
	switch {
	case current == nil:
		return Outcome{Result: Unchanged}
	case hashOf(current) != f.After:
		return Outcome{Result: Kept, Detail: "it was changed since; remove it yourself if you do not need it"}
	}
	for _, o := range done {
		if o.Result != Kept {
			continue
		}
		if data, err := os.ReadFile(o.Path); err == nil && bytes.Contains(data, []byte(filepath.Base(f.Path))) {
			return Outcome{Result: Kept, Detail: o.Path + " refers to it"}
		}
	}
	if err := os.Remove(f.Path); err != nil {
		return Outcome{Result: Failed, Detail: err.Error()}
	}
	return Outcome{Result: Removed}
}

// revertClient takes an edit back in a client's file that somebody has written since: the client itself, often.
func (m *Manifest) revertClient(f BackupFile, env clientfile.Env, before, current []byte) Outcome {
	asItWas := "as it was: " + filepath.Join(m.dir, f.Backup)
	if f.Created {
		asItWas = "it did not exist before"
	}
	written, err := os.ReadFile(filepath.Join(m.dir, f.Written))
	if err != nil {
		return Outcome{Result: Failed, Detail: err.Error() + "; " + asItWas}
	}
	file := clientfile.At(env, f.Client, f.Path, clientfile.User)
	if f.IsProject {
		file = clientfile.At(env, f.Client, f.Path, clientfile.Project)
	}
	data, left, err := file.Revert(before, written, current)
	if err == nil {
		err = writeFile(f.Path, data, f.Mode)
	}
	if err != nil {
		return Outcome{Result: Failed, Detail: fmt.Sprintf("it was changed since, and the edit could not be taken back: %v; %s", err, asItWas)}
	}
	detail := "it was changed since, so only ctxgate's edit was taken back"
	if len(left) > 0 {
		detail += "; not put back, because it was changed, too: " + strings.Join(left, ", ") + "; " + asItWas
	}
	return Outcome{Result: Reverted, Detail: detail}
}

// ErrNothingToUndo says that no run is left to undo.
var ErrNothingToUndo = errors.New("nothing to undo: ctxgate init has changed no files, or all of it was undone")
