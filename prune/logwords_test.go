package prune

import "testing"

func cleaned(line string) *logReader {
	r := &logReader{}
	r.read(line)
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

func TestLogRole(t *testing.T) {
	for line, want := range map[string]logRole{
		"":                                    roleBlank,
		"-----------":                         roleBlank,
		"\x1b[1A[=====>   ] 50%":              roleBlank,
		"      ^~~~":                          roleMore,
		"    at f (a.js:1:2)":                 roleMore,
		"at first it worked":                  rolePlain,
		"70 |     let x = 1":                  roleMore,
		"... 12 more":                         roleMore,
		"=== RUN   TestA":                     roleBegin,
		"=== FAILURES ===":                    rolePlain,
		"--- FAIL: TestA (0.00s)":             roleFail,
		"    --- PASS: TestA/b (0.00s)":       rolePass,
		"not ok 3 - reads":                    roleFail,
		"ok 3 - reads":                        rolePass,
		"okay then":                           rolePlain,
		"✓ handles errors":                    rolePass,
		"test net::error ... ok":              rolePass,
		"a.T > reads SKIPPED":                 rolePass,
		"exited with code 0":                  roleFine,
		"The command \"x\" exited with 127.":  roleVerdict,
		"Process completed with exit code 1.": roleVerdict,
		"exit status 2":                       roleVerdict,
		"existing 12 files":                   rolePlain,
		"make[1]: *** [all] Error 2":          roleVerdict,
		"npm ERR! errno 1":                    roleVerdict,
		"FAIL\texample.com/a\t0.1s":           roleVerdict,
		"$ make all":                          roleCommand,
		"travis_fold:start:git\r\x1b[0K$ git": roleOpen,
		"travis_fold:end:git\r\x1b[0K":        roleClose,
		"##[group]Run make":                   roleOpen,
		"::endgroup::":                        roleClose,
		"section_start:1:build\r\x1b[0KBuild": roleOpen,
		"travis_time:end:1:start=1\rThe command \"x\" exited with 1.": roleVerdict,
	} {
		if got := cleaned(line).role(); got != want {
			t.Errorf("role of %q = %d, want %d", line, got, want)
		}
	}
}

func TestHasPlace(t *testing.T) {
	for line, want := range map[string]bool{
		"src/a.go:12: x":        true,
		"a.py(12): x":           true,
		"at t/x.t line 12.":     true,
		"10:00:12 all is well":  false,
		"http://localhost:8080": false,
		"v1.2:3":                false,
	} {
		if got := hasPlace(cleaned(line).line); got != want {
			t.Errorf("place in %q: %v", line, got)
		}
	}
}

func TestReadLong(t *testing.T) {
	long := make([]byte, 1<<20)
	for i := range long {
		long[i] = 'x'
	}
	r := cleaned(string(long) + " exited with 3")
	if r.role() != roleVerdict || len(r.line) > maxScan+1 {
		t.Errorf("role %d of %d bytes", r.role(), len(r.line))
	}
}
