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
	applicationID = 0x63747867 // "ctxg" in the file's header: this file is ours
	schemaVersion = 3

	maxReaders  = 4
	openTimeout = 10 * time.Second // how long Open waits for other processes
)

//go:embed schema.sql
var schema1 string

//go:embed schema2.sql
var schema2 string

//go:embed schema3.sql
var schema3 string

// migrations[n] brings a file from schema version n to the next.
var migrations = [schemaVersion]string{schema1, schema2, schema3}

// Open opens the file at path, and creates it and its folder if they are missing.
func Open(ctx context.Context, path string) (*Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	// Any step may find the file locked for a moment by another process that creates it, recovers
	// its log, or closes it last.
	for {
		d, err := openOnce(ctx, path)
		if err == nil {
			return d, nil
		}
		if sqliteCode(err) != sqlite3.SQLITE_BUSY {
			return nil, fmt.Errorf("open store %s: %w", path, err)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("open store %s: locked by another process: %w", path, err)
		}
	}
}

func openOnce(ctx context.Context, path string) (_ *Driver, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := createFile(path); err != nil {
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
	// The log is truncated to journal_size_limit after a large write.
	if d.writeDB, err = sql.Open("sqlite", dsn(path, "synchronous(FULL)", "journal_size_limit(67108864)")); err != nil {
		return nil, err
	}
	d.writeDB.SetMaxOpenConns(1)
	if d.writeConn, err = d.writeDB.Conn(ctx); err != nil {
		return nil, err
	}
	if err := prepareFile(ctx, d.writeConn); err != nil {
		return nil, err
	}
	if err := d.openReaders(ctx, path); err != nil {
		return nil, err
	}
	d.writer, err = newWriter(ctx, d.writeConn) // last, because it starts a goroutine
	return d, err
}

// selectValue reads a value, and whether it is there and live. It always looks three times, in the index of keys, for
// the item and for its group: a key that is absent takes as long as one that has expired.
const selectValue = `SELECT coalesce(grp.expires > ?2, 0), CASE WHEN grp.expires > ?2 THEN i.value END
	FROM (SELECT (SELECT rowid FROM item WHERE key = ?1) AS r)
	LEFT JOIN item i ON i.rowid = coalesce(r, 0)
	LEFT JOIN grp ON grp.id = coalesce(i.grp, 0)`

func (d *Driver) openReaders(ctx context.Context, path string) (err error) {
	if d.readDB, err = sql.Open("sqlite", dsn(path, "query_only(1)")); err != nil {
		return err
	}
	d.readDB.SetMaxOpenConns(maxReaders)
	d.readDB.SetMaxIdleConns(maxReaders)
	for _, s := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&d.getValue, selectValue},
		{&d.getLease, `SELECT seen, expires FROM grp WHERE name = ? AND expires > ?`},
		{&d.getTotals, `SELECT items, bytes - pinned, pinned FROM total`},
		{&d.getEpoch, `SELECT epoch, writes FROM total`},
		{&d.getOwner, `SELECT bytes FROM owner WHERE name = ?`},
	} {
		if *s.stmt, err = d.readDB.PrepareContext(ctx, s.text); err != nil {
			return fmt.Errorf("prepare %q: %w", s.text, err)
		}
	}
	return nil
}

// closeAll closes whatever is open. The writer's connection is closed last: SQLite then checkpoints
// the log into the file.
func (d *Driver) closeAll() error {
	var errs []error
	if d.readDB != nil {
		errs = append(errs, d.readDB.Close())
	}
	if d.writeConn != nil {
		errs = append(errs, d.writeConn.Close())
	}
	if d.writeDB != nil {
		errs = append(errs, d.writeDB.Close())
	}
	return errors.Join(errs...)
}

// createMu serializes the Opens of this process: POSIX drops all locks that a process has on a
// file when it closes any descriptor of it, so createFile must not close a file that another driver
// may have opened.
var createMu sync.Mutex

// createFile makes an empty file with mode 0600, which SQLite's log files inherit.
func createFile(path string) error {
	createMu.Lock()
	defer createMu.Unlock()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return checkFileSize(path)
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// checkFileSize refuses a file that is too short to be a database: SQLite would take it for an empty
// one and overwrite it. SQLite checks longer files itself.
func checkFileSize(path string) error {
	const minSize = 512 // one page
	info, err := os.Stat(path)
	if err == nil && info.Size() > 0 && info.Size() < minSize {
		return errors.New("file is not a database")
	}
	return err
}

// dsn names the file and the settings of every connection to it. The busy timeout of a second does
// not limit writes: they are retried until their context ends.
func dsn(path string, pragmas ...string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	query := url.Values{"_pragma": append([]string{"busy_timeout(1000)"}, pragmas...)}
	u := url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}
	return u.String()
}

// prepareFile migrates the file to this schema version. Other processes may be doing the same.
func prepareFile(ctx context.Context, conn *sql.Conn) error {
	// Check first: the file of another program must stay untouched.
	have, err := readSchemaVersion(ctx, conn)
	if err != nil {
		return err
	}
	if have == schemaVersion {
		return enableWAL(ctx, conn) // without waiting for other writers
	}
	// Takes effect in an empty file only, and before WAL mode writes its header.
	if _, err := conn.ExecContext(ctx, `PRAGMA auto_vacuum = INCREMENTAL`); err != nil {
		return err
	}
	if err := enableWAL(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, `BEGIN IMMEDIATE`); err != nil {
		return err
	}
	err = migrate(ctx, conn)
	end := `COMMIT`
	if err != nil {
		end = `ROLLBACK`
	}
	if _, e := conn.ExecContext(ctx, end); err == nil {
		err = e
	}
	return err
}

// readSchemaVersion returns the schema version of the file, 0 for an empty one.
func readSchemaVersion(ctx context.Context, conn *sql.Conn) (int, error) {
	var app, ver, tables int
	row := conn.QueryRowContext(ctx, `SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
		FROM pragma_application_id, pragma_user_version`)
	if err := row.Scan(&app, &ver, &tables); err != nil {
		return 0, err
	}
	switch {
	case app == 0 && ver == 0 && tables == 0:
		return 0, nil
	case app != applicationID:
		return 0, errors.New("the file is an SQLite database of another program")
	case ver > schemaVersion:
		return 0, fmt.Errorf("the file has schema version %d, written by a newer ctxgate; this one knows versions up to %d: use that ctxgate, or set state.path to another file", ver, schemaVersion)
	}
	return ver, nil
}

func enableWAL(ctx context.Context, conn *sql.Conn) error {
	var mode string
	if err := conn.QueryRowContext(ctx, `PRAGMA journal_mode = WAL`).Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("the file system allows no write-ahead log (journal mode stays %q)", mode)
	}
	return nil
}

// migrate runs inside a transaction. Another process may have migrated the file while this one waited
// for the lock.
func migrate(ctx context.Context, conn *sql.Conn) error {
	have, err := readSchemaVersion(ctx, conn)
	if err != nil || have == schemaVersion {
		return err
	}
	for ; have < schemaVersion; have++ {
		if _, err := conn.ExecContext(ctx, migrations[have]); err != nil {
			return fmt.Errorf("migrate the schema from version %d to the next: %w", have, err)
		}
	}
	setVersion := fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", applicationID, schemaVersion)
	if _, err := conn.ExecContext(ctx, setVersion); err != nil {
		return fmt.Errorf("write the schema version: %w", err)
	}
	return nil
}

var _ state.Driver = (*Driver)(nil)
