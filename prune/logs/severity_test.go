package logs

import (
	"testing"
)

func cleaned(line string) *lineReader {
	r := &lineReader{}
	r.readLine(line)
	return r
}

func TestSeverity(t *testing.T) {
	for line, want := range map[string]float32{
		"all went well":                       0,
		"Error: disk full":                    wordBad,
		"java.lang.NullPointerException":      wordDire,
		"\x1b[31mFAILED\x1b[0m":               wordBad,
		"0 errors, 0 failures":                0,
		"10 errors":                           wordBad,
		"1.0 errors":                          wordBad,
		"Failures: 0, Errors: 0":              0,
		"Failures: 1, Errors: 0":              wordBad,
		"no errors":                           wordHint,
		"err=nil status=200":                  0,
		`{"level":"info","error":null}`:       0,
		`{"level":"info","error":""}`:         0,
		`{"level":"error","error":"refused"}`: wordBad,
		"Compiling error-chain v0.12.0":       wordBad * wordPart,
		"cp lib/errors/x.js out":              wordBad * wordPart,
		"DEBUG retry after error":             (wordBad + wordMore) * wordLow,
		"warning: unused variable":            wordHint,
		"error: expected a name":              wordBad + wordMore,
		"❌ one test":                          wordBad,
		"连接失败":                                wordBad,
		"échec de la connexion":               wordBad,
		"mirror of the terrace":               0,
	} {
		if got := severity(cleaned(line).line); got != want {
			t.Errorf("severity(%q) = %v, want %v", line, got, want)
		}
	}
}

func TestClassifyRole(t *testing.T) {
	for line, want := range map[string]logRole{
		"":                                    roleBlank,
		"-----------":                         roleBlank,
		"\x1b[1A[=====>   ] 50%":              roleBlank,
		"      ^~~~":                          roleContinuation,
		"    at f (a.js:1:2)":                 roleContinuation,
		"at first it worked":                  rolePlain,
		"70 |     let x = 1":                  roleContinuation,
		"... 12 more":                         roleContinuation,
		"=== RUN   TestA":                     roleTestStart,
		"=== FAILURES ===":                    rolePlain,
		"--- FAIL: TestA (0.00s)":             roleTestFail,
		"    --- PASS: TestA/b (0.00s)":       rolePass,
		"not ok 3 - reads":                    roleTestFail,
		"ok 3 - reads":                        rolePass,
		"okay then":                           rolePlain,
		"✓ handles errors":                    rolePass,
		"test net::error ... ok":              rolePass,
		"a.T > reads SKIPPED":                 rolePass,
		"exited with code 0":                  roleCommandOK,
		"The command \"x\" exited with 127.":  roleCommandFail,
		"Process completed with exit code 1.": roleCommandFail,
		"exit status 2":                       roleCommandFail,
		"existing 12 files":                   rolePlain,
		"make[1]: *** [all] Error 2":          roleCommandFail,
		"npm ERR! errno 1":                    roleCommandFail,
		"FAIL\texample.com/a\t0.1s":           roleCommandFail,
		"$ make all":                          roleCommand,
		"travis_fold:start:git\r\x1b[0K$ git": roleFoldStart,
		"travis_fold:end:git\r\x1b[0K":        roleFoldEnd,
		"##[group]Run make":                   roleFoldStart,
		"::endgroup::":                        roleFoldEnd,
		"section_start:1:build\r\x1b[0KBuild": roleFoldStart,
		"travis_time:end:1:start=1\rThe command \"x\" exited with 1.": roleCommandFail,
	} {
		if got := cleaned(line).classifyRole(); got != want {
			t.Errorf("role of %q = %d, want %d", line, got, want)
		}
	}
}

func TestHasSourceLocation(t *testing.T) {
	for line, want := range map[string]bool{
		"src/a.go:12: x":        true,
		"a.py(12): x":           true,
		"at t/x.t line 12.":     true,
		"10:00:12 all is well":  false,
		"http://localhost:8080": false,
		"v1.2:3":                false,
	} {
		if got := hasSourceLocation(cleaned(line).line); got != want {
			t.Errorf("location in %q: %v", line, got)
		}
	}
}

func TestLongLinesAreReadAtBothEnds(t *testing.T) {
	long := make([]byte, 1<<20)
	for i := range long {
		long[i] = 'x'
	}
	r := cleaned(string(long) + " exited with 3")
	if r.classifyRole() != roleCommandFail || len(r.line) > maxScan+1 {
		t.Errorf("role %d of %d bytes", r.classifyRole(), len(r.line))
	}
}
