package child

import (
	"slices"
	"testing"
)

func TestEnvironment(t *testing.T) {
	own := []string{
		"HOME=/h", "PATH=/bin", "PATH=/usr/bin", "LC_ALL=C", "XDG_CONFIG_HOME=/c", "XDG_DATA_DIRS=/d", "XDG_RUNTIME_DIR=/r",
		"XDG_SESSION_ID=2", "AWS_SECRET_ACCESS_KEY=x", "CTXGATE_SECRET=x", "LD_PRELOAD=x", "NODE_OPTIONS=x", "https_proxy=p", "NO_PROXY=n",
		"SHELL=() { :; }", "BASH_FUNC_x%%=() { :; }", "broken", "=x", "TZ=",
	}
	add := map[string]string{"HOME": "/other", "TOKEN": "a=b", "EMPTY": ""}
	want := []string{
		"EMPTY=", "HOME=/other", "LC_ALL=C", "NO_PROXY=n", "PATH=/usr/bin", "TOKEN=a=b", "TZ=",
		"XDG_CONFIG_HOME=/c", "XDG_DATA_DIRS=/d", "XDG_RUNTIME_DIR=/r", "https_proxy=p",
	}
	if got := environmentOn(false, own, add); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}

	own = []string{`Path=C:\`, `SystemRoot=C:\Windows`, "=C:=C:\\x", "HOME=/h", "TOKEN=x"}
	add = map[string]string{"path": `D:\`}
	want = []string{`SystemRoot=C:\Windows`, `path=D:\`}
	if got := environmentOn(true, own, add); !slices.Equal(got, want) {
		t.Errorf("Windows: got %q, want %q", got, want)
	}
}
