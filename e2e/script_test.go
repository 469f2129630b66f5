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

	"github.com/ctxgate/ctxgate/internal/testkit/process"
	"github.com/ctxgate/ctxgate/internal/testkit/wait"
)

// TestScripts runs testdata/*.txtar. Commands in addition to testscript's own:
//
//	upstream NAME MODE [ARGUMENT]     a server; $NAME is its URL (modes: fakeserver_test.go, and
//	                                  refuse, an address without a listener)
//	held NAME N, release NAME         wait until a hold server has N calls; release them
//	freeport NAME                     $NAME is an unused address
//	expand FILE...                    replace $NAME in files
//	serve NAME [VAR=VALUE...] [ARGS]  a gateway; $NAME and ${NAME}_ADMIN are its URLs, NAME.log
//	                                  its stderr
//	signal NAME TERM|KILL             to a gateway
//	exited NAME CODE                  wait for a gateway's exit; -1 after a signal
//	post [-H HEADER]… URL BODY|FILE [STATUS]  the reply is stdout; status 200 by default
//	get [-H HEADER]… URL [STATUS]      the same; repeats until the status is right
//	begin NAME URL BODY, await NAME [STATUS]  post in two steps
//	exits CODE PROGRAM [ARGS]         exec with this exit code
//	pruneid NAME                      $NAME is the one prune_id in stdout
//	bearer NAME FILE                  $NAME is the header for the token in a file
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata",
		UpdateScripts:      *update,
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			client, done := newClient()
			w := &scriptState{client: client, upstreams: map[string]*fakeServer{}, gateways: map[string]*testGateway{}, calls: map[string]chan httpReply{}}
			env.Values[scriptStateKey{}] = w
			env.Defer(func() { w.stopAll(); done() })
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"upstream": scriptCommand(2, 3, (*scriptState).cmdUpstream),
			"held":     scriptCommand(2, 2, (*scriptState).cmdHeld),
			"release":  scriptCommand(1, 1, (*scriptState).cmdRelease),
			"freeport": scriptCommand(1, 1, (*scriptState).cmdFreeport),
			"expand":   scriptCommand(1, 9, (*scriptState).cmdExpand),
			"serve":    scriptCommand(1, 9, (*scriptState).cmdServe),
			"signal":   scriptCommand(2, 2, (*scriptState).cmdSignal),
			"exited":   scriptCommand(2, 2, (*scriptState).cmdExited),
			"post":     scriptCommand(2, 7, (*scriptState).cmdPost),
			"get":      scriptCommand(1, 6, (*scriptState).cmdGet),
			"begin":    scriptCommand(3, 3, (*scriptState).cmdBegin),
			"await":    scriptCommand(1, 2, (*scriptState).cmdAwait),
			"exits":    scriptCommand(2, 19, (*scriptState).cmdExits),
			"pruneid":  scriptCommand(1, 1, (*scriptState).cmdPruneID),
			"bearer":   scriptCommand(2, 2, (*scriptState).cmdBearer),
		},
	})
}

type scriptStateKey struct{}

// scriptState is what a script has started.
type scriptState struct {
	client    *http.Client
	upstreams map[string]*fakeServer
	gateways  map[string]*testGateway
	calls     map[string]chan httpReply
}

type httpReply struct {
	status int
	body   []byte
	err    error
}

// stopAll stops the gateways first, so that no call is in flight when the servers stop.
func (w *scriptState) stopAll() {
	for _, g := range w.gateways {
		g.Kill()
	}
	for _, u := range w.upstreams {
		u.close()
	}
	for _, c := range w.calls {
		<-c
	}
}

func scriptCommand(least, most int, do func(*scriptState, *testscript.TestScript, []string) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < least || len(args) > most {
			ts.Fatalf("wrong arguments; see TestScripts")
		}
		ts.Check(do(ts.Value(scriptStateKey{}).(*scriptState), ts, args))
	}
}

func (w *scriptState) cmdUpstream(ts *testscript.TestScript, args []string) error {
	name, kind := args[0], args[1]
	if kind == "refuse" {
		address, err := process.FreeAddress()
		ts.Setenv(name, "http://"+address)
		return err
	}
	prepare, ok := handlerTable[kind]
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
	u, err := startFakeServer(m)
	if err != nil {
		return err
	}
	w.upstreams[name] = u
	ts.Setenv(name, u.url)
	return nil
}

func (w *scriptState) cmdHeld(_ *testscript.TestScript, args []string) error {
	return wait.Until(startLimit, "the number of held calls did not match", func() (bool, error) {
		return strconv.FormatInt(w.upstreams[args[0]].heldCount.Load(), 10) == args[1], nil
	})
}

func (w *scriptState) cmdRelease(_ *testscript.TestScript, args []string) error {
	w.upstreams[args[0]].release()
	return nil
}

func (w *scriptState) cmdFreeport(ts *testscript.TestScript, args []string) error {
	address, err := process.FreeAddress()
	ts.Setenv(args[0], address)
	return err
}

func (w *scriptState) cmdExpand(ts *testscript.TestScript, args []string) error {
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		if err := os.WriteFile(ts.MkAbs(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (w *scriptState) cmdServe(ts *testscript.TestScript, args []string) error {
	name, args := args[0], args[1:]
	env := []string{"HOME=" + ts.Getenv("HOME"), "PATH=" + ts.Getenv("PATH")}
	for len(args) > 0 && strings.Contains(args[0], "=") {
		env, args = append(env, args[0]), args[1:]
	}
	g, err := startGateway(ts.MkAbs("."), ts.MkAbs(name+".log"), env, args...)
	if err != nil {
		return err
	}
	w.gateways[name] = g
	ts.Setenv(name, g.URL)
	ts.Setenv(name+"_ADMIN", g.AdminURL)
	return nil
}

func (w *scriptState) cmdSignal(_ *testscript.TestScript, args []string) error {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "KILL": os.Kill}
	return w.gateways[args[0]].Signal(signals[args[1]])
}

func (w *scriptState) cmdExited(_ *testscript.TestScript, args []string) error {
	code, err := w.gateways[args[0]].ExitCode(exitLimit)
	if err == nil && strconv.Itoa(code) != args[1] {
		err = fmt.Errorf("exit code %d, want %s", code, args[1])
	}
	return err
}

func (w *scriptState) cmdPost(ts *testscript.TestScript, args []string) error {
	header, args, err := parseHeaders(args)
	if err != nil {
		return err
	}
	status, body, err := post(w.client, args[0], requestBody(ts, args[1]), header)
	return printReply(ts, httpReply{status, body, err}, args[2:])
}

func (w *scriptState) cmdGet(ts *testscript.TestScript, args []string) error {
	header, args, err := parseHeaders(args)
	if err != nil {
		return err
	}
	var got httpReply
	err = wait.Until(startLimit, "the status did not match", func() (bool, error) {
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
		return strconv.Itoa(got.status) == wantedStatus(args[1:]), err
	})
	if got.status == 0 && err != nil {
		return err
	}
	return printReply(ts, got, args[1:])
}

func (w *scriptState) cmdBegin(ts *testscript.TestScript, args []string) error {
	url, body, result := args[1], requestBody(ts, args[2]), make(chan httpReply, 1)
	w.calls[args[0]] = result
	go func() {
		defer close(result)
		status, body, err := post(w.client, url, body, nil)
		result <- httpReply{status, body, err}
	}()
	return nil
}

func (w *scriptState) cmdAwait(ts *testscript.TestScript, args []string) error {
	return printReply(ts, <-w.calls[args[0]], args[1:])
}

// cmdExits runs a program and compares its exit code.
func (w *scriptState) cmdExits(ts *testscript.TestScript, args []string) error {
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

var pruneIDPattern = regexp.MustCompile(`prune_id=(prn_[0-9a-z]{26})\b`)

func (w *scriptState) cmdPruneID(ts *testscript.TestScript, args []string) error {
	ids := pruneIDPattern.FindAllStringSubmatch(ts.ReadFile("stdout"), -1)
	if len(ids) != 1 {
		return fmt.Errorf("%d ids in stdout, want one", len(ids))
	}
	ts.Setenv(args[0], ids[0][1])
	return nil
}

func (w *scriptState) cmdBearer(ts *testscript.TestScript, args []string) error {
	ts.Setenv(args[0], "Authorization: Bearer "+strings.TrimSpace(ts.ReadFile(args[1])))
	return nil
}

func parseHeaders(args []string) (http.Header, []string, error) {
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

// requestBody returns the argument, or the content of the file that it names.
func requestBody(ts *testscript.TestScript, arg string) string {
	if info, err := os.Stat(ts.MkAbs(arg)); err == nil && info.Mode().IsRegular() {
		return ts.ReadFile(arg)
	}
	return arg
}

func wantedStatus(args []string) string {
	if len(args) == 0 {
		return "200"
	}
	return args[0]
}

// printReply writes a reply to stdout, with a final newline, and checks its status.
func printReply(ts *testscript.TestScript, got httpReply, want []string) error {
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
	if strconv.Itoa(got.status) != wantedStatus(want) {
		return fmt.Errorf("HTTP %d, want %s: %.300s", got.status, wantedStatus(want), text)
	}
	return nil
}
