package sqlite

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/ctxgate/ctxgate/state"
)

const (
	application = 0x63747867 // "ctxg" in the file's header: this file is ours
	version     = 2          // of the schema

	readers   = 4
	openLimit = 10 * time.Second // how long Open waits for other processes
)

//go:embed schema.sql
var schema1 string

//go:embed schema2.sql
var schema2 string

// steps[n] brings a file from version n to the next.
var steps = [version]string{schema1, schema2}

// Open opens the file at path, making it and its folder when they are not there.
func Open(ctx context.Context, path string) (*Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	// Any step may find the file locked for a moment: by who makes it, who recovers its log, or
	// who was the last to close it.
	var d *Driver
	err := patiently(ctx, func() (err error) { d, err = open(ctx, path); return err })
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return d, nil
}

func open(ctx context.Context, path string) (_ *Driver, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := create(path); err != nil {
		return nil, err
	}
	d := &Driver{path: path}
	if d.opened, err = os.Stat(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = d.closeAll()
		}
	}()
	// The log is cut back to this much after a large write.
	if d.writing, err = sql.Open("sqlite", dsn(path, "synchronous(FULL)", "journal_size_limit(67108864)")); err != nil {
		return nil, err
	}
	d.writing.SetMaxOpenConns(1)
	if d.conn, err = d.writing.Conn(ctx); err != nil {
		return nil, err
	}
	if err := prepare(ctx, d.conn); err != nil {
		return nil, err
	}
	if err := d.openReaders(ctx, path); err != nil {
		return nil, err
	}
	d.writer, err = newWriter(ctx, d.conn) // last, because it starts a goroutine
	return d, err
}

func (d *Driver) openReaders(ctx context.Context, path string) (err error) {
	if d.reading, err = sql.Open("sqlite", dsn(path, "query_only(1)")); err != nil {
		return err
	}
	d.reading.SetMaxOpenConns(readers)
	d.reading.SetMaxIdleConns(readers)
	for _, s := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&d.get, `SELECT value FROM item JOIN grp ON grp.id = item.grp WHERE key = ? AND expires > ?`},
		{&d.look, `SELECT seen, expires FROM grp WHERE name = ? AND expires > ?`},
		{&d.stat, `SELECT items, bytes - pinned, pinned FROM total`},
		{&d.epoch, `SELECT epoch, writes FROM total`},
	} {
		if *s.stmt, err = d.reading.PrepareContext(ctx, s.text); err != nil {
			return fmt.Errorf("prepare %q: %w", s.text, err)
		}
	}
	return nil
}

// closeAll closes whatever is open. The writer's connection is the last to go: it then folds
// the log into the file.
func (d *Driver) closeAll() error {
	var errs []error
	if d.reading != nil {
		errs = append(errs, d.reading.Close())
	}
	if d.conn != nil {
		errs = append(errs, d.conn.Close())
	}
	if d.writing != nil {
		errs = append(errs, d.writing.Close())
	}
	return errors.Join(errs...)
}

// creating orders the Opens of this process: POSIX drops all locks that a process has on a
// file when it closes any descriptor of it, so a file must not be closed here once another
// driver may have opened it.
var creating sync.Mutex

// create makes an empty file with mode 0600, which SQLite's log files then inherit.
func create(path string) error {
	creating.Lock()
	defer creating.Unlock()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return checkSize(path)
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// checkSize refuses what is too short to be a database: SQLite takes it for an empty one and
// writes over it. What is longer it checks itself.
func checkSize(path string) error {
	const smallest = 512 // one page
	info, err := os.Stat(path)
	if err == nil && info.Size() > 0 && info.Size() < smallest {
		return errors.New("file is not a database")
	}
	return err
}

// dsn names the file and the settings of every connection to it. A second of waiting for a
// lock is not a limit: writes begin again until their context ends.
func dsn(path string, pragmas ...string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	query := url.Values{"_pragma": append([]string{"busy_timeout(1000)"}, pragmas...)}
	u := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}
	return u.String()
}

// prepare brings the file to this version. Other processes may be doing the same.
func prepare(ctx context.Context, conn *sql.Conn) error {
	// Look first: a file that is not ours must stay as it is.
	have, err := inspect(ctx, conn)
	if err != nil {
		return err
	}
	if have == version {
		return useLog(ctx, conn) // without waiting for whoever writes
	}
	// Takes effect in an empty file only, and before the log mode writes its header.
	if _, err := conn.ExecContext(ctx, `PRAGMA auto_vacuum = INCREMENTAL`); err != nil {
		return err
	}
	if err := useLog(ctx, conn); err != nil {
		return err
	}
	return migrate(ctx, conn)
}

// patiently tries again for as long as another process has the file locked.
func patiently(ctx context.Context, try func() error) error {
	for {
		err := try()
		if code(err) != sqlite3.SQLITE_BUSY {
			return err
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("locked by another process: %w", err)
		}
	}
}

// inspect returns the schema version of the file, 0 for an empty one.
func inspect(ctx context.Context, conn *sql.Conn) (int, error) {
	var app, ver, tables int
	row := conn.QueryRowContext(ctx, `SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
		FROM pragma_application_id, pragma_user_version`)
	if err := row.Scan(&app, &ver, &tables); err != nil {
		return 0, err
	}
	switch {
	case app == 0 && ver == 0 && tables == 0:
		return 0, nil
	case app != application:
		return 0, errors.New("the file is an SQLite database of another program")
	case ver > version:
		return 0, fmt.Errorf("the file has schema version %d, written by a newer ctxgate; this one knows versions up to %d", ver, version)
	}
	return ver, nil
}

func useLog(ctx context.Context, conn *sql.Conn) error {
	var mode string
	if err := conn.QueryRowContext(ctx, `PRAGMA journal_mode = WAL`).Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file system allows no write-ahead log (journal mode stays %q)", mode)
	}
	return nil
}

func migrate(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	err := fill(ctx, conn)
	end := `COMMIT`
	if err != nil {
		end = `ROLLBACK`
	}
	if _, e := conn.ExecContext(ctx, end); err == nil {
		err = e
	}
	return err
}

// fill brings the schema to this version. Whoever waited for the lock may find it there.
func fill(ctx context.Context, conn *sql.Conn) error {
	have, err := inspect(ctx, conn)
	if err != nil || have == version {
		return err
	}
	for ; have < version; have++ {
		if _, err := conn.ExecContext(ctx, steps[have]); err != nil {
			return fmt.Errorf("bring the schema from version %d to the next: %w", have, err)
		}
	}
	mark := fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", application, version)
	if _, err := conn.ExecContext(ctx, mark); err != nil {
		return fmt.Errorf("note the version of the schema: %w", err)
	}
	return nil
}

var _ state.Driver = (*Driver)(nil)
