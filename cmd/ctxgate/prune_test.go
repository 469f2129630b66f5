package main

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ctxgate/ctxgate/prune"
)

// After a second, a terminal shows how much was read, on one line that is removed before the text is
// printed.
func TestShowProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var terminal strings.Builder
		r, w := io.Pipe()
		in := &input{Reader: r}
		go func() {
			for range 3 {
				_, _ = io.WriteString(w, "one\ntwo\n")
				time.Sleep(550 * time.Millisecond)
			}
			_ = w.Close()
		}()
		stop := in.showProgress(&terminal)
		if text, err := io.ReadAll(in); len(text) != 24 || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		stop()
		const want = "\rctxgate: 4 lines, 0.0 MB read\x1b[K" + "\rctxgate: 6 lines, 0.0 MB read\x1b[K" + "\rctxgate: 6 lines, 0.0 MB read\x1b[K" + "\rctxgate: 6 lines, 0.0 MB read\x1b[K" + "\r\x1b[K"
		if got := terminal.String(); got != want {
			t.Errorf("got %q", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var terminal strings.Builder
		in := &input{Reader: strings.NewReader("quick")}
		stop := in.showProgress(&terminal)
		_, _ = io.ReadAll(in)
		time.Sleep(900 * time.Millisecond)
		stop()
		if terminal.Len() > 0 {
			t.Errorf("got %q", terminal.String())
		}
	})
}

func TestKindOf(t *testing.T) {
	const code = "package x\n\nfunc f() {\n\treturn\n}\n"
	for _, tt := range []struct {
		asked, file string
		want        prune.Kind
	}{
		{"auto", "-", prune.Code}, {"auto", "notes.txt", prune.Code}, {"auto", "x.LOG", prune.Logs}, {"auto", "README.md", prune.Docs},
		{"logs", "x.go", prune.Logs}, {"auto", "dir.md/x", prune.Code}, {"auto", "x.Py", prune.Code},
	} {
		if got := kindOf(tt.asked, tt.file, code); got != tt.want {
			t.Errorf("%v: %s", tt, got)
		}
	}
}
