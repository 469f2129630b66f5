package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	manifestName    = "manifest.json"
	manifestVersion = 1
)

// ErrChanged says that a file is not as it was when the edit was made.
var ErrChanged = errors.New("was changed by another program meanwhile")

// Backups is the directory with what init changed: a directory for each run, which holds the files as they were and a
// manifest.
type Backups struct{ Dir string }

// Manifest lists the files of one run.
type Manifest struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	// Undone is when the run was undone; nil before.
	Undone *time.Time `json:"undone,omitempty"`
	// MadeDirs are the directories that the run made, outermost first.
	MadeDirs []string     `json:"made_dirs,omitempty"`
	Files    []BackupFile `json:"files"`

	dir string
}

// BackupFile is one file that was made or changed.
type BackupFile struct {
	Path      string      `json:"path"`
	Client    string      `json:"client,omitempty"`
	IsProject bool        `json:"project,omitempty"`
	Created   bool        `json:"created,omitempty"`
	Mode      fs.FileMode `json:"mode"`
	Before    string      `json:"before,omitempty"` // SHA-256; "" of a file that was made
	After     string      `json:"after"`
	Backup    string      `json:"backup,omitempty"`  // the file as it was, in the directory of the run
	Written   string      `json:"written,omitempty"` // the file as it was written, there, if it is a client's
}

// Apply backs up and writes every file. If one cannot be written, those before it are put back. A file that is not as the
// edit found it is not written: nothing is then.
func (b Backups) Apply(edits []Edit, now time.Time) (*Manifest, error) {
	m := &Manifest{Version: manifestVersion, Time: now.UTC().Truncate(time.Second)}
	for _, e := range edits {
		file := BackupFile{Path: e.Path, Client: e.Client, IsProject: e.IsProject, Created: e.isNew(), Mode: e.Mode, After: hashOf(e.After)}
		if !e.isNew() {
			_, mode, err := writeTarget(e.Path)
			if err != nil {
				return nil, err
			}
			file.Mode, file.Before = mode, hashOf(e.Before)
		}
		m.Files = append(m.Files, file)
	}
	if err := b.saveOriginals(m, edits); err != nil {
		return nil, fmt.Errorf("making the backup: %w", err)
	}
	for i, e := range edits {
		if err := m.writeEdit(e); err != nil {
			return nil, errors.Join(err, m.rollBack(edits[:i]))
		}
	}
	if err := m.save(); err != nil { // with the directories that were made
		return nil, errors.Join(err, m.rollBack(edits))
	}
	b.removeOld()
	return m, nil
}

// The most runs that are kept: those that can be undone, and those that were undone but for files that had changed.
const (
	maxRuns   = 100
	maxUndone = 10
)

// removeOld removes the oldest runs beyond the limits. What cannot be removed stays until the next run.
func (b Backups) removeOld() {
	runs, err := b.runs()
	if err != nil {
		return
	}
	left := map[bool]int{false: maxRuns, true: maxUndone}
	for _, m := range slices.Backward(runs) {
		if left[m.Undone != nil]--; left[m.Undone != nil] < 0 {
			_ = os.RemoveAll(m.dir)
		}
	}
}

// saveOriginals makes the directory of the run, with the originals and the manifest, before anything is written.
func (b Backups) saveOriginals(m *Manifest, edits []Edit) error {
	if _, err := makeDirs(b.Dir); err != nil {
		return err
	}
	for i := 1; ; i++ {
		name := m.Time.Format("20060102T150405Z")
		if i > 1 {
			name += "-" + strconv.Itoa(i)
		}
		m.dir = filepath.Join(b.Dir, name)
		err := os.Mkdir(m.dir, 0o700)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) || i == 1000 {
			return err
		}
	}
	for i, e := range edits {
		name := fmt.Sprintf("%03d-%s", i+1, strings.TrimPrefix(filepath.Base(e.Path), "."))
		if !e.isNew() {
			m.Files[i].Backup = name
			if err := replaceFile(filepath.Join(m.dir, name), e.Before, 0o600); err != nil {
				return err
			}
		}
		if e.Client == "" {
			continue
		}
		// To undo the edit when the client has written the file since.
		m.Files[i].Written = name + ".written"
		if err := replaceFile(filepath.Join(m.dir, m.Files[i].Written), e.After, 0o600); err != nil {
			return err
		}
	}
	return m.save()
}

func (m *Manifest) save() error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(m.dir, manifestName), append(data, '\n'), 0o600)
}

func (m *Manifest) writeEdit(e Edit) error {
	same, err := e.isUnchanged()
	if err != nil {
		return err
	}
	if !same {
		return fmt.Errorf("%s %w; run the command again", e.Path, ErrChanged)
	}
	made, err := makeDirs(filepath.Dir(e.Path))
	m.MadeDirs = append(m.MadeDirs, made...)
	if err != nil {
		return err
	}
	return writeFile(e.Path, e.After, e.Mode)
}

// rollBack puts back the files that were written, and forgets the run.
func (m *Manifest) rollBack(written []Edit) error {
	var errs []error
	for _, e := range slices.Backward(written) {
		if e.isNew() {
			errs = append(errs, os.Remove(e.Path))
		} else {
			errs = append(errs, writeFile(e.Path, e.Before, e.Mode))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("putting the files back: %w; the originals are in %s", err, m.dir)
	}
	m.removeMadeDirs()
	return os.RemoveAll(m.dir)
}

// removeMadeDirs removes the directories that the run made, if they are empty.
func (m *Manifest) removeMadeDirs() {
	for _, dir := range slices.Backward(m.MadeDirs) {
		_ = os.Remove(dir) // fails if something is in it
	}
}

// Last returns the last run that was not undone; nil if there is none.
func (b Backups) Last() (*Manifest, error) {
	runs, err := b.runs()
	if err != nil {
		return nil, err
	}
	for _, m := range slices.Backward(runs) {
		if m.Undone == nil {
			return m, nil
		}
	}
	return nil, nil
}

// runs lists all runs, the oldest first.
func (b Backups) runs() ([]*Manifest, error) {
	entries, err := os.ReadDir(b.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var runs []*Manifest
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		m, err := readManifest(filepath.Join(b.Dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a run that ended before it changed anything
		}
		if err != nil {
			return nil, err
		}
		runs = append(runs, m)
	}
	slices.SortFunc(runs, func(a, b *Manifest) int {
		if isLater(a, b) {
			return 1
		}
		return -1
	})
	return runs, nil
}

// isLater compares by time, and within a second by the number that the directory's name ends in.
func isLater(a, b *Manifest) bool {
	if !a.Time.Equal(b.Time) {
		return a.Time.After(b.Time)
	}
	if len(a.dir) != len(b.dir) {
		return len(a.dir) > len(b.dir)
	}
	return a.dir > b.dir
}

func readManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, manifestName)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &Manifest{dir: dir}
	if err := json.Unmarshal(data, m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if m.Version != manifestVersion {
		return nil, fmt.Errorf("%s was written by another version of ctxgate (%d)", path, m.Version)
	}
	return m, nil
}
