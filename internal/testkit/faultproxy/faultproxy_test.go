package faultproxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"testing"
	"time"
)

func startEcho(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

// TestFaults: bytes arrive late, not at all until the network heals, and a cut ends the connection.
func TestFaults(t *testing.T) {
	p := Start(t, startEcho(t))
	conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	exchange := func() (time.Duration, error) {
		start := time.Now()
		if err := conn.SetDeadline(start.Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			return 0, err
		}
		line, err := r.ReadString('\n')
		if err == nil && line != "hello\n" {
			t.Errorf("got %q", line)
		}
		return time.Since(start), err
	}
	if _, err := exchange(); err != nil {
		t.Fatal(err)
	}
	p.Delay(100 * time.Millisecond)
	if took, err := exchange(); err != nil || took < 100*time.Millisecond {
		t.Errorf("delayed: %v, %v", took, err)
	}
	p.Delay(0)
	p.Drop()
	time.AfterFunc(100*time.Millisecond, p.Heal)
	if took, err := exchange(); err != nil || took < 90*time.Millisecond {
		t.Errorf("dropped: %v, %v", took, err)
	}
	p.Cut()
	if _, err := exchange(); err == nil {
		t.Error("a cut connection works")
	}
}
