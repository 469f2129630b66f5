package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/state"
)

// The test binary is also the other process: with these variables set it writes to the file, prints
// each key once it is acknowledged, and exits without running tests.
const (
	envPath = "CTXGATE_TEST_STORE"
	envName = "CTXGATE_TEST_WRITER" // prefix of the keys
	envPuts = "CTXGATE_TEST_PUTS"   // how many; "" is until killed
)

func TestMain(m *testing.M) {
	if path := os.Getenv(envPath); path != "" {
		if err := write(path, os.Getenv(envName), os.Getenv(envPuts)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func write(path, name, puts string) error {
	d, err := Open(context.Background(), path)
	if err != nil {
		return err
	}
	defer d.Close()
	for i := 0; puts == "" || fmt.Sprint(i) != puts; i++ {
		key := fmt.Sprint(name, "/", i)
		items := []state.Item{{Key: key, Group: key, Value: []byte(value(key))}}
		if err := d.Put(context.Background(), items, forever); err != nil {
			return fmt.Errorf("put %s: %w", key, err)
		}
		fmt.Println(key)
	}
	return nil
}

func value(key string) string { return strings.Repeat(key, 100) }

func writerProcess(t *testing.T, path, name, puts string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envPath+"="+path, envName+"="+name, envPuts+"="+puts)
	cmd.Stderr = os.Stderr
	return cmd
}

// Four processes create the file and fill it at the same time.
func TestProcesses(t *testing.T) {
	const processes, puts = 4, 250
	path := filepath.Join(t.TempDir(), "store.db")
	var cmds []*exec.Cmd
	for p := range processes {
		cmd := writerProcess(t, path, fmt.Sprint(p), fmt.Sprint(puts))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	for p, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Errorf("process %d: %v", p, err)
		}
	}
	d := mustOpen(t, path)
	var want state.Stat
	for p := range processes {
		for i := range puts {
			key := fmt.Sprint(p, "/", i)
			has(t, d, key, value(key))
			want.Items++
			want.Bytes += state.Item{Key: key, Group: key, Value: []byte(value(key))}.Size()
		}
	}
	if got, err := d.Stat(t.Context()); err != nil || got != want {
		t.Errorf("Stat = %+v, %v; want %+v", got, err, want)
	}
}

// A process killed during its Puts loses none that it acknowledged.
func TestKilledWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var acknowledged []string
	for round, after := range []int{1, 20, 75} {
		keys := killAfter(t, writerProcess(t, path, fmt.Sprint("round", round), ""), after)
		if len(keys) < after {
			t.Fatalf("the writer ended by itself after %d puts", len(keys))
		}
		acknowledged = append(acknowledged, keys...)
		d := mustOpen(t, path)
		for _, key := range acknowledged {
			has(t, d, key, value(key))
		}
		checkTotals(t, d)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killAfter kills the process once it has acknowledged n keys, and returns all that it acknowledged.
func killAfter(t *testing.T, cmd *exec.Cmd, n int) (keys []string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A key counts when its whole line arrived: the writer may be killed while it prints.
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		if keys = append(keys, strings.TrimSuffix(line, "\n")); len(keys) == n {
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait() // it was killed
	return keys
}

// checkTotals compares the maintained totals with a count of the rows.
func checkTotals(t *testing.T, d *Driver) {
	t.Helper()
	got, err := d.Stat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want state.Stat
	row := d.readDB.QueryRow(`SELECT count(*), sum(length(key) + length(name) + length(value))
		FROM item JOIN grp ON grp.id = item.grp`)
	if err := row.Scan(&want.Items, &want.Bytes); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("Stat = %+v; the items add up to %+v", got, want)
	}
	var health string
	if err := d.readDB.QueryRow(`PRAGMA integrity_check`).Scan(&health); err != nil || health != "ok" {
		t.Errorf("integrity check: %s, %v", health, err)
	}
}
