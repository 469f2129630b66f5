package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs testdata/*.txtar. Besides what testscript knows, a script can say
//
//	upstream NAME MODE [ARGUMENT]     a server; $NAME is its URL (modes: upstream_test.go, and
//	                                  refuse, an address where nobody listens)
//	held NAME N, release NAME         wait until a hold server has N calls; let them go
//	freeport NAME                     $NAME is an address nobody uses
//	expand FILE...                    replace $NAME in files
//	serve NAME [VAR=VALUE...] [ARGS]  a gateway; $NAME and ${NAME}_ADMIN are its URLs, NAME.log
//	                                  its stderr
//	signal NAME TERM|KILL             to a gateway
//	exited NAME CODE                  wait for a gateway's end; -1 is a signal's
//	post [-H HEADER]… URL BODY|FILE [STATUS]  the answer is stdout; 200 unless told
//	get [-H HEADER]… URL [STATUS]      the same; asks until the status is right
//	begin NAME URL BODY, await NAME [STATUS]  post in two steps
//	exits CODE PROGRAM [ARGS]         exec, with this exit code
//	pruneid NAME                      $NAME is the one prune_id in stdout
//	bearer NAME FILE                  $NAME is the header for the token in a file
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata",
		UpdateScripts:      *update,
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			client, done := newClient()
			w := &world{client: client, upstreams: map[string]*upstream{}, gateways: map[string]*gateway{}, calls: map[string]chan answer{}}
			env.Values[worldKey{}] = w
			env.Defer(func() { w.end(); done() })
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"upstream": command(2, 3, (*world).upstream),
			"held":     command(2, 2, (*world).held),
			"release":  command(1, 1, (*world).release),
			"freeport": command(1, 1, (*world).freeport),
			"expand":   command(1, 9, (*world).expand),
			"serve":    command(1, 9, (*world).serve),
			"signal":   command(2, 2, (*world).signal),
			"exited":   command(2, 2, (*world).exited),
			"post":     command(2, 7, (*world).post),
			"get":      command(1, 6, (*world).get),
			"begin":    command(3, 3, (*world).begin),
			"await":    command(1, 2, (*world).await),
			"exits":    command(2, 19, (*world).exits),
			"pruneid":  command(1, 1, (*world).pruneID),
			"bearer":   command(2, 2, (*world).bearer),
		},
	})
}

type worldKey struct{}

// world is what a script has made.
type world struct {
	client    *http.Client
	upstreams map[string]*upstream
	gateways  map[string]*gateway
	calls     map[string]chan answer
}

type answer struct {
	status int
	body   []byte
	err    error
}

// end takes the gateways first, so that no call is under way when the servers go.
func (w *world) end() {
	for _, g := range w.gateways {
		g.kill()
	}
	for _, u := range w.upstreams {
		u.close()
	}
	for _, c := range w.calls {
		<-c
	}
}

func command(least, most int, do func(*world, *testscript.TestScript, []string) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < least || len(args) > most {
			ts.Fatalf("wrong use; see TestScripts")
		}
		ts.Check(do(ts.Value(worldKey{}).(*world), ts, args))
	}
}

func (w *world) upstream(ts *testscript.TestScript, args []string) error {
	name, kind := args[0], args[1]
	if kind == "refuse" {
		address, err := freeAddress()
		ts.Setenv(name, "http://"+address)
		return err
	}
	prepare, ok := modes[kind]
	if !ok {
		return errors.New("unknown mode " + kind)
	}
	argument := strings.Join(args[2:], "")
	if kind == "file" || kind == "raw" {
		argument = ts.MkAbs(argument)
	}
	m, err := prepare(argument)
	if err != nil {
		return err
	}
	u, err := startUpstream(m)
	if err != nil {
		return err
	}
	w.upstreams[name] = u
	ts.Setenv(name, u.url)
	return nil
}

func (w *world) held(_ *testscript.TestScript, args []string) error {
	return within(startLimit, "not as many calls were held", func() (bool, error) {
		return strconv.FormatInt(w.upstreams[args[0]].held.Load(), 10) == args[1], nil
	})
}

func (w *world) release(_ *testscript.TestScript, args []string) error {
	w.upstreams[args[0]].release()
	return nil
}

func (w *world) freeport(ts *testscript.TestScript, args []string) error {
	address, err := freeAddress()
	ts.Setenv(args[0], address)
	return err
}

func (w *world) expand(ts *testscript.TestScript, args []string) error {
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		if err := os.WriteFile(ts.MkAbs(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) serve(ts *testscript.TestScript, args []string) error {
	name, args := args[0], args[1:]
	env := []string{"HOME=" + ts.Getenv("HOME"), "PATH=" + ts.Getenv("PATH")}
	for len(args) > 0 && strings.Contains(args[0], "=") {
		env, args = append(env, args[0]), args[1:]
	}
	g, err := launch(ts.MkAbs("."), ts.MkAbs(name+".log"), env, args...)
	if err != nil {
		return err
	}
	w.gateways[name] = g
	ts.Setenv(name, g.url)
	ts.Setenv(name+"_ADMIN", g.admin)
	return nil
}

func (w *world) signal(_ *testscript.TestScript, args []string) error {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "KILL": os.Kill}
	return w.gateways[args[0]].cmd.Process.Signal(signals[args[1]])
}

func (w *world) exited(_ *testscript.TestScript, args []string) error {
	code, err := w.gateways[args[0]].exit()
	if err == nil && strconv.Itoa(code) != args[1] {
		err = fmt.Errorf("exit code %d, want %s", code, args[1])
	}
	return err
}

func (w *world) post(ts *testscript.TestScript, args []string) error {
	header, args, err := headerOf(args)
	if err != nil {
		return err
	}
	status, body, err := post(w.client, args[0], bodyOf(ts, args[1]), header)
	return show(ts, answer{status, body, err}, args[2:])
}

func (w *world) get(ts *testscript.TestScript, args []string) error {
	header, args, err := headerOf(args)
	if err != nil {
		return err
	}
	var got answer
	err = within(startLimit, "another status", func() (bool, error) {
		req, err := http.NewRequest(http.MethodGet, args[0], nil)
		if err != nil {
			return false, err
		}
		req.Header = header
		resp, err := w.client.Do(req)
		if err != nil {
			return false, err
		}
		defer resp.Body.Close()
		got.status = resp.StatusCode
		got.body, err = io.ReadAll(resp.Body)
		return strconv.Itoa(got.status) == wanted(args[1:]), err
	})
	if got.status == 0 && err != nil {
		return err
	}
	return show(ts, got, args[1:])
}

func (w *world) begin(ts *testscript.TestScript, args []string) error {
	url, body, result := args[1], bodyOf(ts, args[2]), make(chan answer, 1)
	w.calls[args[0]] = result
	go func() {
		defer close(result)
		status, body, err := post(w.client, url, body, nil)
		result <- answer{status, body, err}
	}()
	return nil
}

func (w *world) await(ts *testscript.TestScript, args []string) error {
	return show(ts, <-w.calls[args[0]], args[1:])
}

// exits is exec for a program whose exit code matters.
func (w *world) exits(ts *testscript.TestScript, args []string) error {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		return err
	}
	if strconv.Itoa(code) != args[0] {
		return fmt.Errorf("exit code %d, want %s", code, args[0])
	}
	return nil
}

var pruneID = regexp.MustCompile(`prune_id=(prn_[0-9a-z]{26})\b`)

func (w *world) pruneID(ts *testscript.TestScript, args []string) error {
	ids := pruneID.FindAllStringSubmatch(ts.ReadFile("stdout"), -1)
	if len(ids) != 1 {
		return fmt.Errorf("%d ids in stdout, want one", len(ids))
	}
	ts.Setenv(args[0], ids[0][1])
	return nil
}

func (w *world) bearer(ts *testscript.TestScript, args []string) error {
	ts.Setenv(args[0], "Authorization: Bearer "+strings.TrimSpace(ts.ReadFile(args[1])))
	return nil
}

func headerOf(args []string) (http.Header, []string, error) {
	header := http.Header{}
	for args[0] == "-H" {
		name, value, ok := strings.Cut(args[1], ": ")
		if !ok || len(args) < 3 {
			return nil, nil, errors.New(`-H wants "Name: value"`)
		}
		header.Set(name, value)
		args = args[2:]
	}
	return header, args, nil
}

// bodyOf is a body written out, or that of a file.
func bodyOf(ts *testscript.TestScript, arg string) string {
	if info, err := os.Stat(ts.MkAbs(arg)); err == nil && info.Mode().IsRegular() {
		return ts.ReadFile(arg)
	}
	return arg
}

func wanted(args []string) string {
	if len(args) == 0 {
		return "200"
	}
	return args[0]
}

// show makes an answer stdout, its last line ended.
func show(ts *testscript.TestScript, got answer, want []string) error {
	if got.err != nil {
		return got.err
	}
	text := string(got.body)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if _, err := io.WriteString(ts.Stdout(), text); err != nil {
		return err
	}
	if strconv.Itoa(got.status) != wanted(want) {
		return fmt.Errorf("HTTP %d, want %s: %.300s", got.status, wanted(want), text)
	}
	return nil
}
